"""Takes back the trials of agents that are gone. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, List, Set

from windlass.claims import ranges as rs
from windlass.claims.alive import LEASE_S, is_alive, same_kernel, seconds_silent
from windlass.claims.register import Register, RegisterFile
from windlass.claims.strays import AGENT_VARIABLE, end_strays
from windlass.journal.read import JournalReader, read_header
from windlass.paths import StudyPaths


def agent_is_dead(paths: StudyPaths, agent: str) -> bool:
    """Only True when it is certain, or when an agent on another machine has been silent beyond its lease."""
    journal = paths.journal_of(agent)
    header = read_header(journal)
    if header is not None:
        alive = is_alive(header)
        if alive is not None:
            return not alive
        if header.get("job"):
            return False  # the scheduler knows better; see the launcher
    elif not os.path.exists(journal):
        journal = paths.claims
    return seconds_silent(journal) > LEASE_S


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
            if kind == "end":
                ended.add(event["i"])
            elif kind in ("again", "start"):
                ended.discard(event["i"])


def recover(paths: StudyPaths, register_file: RegisterFile, own: str = "") -> List[str]:
    """Give what dead agents held back to everybody; their processes are ended first. Returns those agents."""
    held = register_file.read().held
    dead = [agent for agent in held if agent != own and agent_is_dead(paths, agent)]
    if not dead:
        return []
    finished: Dict[str, Set[int]] = {}
    for agent in dead:
        header = read_header(paths.journal_of(agent))
        if header is not None and same_kernel(header):
            end_strays(AGENT_VARIABLE, agent)
        finished[agent] = ended_trials(paths, agent)

    def change(register: Register) -> Register:
        for agent in dead:
            left = rs.subtract(register.held.pop(agent, []), rs.from_numbers(finished[agent]))
            register.todo = rs.union(register.todo, rs.subtract(left, register.cancelled))
        return register

    register_file.update(change)
    return dead
