"""How many jobs of a size could start now: idle devices, cores and memory, and who else waits for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.counted import counted
from windlass.plan.draft import Draft
from windlass.site.cluster import Node


@dataclass(frozen=True)
class JobSize:
    """What one job asks of each of its nodes."""

    cpus: int
    memory_mb: int
    gpus: int = 0
    gpu_type: str = ""  # "": any
    nodes: int = 1


@dataclass(frozen=True)
class Capacity:
    """As the scheduler told it a moment ago."""

    jobs: int | None = None  # that fit on what is idle; None: nobody could be asked
    ahead: int = 0  # jobs of other users that wait for resources in the same partitions
    what: str = "cores"

    @property
    def free(self) -> int | None:
        """How many jobs could start now, if each of those that wait takes the place of one."""
        return None if self.jobs is None else max(0, self.jobs - self.ahead)

    def at_once(self, wanted: int) -> int:
        """How many of so many jobs will run at a time, at least one."""
        return wanted if self.free is None else max(1, min(wanted, self.free))

    def explain(self, wanted: int, count: int) -> str:
        """What an estimate rests on where `wanted` of `count` jobs may run at a time; "" where nothing is known."""
        if self.jobs is None or self.free is None:
            return ""
        idle = (
            f"{self.what} are idle now for {counted(self.jobs, 'job')}"
            if self.jobs
            else f"no {self.what} are idle now"
        )
        others = f", and {counted(self.ahead, 'job')} of others wait for some" if self.ahead else ""
        if self.free == 0:
            when = "once it starts" if count == 1 else "with 1 job at a time, once it starts"
        elif min(self.free, wanted) >= count:
            when = "if it starts at once" if count == 1 else "if all start at once"
        else:
            when = f"with {counted(self.at_once(wanted), 'job')} at a time"
        return f"{when}: {idle}{others}"


def find_capacity(draft: Draft, size: JobSize) -> Capacity:
    """Nodes tell what they have in use only where the scheduler was asked."""
    what = "GPUs" if size.gpus else "cores"
    nodes = draft.nodes(size.gpu_type or None)
    if not draft.cluster.live or not nodes:
        return Capacity(what=what)
    fit = sum(_fit(node, size) for node in nodes if node.usable)
    waiting = draft.cluster.waiting
    names = {name for node in nodes for name in node.partitions}
    wanted = draft.value("partition") or (
        draft.partition.name if draft.partition is not None else ""
    )
    names = set(wanted.split(",")) if wanted else names
    return Capacity(fit // max(1, size.nodes), sum(waiting.get(name, 0) for name in names), what)


def _fit(node: Node, size: JobSize) -> int:
    """How many such jobs the idle part of a node takes."""
    limits = [(node.cpus - node.cpus_used) // max(1, size.cpus)]
    if size.memory_mb and node.memory_mb:
        limits.append((node.memory_mb - node.memory_used_mb) // size.memory_mb)
    if size.gpus:
        names = [size.gpu_type] if size.gpu_type else list(node.gpus)
        idle = sum(node.gpus.get(name, 0) - node.gpus_used.get(name, 0) for name in names)
        limits.append(idle // size.gpus)
    return max(0, min(limits))
