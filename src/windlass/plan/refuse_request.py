"""What the scheduler would refuse, or accept and never start: limits, types, nodes, accounts. Pure."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from typing import Any

from windlass.counted import counted
from windlass.durations import spell_duration
from windlass.errors import Problem
from windlass.model import Plan, Request
from windlass.plan.place import make_problem
from windlass.site.cluster import Cluster, GpuType, Node, Partition
from windlass.slurm.options import VALUES, find_options, option_name

# Options of sbatch that would take the array from under us.
_OURS = ("array", "comment", "help", "parsable", "test-only", "usage", "version", "wait", "wrap")
_USUAL_CPUS, _USUAL_GPUS = 256, 8  # few nodes anywhere have more
_ON_TOP_S = 300.0  # what a job has beyond its trials: setup before the first, a notice after the last
# Options that say what Windlass works out, and its own words for them.
_WORDS = {
    "time": "needs: {time: …}",
    "cpus-per-task": "needs: {cpus: …}",
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), "needs: {memory: …}"),
    **dict.fromkeys(("gres", "gpus", "gpus-per-node", "gpus-per-task"), "needs: {gpus: …, gpu_type: …}"),
    "nodes": "slurm: {nodes: …}",
}


class Case:
    """A request and the cluster it is made to. The user's own options of sbatch have the last word."""

    def __init__(self, plan: Plan, request: Request, cluster: Cluster, *, interactive: bool = False) -> None:
        self.plan, self.request, self.cluster = plan, request, cluster
        self.interactive = interactive
        self.account = self._said("account", request.account)
        self.qos = self._said("qos", request.qos)
        named = self._said("partition", request.partition)
        self.partition_names = tuple(name.strip() for name in named.split(",")) if named else ()
        # Where the site chooses the partition itself, its default one tells nothing.
        names = self.partition_names or ((None,) if cluster.name_partition else ())
        known = [cluster.partition(name) for name in names]
        self.partitions: tuple[Partition, ...] = tuple(partition for partition in known if partition is not None)

    def _said(self, name: str, value: str | None) -> str | None:
        said: Any = self.request.options.get(name)
        return value if said is None or isinstance(said, bool) else str(said)

    def nodes(self) -> tuple[Node, ...]:
        if not self.partitions:
            return self.cluster.nodes
        names = {partition.name for partition in self.partitions}
        return tuple(node for node in self.cluster.nodes if names & set(node.partitions))

    @property
    def where(self) -> str:
        names = ", ".join(partition.name for partition in self.partitions)
        return f"partition {names}" if names else self.cluster.name

    def according_to(self, field: str) -> str:
        """Names the profile behind a fact where the scheduler could not be asked: profiles get old."""
        source = self.cluster.sources.get(field)
        return "" if self.cluster.live or not source else f", according to {source}"

    def extend_profile(self, table: str) -> str:
        """What to do where a profile does not know of something that the cluster has by now."""
        if self.cluster.live or not self.cluster.sources:
            return ""
        return f"if it is there by now, add {table} to ~/.config/windlass/sites/{self.cluster.profile}.toml"

    def problem(self, key: str, message: str, value: str = "", more: str = "") -> Problem:
        return make_problem(self.plan, key, message, value, more)


def find_request_problems(case: Case) -> Iterator[Problem]:
    for find in (_options, _partitions, _time, _gpu_type, _gpus_per_job, _sizes, _nodes, _account, _qos, _agents):
        yield from find(case)


def find_request_warnings(case: Case) -> Iterator[str]:
    yield from _untyped(case)
    yield from _grace(case)
    yield from _unknown_sizes(case)
    for name in case.request.options:
        word = _WORDS.get(option_name(name))
        if word is not None:
            yield f"--{name} goes to sbatch as it is, unchecked, and the plan does not know of it; `{word}` does"
    away = find_nodes_away(case)
    if away:
        names = ", ".join(node.name for node in away[:5])
        reason = next((f": {node.reason}" for node in away if node.reason), "")
        yield f"nodes that fit are out of service now ({names}{reason}), too few are left; jobs wait for them"


