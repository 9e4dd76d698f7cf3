"""Nodes whose local disk was full when an agent of this study was there: the next jobs are better off elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable

from windlass.collect.index import open_index
from windlass.core.journal.records import AgentRecord
from windlass.core.paths import StudyPaths

_MARK = re.compile(r"NODE_SCRATCH_FULL ([\w.-]+)")  # as agent/node/store.py writes it
_REMEMBERED_S = 86400.0  # afterwards somebody may have tidied up


def read_full_nodes(paths: StudyPaths, now: float) -> dict[str, float]:
    """Names of nodes, and when their disks were found full."""
    with open_index(paths) as index:
        return find_full_nodes(index.agents(), now)


def find_full_nodes(agents: Iterable[AgentRecord], now: float) -> dict[str, float]:
    """The newest event on a node counts: an agent that got ready there later has found room."""
    full: dict[str, float] = {}
    for agent in sorted(agents, key=lambda agent: agent.last_seen):
        found = _MARK.search(agent.reason)
        if found is not None:
            full[found[1]] = agent.last_seen
        elif agent.job is not None and not agent.reason.startswith("not ready"):
            full.pop(str(agent.job.get("node", "")), None)
    return {node: when for node, when in full.items() if now - when < _REMEMBERED_S}
