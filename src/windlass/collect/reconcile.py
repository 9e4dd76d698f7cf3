"""Journals tell what was last said; this settles what is so, given which agents still live. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from windlass.collect.jobview import JobsView
from windlass.journal.fold import AgentRecord, Note, TrialRecord
from windlass.states import Cause, State


@dataclass(frozen=True)
class AgentView:
    """An agent, whether it lives (None: nobody can tell from here), and how many trials it has under way."""

    record: AgentRecord
    alive: bool | None
    running: int


@dataclass(frozen=True)
class StudyView:
    """What is shown of a study."""

    name: str
    folder: str
    total: int
    counts: dict[str, int]  # every state, also those with no trial
    running: tuple[TrialRecord, ...]
    eta_s: float | None
    agents: tuple[AgentView, ...]
    causes: dict[str, int]  # of trials that did not end well
    notes: tuple[Note, ...]
    damaged_lines: int
    lost: tuple[TrialRecord, ...] = ()  # said to run by agents that are no more; counted as interrupted
    jobs: JobsView | None = None  # only of studies whose agents are jobs


def split_lost(
    running: Sequence[TrialRecord], agents: Iterable[AgentRecord], alive: Mapping[str, bool | None]
) -> tuple[list[TrialRecord], list[TrialRecord]]:
    """Trials that run, and those whose agent ended without ending them, which are interrupted."""
    gone = {agent.id for agent in agents if agent.ended}
    gone.update(agent for agent, lives in alive.items() if lives is False)
    still = [record for record in running if record.agent not in gone]
    lost = [
        replace(record, state=State.INTERRUPTED, cause=Cause.LOST.value) for record in running if record.agent in gone
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
    mean_duration_s: float | None = None,
    notes: Iterable[Note] = (),
    damaged_lines: int = 0,
    jobs: JobsView | None = None,
) -> StudyView:
    """The study as it is; `counts`, `causes` and `running` are what the journals say.

    An agent that `alive` does not know may live or not; its trials run until more is known.
    """
    still, lost = split_lost(running, agents, alive)
    settled = {state.value: counts.get(state, 0) for state in State}
    settled[State.RUNNING.value] -= len(lost)
    settled[State.INTERRUPTED.value] += len(lost)
    all_causes = dict(causes)
    if lost:
        all_causes[Cause.LOST.value] = all_causes.get(Cause.LOST.value, 0) + len(lost)
    views = tuple(_agent_view(agent, alive, still) for agent in agents)
    remaining = settled[State.WAITING.value] + settled[State.RUNNING.value] + len(lost)
    return StudyView(
        name=name,
        folder=folder,
        total=total,
        counts=settled,
        running=tuple(still),
        eta_s=_eta_s(remaining, mean_duration_s, views),
        agents=views,
        causes=all_causes,
        notes=tuple(notes),
        damaged_lines=damaged_lines,
        lost=tuple(lost),
        jobs=jobs,
    )


def _agent_view(agent: AgentRecord, alive: Mapping[str, bool | None], running: Sequence[TrialRecord]) -> AgentView:
    lives = False if agent.ended else alive.get(agent.id)
    return AgentView(agent, lives, sum(record.agent == agent.id for record in running))


def _eta_s(remaining: int, mean_duration_s: float | None, agents: Iterable[AgentView]) -> float | None:
    """Time left if all goes on as it went; None while nothing is known to be under way or to have ended."""
    if remaining == 0:
        return 0.0
    slots = sum(agent.record.slots for agent in agents if agent.alive)
    return None if mean_duration_s is None or slots == 0 else remaining * mean_duration_s / slots