def _unknown_sizes(case: Case) -> Iterator[str]:
    """Unusually large jobs for a cluster of which the profile does not tell how large its nodes are."""
    request, chosen = case.request, case.cluster.gpu(case.request.gpu_type)
    if case.nodes():
        return
    sizes = [counted(request.cpus, "core")] if request.cpus > _USUAL_CPUS else []
    if request.gpus > _USUAL_GPUS and not (chosen is not None and chosen.per_node):
        sizes.append(_say_gpus(request))
    if sizes:
        yield (
            f"jobs ask for {' and '.join(sizes)} on a node; whether {case.cluster.name} has such nodes was not "
            "checked, because its profile does not say how large they are"
        )


def _grace(case: Case) -> Iterator[str]:
    """A grace that was given is compared with what the cluster leaves; the default one just adapts to it."""
    grace, left_s = case.plan.settings["grace_s"], case.plan.end_grace_s
    if left_s is not None and left_s < grace.value and grace.source != "default":
        yield (
            f"`grace` is {spell_duration(grace.value)}, but {case.cluster.name} kills a job "
            f"{case.cluster.kill_wait_s} s after it tells it to end (KillWait): at scancel and preemption a trial has "
            f"{left_s:g} s to stop"
        )


def find_nodes_away(case: Case) -> list[Node]:
    """Nodes out of service without which no job can start; empty where enough others fit."""
    fitting = [node for node in case.nodes() if fits(case, node)]
    away = [node for node in fitting if not node.usable]
    return away if len(fitting) - len(away) < case.request.nodes <= len(fitting) else []


# -- what was asked for


def _options(case: Case) -> Iterator[Problem]:
    for name in case.request.options:
        found = find_options(name)
        if name in _OURS:
            yield case.problem("options", f"--{name} is not for you to say: Windlass needs it", "", f"leave {name} out")
        elif not found:
            close = closest(name, VALUES)
            # A site's own plugins may add options; only what looks like a slip is refused.
            if close:
                yield case.problem("options", f"sbatch has no option --{name}", "", f"did you mean --{close}?")


def _partitions(case: Case) -> Iterator[Problem]:
    known = [partition.name for partition in case.cluster.partitions]
    if not known:
        return
    for name in case.partition_names:
        partition = case.cluster.partition(name)
        if partition is None:
            yield case.problem(
                "partition",
                f"there is no partition {name!r}; there are: {', '.join(known)}{case.according_to('partitions')}",
                closest(name, known) or _best_partition(case) or known[0],
                case.extend_profile(f"[partition.{name}]"),
            )
        elif not partition.up:
            yield case.problem(
                "partition", f"partition {name} is down: jobs would wait there for ever", _best_partition(case)
            )


def _best_partition(case: Case) -> str:
    """A partition that would take this request, or nothing."""
    return next((partition.name for partition in case.cluster.partitions if takes(case, partition)), "")


def takes(case: Case, partition: Partition) -> bool:
    """Whether jobs of this kind could start in that partition, as far as is known."""
    limit_s = case.cluster.longest_of([partition])
    return (
        partition.up
        and (limit_s is None or case.request.time_s <= limit_s)
        and _may_use(partition, case.account or case.cluster.default_account)
        and (
            not case.cluster.nodes
            or any(fits(case, node) for node in case.cluster.nodes if partition.name in node.partitions)
        )
    )


def _may_use(partition: Partition, account: str | None) -> bool:
    if account is None:
        return True
    return account not in partition.deny_accounts and (
        not partition.allow_accounts or _is_among(account, partition.allow_accounts)
    )


def _is_among(account: str, accounts: Iterable[str]) -> bool:
    """Slurm does not tell case apart, and some sites add _cpu or _gpu to what users write."""
    wanted = account.lower()
    return any(name.lower() in (wanted, f"{wanted}_cpu", f"{wanted}_gpu") for name in accounts)


def _as_written(accounts: tuple[str, ...]) -> tuple[str, ...]:
    """Accounts as users write them: def-prof where the scheduler has def-prof_cpu and def-prof_gpu."""
    pairs = {name.removesuffix("_cpu") for name in accounts if name.removesuffix("_cpu") + "_gpu" in accounts}
    bare = (next((pair for pair in pairs if name in (f"{pair}_cpu", f"{pair}_gpu")), name) for name in accounts)
    return tuple(dict.fromkeys(bare))


