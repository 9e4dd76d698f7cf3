"""One look at a study: journals, claims and living agents together."""

from __future__ import annotations

import os

from windlass.claims import ranges as rs
from windlass.claims.alive import LEASE_S, is_alive, seconds_silent
from windlass.claims.register import Register, RegisterFile
from windlass.collect.index import StudyIndex
from windlass.collect.reconcile import StudyView, study_view
from windlass.journal.fold import AgentRecord
from windlass.paths import StudyPaths


def read_register(paths: StudyPaths) -> Register:
    return RegisterFile(paths.claims, "reader").read()


def agents_alive(paths: StudyPaths, agents: list[AgentRecord]) -> dict[str, bool | None]:
    """Which agents live; of those on other machines, the ones that were heard of lately."""
    alive: dict[str, bool | None] = {}
    for agent in agents:
        if agent.ended:
            alive[agent.id] = False
            continue
        header = {
            "host": agent.host,
            "machine": agent.machine,
            "boot": agent.boot,
            "pid": agent.pid,
            "began": agent.began,
        }
        lives = is_alive(header)
        if lives is None:
            lives = seconds_silent(paths.journal_of(agent.id)) < LEASE_S
        alive[agent.id] = lives
    return alive


def look(paths: StudyPaths) -> StudyView:
    """The study as it is now. Reads only what is new since the last look."""
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
            mean_duration_s=index.mean_duration_s(),
            notes=index.notes(),
            damaged_lines=index.damaged(),
        )
    finally:
        index.close()
