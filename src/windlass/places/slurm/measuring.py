"""The request of a job that measures trials. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from windlass.model import Plan
from windlass.plan.refuse_processes import has_launcher
from windlass.site.cluster import Cluster

_JOB_MARGIN_S = 300.0  # for making the node ready, and for the end
_FEWEST_CPUS = 4  # of a job that measures on a GPU: one a trial
_MOST_CPUS = 8  # of a job that measures trials without GPUs


def plan_measuring_job(plan: Plan, cluster: Cluster, limit_s: float) -> tuple[Plan, float]:
    """One short job with a fair share of one GPU's node: enough for several trials side by side.

    Returns its plan, and the time that the job leaves for the measurement, of the `limit_s` that were asked for.
    """
    assert plan.terms is not None
    asked = plan.terms.request
    kind = cluster.gpu(asked.gpu_type) if asked.gpus else None
    share = kind.share_cpus if kind is not None and kind.share_cpus else 1
    wanted = max(share, _FEWEST_CPUS) if asked.gpus else _MOST_CPUS
    most_cpus, most_memory_mb = _node_size(plan, cluster)
    # One trial must fit. More is room for others beside it, as far as a node has it.
    cpus = max(-(-asked.cpus // plan.slots), min(max(asked.cpus, wanted), most_cpus))
    room_mb = asked.memory_mb if asked.gpus else asked.memory_mb * cpus // max(1, asked.cpus)
    if kind is not None and kind.share_memory_mb:
        room_mb = max(room_mb, kind.share_memory_mb)
    memory_mb = max(
        -(-asked.memory_mb // plan.slots), min(max(asked.memory_mb, room_mb), most_memory_mb)
    )
    limits = [
        cluster.longest_time_s(asked.partition),
        *(q.max_time_s for q in cluster.qos if q.name == asked.qos),
    ]
    wanted_s = math.ceil((limit_s + _JOB_MARGIN_S) / 60) * 60
    time_s = int(min([wanted_s, *(limit for limit in limits if limit)]))
    room_s = max(time_s - _JOB_MARGIN_S, time_s / 2)
    # With a launcher, one trial has all of its devices, tasks and nodes: fewer would be another trial.
    is_launched = has_launcher(plan)
    trial_nodes = (plan.settings["nodes"].value or asked.nodes) if is_launched else 1
    a_node = max(1, plan.slots * trial_nodes // max(1, asked.nodes))  # trials, on each node
    request = replace(
        asked,
        tasks=max(1, asked.tasks // a_node) if is_launched else asked.tasks,
        job_name=f"{asked.job_name}-measure",
        cpus=cpus,
        memory_mb=memory_mb,
        gpus=asked.gpus // a_node if is_launched else min(1, asked.gpus),
        nodes=trial_nodes,
        time_s=time_s,
        throttle=None,
        notice_s=0,
    )
    terms = replace(plan.terms, request=request, agents=1, slots=1, units=1)
    return replace(plan, terms=terms, agents=1), min(limit_s, room_s)


def _node_size(plan: Plan, cluster: Cluster) -> tuple[int, int]:
    """The most cores, and the most MB of memory, that a job gets on a node where it would wait."""
    name = plan.request.partition if plan.request is not None else None
    nodes, partition = cluster.nodes_of(name), cluster.partition(name)
    caps = (
        (partition.max_cpus_per_node, partition.max_memory_per_node_mb)
        if partition is not None
        else (None, None)
    )
    cpus = max((node.cpus for node in nodes), default=_MOST_CPUS)
    memory_mb = max((node.memory_mb for node in nodes), default=1 << 60)
    return min(cpus, caps[0] or cpus), min(memory_mb, caps[1] or memory_mb)
