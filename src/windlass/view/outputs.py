"""Files as text: what was kept, and how large it is."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.counted import counted
from windlass.core.units import render_bytes
from windlass.view.table import render_cell, render_columns


def render_outputs(files: Sequence[tuple[str, str, int]]) -> str:
    """One line a file: trial, size, path; and what it comes to."""
    if not files:
        return "nothing was kept"
    rows = [(trial, render_bytes(size), render_cell(path)) for trial, path, size in files]
    lines = render_columns(rows, right={1})
    total = f"{counted(len(files), 'file')}, {render_bytes(sum(size for _, _, size in files))}"
    return "\n".join([*lines, total])
