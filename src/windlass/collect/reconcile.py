"""Journals tell what was last said; this settles what is so, given which agents still live. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.claims.alive import LEASE_S, idle_beat_s, missed_beat_s
from windlass.claims.first import Stop
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
from windlass.journal.fold import AgentRecord, Note, TrialRecord
from windlass.slurm.states import JobState
from windlass.states import Cause, State


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
    is_same: bool  # whether the others failed with the very same words, numbers included
    settings: Mapping[str, Any]  # those that all of them share, and that trials which ended otherwise do not
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
    lost: tuple[TrialRecord, ...] = ()  # said to run by agents that are no more; counted as interrupted
    jobs: JobsView | None = None  # only of studies whose agents are jobs
    spent: Hours = NO_HOURS
    to_come: Hours = NO_HOURS
    stop: Stop | None = None  # the first trials all failed alike, and no more begin
    failures: tuple[FailureGroup, ...] = ()  # why trials failed, where that was asked for
    lease_s: float = LEASE_S  # after which an agent that is silent is taken for dead

    @property
    def eta_s(self) -> float | None:
        """Time left if all goes on as it went; None while that cannot be told."""
        return None if self.left is None else self.left.seconds


def _cause_of(agent: str, starved: set[str]) -> Cause:
    return Cause.HOST_MEMORY if agent in starved else Cause.LOST


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
    starved = {job.agent for job in jobs.jobs if job.state is JobState.OUT_OF_MEMORY} if jobs is not None else set()
    lost = [
        replace(record, state=State.INTERRUPTED, cause=_cause_of(record.agent, starved).value)
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
    trial was measured to take, for where none has told yet.
    """
    still, lost = split_lost(running, agents, alive, jobs)
    settled = {state.value: counts.get(state, 0) for state in State}
    settled[State.RUNNING.value] -= len(lost)
    settled[State.INTERRUPTED.value] += len(lost)
    all_causes = dict(causes)
    for record in lost:
        cause = record.cause or Cause.LOST.value
        all_causes[cause] = all_causes.get(cause, 0) + 1
    silent_s = silent_s or {}
    views = tuple(_agent_view(agent, alive, still, silent_s.get(agent.id, 0.0), lease_s) for agent in agents)
    slots = sum(agent.record.slots for agent in views if agent.alive)
    waiting = settled[State.WAITING.value] + settled[State.INTERRUPTED.value]  # these are taken again
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


def _agent_view(
    agent: AgentRecord,
    alive: Mapping[str, bool | None],
    running: Sequence[TrialRecord],
    silent_s: float,
    lease_s: float,
) -> AgentView:
    lives = False if agent.ended else alive.get(agent.id)
    under_way = sum(record.agent == agent.id for record in running)
    patience_s = missed_beat_s(lease_s) if under_way else 1.5 * idle_beat_s(lease_s)
    return AgentView(agent, lives, under_way, silent_s, silent_s > patience_s)
