"""How long a study will take, from measured rates, and the GPU-hours and core-hours behind and before it. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.collect.jobview import JobsView
from windlass.core.journal.records import AgentRecord, TrialRecord

# So many waiting trials are put into slots one by one; of more the mean tells as much.
_PLAYED_OUT = 10_000
# A trial that has taken longer than others is expected to take this share of theirs more.
_OVERDUE = 0.1
_STARTING_S = 5.0
_FEWEST = 3  # trials that must be done before their spread means anything


@dataclass(frozen=True)
class Durations:
    """Of trials that are done: how many, their mean, and what 10 % and 90 % of the latest ones do not exceed."""

    count: int = 0
    mean_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0


@dataclass(frozen=True)
class TimeLeft:
    """What is still to be done. `seconds` is None where no slot is there; `low` and `high` where no spread is known."""

    work_s: float  # of one slot
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    because: str = ""


@dataclass(frozen=True)
class Hours:
    """What agents held, or will hold. None: not known."""

    gpu_h: float | None = None
    core_h: float | None = None


NO_DURATIONS = Durations()
NO_HOURS = Hours()


def estimate_time_left(
    running: Sequence[TrialRecord],
    waiting: int,
    slots: int,
    done: Durations,
    now: float,
    measured_s: float | None = None,
) -> TimeLeft | None:
    """Trials under way tell of themselves, others take as long as those did. None where nothing tells a duration."""
    if not running and not waiting:
        return TimeLeft(0.0, 0.0, 0.0, 0.0)
    left_s_of = {
        record.number: left for record in running if (left := remaining_s(record, now)) is not None
    }
    totals = [
        left_s_of[record.number] + elapsed_s(record, now)
        for record in running
        if record.number in left_s_of
    ]
    known = done.count + len(totals)
    typical = (done.mean_s * done.count + sum(totals)) / known if known else measured_s
    if typical is None:
        return None
    lefts = [
        left_s_of[record.number]
        if record.number in left_s_of
        else max(typical - elapsed_s(record, now), _OVERDUE * typical)
        for record in running
    ]
    work_s = sum(lefts) + waiting * typical
    because = _because(done.count, len(left_s_of))
    if slots <= 0:
        return TimeLeft(work_s, because=because)
    seconds = play_out(lefts, waiting, slots, typical)
    share = _spread(done, waiting / slots + 1)
    if share is None:
        return TimeLeft(work_s, seconds, because=because)
    return TimeLeft(work_s, seconds, seconds * (1 - share), seconds * (1 + share), because)


def elapsed_s(record: TrialRecord, now: float) -> float:
    return max(0.0, now - (record.start if record.start is not None else record.since))


def remaining_s(record: TrialRecord, now: float) -> float | None:
    """The time left that follows from a trial's own progress; None where it has reported none, or has only just begun.

    In the first seconds most of the time went into the start of the program, and its rate would be far off.
    """
    progress = record.progress
    if progress is None or record.told is None:
        return None
    ago_s = max(0.0, now - record.told)
    if progress.remaining_s is not None:
        return max(0.0, progress.remaining_s - ago_s)
    if progress.steps is None or progress.step <= 0:
        return None
    took_s = elapsed_s(record, record.told)
    if took_s < _STARTING_S:
        return None
    return max(0.0, took_s * (progress.steps - progress.step) / progress.step - ago_s)


def play_out(lefts: Sequence[float], waiting: int, slots: int, typical_s: float) -> float:
    """When the last trial ends if each waiting one takes the slot that is free first."""
    ends = [*lefts, *([0.0] * max(0, slots - len(lefts)))]
    if waiting > _PLAYED_OUT:
        return max((sum(lefts) + waiting * typical_s) / slots, *ends)
    # All waiting trials take equally long, so they end in the order in which they begin: both queues are sorted.
    first, later = deque(sorted(ends)), deque[float]()
    for _ in range(waiting):
        free = first if first and (not later or first[0] <= later[0]) else later
        later.append(free.popleft() + typical_s)
    return max(*first, *later, 0.0)


def _spread(done: Durations, waves: float) -> float | None:
    """By which share the estimate may be off: trials that follow each other even each other out."""
    if done.count < _FEWEST or done.mean_s <= 0:
        return None
    return min(0.9, (done.high_s - done.low_s) / 2 / done.mean_s / math.sqrt(max(1.0, waves)))


def _because(done: int, under_way: int) -> str:
    """What an estimate of the time left rests on."""
    parts = [
        f"{done} done" if done else "",
        f"the progress of {under_way} under way" if under_way else "",
    ]
    return " and ".join(part for part in parts if part) or "measured"


# -- what agents hold


def fold_spent(
    agents: Iterable[AgentRecord],
    alive: Mapping[str, bool | None],
    jobs: JobsView | None,
    now: float,
) -> Hours:
    """Hours of GPUs and cores that agents held, those of jobs in which none began included."""
    requests = (
        {}
        if jobs is None
        else {submission.id: submission.request for submission in jobs.submissions}
    )
    held: list[tuple[float, float | None, float | None]] = []
    for agent in agents:
        until = now if alive.get(agent.id) and not agent.ended else agent.last_seen
        request = requests.get(str((agent.job or {}).get("sub")), {})
        held.append((max(0.0, until - agent.start), *_size(agent, request)))
    for job in jobs.jobs if jobs is not None else ():
        if not job.agent and job.elapsed_s:
            held.append((job.elapsed_s, *_size(None, requests.get(job.submission, {}))))
    return Hours(
        _sum_h((time_s, gpus) for time_s, gpus, _ in held),
        _sum_h((time_s, cpus) for time_s, _, cpus in held),
    )


def _size(
    agent: AgentRecord | None, request: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """GPUs and cores: as its agent found them, else as they were asked for."""
    nodes = _count(request.get("nodes")) or 1
    gpus, cpus = (_count(agent.gpus), _count(agent.cpus)) if agent is not None else (None, None)
    asked_gpus, asked_cpus = _count(request.get("gpus")), _count(request.get("cpus"))
    return (
        gpus if gpus is not None else None if asked_gpus is None else asked_gpus * nodes,
        cpus if cpus is not None else None if asked_cpus is None else asked_cpus * nodes,
    )


def _count(value: Any) -> float | None:
    """The number of devices in a journal's entry, which is a list of them or a number; None for anything else."""
    if isinstance(value, (list, tuple)):
        return float(len(value))
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        else None
    )


def _sum_h(held: Iterable[tuple[float, float | None]]) -> float | None:
    known = [time_s * count / 3600 for time_s, count in held if count is not None]
    return sum(known) if known else None


def fold_to_come(
    left: TimeLeft | None,
    agents: Sequence[AgentRecord],
    alive: Mapping[str, bool | None],
    jobs: JobsView | None,
) -> Hours:
    """Hours that the work before us takes, if agents go on to have what the newest one has."""
    if left is None:
        return Hours()
    shown = [agent for agent in agents if alive.get(agent.id)] or list(agents)
    newest = max(shown, key=lambda agent: agent.start, default=None)
    if newest is None or newest.slots <= 0:
        return Hours()
    requests = (
        {}
        if jobs is None
        else {submission.id: submission.request for submission in jobs.submissions}
    )
    gpus, cpus = _size(newest, requests.get(str((newest.job or {}).get("sub")), {}))
    agent_h = left.work_s / newest.slots / 3600
    return Hours(None if gpus is None else gpus * agent_h, None if cpus is None else cpus * agent_h)
