"""A plan for a cluster in the making: what its choices are made from, and where each came from. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.model import Setting
from windlass.plan.evidence import DECLARED, Evidence
from windlass.site.cluster import Cluster, Node, Partition


@dataclass
class Draft:
    """What the parts of a plan for a cluster share: settings, evidence, and the reasons found so far."""

    settings: Mapping[str, Setting]  # with what the evidence says of cores
    cluster: Cluster
    trial_count: int
    evidence: Evidence
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

    def declared(self, key: str) -> bool:
        setting = self.settings[key]
        return setting.value is not None and setting.source in DECLARED

    @property
    def partition(self) -> Partition | None:
        given = self.settings["partition"].value
        if not self.cluster.name_partition:
            return None
        return self.cluster.partition(str(given).split(",")[0] if given else None)

    def nodes(self, gpu_type: str | None = None) -> tuple[Node, ...]:
        """Nodes that jobs may get; with a type of GPU, those that have it."""
        nodes = self.cluster.nodes_of(self.value("partition"))
        return tuple(node for node in nodes if gpu_type is None or node.gpus.get(gpu_type))

    @property
    def limit_s(self) -> float | None:
        """The longest that a job may last: the partition, and the QOS where one is named, say so."""
        limits = [self.cluster.longest_time_s(self.value("partition"))]
        limits += [qos.max_time_s for qos in self.cluster.qos if qos.name == self.value("qos")]
        return min((limit for limit in limits if limit is not None), default=None)

    def untyped_name(self, gpus: int) -> str:
        """A type that the cluster does not know is asked for all the same: refusing says which there are."""
        given = self.settings["gpu_type"].value
        return str(given) if gpus and given and self.cluster.typed_gpus else ""


def whole_minutes(seconds: float) -> int:
    """Slurm counts in minutes and rounds up."""
    return max(60, math.ceil(seconds / 60) * 60)
