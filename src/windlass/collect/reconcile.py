"""Settles the state of a study: what the journals last recorded, given which agents still live. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.collect.jobview import JobsView
from windlass.collect.timeleft import (
    NO_DURATIONS,
    NO_HOURS,
    Durations,
    Hours,
    TimeLeft,
    estimate_time_left,
    fold_spent,
    fold_to_come,
)
from windlass.core.claims.alive import LEASE_S, idle_beat_s, missed_beat_s
from windlass.core.claims.first import Stop
from windlass.core.journal.records import AgentRecord, Note, TrialRecord
from windlass.core.queue.gone import CAUSES
from windlass.core.states import Cause, State


@dataclass(frozen=True)
class AgentView:
    """An agent, whether it lives (None: nobody can tell from here), and how many trials it has under way."""

    record: AgentRecord
    alive: bool | None
    running: int
    silent_s: float = 0.0  # for how long an agent on another machine has not written; 0 where its process can be seen
    is_late: bool = False  # it should have written by now


@dataclass(frozen=True)
class FailureGroup:
    """Trials that failed alike."""

    count: int
    reason: str  # of the first one
    cause: str
    is_same: bool  # whether the others failed with the very same message, numbers included
    # Those that all of them share, and that trials which ended otherwise do not.
    settings: Mapping[str, Any]
    trials: tuple[int, ...]  # the first ones


@dataclass(frozen=True)
class StudyView:
    """What is shown of a study."""

    name: str
    folder: str
    total: int
    counts: dict[str, int]  # every state, also those with no trial
    running: tuple[TrialRecord, ...]
    left: TimeLeft | None  # None: nothing is known to tell it from
    agents: tuple[AgentView, ...]
    causes: dict[str, int]  # of trials that did not end well
    notes: tuple[Note, ...]
    damaged_lines: int
    lost: tuple[
        TrialRecord, ...
    ] = ()  # Their records end with a start, and their agents are gone: they count as interrupted.
    jobs: JobsView | None = None  # only of studies whose agents are jobs
    spent: Hours = NO_HOURS
    to_come: Hours = NO_HOURS
    stop: Stop | None = None  # the first trials all failed alike, and no more begin
    failures: tuple[FailureGroup, ...] = ()  # why trials failed, where that was asked for
    lease_s: float = LEASE_S  # after which an agent that is silent is taken for dead

    @property
    def eta_s(self) -> float | None:
        """Time left if all goes on as it went; None while it cannot be estimated."""
        return None if self.left is None else self.left.seconds


def split_lost(
    running: Sequence[TrialRecord],
    agents: Iterable[AgentRecord],
    alive: Mapping[str, bool | None],
    jobs: JobsView | None = None,
) -> tuple[list[TrialRecord], list[TrialRecord]]:
    """Trials that run, and those whose agent ended without ending them, which are interrupted."""
    gone = {agent.id for agent in agents if agent.ended}
    gone.update(agent for agent, lives in alive.items() if lives is False)
    still = [record for record in running if record.agent not in gone]
    causes = (
        {job.agent: CAUSES.get(job.state, Cause.LOST) for job in jobs.jobs}
        if jobs is not None
        else {}
    )
    lost = [
        replace(record, state=State.INTERRUPTED, cause=causes.get(record.agent, Cause.LOST).value)
        for record in running
        if record.agent in gone
    ]
    return still, lost


def study_view(
    *,
    name: str,
    folder: str,
    total: int,
    counts: Mapping[State, int],
    causes: Mapping[str, int],
    running: Sequence[TrialRecord],
    agents: Sequence[AgentRecord],
    alive: Mapping[str, bool | None],
    done: Durations = NO_DURATIONS,
    measured_s: float | None = None,
    now: float = 0.0,
    notes: Iterable[Note] = (),
    damaged_lines: int = 0,
    jobs: JobsView | None = None,
    stop: Stop | None = None,
    failures: tuple[FailureGroup, ...] = (),
    silent_s: Mapping[str, float] | None = None,
    lease_s: float = LEASE_S,
) -> StudyView:
    """The study as it is; `counts`, `causes` and `running` are what the journals say.

    An agent that `alive` does not know may live or not; its trials run until more is known. `measured_s` is what one
    trial was measured to take, used until trials have reported progress.
    """
    still, lost = split_lost(running, agents, alive, jobs)
    settled, all_causes = _settle_lost(counts, causes, lost)
    silent_s = silent_s or {}
    views = tuple(
        _agent_view(agent, alive, still, silent_s.get(agent.id, 0.0), lease_s) for agent in agents
    )
    slots = sum(agent.record.slots for agent in views if agent.alive)
    # Interrupted trials are taken again, so they wait like the others.
    waiting = settled[State.WAITING.value] + settled[State.INTERRUPTED.value]
    left = estimate_time_left(still, waiting, slots, done, now, measured_s)
    return StudyView(
        name=name,
        folder=folder,
        total=total,
        counts=settled,
        running=tuple(still),
        left=left,
        agents=views,
        causes=all_causes,
        notes=tuple(notes),
        damaged_lines=damaged_lines,
        lost=tuple(lost),
        jobs=jobs,
        spent=fold_spent(agents, alive, jobs, now),
        to_come=fold_to_come(left, agents, alive, jobs),
        stop=stop,
        failures=failures,
        lease_s=lease_s,
    )


def _settle_lost(
    counts: Mapping[State, int], causes: Mapping[str, int], lost: Sequence[TrialRecord]
) -> tuple[dict[str, int], dict[str, int]]:
    """The numbers of trials by state and by cause, with lost trials counted as interrupted instead of running."""
    settled = {state.value: counts.get(state, 0) for state in State}
    settled[State.RUNNING.value] -= len(lost)
    settled[State.INTERRUPTED.value] += len(lost)
    all_causes = dict(causes)
    for record in lost:
        cause = record.cause or Cause.LOST.value
        all_causes[cause] = all_causes.get(cause, 0) + 1
    return settled, all_causes


def _agent_view(
    agent: AgentRecord,
    alive: Mapping[str, bool | None],
    running: Sequence[TrialRecord],
    silent_s: float,
    lease_s: float,
) -> AgentView:
    """An agent as it is shown. It is late when it has been silent for longer than its beats allow."""
    lives = False if agent.ended else alive.get(agent.id)
    under_way = sum(record.agent == agent.id for record in running)
    patience_s = missed_beat_s(lease_s) if under_way else 1.5 * idle_beat_s(lease_s)
    return AgentView(agent, lives, under_way, silent_s, silent_s > patience_s)
