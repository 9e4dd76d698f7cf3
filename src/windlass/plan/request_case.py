"""A request for jobs beside the cluster that it goes to, and how its parts are named in messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.core.counted import counted
from windlass.core.errors import Problem
from windlass.core.units import render_mb
from windlass.model import Plan, Request
from windlass.plan.source_line import make_problem
from windlass.site.cluster import Cluster, GpuType, Node, Partition


class Case:
    """A request and the cluster it is made to. The user's own options of sbatch have the last word."""

    def __init__(
        self, plan: Plan, request: Request, cluster: Cluster, *, interactive: bool = False
    ) -> None:
        self.plan, self.request, self.cluster = plan, request, cluster
        self.interactive = interactive
        self.account = self._override("account", request.account)
        self.qos = self._override("qos", request.qos)
        named = self._override("partition", request.partition)
        self.partition_names = tuple(name.strip() for name in named.split(",")) if named else ()
        # Where the site chooses the partition itself, its default one tells nothing.
        names = self.partition_names or ((None,) if cluster.name_partition else ())
        known = [cluster.partition(name) for name in names]
        self.partitions: tuple[Partition, ...] = tuple(
            partition for partition in known if partition is not None
        )

    def _override(self, name: str, value: str | None) -> str | None:
        given: Any = self.request.options.get(name)
        return value if given is None or isinstance(given, bool) else str(given)

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


def list_gpus(gpus: Iterable[GpuType]) -> str:
    return ", ".join(
        (gpu.name or "GPUs without a type")
        + (f" ({render_mb(gpu.memory_mb)})" if gpu.memory_mb else "")
        for gpu in gpus
    )


def count_gpus(request: Request) -> str:
    return counted(request.gpus, f"{request.gpu_type} GPU".strip())


def value_of(plan: Plan, key: str) -> Any:
    setting = plan.settings.get(key)
    return setting.value if setting is not None else None
