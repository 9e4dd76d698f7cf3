"""What the jobs of a study ask for: the needs of one trial, times those that share a job, in the site's terms. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.core.ids import slug
from windlass.launchers.base import Needs, load_launcher
from windlass.model import Plan, Request, Setting, Study, Terms
from windlass.plan.agents import Agents, choose_agents, choose_throttle, most_agents
from windlass.plan.capacity import Capacity, JobSize, find_capacity
from windlass.plan.cost import Limits, Prices, Work, find_splits, finish_s
from windlass.plan.draft import Draft
from windlass.plan.evidence import (
    HOST_HEADROOM,
    Evidence,
    Figure,
    find_evidence,
    largest_mix_mb,
    settle,
)
from windlass.plan.layout import Layout, choose_layout, make_terms
from windlass.plan.sharing import OneTrial, Slots, time_at_concurrency
from windlass.site.cluster import Cluster

_DEFAULT_MEMORY_PER_CPU_MB = 2000
_AGENT_MB = 64  # the agent and what watches over it, as Slurm adds them up
_AMPLE_MB = 512  # of trials: then there is room for it in what nobody needs to the last

_RECORD_S = 5.0  # an agent's own time at its end, where the scheduler leaves so much


def _container_options(cluster: Cluster) -> dict[str, Any]:
    options = {
        "runtime": cluster.container_runtime,
        "site_module": cluster.container_module,
        "site_binds": list(cluster.container_binds),
    }
    return {name: value for name, value in options.items() if value}


def plan_slurm(
    study: Study,
    trial_count: int,
    settings: Mapping[str, Setting],
    cluster: Cluster,
    folder: str,
    evidence: Evidence | None = None,
    missing: int | None = None,
) -> Plan:
    """The plan for an array of agents. Nothing is refused here: plan/refuse.py finds what cannot work.

    The jobs are those of the whole study, so that any part of it can be run on the same terms. What it costs and how
    long it takes is of the trials that are `missing` (None: all).
    """
    evidence = evidence or find_evidence(study, settings)
    draft = Draft(evidence.settings, cluster, trial_count, evidence, study.checkpoint is not None)
    draft.warnings += evidence.warnings
    layout = choose_layout(draft)
    one = time_at_concurrency(evidence, evidence.time, layout.concurrency, layout.mode)
    size = _choose_size(draft, layout)
    capacity = find_capacity(draft, size)
    layout = replace(layout, width=layout.width * _count_groups(draft))
    agents = choose_agents(draft, layout.width, one, capacity)
    request = _make_request(draft, study, size, agents, layout.slots.count)
    plan = _fill_plan(draft, study, request, layout, agents, one)
    plan = replace(plan, folder=folder, missing=missing)
    return _with_cost(plan, draft, layout, agents, one, capacity)


def _fill_plan(
    draft: Draft,
    study: Study,
    request: Request,
    layout: Layout,
    agents: Agents,
    one: OneTrial | None,
) -> Plan:
    """Return the plan with all that was chosen, but without its folder and without costs."""
    settings, cluster = draft.settings, draft.cluster
    slots = _slots_of_job(layout.slots, _count_groups(draft))
    longest_s = one.high_s * one.safety if one is not None else None
    pack = None
    if _packs(draft, layout):
        pack = make_terms(layout, study.variants, draft.value("mps"), request.memory_mb)
    return Plan(
        study=study,
        folder="",
        trial_count=draft.trial_count,
        slots=slots.count,
        slots_because=slots.because,
        cpus=request.cpus,
        cpus_per_slot=max(1, request.cpus // layout.slots.count),
        gpus=(),
        agents=agents.count,
        agents_because=agents.because,
        settings=settle(draft.evidence, layout.budgets.other, longest_s),
        launcher="slurm",
        terms=Terms(
            request,
            agents.count,
            slots.count,
            study.workdir,
            cluster.max_array_size,
            settings["patience_s"].value,
            draft.units,
        ),
        elsewhere=True,
        site_name=cluster.title,
        site_asked=cluster.live,
        waves=agents.waves,
        local_scratch=cluster.local_scratch,
        site_options={"container": _container_options(cluster)},
        end_grace_s=end_grace_s(settings["grace_s"].value, cluster.kill_wait_s),
        pack=pack,
        warnings=tuple(draft.warnings),
    )


def end_grace_s(grace_s: float, kill_wait_s: float | None) -> float:
    """How long trials have from TERM to KILL where the scheduler ends their job, `kill_wait_s` after its own TERM.

    The agent is killed then as well. Before that it has to record how its trials ended, and keep what they leave.
    """
    if not kill_wait_s:
        return grace_s
    return min(grace_s, kill_wait_s - min(_RECORD_S, kill_wait_s / 2))


def _choose_size(draft: Draft, layout: Layout) -> JobSize:
    """What each job asks for, but for its time."""
    cpus = _choose_cpus(draft, layout)
    gpu_type = (
        layout.gpu_type.name if layout.gpu_type is not None else draft.untyped_name(layout.gpus)
    )
    return JobSize(
        cpus, _choose_memory(draft, layout, cpus), layout.gpus, gpu_type, _choose_nodes(draft)
    )


def _choose_nodes(draft: Draft) -> int:
    """Nodes of one job: as given, or those of one trial."""
    return int(draft.value("nodes") or draft.value("trial_nodes") or 1)


def _count_groups(draft: Draft) -> int:
    """Into how many groups of nodes a job is divided: trials of several nodes are beside each other in it."""
    nodes = _choose_nodes(draft)
    return max(1, nodes // (draft.value("trial_nodes") or nodes))


def _slots_of_job(a_group: Slots, groups: int) -> Slots:
    if groups == 1:
        return a_group
    return Slots(a_group.count * groups, f"{a_group.because}, on each of {groups} groups of nodes")


def _make_request(
    draft: Draft, study: Study, size: JobSize, agents: Agents, a_node: int
) -> Request:
    """`a_node`: trials that run on a node at a time."""
    cluster = draft.cluster
    needs = Needs(size.cpus, size.gpus, draft.value("processes") or 0, a_node)
    shape = load_launcher(draft.value("launch")).shape(needs, size.nodes)
    return Request(
        job_name=f"{slug(os.path.basename(study.project_dir))}-{study.name}",
        time_s=agents.time_s,
        cpus=shape.tasks * shape.cpus,
        tasks=shape.tasks,
        memory_mb=size.memory_mb,
        gpus=size.gpus,
        gpu_type=size.gpu_type,
        nodes=size.nodes,
        account=_choose_account(draft),
        partition=_choose_partition(draft),
        qos=draft.take("qos"),
        throttle=choose_throttle(draft, agents.count) if draft.units == 1 else 1,
        mail_user=draft.take("mail_user"),
        mail_types=tuple(draft.value("mail_type")) if draft.value("mail_user") else (),
        options=draft.value("options"),
        notice_s=int(min(draft.value("lead_s"), agents.time_s / 4)),
        gpu_form=cluster.gpu_form,
        memory_form=cluster.memory_form,
        shebang=cluster.shebang,
        because=draft.because,
    )


def _packs(draft: Draft, layout: Layout) -> bool:
    """Whether there is anything to tell the agent about sharing; several GPUs a trial are not shared."""
    if layout.gpus:
        return layout.slots.count >= layout.gpus
    return bool(draft.evidence.peaks)


def _with_cost(
    plan: Plan,
    draft: Draft,
    layout: Layout,
    agents: Agents,
    one: OneTrial | None,
    capacity: Capacity,
) -> Plan:
    """What it costs and how long it takes, as far as anybody knows how long a trial takes."""
    assert plan.request is not None
    prices = Prices(plan.request, draft.cluster, layout.gpu_type)
    if plan.missing_count == 0:
        return replace(plan, cost=prices.of(0.0), estimate_s=0.0)
    whole = plan.missing_count == plan.trial_count
    if not whole:
        agents = _for_missing(plan, layout.width, agents, one)
    if one is None or agents.expect_s is None:
        most_s = agents.count * agents.time_s * draft.units
        return replace(plan, cost=prices.of(most_s, at_most=True))
    work = Work(plan.missing_count, layout.width, one)
    cost = prices.of(min(work.jobs_s(agents.count), agents.count * agents.expect_s))
    if draft.units > 1:
        return replace(plan, cost=cost, estimate_s=agents.expect_s)
    most = most_agents(draft, math.ceil(plan.trial_count / layout.width))
    throttle = draft.value("throttle") or draft.cluster.throttle
    wanted = min(agents.count, plan.request.throttle or agents.count)
    limits = Limits(most, draft.limit_s, capacity.at_once(throttle))
    estimate_s, at_once = agents.expect_s, capacity.at_once(wanted)
    if agents.count > at_once:
        estimate_s = finish_s(work, agents.count, agents.waves, agents.time_s, at_once)
    return replace(
        plan,
        cost=cost,
        estimate_s=estimate_s,
        estimate_because=capacity.explain(wanted, agents.count),
        alternatives=find_splits(work, prices, limits, agents.count) if whole else (),
    )


def _for_missing(plan: Plan, width: int, agents: Agents, one: OneTrial | None) -> Agents:
    """The agents for a part of the study: fewer, each with less to do in the time that its job asks for."""
    count = plan.agents_missing
    waves = max(1, math.ceil(plan.missing_count / max(1, width * count)))
    expect_s = agents.expect_s
    if one is not None and expect_s is not None:
        expect_s = min(expect_s, one.expect_s(waves))
    return replace(agents, count=count, waves=waves, expect_s=expect_s)


def _choose_cpus(draft: Draft, layout: Layout) -> int:
    given, slots, gpus = draft.settings["cpus"], layout.slots.count, layout.gpus
    if given.value:
        draft.because["cpus"] = (
            given.source if draft.declared("cpus") else f"{given.source}: {given.value:g} a trial"
        )
        return max(1, math.ceil(float(given.value) * slots))
    share = layout.gpu_type.share_cpus if layout.gpu_type is not None else None
    if gpus and share:
        draft.because["cpus"] = f"a fair share of the node: {share} a GPU"
        return max(slots, share * gpus)
    draft.because["cpus"] = "one a trial"
    return slots


def _choose_memory(draft: Draft, layout: Layout, cpus: int) -> int:
    given, per_gpu = draft.settings["memory_mb"], draft.settings["mem_per_gpu_mb"]
    slots, gpus, peak = layout.slots.count, layout.gpus, draft.evidence.most.memory_mb
    if given.value and (draft.declared("memory_mb") or peak is None):
        draft.because["memory_mb"] = given.source
        given_mb = int(given.value) * slots
        if given_mb >= _AMPLE_MB:
            return given_mb
        draft.because["memory_mb"] += ", and the agent"
        return given_mb + _AGENT_MB
    if gpus and per_gpu.value and (draft.declared("mem_per_gpu_mb") or peak is None):
        draft.because["memory_mb"] = f"{per_gpu.source}: a GPU"
        asked_mb = int(per_gpu.value) * gpus
        return (
            asked_mb
            if draft.declared("mem_per_gpu_mb")
            else int(min(asked_mb, _most_memory_mb(draft, layout)))
        )
    if peak is not None:
        return _measured_memory(draft, layout, peak)
    share_mb = layout.gpu_type.share_memory_mb if layout.gpu_type is not None else None
    if gpus and share_mb:
        draft.because["memory_mb"] = f"a fair share of the node: {share_mb} MB a GPU"
        return share_mb * gpus
    per_cpu_mb, source = _memory_per_cpu(draft)
    draft.because["memory_mb"] = f"{source}: {per_cpu_mb} MB a core"
    return per_cpu_mb * cpus


def _most_memory_mb(draft: Draft, layout: Layout) -> float:
    """What a node has at most that has the job's GPUs: memory that nobody asked for is no reason to refuse a job."""
    name = layout.gpu_type.name if layout.gpu_type is not None else ""
    nodes = [
        node
        for node in draft.nodes()
        if (node.gpus.get(name, 0) if name else sum(node.gpus.values())) >= layout.gpus
    ]
    most_mb = max((node.memory_mb for node in nodes), default=math.inf)
    limit_mb = draft.partition.max_memory_per_node_mb if draft.partition is not None else None
    return min(most_mb, limit_mb or math.inf)


