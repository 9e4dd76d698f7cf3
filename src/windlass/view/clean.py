"""What may go and what went, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.collect.leftovers import Leftover
from windlass.counted import counted
from windlass.view.outputs import render_bytes


def render_leftovers(leftovers: Sequence[Leftover], spared: Mapping[str, str], removed: bool) -> str:
    """One line a leftover, largest first, and what it comes to."""
    lines = [
        f"{render_bytes(leftover.size):>8}  {leftover.path}  ({leftover.what})"
        for leftover in sorted(leftovers, key=lambda leftover: -leftover.size)
    ]
    lines += [f"{'':>8}  {name} is not touched: {why}" for name, why in spared.items()]
    total = render_bytes(sum(leftover.size for leftover in leftovers))
    files = sum(leftover.files for leftover in leftovers)
    if not leftovers:
        lines.append("nothing to remove")
    elif removed:
        lines.append(f"removed {counted(files, 'file')}, {total}")
    else:
        lines.append(f"{counted(files, 'file')}, {total}; nothing is removed yet: --yes does it")
    return "\n".join(lines)


def render_swept(folders: Sequence[Mapping[str, Any]], refused: Mapping[str, str], late: Sequence[str]) -> str:
    """What jobs on nodes have done, folder by folder."""
    lines = []
    for folder in folders:
        size = render_bytes(folder.get("bytes", 0))
        why = f": {folder['why']}" if folder.get("why") else ""
        lines.append(f"{folder['node']}: {folder['what']} {folder.get('path', '')} ({size}){why}")
    lines += [f"{node}: no job, {why}" for node, why in refused.items()]
    if late:
        lines.append(f"still waiting for a turn: {', '.join(late)}; they will do it when they get one")
    removed = [folder for folder in folders if folder["what"] == "removed"]
    total = render_bytes(sum(folder.get("bytes", 0) for folder in removed))
    return "\n".join([*lines, f"{counted(len(removed), 'folder')} of dead jobs removed, {total}"])
