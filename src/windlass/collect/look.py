"""One look at a study: journals, claims and living agents together."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.collect.failures import read_failures
from windlass.collect.index import StudyIndex, open_index
from windlass.collect.jobs import look_at_jobs
from windlass.collect.jobview import JobsView, JobView
from windlass.collect.reconcile import StudyView, split_lost, study_view
from windlass.core.claims import ranges as rs
from windlass.core.claims.alive import clock_ahead_s, clock_shift_s, file_clock_ahead_s
from windlass.core.claims.coroner import Coroner, Fate, read_lease_s
from windlass.core.claims.first import find_stop
from windlass.core.claims.register import Register, RegisterFile, RegisterLost
from windlass.core.damage import report_damage
from windlass.core.journal.read import for_each
from windlass.core.journal.records import AgentRecord, TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import ENTRY_BYTES
from windlass.measured import parse_measurement

_LEFT_KEPT_S = 2.0
_LIVES = {Fate.ALIVE: True, Fate.DEAD: False, Fate.SUSPECT: None}


def read_register(paths: StudyPaths) -> Register:
    """The register; where it is lost, one in which every trial of trials.jsonl is part of the study.

    Trials that it does not know although agents have begun them are part of the study as well: an earlier state of the
    register was put back.
    """
    try:
        return _with_begun(paths, RegisterFile(paths.claims, "reader").read())
    except RegisterLost as error:
        problem, _, remedy = str(error).partition("\n  hint: ")
        report_damage(paths.claims, problem.partition(": ")[2], remedy)
        with open(paths.trials, "rb") as file:
            count = sum(1 for _ in file)
        return Register(count, [(0, count)] if count else [], [], {}, [])


def _with_begun(paths: StudyPaths, register: Register) -> Register:
    """The register with trials that have begun although the register does not count them, as after a lost register."""
    try:
        lines = os.stat(paths.trials_index).st_size // ENTRY_BYTES
    except OSError:
        return register
    if lines <= register.count:
        return register
    with open_index(paths) as index:
        begun = [number for number in index.recorded_from(register.count) if number < lines]
    if begun:
        register.count = begun[-1] + 1
        register.current = rs.union(register.current, rs.from_numbers(begun))
    return register


def agents_alive(paths: StudyPaths, agents: list[AgentRecord]) -> dict[str, bool | None]:
    """Which agents live. None: the job of one is not there any more, but the agent itself may be."""
    coroner = Coroner(paths)
    present = [agent for agent in agents if not agent.ended]
    fates = for_each(lambda agent: coroner.judge(agent.id, header_of(agent))[0], present)
    found = {agent.id: _LIVES[fate] for agent, fate in zip(present, fates, strict=True)}
    return {agent.id: found.get(agent.id, False) for agent in agents}


def find_lost(paths: StudyPaths, index: StudyIndex) -> frozenset[int]:
    """Trials whose records end with a start, and whose agents are gone."""
    return frozenset(find_lost_causes(paths, index))


def find_lost_causes(paths: StudyPaths, index: StudyIndex) -> dict[int, str]:
    """The same trials, each with what ended its agent, as far as the scheduler knows."""
    running = index.running()
    wanted = {record.agent for record in running}
    agents = [agent for agent in index.agents() if agent.id in wanted]
    _, lost = split_lost(running, agents, agents_alive(paths, agents))
    coroner, by_id = Coroner(paths), {agent.id: agent for agent in agents}
    causes = {
        agent: coroner.find_cause(header_of(by_id[agent]))
        for agent in {record.agent for record in lost}
    }
    return {record.number: causes[record.agent].value for record in lost}


def header_of(agent: AgentRecord) -> dict[str, Any]:
    """What an agent's journal begins with, as far as it identifies the agent."""
    return {
        "host": agent.host,
        "machine": agent.machine,
        "boot": agent.boot,
        "pid": agent.pid,
        "began": agent.began,
        "job": agent.job,
        "t": agent.start,
        "clock_s": agent.clock_s,
    }


def _judge(
    paths: StudyPaths, agents: list[AgentRecord]
) -> tuple[dict[str, bool | None], dict[str, float]]:
    """Which agents are there to be shown, as `agents_alive`, and for how long those elsewhere have been silent.

    An agent whose job the scheduler says has ended is gone, although it may have written a moment before.
    """
    coroner = Coroner(paths)
    alive: dict[str, bool | None] = {agent.id: False for agent in agents}
    silent_s: dict[str, float] = {}
    present = [(agent, header_of(agent)) for agent in agents if not agent.ended]
    judged = for_each(lambda one: coroner.judge(one[0].id, one[1]), present)
    for (agent, header), (fate, silent) in zip(present, judged, strict=True):
        alive[agent.id] = _LIVES[fate]
        if silent:
            silent_s[agent.id] = silent
        if alive[agent.id] is not False and agent.job and coroner.is_job_over(header):
            alive[agent.id] = False
    return alive, silent_s