def _measured_memory(draft: Draft, layout: Layout, peak: Figure) -> int:
    """For the trials that may be in the job at a time; of variants, for the largest that fit its GPUs together.

    The head-room of small ones has no room for the agent, which is in the job, too.
    """
    source = peak.source
    devices = max(1, min(layout.gpus, layout.slots.count))
    a_device = math.ceil(layout.slots.count / devices)
    each_mb = (
        largest_mix_mb(layout.budgets, a_device, layout.device.memory_mb if layout.gpus else None)
        or 0
    )
    draft.because["memory_mb"] = f"{source}: {layout.budgets.other.memory_mb} MB a trial"
    if layout.budgets.variants:
        draft.because["memory_mb"] = f"{source}: the largest mix of variants"
    used_mb = min(peak.value * layout.slots.count, each_mb * devices / HOST_HEADROOM)
    least_mb = math.ceil((used_mb + _AGENT_MB) / 100) * 100
    if least_mb > each_mb * devices:
        draft.because["memory_mb"] += ", and the agent"
    return max(least_mb, each_mb * devices)


def _memory_per_cpu(draft: Draft) -> tuple[int, str]:
    partition = draft.partition
    if partition is not None and partition.default_memory_per_cpu_mb:
        return partition.default_memory_per_cpu_mb, "the partition's default"
    nodes = [node for node in draft.nodes() if node.cpus and node.memory_mb]
    if nodes:
        return min(node.memory_mb // node.cpus for node in nodes), "a fair share of the node"
    return _DEFAULT_MEMORY_PER_CPU_MB, "default"


def _choose_account(draft: Draft) -> str | None:
    cluster, given = draft.cluster, draft.settings["account"]
    if cluster.account_rule == "never":
        if given.value and given.source in ("study", "command line"):
            draft.warnings.append(f"{cluster.name} has no accounts; {given.value} is left out")
        return None
    if given.value:
        draft.because["account"] = given.source
        return str(given.value)
    if cluster.default_account:
        draft.because["account"] = "your default account"
    return cluster.default_account


def _choose_partition(draft: Draft) -> str | None:
    cluster, given = draft.cluster, draft.settings["partition"]
    if not cluster.name_partition:
        if given.value and given.source in ("study", "command line"):
            draft.warnings.append(
                f"{cluster.name} chooses partitions itself; {given.value} is left out"
            )
        return None
    if given.value:
        draft.because["partition"] = given.source
        return str(given.value)
    default = cluster.partition(None)
    if default is not None:
        draft.because["partition"] = "the cluster's default"
    return default.name if default is not None else None


def split_agents(agents: int, array_limit: int | None) -> Iterator[tuple[int, int]]:
    """Arrays for so many agents: (number of the first agent, how many). Each array counts from 0 again."""
    most = array_limit or agents
    for first in range(0, agents, max(1, most)):
        yield first, min(most, agents - first)
