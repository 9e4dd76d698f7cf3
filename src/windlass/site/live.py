"""What the scheduler says of itself, asked with its own commands; each question may fail alone."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from windlass.core.errors import SchedulerError
from windlass.core.processes import Answer, ask
from windlass.site.cluster import Node, Partition, Qos
from windlass.slurm.records import (
    Record,
    gpus_in_tres,
    known,
    parse_config,
    parse_gres,
    parse_hostlist,
    parse_node_states,
    parse_records,
    parse_slurm_memory_mb,
    parse_slurm_time_s,
    parse_table,
    parse_tres,
    split_names,
)

CONFIG, ACCOUNTS = "scontrol show config", "sacctmgr"
PARTITIONS, NODES = "scontrol show partition", "scontrol show node"
PING_S, ASK_S = 10.0, 30.0
_NO_STORAGE = ("", "accounting_storage/none")
_USER_COLUMNS = "defaultaccount,cluster,account,partition,qos,defaultqos,maxsubmitjobs"
_QOS_COLUMNS = "name,maxwall,maxtresperjob,maxsubmitjobsperuser"
_DOWN_HINT = "try again later; `scontrol ping` says whether it is back"


@dataclass(frozen=True)
class Live:
    """Answers of the scheduler. What it would not say is absent from `sources`."""

    name: str = ""
    version: str = ""
    max_array_size: int | None = None
    kill_wait_s: int | None = None
    max_submit: int | None = None
    accounting: bool | None = None
    default_account: str | None = None
    accounts: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    qos: tuple[Qos, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


def fetch_live() -> Live:
    """Everything that can be asked for, each question once. Raises SchedulerError where the controller is down."""
    check_controller()
    config_answer = ask(["scontrol", "show", "config"], ASK_S)
    config = parse_config(config_answer.text) if config_answer.ok else {}
    if not config:
        raise no_answer(config_answer)
    questions: dict[str, list[str]] = {
        PARTITIONS: ["scontrol", "show", "partition"],
        NODES: ["scontrol", "show", "node", "-d"],
    }
    stores = known(config.get("AccountingStorageType")) not in _NO_STORAGE
    if stores:
        where = f"name={user_name()}"
        questions["user"] = [
            "sacctmgr",
            "-nP",
            "show",
            "user",
            "where",
            where,
            "withassoc",
            f"format={_USER_COLUMNS}",
        ]
        questions["qos"] = ["sacctmgr", "-nP", "show", "qos", f"format={_QOS_COLUMNS}"]
        questions["sacct"] = ["sacct", "-nXP", "-S", "now-1minutes", "-o", "jobid"]
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = dict(
            zip(
                questions,
                pool.map(lambda words: ask(words, ASK_S), questions.values()),
                strict=True,
            )
        )
    texts = {name: answer.text for name, answer in answers.items() if answer.ok}
    return make_live(config, texts, accounting="sacct" in texts)


def check_controller() -> None:
    """Raise SchedulerError where no controller answers. A ping fails at once where other questions wait for long."""
    answer = ask(["scontrol", "ping"], PING_S)
    if "Slurmctld" in answer.text and "is UP" not in answer.text:
        where = ", ".join(re.findall(r" at (\S+) is ", answer.text))
        raise SchedulerError(f"Slurm's controller on {where} does not answer\n  hint: {_DOWN_HINT}")
    if not answer.ok and "Slurmctld" not in answer.text:
        raise no_answer(answer)


def no_answer(answer: Answer) -> SchedulerError:
    printed = answer.errors.strip().splitlines() or answer.text.strip().splitlines()
    return SchedulerError(
        f"Slurm does not answer: {printed[-1] if printed else 'it printed nothing'}\n  hint: {_DOWN_HINT}"
    )


def fetch_nodes() -> tuple[Node, ...]:
    """All nodes as they are now, never from a cache. Raises SchedulerError."""
    check_controller()
    answer = ask(["scontrol", "show", "node", "-d"], ASK_S)
    if not answer.ok:
        raise no_answer(answer)
    return parse_nodes(answer.text)


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def make_live(config: Mapping[str, str], texts: Mapping[str, str], accounting: bool) -> Live:
    """The answers as values. `texts` holds those that came."""
    name = known(config.get("ClusterName"))
    found: dict[str, Any] = {
        "name": name,
        "version": known(config.get("SLURM_VERSION")),
        "max_array_size": _integer(config.get("MaxArraySize")),
        "kill_wait_s": _integer(config.get("KillWait")),
        "accounting": accounting,
    }
    sources = {
        key: CONFIG for key in ("name", "version", "max_array_size", "kill_wait_s") if found[key]
    }
    sources["accounting"] = (
        "sacct" if known(config.get("AccountingStorageType")) not in _NO_STORAGE else CONFIG
    )
    if texts.get(PARTITIONS):
        memory_mb = parse_slurm_memory_mb(config.get("DefMemPerCPU"))
        found["partitions"] = parse_partitions(texts[PARTITIONS], memory_mb)
    if texts.get(NODES):
        found["nodes"] = parse_nodes(texts[NODES])
    if "user" in texts:
        found.update(parse_user(texts["user"], texts.get("qos", ""), name))
    origin = {"partitions": PARTITIONS, "nodes": NODES}
    sources |= {
        key: origin.get(key, ACCOUNTS) for key in found if key not in sources and found[key]
    }
    return Live(**found, sources=sources)


def parse_partitions(
    text: str, default_memory_per_cpu_mb: int | None = None
) -> tuple[Partition, ...]:
    """`scontrol show partition` → values."""
    return tuple(
        _make_partition(record, default_memory_per_cpu_mb)
        for record in parse_records(text)
        if record.get("PartitionName")
    )


def _make_partition(record: Record, default_memory_per_cpu_mb: int | None) -> Partition:
    memory_mb = parse_slurm_memory_mb(record.get("DefMemPerCPU"))
    return Partition(
        name=record["PartitionName"],
        is_default=record.get("Default") == "YES",
        up=record.get("State", "UP") == "UP",
        max_time_s=_time_s(record.get("MaxTime")),
        default_time_s=_time_s(record.get("DefaultTime")),
        max_nodes=_integer(record.get("MaxNodes")),
        nodes=parse_hostlist(record.get("Nodes")),
        allow_accounts=split_names(record.get("AllowAccounts")),
        deny_accounts=split_names(record.get("DenyAccounts")),
        allow_qos=split_names(record.get("AllowQos")),
        max_cpus_per_node=_integer(record.get("MaxCPUsPerNode")),
        max_memory_per_node_mb=parse_slurm_memory_mb(record.get("MaxMemPerNode")),
        default_memory_per_cpu_mb=default_memory_per_cpu_mb if memory_mb is None else memory_mb,
    )


def parse_nodes(text: str) -> tuple[Node, ...]:
    """`scontrol show node`, with or without -d → values."""
    return tuple(_make_node(record) for record in parse_records(text) if record.get("NodeName"))


def _make_node(record: Record) -> Node:
    gpus = {kind: count for kind, count in parse_gres(record.get("Gres")).items() if count}
    return Node(
        name=record["NodeName"],
        cpus=_integer(record.get("CPUEfctv")) or _integer(record.get("CPUTot")) or 0,
        memory_mb=max(
            0,
            (_integer(record.get("RealMemory")) or 0) - (_integer(record.get("MemSpecLimit")) or 0),
        ),
        gpus=gpus,
        cpus_used=_integer(record.get("CPUAlloc")) or 0,
        memory_used_mb=_integer(record.get("AllocMem")) or 0,
        gpus_used=count_used_gpus(gpus, record.get("AllocTRES"), record.get("GresUsed")),
        states=parse_node_states(record.get("State")),
        partitions=split_names(record.get("Partitions")),
        features=split_names(record.get("ActiveFeatures") or record.get("AvailableFeatures")),
        reason=known(record.get("Reason")),
    )


def count_used_gpus(
    gpus: Mapping[str, int], alloc_tres: str | None, gres_used: str | None
) -> dict[str, int]:
    """GPUs in use by type, from what a node says in two places.

    AllocTRES lacks types, or GPUs altogether, where the site does not track them; GresUsed is shown only with -d. The
    one that knows of more is believed. What has no type is given to the types of the node that have some left.
    """
    in_gres, in_tres = parse_gres(gres_used), gpus_in_tres(parse_tres(alloc_tres))
    reported = in_tres if sum(in_tres.values()) > sum(in_gres.values()) else in_gres
    used = {kind: min(reported.get(kind, 0), count) for kind, count in gpus.items()}
    rest = sum(reported.values()) - sum(used.values())
    for kind, count in gpus.items():
        taken = min(rest, count - used[kind])
        used[kind] += taken
        rest -= taken
    return {kind: count for kind, count in used.items() if count}


def parse_user(user_text: str, qos_text: str, cluster: str) -> dict[str, Any]:
    """The user's accounts, QOS and limits on this cluster, from two tables of sacctmgr."""
    rows = [
        row for row in parse_table(user_text, 7) if not row[1] or not cluster or row[1] == cluster
    ]
    accounts = tuple(sorted({row[2] for row in rows if row[2]}))
    default = next((row[0] for row in rows if row[0]), None)
    submits = [int(row[6]) for row in rows if row[6].isdigit()]
    allowed = {name.lstrip("+-") for row in rows for name in row[4].split(",") if name}
    limits = {row[0]: row for row in parse_table(qos_text, 4)}
    return {
        "accounts": accounts,
        "default_account": default if default in accounts else None,
        "max_submit": min(submits) if submits else None,
        "qos": tuple(_make_qos(name, limits.get(name)) for name in sorted(allowed)),
    }


def _make_qos(name: str, row: list[str] | None) -> Qos:
    if row is None:
        return Qos(name)
    tres = parse_tres(row[2])
    gpus = (
        sum(gpus_in_tres(tres).values())
        if any(key.startswith("gres/gpu") for key in tres)
        else None
    )
    return Qos(name, _time_s(row[1]), gpus, int(row[3]) if row[3].isdigit() else None)


def _integer(text: str | None) -> int | None:
    cleaned = known(text).split(" ")[0]
    return int(cleaned) if cleaned.isdigit() else None


def _time_s(text: str | None) -> float | None:
    """A limit that cannot be read is as good as none: the scheduler itself knows it."""
    try:
        return parse_slurm_time_s(text)
    except ValueError:
        return None
