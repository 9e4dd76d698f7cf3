"""Rows of results as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from windlass.core.errors import WindlassError, input_error
from windlass.core.files import replacing
from windlass.view.table import columns_of, render_table

FORMATS = ("table", "csv", "json", "parquet")

Row = Mapping[str, Any]
_CSV_ROWS = 2000  # rows in memory at a time
_PLAIN = frozenset({type(None), str, int, float})  # what `_text` leaves to the writer of CSV


def write_results(
    rows: Iterable[Row],
    kind: str,
    stream: TextIO,
    *,
    path: str | None = None,
) -> None:
    """Write the rows to `stream`; Parquet, which is no text, to `path`. CSV and JSON hold no rows."""
    if kind == "table":
        stream.write(render_table(list(rows)))
    elif kind == "csv":
        _write_csv(rows, stream)
    elif kind == "json":
        stream.writelines(render_json(rows))
    elif kind == "parquet":
        if path is None:
            raise input_error(
                "parquet is not text and needs a file to go to", "--output results.parquet"
            )
        _write_parquet(rows, path)
    else:
        raise input_error(f"there is no format {kind!r}", f"one of: {', '.join(FORMATS)}")


def render_json(rows: Iterable[Row]) -> Iterator[str]:
    """An array of objects, one a line, in strict JSON: a number that is not finite becomes null."""
    separator = "["
    for row in rows:
        yield f"{separator}\n  {json.dumps(strict(row), ensure_ascii=False, allow_nan=False)}"
        separator = ","
    yield "[]\n" if separator == "[" else "\n]\n"


def strict(value: Any) -> Any:
    """The same value without numbers that JSON cannot express."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value


def _write_csv(rows: Iterable[Row], stream: TextIO) -> None:
    """Write a header and the rows.

    The header stands before the rows, but a column may first be met in the last of them. The lines are made with the
    columns of the first rows, which nearly always are those of all; else they are made once more.
    """
    again: Iterable[Row] = list(rows) if isinstance(rows, Iterator) else rows
    columns: list[str] = []
    parts: list[str] = []
    left = iter(again)
    while part := list(itertools.islice(left, _CSV_ROWS)):
        merged = columns_of(part, columns)
        is_other = merged != columns and bool(parts)
        columns = merged
        if is_other:
            break
        parts.append(_render_lines(part, columns))
    else:
        if columns:
            stream.write(_render_lines([], columns, header=True))
            stream.writelines(parts)
        return
    # What was not gone through yet may have more columns.
    columns = columns_of(again)
    stream.write(_render_lines([], columns, header=True))
    left = iter(again)
    while part := list(itertools.islice(left, _CSV_ROWS)):
        stream.write(_render_lines(part, columns))


def _render_lines(rows: Sequence[Row], columns: Sequence[str], header: bool = False) -> str:
    """Lines of CSV. The writer itself leaves out None, and writes floats in full precision."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(columns)
    lines: list[list[Any]] = []
    for row in rows:
        values = list(map(row.get, columns))
        is_plain = _PLAIN.issuperset(map(type, values))
        lines.append(values if is_plain else [_text(value) for value in values])
    writer.writerows(lines)
    return stream.getvalue()


def _text(value: Any) -> Any:
    """A value in full precision, and lists and the like as JSON."""
    if (
        value is None or isinstance(value, str) or type(value) is int
    ):  # Not a bool, which JSON writes as a name.
        return value
    if isinstance(value, float):
        return repr(float(value))
    return json.dumps(value, ensure_ascii=False, default=str)


def _write_parquet(rows: Iterable[Row], path: str) -> None:
    try:
        import polars
    except ImportError:
        raise WindlassError(
            "parquet needs polars, which is not installed\n  hint: pip install polars"
        ) from None
    kept = list(rows)
    frame = polars.DataFrame(
        {name: _column([row.get(name) for row in kept]) for name in columns_of(kept)}
    )
    try:
        with replacing(path) as partial:
            frame.write_parquet(partial)
    except OSError as error:
        raise WindlassError(f"{path}: {error.strerror or error}") from error


def _column(values: Collection[Any]) -> list[Any]:
    """Values of one type, as a column must have: all numbers, all truth values, or all text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or kinds <= {str}:
        return list(values)
    numeric = all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds)
    if numeric and any(issubclass(kind, float) for kind in kinds):
        return [None if value is None else float(value) for value in values]
    if numeric and all(value is None or abs(value) < 1 << 63 for value in values):
        return list(values)
    return [None if value is None else str(_text(value)) for value in values]
