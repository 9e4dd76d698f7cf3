"""Files as text: what was kept, and how large it is."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.counted import counted
from windlass.view.table import render_cell


def render_bytes(size: float) -> str:
    """A size as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def render_outputs(files: Sequence[tuple[str, str, int]]) -> str:
    """One line a file: trial, size, path; and what it comes to."""
    if not files:
        return "nothing was kept"
    lines = [f"{trial:<14}{render_bytes(size):>8}  {render_cell(path)}" for trial, path, size in files]
    total = f"{counted(len(files), 'file')}, {render_bytes(sum(size for _, _, size in files))}"
    return "\n".join([*lines, total])
