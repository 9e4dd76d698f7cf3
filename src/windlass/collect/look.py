"""One look at a study: journals, claims and living agents together."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from windlass.claims import ranges as rs
from windlass.claims.coroner import Coroner, Fate
from windlass.claims.first import find_stop
from windlass.claims.register import Register, RegisterFile, RegisterLost
from windlass.collect.failures import read_failures
from windlass.collect.index import StudyIndex
from windlass.collect.jobs import look_at_jobs
from windlass.collect.reconcile import StudyView, split_lost, study_view
from windlass.damage import report_damage
from windlass.journal.fold import AgentRecord
from windlass.measured import parse_measurement
from windlass.paths import StudyPaths

_LEFT_KEPT_S = 2.0
_LIVES = {Fate.ALIVE: True, Fate.DEAD: False, Fate.SUSPECT: None}


def read_register(paths: StudyPaths) -> Register:
    """The register; where it is lost, one in which every trial of trials.jsonl is part of the study."""
    try:
        return RegisterFile(paths.claims, "reader").read()
    except RegisterLost as error:
        problem, _, remedy = str(error).partition("\n  hint: ")
        report_damage(paths.claims, problem.partition(": ")[2], remedy)
        with open(paths.trials, "rb") as file:
            count = sum(1 for _ in file)
        return Register(count, [(0, count)] if count else [], [], {}, [])


def agents_alive(paths: StudyPaths, agents: list[AgentRecord]) -> dict[str, bool | None]:
    """Which agents live. None: the job of one is not there any more, but the agent itself may be."""
    coroner = Coroner(paths)
    return {agent.id: False if agent.ended else _LIVES[coroner.fate(agent.id, header_of(agent))] for agent in agents}


def find_lost(paths: StudyPaths, index: StudyIndex) -> frozenset[int]:
    """Trials that are said to run, by agents that are no more."""
    running = index.running()
    wanted = {record.agent for record in running}
    agents = [agent for agent in index.agents() if agent.id in wanted]
    _, lost = split_lost(running, agents, agents_alive(paths, agents))
    return frozenset(record.number for record in lost)


def header_of(agent: AgentRecord) -> dict[str, Any]:
    """What an agent's journal begins with, as far as it tells who the agent is."""
    return {
        "host": agent.host,
        "machine": agent.machine,
        "boot": agent.boot,
        "pid": agent.pid,
        "began": agent.began,
        "job": agent.job,
        "t": agent.start,
    }


def look(paths: StudyPaths, *, accounting: bool | None = None, failures: bool = False) -> StudyView:
    """The study as it is now. Reads only what is new since the last look; `accounting` is for `look_at_jobs`.

    With `failures`, also why trials failed, which reads the settings of those that did.
    """
    register = read_register(paths)
    index = StudyIndex(paths)
    index.refresh()
    try:
        agents = index.agents()
        return study_view(
            name=os.path.basename(paths.folder),
            folder=paths.folder,
            total=rs.count(register.current),
            counts=index.counts(register.count, register.current),
            causes=index.causes(register.count, register.current),
            running=[record for record in index.running() if rs.contains(register.current, record.number)],
            agents=agents,
            alive=agents_alive(paths, agents),
            done=index.durations(),
            measured_s=_read_measured_s(paths),
            now=time.time(),
            notes=index.notes(),
            damaged_lines=index.damaged(),
            jobs=look_at_jobs(paths, agents, accounting=accounting),
            stop=find_stop(register.learned),
            failures=read_failures(paths, index, register.current) if failures else (),
        )
    finally:
        index.close()


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
