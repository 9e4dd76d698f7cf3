"""What is known of a cluster or of this machine, as text and as JSON; each fact with where it came from."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from windlass.core.units import render_duration, render_limit, render_mb
from windlass.site.cluster import Cluster, GpuType, Node, Partition, Qos
from windlass.site.local import Site
from windlass.view.table import render_table

WIDTH = 100
_BUSY = {"allocated", "mixed", "completing"}
_SHORT = {"profile": "profile", "site": "site file", "table": "its name", "scontrol": "nodes"}
_RULES = {"required": "must be named", "optional": "may be named", "never": "none is named"}


def cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    """The fields of a Cluster as they are; times in seconds, memory in megabytes."""
    return asdict(cluster)


def render_cluster(cluster: Cluster) -> str:
    """Everything known of a cluster, for people."""
    parts = [_render_head(cluster)]
    if cluster.partitions:
        rows = [_partition_row(partition, cluster) for partition in cluster.partitions]
        parts.append(_section("partitions", _source(cluster, "partitions"), rows))
    if cluster.gpus:
        rows = [_gpu_row(gpu, cluster) for gpu in cluster.gpus]
        parts.append(
            _section("GPUs, and what of its node goes with each", _source(cluster, "gpus"), rows)
        )
    if cluster.qos:
        rows = [_qos_row(qos) for qos in cluster.qos]
        parts.append(_section("QOS you may use", _source(cluster, "qos"), rows))
    parts.append(_section("facts and rules", "", _fact_rows(cluster)))
    if cluster.support:
        lines = [
            f"help   (from: {_source(cluster, 'support')})",
            *(f"  {line}" for line in cluster.support),
        ]
        parts.append("\n".join(lines))
    if cluster.notes:
        parts.append("notes\n" + "\n".join(f"  {note}" for note in cluster.notes))
    return "\n\n".join(parts)


def _render_head(cluster: Cluster) -> str:
    """The first line on a cluster: its name, its version of Slurm, its profile, and how old the answers are."""
    words = [cluster.name]
    if cluster.version:
        words.append(f"Slurm {cluster.version}")
    words.append(f"profile {cluster.profile}")
    if cluster.asked_at is not None:
        words.append(f"asked {render_duration(max(0.0, time.time() - cluster.asked_at))} ago")
    return "   ".join(words)


def _section(title: str, source: str, rows: Sequence[dict[str, Any]]) -> str:
    table = render_table(rows, width=WIDTH - 2).rstrip("\n")
    lines = [f"  {line}" for line in table.splitlines()]
    return "\n".join([f"{title}   (from: {source})" if source else title, *lines])


def _source(cluster: Cluster, field: str) -> str:
    return cluster.sources.get(field, "not known")


def _partition_row(partition: Partition, cluster: Cluster) -> dict[str, Any]:
    """A partition as a row of the table.

    The counts of nodes are Slurm's A/I/O/T: allocated, idle, other and total.
    """
    nodes = [node for node in cluster.nodes if partition.name in node.partitions]
    return {
        "name": partition.name + ("*" if partition.is_default else ""),
        "state": "up" if partition.up else "down",
        "longest job": render_limit(partition.max_time_s)
        if partition.max_time_s
        else _no_limit(cluster),
        "if not asked": render_limit(partition.default_time_s)
        if partition.default_time_s
        else None,
        "nodes A/I/O/T": render_node_counts(nodes) if nodes else (len(partition.nodes) or None),
        "GPUs": _render_counts(_sum_gpus(nodes)) or None,
        "for": _who(partition),
    }


def _no_limit(cluster: Cluster) -> str:
    return "no limit" if cluster.live else "not known"


def render_node_counts(nodes: Iterable[Node]) -> str:
    """Allocated, idle, other and all nodes, as `sinfo -s` counts them."""
    counts = Counter(_node_group(node) for node in nodes)
    return f"{counts['A']}/{counts['I']}/{counts['O']}/{counts.total()}"


def _node_group(node: Node) -> str:
    """The letter under which `sinfo` counts a node: A for allocated, I for idle, O for everything else."""
    states = set(node.states)
    if "down" in states or "inval" in states:
        return "O"
    if states & _BUSY:
        return "A"
    return "I" if "idle" in states and node.usable else "O"


def _sum_gpus(nodes: Iterable[Node]) -> Counter[str]:
    total: Counter[str] = Counter()
    for node in nodes:
        total.update(node.gpus)
    return total


def _render_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name or 'GPUs'}" for name, count in sorted(counts.items()))


def _who(partition: Partition) -> str:
    if partition.allow_accounts:
        return ", ".join(partition.allow_accounts)
    if partition.deny_accounts:
        return f"all but {', '.join(partition.deny_accounts)}"
    return f"QOS {', '.join(partition.allow_qos)}" if partition.allow_qos else "all"


def _gpu_row(gpu: GpuType, cluster: Cluster) -> dict[str, Any]:
    """A type of GPU as a row of the table, with the cores and the memory of the node that belong to one GPU."""
    sources = [
        cluster.sources.get(f"gpus.{gpu.name}.{what}", "") for what in ("memory_mb", "shares")
    ]
    return {
        "type": gpu.name or "any",
        "count": gpu.count or None,
        "a node": gpu.per_node or None,
        "memory": _memory(gpu.memory_mb),
        "cores": gpu.share_cpus,
        "node's memory": _memory(gpu.share_memory_mb),
        "memory from": _SHORT.get(sources[0].split(" ")[0], sources[0]) or None,
        "shares from": _SHORT.get(sources[1].split(" ")[0], sources[1]) or None,
    }


def _qos_row(qos: Qos) -> dict[str, Any]:
    """A quality of service as a row of the table. What it does not limit is left empty."""
    return {
        "name": qos.name,
        "longest job": render_limit(qos.max_time_s) if qos.max_time_s else "no limit",
        "GPUs a job": qos.max_gpus_per_job,
        "jobs in the queue": qos.max_submit,
    }


def _fact_rows(cluster: Cluster) -> list[dict[str, Any]]:
    """The facts about requests as rows: each fact, its value, and the source it was learned from."""
    gpu_word = "TYPE:N" if cluster.typed_gpus else "N"
    gpu_option = "--gpus-per-node=" if cluster.gpu_form == "gpus-per-node" else "--gres=gpu:"
    gpu_field = "gpu_form" if _source(cluster, "gpu_form") != "guess" else "typed_gpus"
    array = (
        f"{cluster.max_array_size} (tasks 0 to {cluster.max_array_size - 1})"
        if cluster.max_array_size
        else None
    )
    facts: list[tuple[str, Any, str]] = [
        ("your accounts", _accounts(cluster), "accounts"),
        ("account", _RULES[cluster.account_rule], "account_rule"),
        (
            "partition",
            "may be named" if cluster.name_partition else "none is named",
            "name_partition",
        ),
        ("GPUs are asked for with", f"{gpu_option}{gpu_word}", gpu_field),
        ("memory is asked for with", f"--{cluster.memory_form}", "memory_form"),
        ("array size", array, "max_array_size"),
        (
            "from TERM to KILL",
            render_limit(cluster.kill_wait_s) if cluster.kill_wait_s else None,
            "kill_wait_s",
        ),
        ("jobs in the queue", cluster.max_submit, "max_submit"),
        (
            "longest job",
            render_limit(cluster.max_time_s) if cluster.max_time_s else None,
            "max_time_s",
        ),
        ("shortest welcome job", render_limit(cluster.min_job_s), "min_job_s"),
        ("agents at a time", cluster.throttle, "throttle"),
        ("interactive job", f"up to {render_limit(cluster.shell_time_s)}", "shell_time_s"),
        ("partition of these", cluster.shell_partition or "as of other jobs", "shell_partition"),
        ("sacct answers", _truth(cluster.accounting), "accounting"),
        ("local scratch", cluster.local_scratch or "$SLURM_TMPDIR", "local_scratch"),
        ("shared scratch", cluster.scratch or "$SCRATCH", "scratch"),
        ("submit from home", _truth(cluster.submit_from_home), "submit_from_home"),
        ("internet on nodes", _truth(cluster.internet), "internet"),
        ("batch scripts' shell", cluster.shebang, "shebang"),
    ]
    rows = [_fact(fact, value, _source(cluster, field)) for fact, value, field in facts]
    return rows + [
        _fact(f"default {word}", value, _source(cluster, f"defaults.{word}"))
        for word, value in cluster.defaults.items()
    ]


def _fact(fact: str, value: Any, source: str) -> dict[str, Any]:
    """A row. What nobody knows but Slurm usually has is called a guess."""
    if value is None:
        return {"fact": fact, "value": "not known", "from": ""}
    return {"fact": fact, "value": str(value), "from": "guess" if source == "not known" else source}


def _accounts(cluster: Cluster) -> str | None:
    """The user's accounts in one text, the default marked; None where the cluster names none."""
    if not cluster.accounts:
        return None
    return ", ".join(
        f"{name} (default)" if name == cluster.default_account else name
        for name in cluster.accounts
    )


