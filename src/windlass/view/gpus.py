"""GPUs in use and free, by type and by node, as text and as JSON. A node of many partitions counts once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.site.cluster import Node
from windlass.view.table import render_table

_ORDER = ("total", "in_use", "free", "out_of_service")


@dataclass(frozen=True)
class GpuCount:
    """GPUs of one type. Those of nodes that take no new jobs are out of service unless a job still uses them."""

    type: str
    total: int = 0
    in_use: int = 0
    free: int = 0
    out_of_service: int = 0

    def __add__(self, other: GpuCount) -> GpuCount:
        return GpuCount(self.type, *(getattr(self, name) + getattr(other, name) for name in _ORDER))


def count_node(node: Node) -> list[GpuCount]:
    """The GPUs of one node, a row for each type."""
    counts = []
    for kind, total in node.gpus.items():
        used = min(node.gpus_used.get(kind, 0), total)
        rest = total - used
        counts.append(
            GpuCount(kind, total, used, rest if node.usable else 0, 0 if node.usable else rest)
        )
    return counts


def count_types(nodes: Iterable[Node], only: str | None = None) -> list[GpuCount]:
    """The GPUs of all nodes, a row for each type."""
    found: dict[str, GpuCount] = {}
    for node in {node.name: node for node in nodes}.values():
        for count in count_node(node):
            if only is None or count.type == only:
                found[count.type] = found.get(count.type, GpuCount(count.type)) + count
    return [found[kind] for kind in sorted(found)]


def gpus_to_json(nodes: Sequence[Node], only: str | None = None) -> dict[str, Any]:
    """Stable keys: types and nodes, each with type, total, in_use, free, out_of_service."""
    return {
        "types": [_counts(count) for count in count_types(nodes, only)],
        "nodes": [
            {
                "node": node.name,
                **_counts(count),
                "states": list(node.states),
                "why_not": _why_not(node),
            }
            for node in nodes
            for count in count_node(node)
            if only is None or count.type == only
        ],
    }


def _counts(count: GpuCount) -> dict[str, Any]:
    return {"type": count.type, **{name: getattr(count, name) for name in _ORDER}}


def render_gpus(nodes: Sequence[Node], only: str | None = None, width: int | None = 100) -> str:
    """Two tables: types, then nodes."""
    types = [_row(count) for count in count_types(nodes, only)]
    if not types:
        return f"no GPUs of type {only}" if only else "no GPUs on this cluster"
    rows = [
        {
            "node": node.name,
            **_row(count),
            "state": "+".join(node.states),
            "remark": _why_not(node) or None,
        }
        for node in nodes
        for count in count_node(node)
        if only is None or count.type == only
    ]
    return f"{render_table(types)}\n{render_table(rows, width=width)}".rstrip("\n")


def _row(count: GpuCount) -> dict[str, Any]:
    return {
        "type": count.type or "any",
        "total": count.total,
        "in use": count.in_use,
        "free": count.free,
        "out of service": count.out_of_service,
    }


def _why_not(node: Node) -> str:
    """Why a job could not take a free GPU of this node."""
    if not node.usable:
        return node.reason or "takes no new jobs"
    if node.cpus and node.cpus_used >= node.cpus:
        return "no core is free"
    return "no memory is free" if node.memory_mb and node.memory_used_mb >= node.memory_mb else ""
