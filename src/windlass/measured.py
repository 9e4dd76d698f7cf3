"""What `windlass measure` found: the shape of measured.json in a study's folder. Frozen values; they touch nothing.

The node writes it as plain JSON (agent/survey/survey.py); everybody else reads it through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeVar

MEASURED_VERSION = 1
PLAIN: Final = "plain"
MPS: Final = "mps"
Mode = Literal["plain", "mps"]
Span = tuple[float, float, float]  # low, middle, high
_ENDLESS = 1e15


@dataclass(frozen=True)
class Probe:
    """One trial, alone on its device. None: could not be found out."""

    trial: str  # its id
    settings: Mapping[str, Any]
    variant: tuple[Any, ...] = ()  # values of the study's `variants`
    ran_s: float = 0.0
    ended: bool = False  # it ran to its end
    cause: str = ""  # how, where it was not us who ended it
    levelled: bool = False  # neither memory still grew
    growing_mb_per_min: float | None = None  # of the memory that did
    gpu_growing_mb_per_min: float | None = None
    gpu_mb: float | None = None  # peak of the process tree, as the driver counts it
    gpu_source: str | None = None  # process or device
    framework_mb: float | None = None  # what the framework has reserved of it
    gpu_percent: float | None = None
    memory_mb: float = 0.0
    memory_source: str = ""
    cgroup_mb: float | None = None  # peak of the whole job
    cores: float | None = None
    read_mb: float = 0.0
    written_mb: float = 0.0
    disk_read_mb: float = 0.0
    disk_written_mb: float = 0.0
    shared_files: tuple[str, ...] = ()  # kinds of shared file systems on which it had files open
    shared_mb: float = 0.0  # at least so much was read or written there
    first_step_s: float | None = None
    startup_s: float | None = None  # what of it the steps do not explain
    step_s: Span | None = None
    steps: float | None = None  # in all
    time_s: Span | None = None  # of one whole trial
    bound_by: str = ""  # in words
    says: tuple[str, ...] = ()  # warnings, in words
    # With a launcher: processes of the trial, the most that one of them took, and memory of all nodes together.
    ranks: int | None = None
    rank_mb: float | None = None
    rank_cores: float | None = None
    rank_gpu_mb: float | None = None
    all_nodes_mb: float | None = None


@dataclass(frozen=True)
class Round:
    """k trials side by side on one device (or, without GPUs, on the node)."""

    mode: Mode
    k: int
    rate: float | None = None  # steps a second of all together; without steps, trials a second
    slowest: float | None = None  # of the slowest of them
    startup_s: float | None = None
    trial_s: float | None = None  # one whole trial in this company
    trials_per_h: float | None = None
    gpu_mb: float | None = None  # the device, all together
    memory_mb: float | None = None
    cores: float | None = None
    gpu_percent: float | None = None
    note: str = ""  # why it is worth nothing, where it is


@dataclass(frozen=True)
class Choice:
    """How many share a device best."""

    k: int
    mode: Mode
    because: str
    slowdown: float = 1.0  # of one trial in this company against alone
    gain: float = 1.0  # trials an hour against one at a time
    trials_per_h: float | None = None
    trial_s: float | None = None


@dataclass(frozen=True)
class MeasuredDevice:
    name: str  # NVIDIA H200
    memory_mb: int
    kind: Literal["gpu", "mig", "shard"] = "gpu"
    type: str = ""  # the scheduler's name for it, where it was asked for by one


@dataclass(frozen=True)
class Measurement:
    """All of measured.json."""

    when: float
    digest: str  # of the command and what is fixed: another digest, another measurement
    host: str
    cores: int  # that the trials could use
    memory_mb: int
    device: MeasuredDevice | None = None
    variants: tuple[str, ...] = ()  # names of settings
    probes: tuple[Probe, ...] = ()
    rounds: tuple[Round, ...] = ()
    choice: Choice | None = None
    warm_s: float | None = None  # where trials start warm: what the first one took to begin
    took_s: float = 0.0
    warnings: tuple[str, ...] = ()
    # What the framework says of itself and its devices.
    seen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScalingPoint:
    """One trial with so many processes. None: could not be found out."""

    processes: int
    steps_per_s: float | None
    time_s: float | None  # of one whole trial
    rank_mb: float | None  # the most memory that one process took


@dataclass(frozen=True)
class Scaling:
    """How one trial speeds up with more processes, or GPUs; the first point has one."""

    kind: str  # gpus or processes
    points: tuple[ScalingPoint, ...]

    def speed_up(self, point: ScalingPoint) -> float | None:
        """Against one process: by the time of a whole trial, else by steps a second."""
        one = self.points[0]
        if one.time_s and point.time_s:
            return one.time_s / point.time_s
        if one.steps_per_s and point.steps_per_s:
            return point.steps_per_s / one.steps_per_s
        return None


_Value = TypeVar("_Value")


def parse_measurement(data: Mapping[str, Any]) -> Measurement:
    """measured.json as a value. Keys that a later version may have added are left out. Raises ValueError."""
    if data.get("version") != MEASURED_VERSION:
        raise ValueError(
            f"measured.json is of version {data.get('version')}, this Windlass reads {MEASURED_VERSION}"
        )
    probes = tuple(_make(Probe, probe) for probe in data.get("probes", ()))
    rounds = tuple(_make(Round, one) for one in data.get("rounds", ()))
    choice = _make(Choice, data["choice"]) if data.get("choice") else None
    device = _make(MeasuredDevice, data["device"]) if data.get("device") else None
    return _make(
        Measurement,
        {**data, "probes": probes, "rounds": rounds, "choice": choice, "device": device},
    )


def _make(kind: type[_Value], data: Mapping[str, Any]) -> _Value:
    names = {one.name: str(one.type) for one in fields(kind)}  # type: ignore[arg-type]
    tupled = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in data.items()
        if key in names
    }
    for key, value in tupled.items():
        if not _is_like(value, names[key]):
            raise ValueError(f"{kind.__name__}.{key} is {str(value)[:40]!r}")
    return kind(**tupled)


def _is_like(value: Any, wanted: str) -> bool:
    """Whether a value of the file is of the type that is written beside its name."""
    plain = wanted.removesuffix(" | None")
    if value is None:
        return plain != wanted
    if plain in ("float", "int"):
        return _is_number(value) and (plain == "float" or value == int(value))
    if plain == "Span":
        return isinstance(value, tuple) and len(value) == 3 and all(map(_is_number, value))
    kinds: dict[str, type] = {
        "str": str,
        "bool": bool,
        "Mode": str,
        "tuple": tuple,
        "Mapping": Mapping,
    }
    expected = kinds.get(plain.partition("[")[0])
    return expected is None or isinstance(value, expected)


def _is_number(value: Any) -> bool:
    """Not without end, as JSON of Python may be."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _ENDLESS
