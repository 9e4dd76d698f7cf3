"""Takes back the trials of agents that are gone. Python 3.9, standard library."""

from __future__ import annotations

from typing import Dict, List, Mapping, Set

from windlass.core.claims import ranges as rs
from windlass.core.claims.alive import same_kernel
from windlass.core.claims.combine import remove_requests
from windlass.core.claims.coroner import Coroner, Fate
from windlass.core.claims.learned import learn_kills
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.claims.strays import AGENT_VARIABLE, end_strays
from windlass.core.counted import counted
from windlass.core.damage import report_damage
from windlass.core.journal.events import Again, Ended, Started, decode_event
from windlass.core.journal.read import JournalReader, read_header
from windlass.core.paths import StudyPaths
from windlass.core.states import STATE_OF, Cause, State

# What ended so was to be given back, and may not have been.
_INTERRUPTED = {cause.value for cause, state in STATE_OF.items() if state is State.INTERRUPTED}


def ended_trials(paths: StudyPaths, agent: str) -> Set[int]:
    """Trials that this agent's journal says it is finished with."""
    ended: Set[int] = set()
    reader = JournalReader(paths.journal_of(agent))
    while True:
        events = reader.read()
        if not events:
            return ended
        for event in map(decode_event, events):
            if isinstance(event, Ended) and event.cause not in _INTERRUPTED:
                ended.add(event.number)
            elif isinstance(event, (Again, Started, Ended)):
                ended.discard(event.number)


class Recovered:
    """Which agents were found dead and have been relieved of their trials, and which may be."""

    def __init__(self, dead: List[str], suspects: List[str]) -> None:
        self.dead = dead
        self.suspects = suspects


def recover(paths: StudyPaths, register_file: RegisterFile, own: str = "") -> Recovered:
    """Give what dead agents held back to everybody; their processes are ended first."""
    held = register_file.read().held
    coroner = Coroner(paths) if held else None
    fates = (
        {agent: coroner.fate(agent) for agent in held if agent != own}
        if coroner is not None
        else {}
    )
    dead = [agent for agent, fate in fates.items() if fate is Fate.DEAD]
    suspects = [agent for agent, fate in fates.items() if fate is Fate.SUSPECT]
    if dead and coroner is not None:
        take_back(paths, register_file, {agent: held[agent] for agent in dead}, coroner)
    return Recovered(dead, suspects)


def take_back(
    paths: StudyPaths, register_file: RegisterFile, dead: Mapping[str, Ranges], coroner: Coroner
) -> None:
    """Give what these agents, which are dead, held back to everybody; their processes are ended first."""
    finished: Dict[str, Set[int]] = {}
    of_memory: Set[str] = set()
    for agent, held in dead.items():
        header = read_header(paths.journal_of(agent))
        if header is None:
            problem = f"the journal of an agent that held {counted(rs.count(held), 'trial')} is missing or damaged"
            remedy = "those that had ended are executed again; a backup of this file may have their records"
            report_damage(paths.journal_of(agent), problem, remedy)
        if header is not None and same_kernel(header):
            end_strays(AGENT_VARIABLE, agent)
        if header is not None and coroner.find_cause(header) is Cause.HOST_MEMORY:
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
    remove_requests(register_file, dead)