def _time(case: Case) -> Iterator[Problem]:
    limits: list[tuple[float, str]] = []
    cluster = case.cluster
    longest_s = cluster.longest_of(case.partitions) if case.partitions else cluster.longest_time_s(None)
    if longest_s is not None:
        limits.append((longest_s, case.where))
    qos = next((qos for qos in case.cluster.qos if qos.name == case.qos), None)
    if qos is not None and qos.max_time_s is not None:
        limits.append((qos.max_time_s, f"QOS {qos.name}"))
    for limit_s, who in limits:
        if case.request.time_s > limit_s > 0:
            limit = spell_duration(limit_s)
            parts = math.ceil(min(case.request.time_s, case.plan.settings["time_s"].value or math.inf) / limit_s)
            fits_s = limit_s - _ON_TOP_S if limit_s > 2 * _ON_TOP_S else limit_s
            other = "" if who.startswith("QOS") else _best_partition(case)
            cures = [f"`--partition {other}`"] if other else []
            if not case.interactive:
                cures.append(
                    f"save checkpoints: with `checkpoint:` it becomes {parts} jobs of {limit}, one after another"
                )
            yield case.problem(
                "time_s",
                f"jobs of {spell_duration(case.request.time_s)} never start: {who} allows {limit}",
                limit if case.interactive else spell_duration(fits_s),
                "; or ".join(cures),
            )


def _gpu_type(case: Case) -> Iterator[Problem]:
    request, cluster = case.request, case.cluster
    if not request.gpus or not cluster.gpus:
        return
    chosen = cluster.gpu(request.gpu_type) if request.gpu_type else None
    if request.gpu_type and chosen is None:
        names = [gpu.name for gpu in cluster.gpus if gpu.name]
        yield case.problem(
            "gpu_type",
            f"{cluster.name} has no GPUs of type {request.gpu_type!r}; there are: {list_gpus(cluster.gpus)}"
            + case.according_to("gpus"),
            closest(request.gpu_type, names) or (names[0] if names else ""),
            case.extend_profile(f"[gpu.{request.gpu_type}]") if names else "leave the type out",
        )
        return
    need_mb = _value(case.plan, "gpu_memory_mb")
    enough = [gpu for gpu in cluster.gpus if gpu.memory_mb and gpu.memory_mb >= (need_mb or 0)]
    # Jobs that name no type get one of any type.
    most_mb = [gpu.memory_mb for gpu in (cluster.gpus if chosen is None else (chosen,))]
    if need_mb and all(size and need_mb > size for size in most_mb):
        who = f"a {chosen.name}" if chosen is not None else f"no GPU of {cluster.name}"
        has = f"has {chosen.memory_mb} MB" if chosen is not None else f"has more than {max(filter(None, most_mb))} MB"
        yield case.problem(
            "gpu_memory_mb",
            f"a trial needs {need_mb} MB of GPU memory, {who} {has}{case.according_to('gpus')}",
            "",
            f"types that have it: {list_gpus(enough)}" if enough else f"no type has it: {list_gpus(cluster.gpus)}",
        )


# -- what nodes have


def _most_gpus(nodes: Iterable[Node], gpu_type: str) -> int:
    return max((node.gpus.get(gpu_type, 0) if gpu_type else sum(node.gpus.values()) for node in nodes), default=0)


def fits(case: Case, node: Node) -> bool:
    """Whether an empty node of this kind carries one job's part."""
    request = case.request
    return (
        request.cpus <= node.cpus
        and request.memory_mb <= node.memory_mb
        and _most_gpus([node], request.gpu_type) >= request.gpus
    )


def _gpus_per_job(case: Case) -> Iterator[Problem]:
    """A job must have the GPUs of a trial: the trial would get fewer, and not know."""
    need, of_job = _value(case.plan, "gpus") or 0, _value(case.plan, "gpus_per_job")
    if of_job is not None and need > of_job:
        message = f"a trial needs {counted(need, 'GPU')}, and a job would have {of_job}"
        yield case.problem("gpus_per_job", message, f"{need:g}")


