"""Takes back the trials of agents that are gone. Python 3.9, standard library."""

from __future__ import annotations

import enum
import json
import os
from typing import Any, Dict, List, Mapping, Optional, Set

from windlass.claims import ranges as rs
from windlass.claims.alive import LEASE_S, beat_s, is_alive, same_kernel, seconds_silent
from windlass.claims.learned import learn_kills
from windlass.claims.register import Register, RegisterFile
from windlass.claims.strays import AGENT_VARIABLE, end_strays
from windlass.counted import counted
from windlass.damage import report_damage
from windlass.journal.read import JournalReader, read_header
from windlass.paths import StudyPaths
from windlass.slurm.ask import ask
from windlass.slurm.gone import Gone, job_gone, ran_out_of_memory
from windlass.slurm.queue import Queue, read_queue
from windlass.states import STATE_OF, State

# What ended so was to be given back, and may not have been.
_INTERRUPTED = {cause.value for cause, state in STATE_OF.items() if state is State.INTERRUPTED}


class Fate(enum.Enum):
    """What is known of an agent that holds trials."""

    ALIVE = "alive"
    SUSPECT = "suspect"  # its job is not there any more, but it may still be: wait for its lease to end
    DEAD = "dead"


def read_lease_s(paths: StudyPaths) -> float:
    """How long an agent of this study may be silent; as planned."""
    try:
        with open(paths.plan, encoding="utf-8") as file:
            return float(json.load(file).get("lease_s", LEASE_S))
    except (OSError, ValueError, TypeError, AttributeError):
        return LEASE_S


class Coroner:
    """Tells the living from the dead. The scheduler is asked only about agents that have fallen silent."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._lease_s = read_lease_s(paths)

    def fate(self, agent: str, header: Optional[Mapping[str, Any]] = None) -> Fate:
        journal = self._paths.journal_of(agent)
        header = header or read_header(journal)
        if header is None:
            silent_s = seconds_silent(journal if os.path.exists(journal) else self._paths.claims)
            return Fate.DEAD if silent_s > self._lease_s else Fate.ALIVE
        alive = is_alive(header)
        if alive is not None:
            return Fate.ALIVE if alive else Fate.DEAD
        silent_s = seconds_silent(journal)
        over = silent_s > self._lease_s
        if not header.get("job"):
            return Fate.DEAD if over else Fate.ALIVE
        if silent_s < 1.5 * beat_s(self._lease_s):
            return Fate.ALIVE  # it has just spoken, whatever the scheduler thinks of its job
        gone = job_gone(header["job"], self._queue(), header.get("t"))
        if gone is Gone.NO:
            return Fate.ALIVE  # perhaps suspended; the scheduler would know if it were dead
        if gone is Gone.YES or over:
            return Fate.DEAD
        return Fate.SUSPECT if gone is Gone.PERHAPS else Fate.ALIVE

    def ran_out_of_memory(self, header: Mapping[str, Any]) -> bool:
        """Whether memory ended the job of an agent that is dead, as far as the scheduler still knows."""
        return bool(header.get("job")) and ran_out_of_memory(header["job"], self._queue(), header.get("t"))

    def _queue(self) -> Optional[Queue]:
        return read_queue(self._paths.queue, ask)


def ended_trials(paths: StudyPaths, agent: str) -> Set[int]:
    """Trials that this agent's journal says it is finished with."""
    ended: Set[int] = set()
    reader = JournalReader(paths.journal_of(agent))
    while True:
        events = reader.read()
        if not events:
            return ended
        for event in events:
            kind = event.get("e")
            number = event.get("i")
            if not isinstance(number, int):
                continue
            if kind == "end" and event.get("cause") not in _INTERRUPTED:
                ended.add(number)
            elif kind in ("again", "start", "end"):
                ended.discard(number)


class Recovered:
    """Which agents were found dead and have been relieved of their trials, and which may be."""

    def __init__(self, dead: List[str], suspects: List[str]) -> None:
        self.dead = dead
        self.suspects = suspects


def recover(paths: StudyPaths, register_file: RegisterFile, own: str = "") -> Recovered:
    """Give what dead agents held back to everybody; their processes are ended first."""
    held = register_file.read().held
    coroner = Coroner(paths) if held else None
    fates = {agent: coroner.fate(agent) for agent in held if agent != own} if coroner is not None else {}
    dead = [agent for agent, fate in fates.items() if fate is Fate.DEAD]
    suspects = [agent for agent, fate in fates.items() if fate is Fate.SUSPECT]
    if not dead:
        return Recovered(dead, suspects)
    finished: Dict[str, Set[int]] = {}
    of_memory: Set[str] = set()
    for agent in dead:
        header = read_header(paths.journal_of(agent))
        if header is None:
            problem = (
                f"the journal of an agent that held {counted(rs.count(held[agent]), 'trial')} is missing or damaged"
            )
            remedy = "those that had ended are executed again; a backup of this file may have their records"
            report_damage(paths.journal_of(agent), problem, remedy)
        if header is not None and same_kernel(header):
            end_strays(AGENT_VARIABLE, agent)
        if header is not None and coroner is not None and coroner.ran_out_of_memory(header):
            of_memory.add(agent)
        finished[agent] = ended_trials(paths, agent)

    def change(register: Register) -> Register:
        kills = len(of_memory & set(register.held))
        if kills:
            register.learned = learn_kills(register.learned, kills)
        for agent in dead:
            left = rs.subtract(register.held.pop(agent, []), rs.from_numbers(finished[agent]))
            register.todo = rs.union(register.todo, rs.subtract(left, register.cancelled))
        return register

    register_file.update(change)
    return Recovered(dead, suspects)
