"""Plain text tables: aligned columns that fit the terminal they are shown on."""

from __future__ import annotations

import json
import math
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from windlass.view.escapes import BOLD, RESET, escape_line

_GAP = "  "
_NARROWEST = 6


def display_width(text: str) -> int:
    """Columns that `text` takes on a terminal: wide characters count two, marks that combine count none."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def truncate(text: str, width: int) -> str:
    """`text` in at most `width` columns; … stands for what was cut off."""
    if display_width(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _character_width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…" if width > 0 else ""


def render_cell(value: Any) -> str:
    """A value as people read it; whatever could move the cursor is shown as an escape."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return escape_line(text)


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns of the rows: one that only later rows have stands where it stands in those."""
    columns: list[str] = []
    known: set[str] = set()
    for row in rows:
        if row.keys() <= known:
            continue
        position = 0
        for name in row:
            if name in known:
                position = columns.index(name) + 1
            else:
                columns.insert(position, name)
                known.add(name)
                position += 1
    return columns


def render_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    *,
    width: int | None = None,
    color: bool = False,
) -> str:
    """An aligned table with a header, cut to fit a `width`. Ends with a newline unless it is empty."""
    names = list(columns) if columns is not None else columns_of(rows)
    if not names:
        return ""
    cells = [[render_cell(row.get(name)) for name in names] for row in rows]
    headers = [render_cell(name) for name in names]
    widths = [
        max([display_width(header), *(display_width(line[i]) for line in cells)]) for i, header in enumerate(headers)
    ]
    numeric = [_is_numeric(row.get(name) for row in rows) for name in names]
    if width is not None:
        widths = fit_widths(widths, width - len(_GAP) * (len(widths) - 1))
    lines = [_render_line(line, widths, numeric) for line in [headers, *cells]]
    if width is not None:
        lines = [truncate(line, width) for line in lines]
    if color:
        lines[0] = f"{BOLD}{lines[0]}{RESET}"
    return "\n".join(lines) + "\n"


def fit_widths(widths: Sequence[int], available: int) -> list[int]:
    """The widest columns made narrower until all fit, none below a readable minimum."""
    result = list(widths)
    while sum(result) > available:
        widest = max(result)
        if widest <= _NARROWEST:
            break
        second = max((w for w in result if w < widest), default=_NARROWEST)
        wide = [i for i, w in enumerate(result) if w == widest]
        excess = sum(result) - available
        target = max(second, _NARROWEST, widest - math.ceil(excess / len(wide)))
        for i in wide:
            result[i] = target
    return result


def _is_numeric(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present)


def _render_line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        text = truncate(cell, width)
        padding = " " * (width - display_width(text))
        parts.append(padding + text if right else text + padding)
    return _GAP.join(parts).rstrip()


def terminal_width(stream: TextIO) -> int | None:
    """Columns of the terminal behind `stream`; None when it is not one, where nothing is to be cut."""
    import shutil  # brings many modules along, and most who import this one print no table

    return shutil.get_terminal_size().columns if stream.isatty() else None


def wants_color(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether colours are welcome: on a terminal that has them, unless NO_COLOR is set."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
