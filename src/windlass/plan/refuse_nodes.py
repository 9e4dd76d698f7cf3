"""Whether any node of the cluster is large enough for one job: GPUs, cores, memory, number of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.core.counted import counted
from windlass.core.errors import Problem
from windlass.model import Request
from windlass.plan.request_case import Case, count_gpus, value_of
from windlass.site.cluster import Node


def find_node_problems(case: Case) -> Iterator[Problem]:
    """Yield what is wrong with the size of the jobs, where the nodes of the cluster are known."""
    yield from _find_too_few_gpus(case)
    yield from _find_size_problems(case)
    yield from _find_node_count_problems(case)


def most_gpus(nodes: Iterable[Node], gpu_type: str) -> int:
    return max(
        (node.gpus.get(gpu_type, 0) if gpu_type else sum(node.gpus.values()) for node in nodes),
        default=0,
    )


def fits(case: Case, node: Node) -> bool:
    """Whether an empty node of this kind carries one job's part."""
    request = case.request
    return (
        request.cpus <= node.cpus
        and request.memory_mb <= node.memory_mb
        and most_gpus([node], request.gpu_type) >= request.gpus
    )


def find_nodes_away(case: Case) -> list[Node]:
    """Nodes out of service without which no job can start; empty where enough others fit."""
    fitting = [node for node in case.nodes() if fits(case, node)]
    away = [node for node in fitting if not node.usable]
    return away if len(fitting) - len(away) < case.request.nodes <= len(fitting) else []


def _find_too_few_gpus(case: Case) -> Iterator[Problem]:
    """A job must have the GPUs of a trial: the trial would get fewer, and not know."""
    need, of_job = value_of(case.plan, "gpus") or 0, value_of(case.plan, "gpus_per_job")
    if of_job is not None and need > of_job:
        message = f"a trial needs {counted(need, 'GPU')}, and a job would have {of_job}"
        yield case.problem("gpus_per_job", message, f"{need:g}")


def _find_size_problems(case: Case) -> Iterator[Problem]:
    request, nodes = case.request, case.nodes()
    found = [*_find_gpu_count_problems(case, nodes), *_find_core_and_memory_problems(case, nodes)]
    yield from found
    unknown = request.gpu_type and case.cluster.gpus and case.cluster.gpu(request.gpu_type) is None
    if nodes and not found and not unknown and not any(fits(case, node) for node in nodes):
        with_gpus = [node for node in nodes if most_gpus([node], request.gpu_type) >= request.gpus]
        best = max(with_gpus or nodes, key=lambda node: (node.memory_mb, node.cpus))
        asked = f"{counted(request.cpus, 'core')}, {request.memory_mb} MB"
        asked += f" and {count_gpus(request)}" if request.gpus else ""
        has = f"{counted(best.cpus, 'core')}, {best.memory_mb} MB"
        yield case.problem(
            "memory_mb",
            f"no node of {case.where} has {asked} at once; {best.name} has {has}",
            "",
            "ask for less, or for fewer slots",
        )


def _find_gpu_count_problems(case: Case, nodes: tuple[Node, ...]) -> Iterator[Problem]:
    request, cluster = case.request, case.cluster
    chosen = cluster.gpu(request.gpu_type)
    if not request.gpus or (request.gpu_type and chosen is None and cluster.gpus):
        return
    if nodes:
        most = most_gpus(nodes, request.gpu_type)
    elif chosen is not None and chosen.per_node:
        most = chosen.per_node
    else:
        return
    key = "gpus" if value_of(case.plan, "gpus_per_job") is None else "gpus_per_job"
    if not most:
        elsewhere = sorted(
            {name for node in cluster.nodes if _has_gpus(node, request) for name in node.partitions}
        )
        yield case.problem(
            "partition" if case.partition_names else key,
            f"{case.where} has no {request.gpu_type + ' ' if request.gpu_type else ''}GPUs",
            "",
            f"partitions that have: {', '.join(elsewhere)}" if elsewhere else "`--gpus 0`",
        )
    elif request.gpus > most:
        yield case.problem(
            key, f"jobs ask for {count_gpus(request)} on a node, and no node of {case.where} has more than {most}",
            str(most),
        )  # fmt: skip


def _has_gpus(node: Node, request: Request) -> bool:
    return most_gpus([node], request.gpu_type) > 0


def _find_core_and_memory_problems(case: Case, nodes: tuple[Node, ...]) -> Iterator[Problem]:
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
    memory_mb = min(
        max(node.memory_mb for node in nodes), max((cap for cap in caps if cap), default=1 << 60)
    )
    if request.memory_mb > memory_mb:
        yield case.problem(
            "memory_mb",
            f"jobs ask for {request.memory_mb} MB of memory ({counted(slots, 'slot')}), "
            f"and no node of {case.where} gives more than {memory_mb} MB",
            f"{memory_mb // slots}M",
            f"`--slots {max(1, memory_mb * slots // request.memory_mb)}`" if slots > 1 else "",
        )


def _find_node_count_problems(case: Case) -> Iterator[Problem]:
    wanted = case.request.nodes
    limits = [partition.max_nodes for partition in case.partitions]
    most = (
        max((limit for limit in limits if limit), default=None)
        if limits and None not in limits
        else None
    )
    have = len(case.nodes()) or None
    known = [limit for limit in (most, have) if limit is not None]
    if known and wanted > min(known):
        yield case.problem(
            "nodes",
            f"jobs ask for {counted(wanted, 'node')}, and {case.where} gives at most {min(known)}",
            str(min(known)),
        )
