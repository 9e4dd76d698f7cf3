"""What a trial of several processes has used, over all of its nodes. Python 3.9, standard library.

The agent measures its own node, and the companion on each other node measures that one. The memory of a trial is the
sum of the peaks of its nodes; a node and a rank are told by the largest of them. What a rank took between two looks
comes from the kernel, which the process around the rank asks at its end.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from windlass.agent.gauge.gpu_meter import OF_PROCESS
from windlass.agent.gauge.meter import RSS, RankUse
from windlass.agent.gauge.peaks import Peaks, higher_of

_MB = 1024 * 1024
_HERE = ""  # the agent's own node


class NodeUse(NamedTuple):
    """What a trial has used on one node so far: peaks, and totals of what is counted."""

    memory_mb: float = 0.0
    now_mb: float = 0.0
    cpu_s: float = 0.0
    read_mb: float = 0.0
    written_mb: float = 0.0
    gpu_mb: Optional[float] = None
    ranks: Mapping[int, RankUse] = {}


def node_use_of(peaks: Peaks, on_this_node: bool = True) -> NodeUse:
    """What was seen of a trial on this node. GPU memory of companions counts only where it is known by process."""
    last = peaks.last
    if last is None:
        return NodeUse()
    is_known = peaks.gpu_memory.count and (on_this_node or peaks.gpu_source == OF_PROCESS)
    return NodeUse(
        round(peaks.memory.peak, 1),
        round(last.memory_mb, 1),
        round(last.cpu_s, 2),
        round(last.read_bytes / _MB, 1),
        round(last.written_bytes / _MB, 1),
        round(peaks.gpu_memory.peak, 1) if is_known else None,
        peaks.ranks,
    )


def render_node_use(use: NodeUse) -> Dict[str, Any]:
    """For a message to the agent."""
    ranks = {str(rank): [_rounded(value) for value in one] for rank, one in use.ranks.items()}
    return {**use._asdict(), "ranks": ranks}


def read_node_use(message: Mapping[str, Any]) -> NodeUse:
    """Such a message. Raises KeyError, TypeError and ValueError for what is none."""
    figures = {name: message[name] for name in NodeUse._fields if name not in ("gpu_mb", "ranks")}
    gpu_mb = message["gpu_mb"]
    return NodeUse(
        **{name: float(value) for name, value in figures.items()},
        gpu_mb=None if gpu_mb is None else float(gpu_mb),
        ranks={int(rank): RankUse(*values) for rank, values in message["ranks"].items()},
    )


def add_up(
    peaks: Peaks,
    elsewhere: Mapping[str, NodeUse],
    ended: Mapping[int, Mapping[str, Any]],
    lasted_s: float,
) -> Dict[str, Any]:
    """The figures of a trial with a launcher, for the record of its end.

    `elsewhere` are the other nodes by name, and `ended` is what was reported at the end of each rank.
    """
    nodes = {_HERE: node_use_of(peaks), **elsewhere}
    memory = {name: use.memory_mb for name, use in nodes.items()}
    cpu_of_ranks = dict.fromkeys(nodes, 0.0)
    ranks: Dict[int, RankUse] = {}
    for use in nodes.values():
        ranks.update(use.ranks)
    for rank, end in ended.items():
        name = end["node"] if end["node"] in elsewhere else _HERE
        seen = ranks.get(rank, RankUse(0.0, 0.0, 0.0))
        unseen_mb = max(0.0, end["rss_mb"] - seen.rss_mb)
        memory[name] += unseen_mb
        cpu_of_ranks[name] += end["cpu_s"]
        whole = RankUse(seen.memory_mb + unseen_mb, end["rss_mb"], end["cpu_s"])
        ranks[rank] = higher_of(seen, whole)
    if not ranks and not any(memory.values()):
        return {}
    used: Dict[str, Any] = {"mem_mb": round(sum(memory.values()), 1)}
    if peaks.last is None:
        used["mem_src"] = RSS
    cpu_s = [max(use.cpu_s, cpu_of_ranks[name]) for name, use in nodes.items()]
    used["cores"] = round(sum(cpu_s) / lasted_s, 2)
    if elsewhere:
        used["node_cores"] = round(max(cpu_s) / lasted_s, 2)
        used["node_mb"] = round(max(memory.values()), 1)
        used["read_mb"] = round(sum(use.read_mb for use in nodes.values()), 1)
        used["written_mb"] = round(sum(use.written_mb for use in nodes.values()), 1)
    on_gpus = [use.gpu_mb for use in nodes.values() if use.gpu_mb is not None]
    if on_gpus:
        used["gpu_mb"] = round(sum(on_gpus), 1)
        if elsewhere:
            used["node_gpu_mb"] = round(max(on_gpus), 1)
    used.update(_largest_rank(list(ranks.values()), lasted_s))
    return used


def _largest_rank(ranks: List[RankUse], lasted_s: float) -> Dict[str, Any]:
    if not ranks:
        return {}
    used: Dict[str, Any] = {
        "ranks": len(ranks),
        "rank_mb": round(max(rank.memory_mb for rank in ranks), 1),
        "rank_cores": round(max(rank.cpu_s for rank in ranks) / lasted_s, 2),
    }
    on_gpus = [rank.gpu_mb for rank in ranks if rank.gpu_mb is not None]
    if on_gpus:
        used["rank_gpu_mb"] = round(max(on_gpus), 1)
    return used


def _rounded(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 2)
