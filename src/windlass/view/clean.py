"""What may go and what went, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.collect.leftovers import Leftover
from windlass.core.counted import counted
from windlass.core.units import render_bytes
from windlass.view.table import render_columns


def render_leftovers(
    leftovers: Sequence[Leftover], spared: Mapping[str, str], removed: bool
) -> str:
    """One line a leftover, largest first, and what it comes to."""
    ordered = sorted(leftovers, key=lambda leftover: -leftover.size)
    rows = [(render_bytes(one.size), f"{one.path}  ({one.what})") for one in ordered]
    rows += [("", f"{name} is not touched: {why}") for name, why in spared.items()]
    lines = render_columns(rows, right={0})
    total = render_bytes(sum(leftover.size for leftover in leftovers))
    files = sum(leftover.files for leftover in leftovers)
    if not leftovers:
        lines.append("nothing to remove")
    elif removed:
        lines.append(f"removed {counted(files, 'file')}, {total}")
    else:
        lines.append(f"{counted(files, 'file')}, {total}; nothing is removed yet: --yes does it")
    return "\n".join(lines)


def render_swept(
    folders: Sequence[Mapping[str, Any]], refused: Mapping[str, str], late: Sequence[str]
) -> str:
    """What jobs on nodes have done, folder by folder."""
    lines = []
    for folder in folders:
        size = render_bytes(folder.get("bytes", 0))
        why = f": {folder['why']}" if folder.get("why") else ""
        lines.append(f"{folder['node']}: {folder['what']} {folder.get('path', '')} ({size}){why}")
    lines += [f"{node}: no job, {why}" for node, why in refused.items()]
    if late:
        lines.append(
            f"jobs still wait on {', '.join(late)}; they remove the folders there once they start"
        )
    removed = [folder for folder in folders if folder["what"] == "removed"]
    total = render_bytes(sum(folder.get("bytes", 0) for folder in removed))
    return "\n".join([*lines, f"{counted(len(removed), 'folder')} of dead jobs removed, {total}"])
