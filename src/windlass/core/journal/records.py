"""What the journals say of trials and agents, as values for readers. Pure; Python 3.9.

`fold.py` makes these values out of events. Everything that shows or weighs trials takes them as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from windlass.core.states import State

MetricSummary = Tuple[float, float, float, int]  # last, min, max, count
_CLOCKS_S = 1.0  # by which the clocks of machines may differ


class Span(NamedTuple):
    """An attempt that has ended: when it began, when it ended, and whose it was."""

    start: float
    end: float
    agent: str
    attempt: int


SpanFields = Tuple[float, float, str, Any]  # those of a Span, which is slow to make


class LiveProgress(NamedTuple):
    """How far an attempt is. None: not known."""

    step: float
    steps: Optional[float]  # in all
    remaining_s: Optional[float]


@dataclass(frozen=True)
class TrialRecord:
    """What the journals say of one trial. None: unknown, or not so in this state."""

    number: int
    state: State
    cause: Optional[str] = None
    since: float = 0.0
    attempts: int = 0  # starts, by whichever agent
    agent: str = ""  # whose attempt the following tells of
    attempt: int = 0  # that agent's own number for it
    start: Optional[float] = None
    duration_s: Optional[float] = None  # including the earlier sessions that it resumed from
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    stage: Optional[str] = None
    step: Optional[float] = None
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)  # what it reported as text, by name
    output_bytes: Optional[int] = None
    rss_mb: Optional[float] = None
    cpu_s: Optional[float] = None
    note: Optional[str] = None
    why: Optional[str] = None  # why it failed, as the program itself put it
    # What the attempt used (see core/journal/events.py, `use`); of one under way the last report: p, mem, gpu.
    use: Mapping[str, Any] = field(default_factory=dict)
    told: Optional[float] = None  # when the agent last reported an attempt under way
    spans: Tuple[Span, ...] = ()  # of attempts that have ended, where there are several; in order

    @property
    def overlapped_s(self) -> float:
        """For how long attempts of different agents were under way at the same time; 0.0 where they were not."""
        return overlapped_s(self.spans)

    @property
    def progress(self) -> Optional[LiveProgress]:
        """How far an attempt under way was when its agent last reported it; None where it has not."""
        return parse_progress(self.use.get("p"))


@dataclass(frozen=True)
class AgentRecord:
    """One agent: the process it is (`machine`, `boot`, `pid`, `began`), and what it last reported."""

    id: str
    host: str = ""
    machine: str = ""
    boot: str = ""
    pid: int = 0
    began: Any = None
    slots: int = 0
    cpus: Any = None
    gpus: Any = None
    version: str = ""
    job: Optional[Dict[str, Any]] = None
    # See core/journal/code.py; None where it was not recorded.
    code: Optional[Dict[str, Any]] = None
    start: float = 0.0
    last_seen: float = 0.0
    ended: bool = False
    reason: str = ""
    failed: int = 0  # of its trials, so that its job is FAILED
    setup_s: Optional[float] = None  # until its first trial could begin: code, data, environment
    exit_code: Optional[int] = None  # None: it was killed, still runs, or an earlier version ran it
    # The file system's clock less its own when it began; None: an earlier version ran it.
    clock_s: Any = None
    rounds: bool = False  # whether its ends tell their round; those of earlier versions do not


class Note(NamedTuple):
    """Something a writer wanted the user to know."""

    t: float
    writer: str
    text: str
    number: Optional[int] = None
    routine: bool = False  # a step that went as it should: of interest to those who look for it


def overlapped_s(spans: Sequence[Span]) -> float:
    """For how long, at most, two attempts of different agents were under way at the same time.

    Clocks of machines differ, so what is no longer than a second is none.
    """
    found = 0.0
    for at, span in enumerate(spans):
        for other in spans[at + 1 :]:
            if other.agent != span.agent:
                found = max(found, min(span.end, other.end) - other.start)
    return found if found > _CLOCKS_S else 0.0


def parse_progress(wire: Any) -> Optional[LiveProgress]:
    """The journal's [step, steps or null, remaining_s or null]; None for anything else."""
    if not isinstance(wire, (list, tuple)) or len(wire) != 3:
        return None
    step, steps, remaining_s = (finite(value) for value in wire)
    return None if step is None else LiveProgress(step, steps, remaining_s)


def finite(value: Any) -> Optional[float]:
    """The value as a float, where it is a finite number; None for everything else, also for True and False."""
    is_number = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    )
    return float(value) if is_number else None
