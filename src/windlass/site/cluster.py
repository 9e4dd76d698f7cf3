"""What is known of one Slurm cluster, as values; each fact says where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

GpuForm = Literal["gres", "gpus-per-node"]
MemoryForm = Literal["mem", "mem-per-cpu"]
Rule = Literal["required", "optional", "never"]


# States of nodes, as slurm/records.py spells them, in which no new job is placed there.
_UNUSABLE = {
    "blocked", "down", "drain", "drained", "draining", "error", "fail", "failing", "future", "inval", "maint",
    "not_responding", "power_down", "powering_down", "reboot_issued", "unknown",
}  # fmt: skip


@dataclass(frozen=True)
class GpuType:
    """One type of GPU, by the name the scheduler has for it; "" on clusters that do not tell types apart."""

    name: str
    count: int = 0  # in the whole cluster; 0: not known
    per_node: int = 0  # the most that one node has
    memory_mb: int | None = None
    share_cpus: int | None = None  # cores that go with one GPU: a fair share of its node
    share_memory_mb: int | None = None
    cost: float | None = None  # of one GPU for an hour, in the site's unit


@dataclass(frozen=True)
class Node:
    """A node as Slurm describes it: what it has, what of it is in use, and what keeps jobs away."""

    name: str
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int] = field(default_factory=dict)  # type → how many
    cpus_used: int = 0
    memory_used_mb: int = 0
    gpus_used: Mapping[str, int] = field(default_factory=dict)
    states: tuple[str, ...] = ()  # Slurm's words, lower case, without suffixes: ("mixed", "drain")
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether new jobs may be placed here."""
        return not _UNUSABLE & set(self.states)


@dataclass(frozen=True)
class Partition:
    name: str
    is_default: bool = False
    up: bool = True
    max_time_s: float | None = None  # None: no limit
    default_time_s: float | None = None
    max_nodes: int | None = None
    nodes: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()  # empty: all
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    max_cpus_per_node: int | None = None
    max_memory_per_node_mb: int | None = None
    default_memory_per_cpu_mb: int | None = None


@dataclass(frozen=True)
class Qos:
    name: str
    max_time_s: float | None = None
    max_gpus_per_job: int | None = None
    max_submit: int | None = None


@dataclass(frozen=True)
class Cluster:
    """Everything Windlass knows of a cluster. Empty tuples and None mean that nobody could be asked."""

    name: str  # the scheduler's name for it, or the profile's
    profile: str = "generic"
    version: str = ""  # of Slurm, e.g. "22.05.8"
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    gpus: tuple[GpuType, ...] = ()
    accounts: tuple[str, ...] = ()  # of this user; empty: not known, or none needed
    default_account: str | None = None
    qos: tuple[Qos, ...] = ()  # that this user may name; empty: not known
    max_array_size: int | None = None  # the highest index is one less
    # Between TERM and KILL, for a job that is cancelled or whose time is up.
    kill_wait_s: int | None = None
    max_submit: int | None = None  # jobs of one user in the queue, array tasks counted
    max_time_s: float | None = None  # of any job, where partitions do not say it
    accounting: bool | None = None  # whether sacct answers
    # What cannot be asked for and comes from the profile.
    name_partition: bool = True  # False: the site wants none named
    account_rule: Rule = "optional"
    gpu_form: GpuForm = "gres"
    typed_gpus: bool = True
    memory_form: MemoryForm = "mem"
    shebang: str = "/bin/bash"
    throttle: int = 10  # agents at a time, out of good manners
    min_job_s: float = 3600.0  # shorter jobs are not welcome: trials are grouped
    # What stands in for $SLURM_TMPDIR where there is none; may hold $USER.
    local_scratch: str | None = None
    scratch: str | None = None  # what stands in for $SCRATCH; may hold $USER
    container_runtime: str | None = None  # the program that starts containers
    container_module: str | None = None  # the module that brings it
    container_binds: tuple[str, ...] = ()  # folders that all containers see
    submit_from_home: bool = True
    internet: bool | None = None
    cost_unit: str | None = None  # what the site counts computing time in
    shell_time_s: float = 3600.0  # the most an interactive job gets without being asked for more
    shell_partition: str | None = None  # of interactive jobs
    usage: tuple[str, ...] = ()  # commands that tell how much of disks and computing time is used
    support: tuple[str, ...] = ()  # where users get help
    login_hosts: tuple[str, ...] = ()  # patterns
    notes: tuple[str, ...] = ()
    # Partition → jobs of others that wait for resources now.
    waiting: Mapping[str, int] = field(default_factory=dict)
    live: bool = False  # whether the scheduler was asked; without it all is as the profile says
    asked_at: float | None = None  # when, in seconds since 1970
    # Defaults for settings, from the site file and the profile, by their names without a unit (`Row.short_name`).
    defaults: Mapping[str, Any] = field(default_factory=dict)
    defaults_file: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)  # name of a field → where it came from

    @property
    def title(self) -> str:
        """What users call it: the name of its profile, or else the scheduler's name for it."""
        return self.profile if self.profile != "generic" else self.name

    def partition(self, name: str | None) -> Partition | None:
        """The partition of that name; without a name the default one."""
        for partition in self.partitions:
            if partition.name == name or (name is None and partition.is_default):
                return partition
        return None

    def nodes_of(self, partition: str | None) -> tuple[Node, ...]:
        found = self.partition(partition)
        return (
            self.nodes
            if found is None
            else tuple(node for node in self.nodes if found.name in node.partitions)
        )

    def longest_time_s(self, partition: str | None) -> float | None:
        """The longest job that these partitions (with commas) take, or the default one; None: no limit is known."""
        names = partition.split(",") if partition and self.name_partition else []
        chosen = [found for found in self.partitions if found.name in names]
        if not names and self.name_partition:
            chosen = [found for found in self.partitions if found.is_default]
        chosen = chosen or [found for found in self.partitions if found.up]
        return self.longest_of(chosen)

    def longest_of(self, partitions: Sequence[Partition]) -> float | None:
        """The longest job that one of these partitions takes; None: no limit is known.

        A partition without a limit in a profile is one of which the profile knows none, so the cluster's own limit
        holds. The scheduler says None where there is no limit.
        """
        limits = [
            self.max_time_s if one.max_time_s is None and not self.live else one.max_time_s
            for one in partitions
        ]
        if not limits:
            return self.max_time_s
        return None if None in limits else max(limit for limit in limits if limit is not None)

    def gpu(self, name: str) -> GpuType | None:
        return next((gpu for gpu in self.gpus if gpu.name == name), None)