def _shift_agents(agents: Iterable[AgentRecord], shifts: Mapping[str, float]) -> list[AgentRecord]:
    """The same with their times by another clock."""
    return [
        replace(
            agent,
            start=agent.start + shifts[agent.id],
            last_seen=agent.last_seen + shifts[agent.id],
        )
        for agent in agents
    ]


def _shift_trials(records: Iterable[TrialRecord], shifts: Mapping[str, float]) -> list[TrialRecord]:
    """The same with their times by another clock."""
    return [_shift_trial(record, shifts.get(record.agent, 0.0)) for record in records]


def _shift_trial(record: TrialRecord, shift_s: float) -> TrialRecord:
    start = None if record.start is None else record.start + shift_s
    told = None if record.told is None else record.told + shift_s
    return replace(record, since=record.since + shift_s, start=start, told=told)


def _look_at_jobs(
    paths: StudyPaths, agents: Sequence[AgentRecord], accounting: bool | None
) -> JobsView | None:
    """The study's jobs, with all times by the clock of this machine. The scheduler's own times stay as they are.

    The queue's answer has the time of the file system's clock, so that is what agents are compared with.
    """
    by_file_clock = {agent.id: clock_ahead_s(header_of(agent)) or 0.0 for agent in agents}
    view = look_at_jobs(paths, _shift_agents(agents, by_file_clock), accounting=accounting)
    if view is None:
        return None
    ahead_s = file_clock_ahead_s(paths.hpc_outputs)
    jobs = tuple(_shift_job(job, -ahead_s) if job.source == "journal" else job for job in view.jobs)
    return replace(view, jobs=jobs, asked=None if view.asked is None else view.asked - ahead_s)


def _shift_job(job: JobView, shift_s: float) -> JobView:
    start = None if job.start is None else job.start + shift_s
    return replace(job, start=start, end=None if job.end is None else job.end + shift_s)


def look(paths: StudyPaths, *, accounting: bool | None = None, failures: bool = False) -> StudyView:
    """The study as it is now. Reads only what is new since the last look; `accounting` is for `look_at_jobs`.

    Its times are by the clock of this machine, whatever clocks the machines of its agents have.
    With `failures`, also why trials failed, which reads the settings of those that did.
    """
    register = read_register(paths)
    with open_index(paths) as index:
        agents = index.agents()
        alive, silent_s = _judge(paths, agents)
        running = [
            record for record in index.running() if rs.contains(register.current, record.number)
        ]
        shifts = {agent.id: clock_shift_s(header_of(agent), paths.journal) for agent in agents}
        return study_view(
            name=os.path.basename(paths.folder),
            folder=paths.folder,
            total=rs.count(register.current),
            counts=index.counts(register.count, register.current),
            causes=index.causes(register.count, register.current),
            running=_shift_trials(running, shifts),
            agents=_shift_agents(agents, shifts),
            alive=alive,
            silent_s=silent_s,
            lease_s=read_lease_s(paths),
            done=index.durations(),
            measured_s=_read_measured_s(paths),
            now=time.time(),
            notes=index.notes(),
            damaged_lines=index.damaged(),
            jobs=_look_at_jobs(paths, agents, accounting),
            stop=find_stop(register.learned),
            failures=read_failures(paths, index, register.current) if failures else (),
        )


class TimeLeftReader:
    """The time left that `windlass status` shows. A look is kept for some seconds, longer where it costs more."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._until = 0.0
        self._left_s: float | None = None

    def __call__(self) -> float | None:
        began = time.monotonic()
        if began >= self._until:
            self._left_s = look(self._paths).eta_s
            now = time.monotonic()
            self._until = now + max(_LEFT_KEPT_S, 20 * (now - began))
        return self._left_s


def _read_measured_s(paths: StudyPaths) -> float | None:
    """What one trial takes in the company that was chosen for it, where `windlass measure` found it out."""
    try:
        with open(os.path.join(paths.folder, "measured.json"), encoding="utf-8") as file:
            choice = parse_measurement(json.load(file)).choice
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return None if choice is None else choice.trial_s