def _sizes(case: Case) -> Iterator[Problem]:
    request, nodes = case.request, case.nodes()
    found = [*_gpu_count(case, nodes), *_cores_and_memory(case, nodes)]
    yield from found
    unknown = request.gpu_type and case.cluster.gpus and case.cluster.gpu(request.gpu_type) is None
    if nodes and not found and not unknown and not any(fits(case, node) for node in nodes):
        with_gpus = [node for node in nodes if _most_gpus([node], request.gpu_type) >= request.gpus]
        best = max(with_gpus or nodes, key=lambda node: (node.memory_mb, node.cpus))
        asked = f"{counted(request.cpus, 'core')}, {request.memory_mb} MB"
        asked += f" and {_say_gpus(request)}" if request.gpus else ""
        has = f"{counted(best.cpus, 'core')}, {best.memory_mb} MB"
        yield case.problem(
            "memory_mb",
            f"no node of {case.where} has {asked} at once; {best.name} has {has}",
            "",
            "ask for less, or for fewer slots",
        )


def _gpu_count(case: Case, nodes: tuple[Node, ...]) -> Iterator[Problem]:
    request, cluster = case.request, case.cluster
    chosen = cluster.gpu(request.gpu_type)
    if not request.gpus or (request.gpu_type and chosen is None and cluster.gpus):
        return
    if nodes:
        most = _most_gpus(nodes, request.gpu_type)
    elif chosen is not None and chosen.per_node:
        most = chosen.per_node
    else:
        return
    key = "gpus" if _value(case.plan, "gpus_per_job") is None else "gpus_per_job"
    if not most:
        elsewhere = sorted({name for node in cluster.nodes if _has(node, request) for name in node.partitions})
        yield case.problem(
            "partition" if case.partition_names else key,
            f"{case.where} has no {request.gpu_type + ' ' if request.gpu_type else ''}GPUs",
            "",
            f"partitions that have: {', '.join(elsewhere)}" if elsewhere else "`--gpus 0`",
        )
    elif request.gpus > most:
        yield case.problem(
            key, f"jobs ask for {_say_gpus(request)} on a node, and no node of {case.where} has more than {most}",
            str(most),
        )  # fmt: skip


def _has(node: Node, request: Request) -> bool:
    return _most_gpus([node], request.gpu_type) > 0


def _cores_and_memory(case: Case, nodes: tuple[Node, ...]) -> Iterator[Problem]:
    request = case.request
    if not nodes:
        return
    slots = case.plan.slots
    caps = [partition.max_cpus_per_node for partition in case.partitions]
    cpus = min(max(node.cpus for node in nodes), max((cap for cap in caps if cap), default=1 << 30))
    if request.cpus > cpus:
        each = cpus // slots
        yield case.problem(
            "cpus",
            f"jobs ask for {counted(request.cpus, 'core')} ({counted(slots, 'slot')}), "
            f"and no node of {case.where} gives more than {cpus}",
            str(each) if each else "",
            f"`--slots {max(1, cpus * slots // request.cpus)}`" if slots > 1 else "",
        )
    caps = [partition.max_memory_per_node_mb for partition in case.partitions]
    memory_mb = min(max(node.memory_mb for node in nodes), max((cap for cap in caps if cap), default=1 << 60))
    if request.memory_mb > memory_mb:
        yield case.problem(
            "memory_mb",
            f"jobs ask for {request.memory_mb} MB of memory ({counted(slots, 'slot')}), "
            f"and no node of {case.where} gives more than {memory_mb} MB",
            f"{memory_mb // slots}M",
            f"`--slots {max(1, memory_mb * slots // request.memory_mb)}`" if slots > 1 else "",
        )


def _nodes(case: Case) -> Iterator[Problem]:
    wanted = case.request.nodes
    limits = [partition.max_nodes for partition in case.partitions]
    most = max((limit for limit in limits if limit), default=None) if limits and None not in limits else None
    have = len(case.nodes()) or None
    known = [limit for limit in (most, have) if limit is not None]
    if known and wanted > min(known):
        yield case.problem(
            "nodes",
            f"jobs ask for {counted(wanted, 'node')}, and {case.where} gives at most {min(known)}",
            str(min(known)),
        )


# -- who asks


