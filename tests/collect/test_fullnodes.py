"""Nodes whose local disk was full are left out of the next submission."""

from __future__ import annotations

from windlass.collect.fullnodes import find_full_nodes
from windlass.core.journal.records import AgentRecord

DAY = 86400.0


def agent(node: str, seen: float, reason: str) -> AgentRecord:
    return AgentRecord(f"a{seen}", job={"node": node}, last_seen=seen, ended=True, reason=reason)


def full(node: str, seen: float, on: str = "") -> AgentRecord:
    return agent(
        node,
        seen,
        f"not ready: NODE_SCRATCH_FULL {on or node}: the local disk of {on or node} is full: …",
    )


def test_the_newest_word_on_a_node_counts() -> None:
    agents = [
        full("n1", 10.0),
        full("n2", 20.0),
        agent("n2", 30.0, "nothing left"),
        full("n3", 5.0, on="n4.site"),
    ]
    assert find_full_nodes(agents, 100.0) == {"n1": 10.0, "n4.site": 5.0}
    assert find_full_nodes(agents, DAY + 7.0) == {"n1": 10.0}
    assert find_full_nodes([*agents, agent("n1", 40.0, "not ready: no module")], 100.0) == {
        "n1": 10.0,
        "n4.site": 5.0,
    }
