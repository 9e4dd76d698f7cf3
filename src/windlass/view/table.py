"""Plain text tables: aligned columns that fit the terminal they are shown on."""

from __future__ import annotations

import json
import math
import os
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TextIO

from windlass.view.escapes import BOLD, RESET, escape_line
from windlass.view.numbers import render_numbers

_GAP = "  "
_NARROWEST = 6
_WIDEST = 40  # A longer cell of a table without a header pushes its own line to the right, not all others.
_LEFT_OUT = "  …"  # at the end of a header: there are more columns


def display_width(text: str) -> int:
    """Columns that `text` takes on a terminal: wide characters count two, marks that combine count none."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, width: int) -> str:
    """`text` with spaces after it, so that it takes at least `width` columns."""
    return text + " " * (width - display_width(text))


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


def columns_of(rows: Iterable[Mapping[str, Any]], before: Sequence[str] = ()) -> list[str]:
    """All columns of the rows: one that only later rows have stands where it stands in those.

    `before` are the columns of rows that were gone through earlier.
    """
    columns = list(before)
    known = set(columns)
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
    keep: Collection[str] = (),
) -> str:
    """An aligned table with a header, cut to fit a `width`. Ends with a newline unless it is empty.

    The numbers of a column have one format. Text is shortened to fit, a number never is: where the columns still do not
    fit, whole ones are left out from the right, and … stands at the end of the header. Those of `keep` are shown in
    full, however narrow it is.
    """
    names = list(columns) if columns is not None else columns_of(rows)
    if not names:
        return ""
    numeric = {name: _is_numeric(row.get(name) for row in rows) for name in names}
    cells = {name: _render_column([row.get(name) for row in rows], numeric[name]) for name in names}
    headers = {name: render_cell(name) for name in names}
    widths = {name: max(map(display_width, [headers[name], *cells[name]])) for name in names}
    shown = list(names)
    if width is not None:
        whole = {*keep, *(name for name in names if numeric[name])}
        shown = _fitting(names, widths, whole, width, keep)
        text = [name for name in shown if name not in whole]
        taken = sum(widths[name] for name in shown if name in whole) + _left_out_width(shown, names)
        narrower = fit_widths(
            [widths[name] for name in text], width - taken - len(_GAP) * (len(shown) - 1)
        )
        widths.update(zip(text, narrower, strict=True))
    lines = [_render_line([headers[name] for name in shown], shown, widths, numeric)]
    if len(shown) < len(names):
        lines[0] += _LEFT_OUT
    for number in range(len(rows)):
        lines.append(_render_line([cells[name][number] for name in shown], shown, widths, numeric))
    if color:
        lines[0] = f"{BOLD}{lines[0]}{RESET}"
    return "\n".join(lines) + "\n"


def render_columns(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = ""
) -> list[str]:
    """Lines of a table without a header: each cell is padded to the widest one of its column.

    `right` names the columns that are aligned to the right. The last column is never padded, so it may be of any
    length. Cells are shown as they are: the caller escapes what comes from outside (`render_cell`).
    """
    widths = [0] * max(map(len, rows), default=0)
    for row in rows:
        for number, cell in enumerate(row):
            widths[number] = min(max(widths[number], display_width(cell)), _WIDEST)
    lines = []
    for row in rows:
        parts = []
        for number, cell in enumerate(row):
            padded = pad(cell, widths[number])
            parts.append(padded[len(cell) :] + cell if number in right else padded)
        lines.append((indent + _GAP.join(parts)).rstrip())
    return lines


def _render_column(values: Sequence[Any], numeric: bool) -> list[str]:
    return render_numbers(values) if numeric else [render_cell(value) for value in values]


def _left_out_width(shown: Sequence[str], names: Sequence[str]) -> int:
    return len(_LEFT_OUT) if len(shown) < len(names) else 0


def _fitting(
    names: Sequence[str],
    widths: Mapping[str, int],
    whole: Collection[str],
    width: int,
    keep: Collection[str],
) -> list[str]:
    """The columns that fit when text is as narrow as can be; those of `whole` are not shortened."""
    shown = list(names)
    droppable = [name for name in names if name not in keep]
    while len(shown) > 1 and droppable:
        least = [widths[name] if name in whole else min(widths[name], _NARROWEST) for name in shown]
        if sum(least) + len(_GAP) * (len(shown) - 1) + _left_out_width(shown, names) <= width:
            break
        shown.remove(droppable.pop())
    return shown


def fit_widths(widths: Sequence[int], available: int) -> list[int]:
    """The widest columns made narrower until all fit, none below a readable minimum."""
    result = list(widths)
    while sum(result) > available:
        widest = max(result, default=0)
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
    return bool(present) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in present
    )


def _render_line(
    cells: Sequence[str],
    names: Sequence[str],
    widths: Mapping[str, int],
    numeric: Mapping[str, bool],
) -> str:
    """One line of a table: numbers are aligned to the right, text to the left and cut to its column."""
    parts = []
    for cell, name in zip(cells, names, strict=True):
        text = cell if numeric[name] else truncate(cell, widths[name])
        padded = pad(text, widths[name])
        parts.append(padded[len(text) :] + text if numeric[name] else padded)
    return _GAP.join(parts).rstrip()


def terminal_width(stream: TextIO) -> int | None:
    """Columns of the terminal behind `stream`; None when it is not one, where nothing is to be cut."""
    import shutil  # It brings many modules along, and most commands print no table.

    return shutil.get_terminal_size().columns if stream.isatty() else None


def wants_color(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether colours are welcome: on a terminal that has them, unless NO_COLOR is set."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