def _truth(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _memory(megabytes: int | None) -> str | None:
    return None if megabytes is None else render_mb(megabytes)


def local_to_json(site: Site) -> dict[str, Any]:
    """This machine for `windlass site --json`. The keys are stable."""
    return {
        "slurm": False,
        "cpus": site.cpus,
        "memory_mb": site.memory_mb,
        "gpus": [asdict(gpu) for gpu in site.gpus],
        "defaults": site.defaults,
        "defaults_file": site.source,
    }


def render_local_site(site: Site) -> str:
    """What a machine without Slurm has."""
    gpus = [f"{gpu.name}: {_memory(gpu.memory_mb) or 'memory not known'}" for gpu in site.gpus]
    rows = [
        _fact("cores", site.cpus, "affinity and cgroup"),
        _fact("memory", _memory(site.memory_mb), "the machine, and its cgroup"),
        _fact("GPUs", ", ".join(gpus) or "none", "nvidia-smi, CUDA_VISIBLE_DEVICES"),
    ]
    rows += [
        _fact(f"default {word}", value, f"site file {site.source}")
        for word, value in site.defaults.items()
    ]
    head = "this machine; there is no Slurm on it"
    hint = "`windlass site NAME` shows a cluster's profile, `windlass site --list` their names"
    return f"{_section(head, '', rows)}\n\n  hint: {hint}"