def _account(case: Case) -> Iterator[Problem]:
    cluster, account = case.cluster, case.account
    accounts = _as_written(cluster.accounts)
    mine = ", ".join(accounts)
    if account is None:
        if cluster.account_rule == "required" and not cluster.default_account:
            which = f"yours: {mine}" if mine else "`sshare -U` lists yours"
            value = accounts[0] if accounts else "def-PROFESSOR"
            yield case.problem("account", f"{cluster.name} wants an account ({which})", value)
        return
    if accounts and not _is_among(account, cluster.accounts):
        yield case.problem(
            "account",
            f"you have no account {account!r} here; yours: {mine}",
            closest(account, accounts) or cluster.default_account or accounts[0],
        )
    elif case.partitions and not any(_may_use(partition, account) for partition in case.partitions):
        allowed = case.partitions[0].allow_accounts
        usable = next((name for name in accounts if _is_among(name, allowed)), "")
        other = "" if usable else _best_partition(case)
        taken = f"; it takes those of: {', '.join(allowed)}" if allowed else ""
        message = f"{case.where} does not take jobs of account {account}{taken}"
        yield case.problem("account", message, usable, f"`--partition {other}`" if other else "")


def _qos(case: Case) -> Iterator[Problem]:
    names = [qos.name for qos in case.cluster.qos]
    if case.qos is None or not names:
        return
    qos = next((qos for qos in case.cluster.qos if qos.name == case.qos), None)
    if qos is None:
        yield case.problem(
            "qos", f"you may not use QOS {case.qos!r}; yours: {', '.join(names)}", closest(case.qos, names) or names[0]
        )
        return
    gpus = case.request.gpus * case.request.nodes
    if qos.max_gpus_per_job is not None and gpus > qos.max_gpus_per_job:
        yield case.problem("gpus", f"jobs ask for {counted(gpus, 'GPU')}, QOS {qos.name} allows {qos.max_gpus_per_job}",
                           str(qos.max_gpus_per_job))  # fmt: skip
    allowed = [partition for partition in case.partitions if not partition.allow_qos or qos.name in partition.allow_qos]
    if case.partitions and not allowed:
        yield case.problem(
            "qos", f"{case.where} does not take QOS {qos.name}; it takes: {', '.join(case.partitions[0].allow_qos)}",
            case.partitions[0].allow_qos[0],
        )  # fmt: skip


def _agents(case: Case) -> Iterator[Problem]:
    plan = case.plan
    if plan.agents > plan.trial_count > 0 and _value(plan, "agents"):
        yield case.problem(
            "agents",
            f"{plan.agents:,} agents for {counted(plan.trial_count, 'trial')}: some would have nothing to do",
            str(math.ceil(plan.trial_count / max(1, plan.slots))),
        )
    limits = [case.cluster.max_submit, *(qos.max_submit for qos in case.cluster.qos if qos.name == case.qos)]
    most = min((limit for limit in limits if limit is not None), default=None)
    if most is not None and plan.agents > most:
        yield case.problem(
            "agents",
            f"{counted(plan.agents, 'agent')}, and you may have {counted(most, 'job')} in the queue",
            str(most),
        )


def _untyped(case: Case) -> Iterator[str]:
    request, cluster = case.request, case.cluster
    if not request.gpus or request.gpu_type or not cluster.typed_gpus:
        return
    present = {name for node in case.nodes() for name in node.gpus} or {gpu.name for gpu in cluster.gpus}
    gpus = [gpu for gpu in cluster.gpus if gpu.name in present]
    if len(gpus) > 1:
        yield f"no GPU type said: jobs may get any of {list_gpus(gpus)}; `--gpu-type {gpus[0].name}` stays with one"


def closest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), list(lower), n=1, cutoff=0.7)
    return lower[found[0]] if found else ""


def list_gpus(gpus: Iterable[GpuType]) -> str:
    return ", ".join(
        (gpu.name or "GPUs without a type") + (f" ({gpu.memory_mb / 1024:.0f} GB)" if gpu.memory_mb else "")
        for gpu in gpus
    )


def _say_gpus(request: Request) -> str:
    return counted(request.gpus, f"{request.gpu_type} GPU".strip())


def _value(plan: Plan, key: str) -> Any:
    setting = plan.settings.get(key)
    return setting.value if setting is not None else None
