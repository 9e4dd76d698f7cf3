"""What a cluster has idle now, and how many jobs of others wait. Unlike the rest of a cluster's facts, never kept."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from windlass.core.processes import ask
from windlass.core.queue.ask import plain_environment
from windlass.site.cluster import Cluster
from windlass.site.live import ASK_S, parse_nodes

_QUEUE = ["squeue", "--noheader", "--states=PENDING", "--format=%U|%P|%r"]
_NODES = ["scontrol", "show", "node", "-d"]
# Of jobs that would start if there was room. Others wait for a date, a dependency, or a limit of their owner.
_FOR_RESOURCES = {"Resources", "Priority", "None"}


def fetch_load(cluster: Cluster) -> Cluster:
    """The cluster with its nodes as they are now. As it was where the scheduler was not asked, or does not answer."""
    if not cluster.live:
        return cluster
    env = plain_environment({})
    with ThreadPoolExecutor(2) as pool:
        nodes, queue = pool.map(lambda words: ask(words, ASK_S, env=env), (_NODES, _QUEUE))
    found = parse_nodes(nodes.text) if nodes.ok else ()
    waiting = parse_waiting(queue.text, os.getuid()) if queue.ok else {}
    return replace(cluster, nodes=found or cluster.nodes, waiting=waiting)


def parse_waiting(text: str, own: int) -> dict[str, int]:
    """Partition → how many jobs of other users wait there for resources."""
    found: Counter[str] = Counter()
    for line in text.splitlines():
        user, _, rest = line.strip().partition("|")
        partitions, _, reason = rest.partition("|")
        if user.isdecimal() and int(user) != own and reason.strip("()") in _FOR_RESOURCES:
            found.update(partitions.split(","))
    return dict(found)
