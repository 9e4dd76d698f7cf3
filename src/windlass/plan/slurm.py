"""What the jobs of a study ask for: the needs of one trial, times those that share a job, in the site's terms. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.ids import slug
from windlass.model import Plan, Request, Setting, Study, Terms
from windlass.plan.chain import Chain, plan_chain
from windlass.plan.local import Slots
from windlass.plan.place import render_duration
from windlass.site.cluster import Cluster, GpuType, Partition

_MOST_CPU_SLOTS = 8  # of a job without GPUs, unless the user says more
_DEFAULT_TIME_S = 3600
_DEFAULT_MEMORY_PER_CPU_MB = 2000


def plan_slurm(study: Study, trial_count: int, settings: Mapping[str, Setting], cluster: Cluster, folder: str) -> Plan:
    """The plan for an array of agents. Nothing is refused here: plan/refuse.py finds what cannot work."""
    draft = _Draft(settings, cluster, trial_count, study.checkpoint is not None)
    gpus, gpu_type = _choose_gpus(draft)
    slots = _choose_slots(draft, gpus, gpu_type)
    cpus = _choose_cpus(draft, gpus, gpu_type, slots.count)
    memory_mb = _choose_memory(draft, gpus, gpu_type, slots.count, cpus)
    agents, waves, time_s = _choose_agents_and_time(draft, slots.count)
    throttle = _choose_throttle(draft, agents) if draft.units == 1 else 1
    request = Request(
        job_name=f"{slug(os.path.basename(study.project_dir))}-{study.name}",
        time_s=time_s,
        cpus=cpus,
        memory_mb=memory_mb,
        gpus=gpus,
        gpu_type=gpu_type.name if gpu_type is not None else draft.untyped_name(gpus),
        nodes=draft.value("nodes"),
        account=_choose_account(draft),
        partition=_choose_partition(draft),
        qos=draft.take("qos"),
        throttle=throttle,
        mail_user=draft.take("mail_user"),
        mail_types=tuple(draft.value("mail_type")) if draft.value("mail_user") else (),
        options=draft.value("options"),
        notice_s=int(min(draft.value("lead_s"), time_s / 4)),
        gpu_form=cluster.gpu_form,
        memory_form=cluster.memory_form,
        shebang=cluster.shebang,
        because=draft.because,
    )
    return Plan(
        study=study,
        folder=folder,
        trial_count=trial_count,
        slots=slots.count,
        slots_because=slots.because,
        cpus=cpus,
        cpus_per_slot=max(1, cpus // slots.count),
        gpus=(),
        agents=agents,
        settings=settings,
        launcher="slurm",
        terms=Terms(
            request,
            agents,
            slots.count,
            study.workdir,
            cluster.max_array_size,
            settings["patience_s"].value,
            draft.units,
        ),
        site_name=cluster.profile if cluster.profile != "generic" else cluster.name,
        waves=waves,
        local_scratch=cluster.local_scratch,
        warnings=tuple(draft.warnings),
    )


@dataclass
class _Draft:
    """What the choices are made from, and where each came from."""

    settings: Mapping[str, Setting]
    cluster: Cluster
    trial_count: int
    checkpoints: bool = False  # whether trials can go on in another job
    units: int = 1
    because: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def value(self, key: str) -> Any:
        return self.settings[key].value

    def take(self, key: str) -> str | None:
        """A setting that goes into the request as it is."""
        setting = self.settings[key]
        if setting.value is not None:
            self.because[key] = setting.source
        return None if setting.value is None else str(setting.value)

    @property
    def partition(self) -> Partition | None:
        said = self.settings["partition"].value
        if not self.cluster.name_partition:
            return None
        return self.cluster.partition(str(said).split(",")[0] if said else None)

    def untyped_name(self, gpus: int) -> str:
        """A type that the cluster does not know is asked for all the same: refusing says which there are."""
        said = self.settings["gpu_type"].value
        return str(said) if gpus and said and self.cluster.typed_gpus else ""


def _wants_gpu(draft: _Draft) -> bool:
    gpus = draft.settings["gpus"].value
    if gpus is not None:
        return bool(gpus)
    return any(
        draft.settings[key].value is not None and draft.settings[key].source in ("study", "command line")
        for key in ("gpu_memory_mb", "gpu_type", "gpus_per_job", "mem_per_gpu_mb")
    )


def _choose_gpus(draft: _Draft) -> tuple[int, GpuType | None]:
    """How many GPUs a job gets on each node, and of which type; None: whichever there is."""
    if not _wants_gpu(draft):
        return 0, None
    need = draft.settings["gpus"].value or 0
    said = draft.settings["gpus_per_job"]
    count = said.value or max(1, math.ceil(need))
    draft.because["gpus"] = said.source if said.value else draft.settings["gpus"].source
    return count, _choose_gpu_type(draft)


def _choose_gpu_type(draft: _Draft) -> GpuType | None:
    cluster, said = draft.cluster, draft.settings["gpu_type"]
    if not cluster.typed_gpus:
        if said.value and said.source in ("study", "command line"):
            draft.warnings.append(f"{cluster.name} does not tell GPU types apart; {said.value} is left out")
        return GpuType("", memory_mb=cluster.gpus[0].memory_mb if len(cluster.gpus) == 1 else None)
    if said.value:
        draft.because["gpu_type"] = said.source
        return cluster.gpu(said.value)
    names = {name for node in cluster.nodes_of(draft.value("partition")) for name in node.gpus} or {
        gpu.name for gpu in cluster.gpus
    }
    if len(names) == 1:
        draft.because["gpu_type"] = "the only one there is"
        return cluster.gpu(names.pop())
    return None


def _choose_slots(draft: _Draft, gpus: int, gpu_type: GpuType | None) -> Slots:
    said = draft.settings["slots"]
    if said.value:
        return Slots(int(said.value), f"{said.source}: slots {said.value}")
    slots = _gpu_slots(draft, gpus, gpu_type) if gpus else _cpu_slots(draft)
    if draft.trial_count < slots.count:
        return Slots(max(1, draft.trial_count), f"{draft.trial_count} trials in all")
    return slots


def _gpu_slots(draft: _Draft, gpus: int, gpu_type: GpuType | None) -> Slots:
    need, need_mb = draft.settings["gpus"].value, draft.settings["gpu_memory_mb"].value
    if need and need >= 1:
        return Slots(max(1, gpus // int(need)), f"{gpus} GPU(s) a job, {need:g} a trial")
    limits = [Slots(int(1 / need), f"{need:g} of a GPU each")] if need else []
    memory_mb = gpu_type.memory_mb if gpu_type is not None else None
    if need_mb and memory_mb:
        name = gpu_type.name if gpu_type is not None else ""
        limits.append(Slots(memory_mb // need_mb, f"{memory_mb} MB on a {name or 'GPU'}, {need_mb} MB a trial"))
    if not limits:
        because = "one trial a GPU: how many share one best is not known"
        return Slots(gpus, because)
    a_gpu = min(limits, key=lambda limit: limit.count)
    because = a_gpu.because if gpus == 1 else f"{gpus} GPUs a job, {a_gpu.because}"
    return Slots(max(1, a_gpu.count) * gpus, because)


def _cpu_slots(draft: _Draft) -> Slots:
    need = draft.settings["cpus"].value or 1
    cores = max((node.cpus for node in draft.cluster.nodes_of(draft.value("partition"))), default=_MOST_CPU_SLOTS)
    fit = max(1, int(cores // need))
    if fit > _MOST_CPU_SLOTS:
        return Slots(_MOST_CPU_SLOTS, f"{_MOST_CPU_SLOTS} to a job, {need:g} core(s) a trial")
    return Slots(fit, f"{cores} cores on a node, {need:g} a trial")


def _choose_cpus(draft: _Draft, gpus: int, gpu_type: GpuType | None, slots: int) -> int:
    said = draft.settings["cpus"]
    if said.value:
        draft.because["cpus"] = said.source
        return max(1, math.ceil(float(said.value) * slots))
    share = gpu_type.share_cpus if gpu_type is not None else None
    if gpus and share:
        draft.because["cpus"] = f"a fair share of the node: {share} a GPU"
        return max(slots, share * gpus)
    draft.because["cpus"] = "one a trial"
    return slots


def _choose_memory(draft: _Draft, gpus: int, gpu_type: GpuType | None, slots: int, cpus: int) -> int:
    said, per_gpu = draft.settings["memory_mb"], draft.settings["mem_per_gpu_mb"]
    if said.value:
        draft.because["memory_mb"] = said.source
        return int(said.value) * slots
    if gpus and per_gpu.value:
        draft.because["memory_mb"] = f"{per_gpu.source}: a GPU"
        return int(per_gpu.value) * gpus
    share_mb = gpu_type.share_memory_mb if gpu_type is not None else None
    if gpus and share_mb:
        draft.because["memory_mb"] = f"a fair share of the node: {share_mb} MB a GPU"
        return share_mb * gpus
    per_cpu_mb, source = _memory_per_cpu(draft)
    draft.because["memory_mb"] = f"{source}: {per_cpu_mb} MB a core"
    return per_cpu_mb * cpus


def _memory_per_cpu(draft: _Draft) -> tuple[int, str]:
    partition = draft.partition
    if partition is not None and partition.default_memory_per_cpu_mb:
        return partition.default_memory_per_cpu_mb, "the partition's default"
    nodes = [node for node in draft.cluster.nodes_of(draft.value("partition")) if node.cpus and node.memory_mb]
    if nodes:
        return min(node.memory_mb // node.cpus for node in nodes), "a fair share of the node"
    return _DEFAULT_MEMORY_PER_CPU_MB, "default"


def _choose_agents_and_time(draft: _Draft, slots: int) -> tuple[int, int, int]:
    """How many agents, how many trials each slot takes in turn, and how long a job may last."""
    settings, trials = draft.settings, draft.trial_count
    said, time = settings["agents"], settings["time_s"]
    limit_s = draft.cluster.longest_time_s(draft.value("partition"))
    most = _most_agents(draft, math.ceil(trials / slots))
    if time.value is None or time.source == "site":
        # Nobody knows how long a trial takes: few jobs of a usual length, and agents that take what they can.
        job_s = _whole_minutes(min(time.value or _DEFAULT_TIME_S, limit_s or math.inf))
        draft.because["time_s"] = time.source if time.value else "default: nobody said how long a trial takes"
        agents = said.value or min(most, draft.settings["throttle"].value or draft.cluster.throttle)
        return agents, math.ceil(trials / (slots * agents)), job_s
    trial_s = float(time.value)
    if said.value:
        agents = said.value
    else:
        together = max(1, int(min(draft.cluster.min_job_s, limit_s or math.inf) // trial_s))
        agents = max(1, min(most, math.ceil(trials / (slots * together))))
    waves = max(1, math.ceil(trials / (slots * agents)))
    if draft.checkpoints:
        chain = plan_chain(waves * trial_s, draft.value("unit_s"), limit_s)
        if chain is not None:
            return _chain_agents(draft, slots, agents, trial_s)
    elif trial_s > draft.value("unit_s") and (limit_s is None or trial_s <= limit_s):
        parts = math.ceil(trial_s / draft.value("unit_s"))
        draft.warnings.append(
            f"a job of {render_duration(trial_s)} waits long and loses everything when it is cut off; "
            f"with `checkpoint:` it becomes {parts} units of {render_duration(draft.value('unit_s'))}"
        )
    whole_s = waves * trial_s
    draft.because["time_s"] = f"{time.source}: {trial_s:g} s a trial, {waves} in turn"
    if limit_s is not None and whole_s > limit_s >= trial_s:
        draft.warnings.append(
            f"{agents} agents of at most {limit_s:g} s cannot take all {trials} trials; run again for the rest, "
            "or allow more agents"
        )
        whole_s = limit_s
    return agents, waves, _whole_minutes(whole_s)


def _chain_agents(draft: _Draft, slots: int, agents: int, trial_s: float) -> tuple[int, int, int]:
    """As many chains as may run at a time; each is an array of its own, one task after another."""
    limit_s, unit_s = draft.cluster.longest_time_s(draft.value("partition")), draft.value("unit_s")
    one = plan_chain(trial_s, unit_s, limit_s) or Chain(1, _whole_minutes(trial_s))
    agents = min(agents, draft.value("throttle") or draft.cluster.throttle)
    if draft.cluster.max_submit is not None:
        agents = max(1, min(agents, draft.cluster.max_submit // one.units))
    waves = max(1, math.ceil(draft.trial_count / (slots * agents)))
    chain = plan_chain(waves * trial_s, unit_s, limit_s) or one
    most = max(1, draft.cluster.max_submit // agents) if draft.cluster.max_submit is not None else chain.units
    if most < chain.units:
        draft.warnings.append(
            f"you may have {draft.cluster.max_submit} jobs in the queue, and this takes {agents * chain.units}; "
            "run again for the rest"
        )
        chain = replace(chain, units=most)
    draft.units = chain.units
    draft.because["time_s"] = (
        f"{chain.units} units of {render_duration(chain.unit_s)}: {render_duration(trial_s)} a trial, {waves} in turn"
    )
    return agents, waves, chain.unit_s


def _whole_minutes(seconds: float) -> int:
    """Slurm counts in minutes and rounds up."""
    return max(60, math.ceil(seconds / 60) * 60)


def _most_agents(draft: _Draft, wanted: int) -> int:
    limits = (draft.settings["max_jobs"].value, draft.cluster.max_submit, wanted)
    return max(1, min(int(limit) for limit in limits if limit is not None))


def _choose_throttle(draft: _Draft, agents: int) -> int | None:
    said = draft.settings["throttle"]
    draft.because["throttle"] = said.source if said.value else "good manners"
    throttle = said.value or draft.cluster.throttle
    return int(throttle) if throttle < agents else None


def _choose_account(draft: _Draft) -> str | None:
    cluster, said = draft.cluster, draft.settings["account"]
    if cluster.account_rule == "never":
        if said.value and said.source in ("study", "command line"):
            draft.warnings.append(f"{cluster.name} has no accounts; {said.value} is left out")
        return None
    if said.value:
        draft.because["account"] = said.source
        return str(said.value)
    if cluster.default_account:
        draft.because["account"] = "your default account"
    return cluster.default_account


def _choose_partition(draft: _Draft) -> str | None:
    cluster, said = draft.cluster, draft.settings["partition"]
    if not cluster.name_partition:
        if said.value and said.source in ("study", "command line"):
            draft.warnings.append(f"{cluster.name} chooses partitions itself; {said.value} is left out")
        return None
    if said.value:
        draft.because["partition"] = said.source
        return str(said.value)
    default = cluster.partition(None)
    if default is not None:
        draft.because["partition"] = "the cluster's default"
    return default.name if default is not None else None


def split_agents(agents: int, array_limit: int | None) -> Iterator[tuple[int, int]]:
    """Arrays for so many agents: (number of the first agent, how many). Each array counts from 0 again."""
    most = array_limit or agents
    for first in range(0, agents, max(1, most)):
        yield first, min(most, agents - first)
