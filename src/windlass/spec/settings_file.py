"""`parameters: {file: settings.csv}`: settings from a CSV, TSV, JSON or JSONL file, one trial a row."""

from __future__ import annotations

import csv
import functools
import gc
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from windlass.core.errors import InputError, Problem
from windlass.model import Written
from windlass.search.values import canonical_json
from windlass.spec.document import parse_scalar
from windlass.spec.keys import Keys
from windlass.spec.limits import DEEPEST, MOST_DIGITS, MOST_TRIALS
from windlass.spec.parameters import name_problem
from windlass.spec.read_text import read_text

KEY = "file"
ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
_MOST_SHOWN = 20  # problems of one file

Row = Mapping[str, Any]
# A row, and the line that it begins in.
_Placed = tuple[Row, int]


def find_settings_file(keys: Keys) -> str | None:
    """The file that `parameters` names as a source of settings; None where there is none.

    A command that has a placeholder `{file}` means a parameter of that name.
    """
    given = keys.parameters.get(KEY) if isinstance(keys.parameters, dict) else None
    if not isinstance(given, str) or not given.lower().endswith(ENDINGS):
        return None
    commands = json.dumps([keys.command, keys.stages], default=str)
    return None if re.search(r"(?<!\{)\{file\}", commands) else given


def read_settings(path: str, found: list[Problem]) -> tuple[Row, ...]:
    """The settings in a file, in order; what is wrong with them is added to `found`, with its line.

    The ending tells the format. CSV and TSV have a header with the parameters' names; their cells have the types that
    the same text has in YAML, and an empty cell leaves the parameter out. JSON is a list of mappings, JSONL a mapping
    a line.
    """
    problems = _FileProblems(path, found)
    try:
        text = read_text(path, "a path relative to the study file")
    except InputError as error:
        found += error.problems
        return ()
    name = path.lower()
    if name.endswith((".csv", ".tsv")):
        placed = _read_table(text, "\t" if name.endswith(".tsv") else ",", problems)
    elif name.endswith(".json"):
        placed = _read_json(text, problems)
    else:
        placed = _read_json_lines(text, problems)
    with _without_collection():
        rows = _check_rows(placed, problems)
    if not rows and not problems.count:
        problems.add("there are no settings in this file", "a header and one row a trial")
    problems.end()
    return rows


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python looks for unused objects ever again while millions are made, which takes longer than making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _FileProblems:
    """Collects problems of one file; of very many only the first are shown."""

    def __init__(self, path: str, found: list[Problem]) -> None:
        self._path = path
        self._found = found
        self.count = 0

    def add(self, message: str, hint: str = "", line: int = 0) -> None:
        self.count += 1
        if self.count <= _MOST_SHOWN:
            self._found.append(Problem(message, hint, self._path, line))

    def end(self) -> None:
        if self.count > _MOST_SHOWN:
            self._found.append(
                Problem(f"there are {self.count - _MOST_SHOWN:,} more problems", "", self._path)
            )


def _check_rows(placed: Iterator[_Placed], problems: _FileProblems) -> tuple[Row, ...]:
    """All rows; one that is empty, stands there twice or has a name that cannot be a parameter's is a problem."""
    rows: list[Row] = []
    lines: dict[int, tuple[int, int]] = {}  # hash of a row → its place and its line
    names: set[str] = set()
    for row, line in placed:
        if len(rows) >= MOST_TRIALS:
            problems.add(f"there are more than {MOST_TRIALS:,} settings", "split the file", line)
            break
        for name in row.keys() - names:
            wrong = name_problem(name)
            if wrong is not None:
                problems.add(*wrong, line)
            names.add(name)
        place, first = lines.setdefault(_hash(row), (len(rows), line))
        if place != len(rows) and canonical_json(rows[place]) == canonical_json(row):
            problems.add(
                f"these settings stand in line {first} already", "keep one of the two", line
            )
        rows.append(row)
    return tuple(rows)


def _hash(row: Row) -> int:
    """The same number for equal rows; now and then for others, too."""
    try:
        return hash(frozenset(row.items()))
    except TypeError:  # a list or a mapping is among the values
        return hash(canonical_json(row))


# -- CSV


def _read_table(text: str, delimiter: str, problems: _FileProblems) -> Iterator[_Placed]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] = []
    before = 0
    try:
        for cells in reader:
            line, before = before + 1, reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if not names:
                names = [cell.strip() for cell in cells]
                if not _is_header(names, line, problems):
                    return
                continue
            if len(cells) != len(names):
                problems.add(
                    f"this row has {len(cells)} cells, and the header has {len(names)}", "", line
                )
                continue
            stripped = map(str.strip, cells)
            row = {
                name: _parse_cell(cell) for name, cell in zip(names, stripped, strict=True) if cell
            }
            yield row, line
    except csv.Error as error:
        problems.add(f"this is not valid CSV: {error}", "close every quote", before + 1)


def _is_header(names: list[str], line: int, problems: _FileProblems) -> bool:
    count = problems.count
    for number, name in enumerate(names, 1):
        if not name:
            problems.add(
                f"column {number} has no name", "the first line names the parameters", line
            )
        elif name in names[: number - 1]:
            problems.add(f"the column {name} stands here twice", "keep one of the two", line)
    return problems.count == count


@functools.lru_cache(maxsize=1 << 16)
def _parse_cell(text: str) -> Any:
    return parse_scalar(text)


# -- JSON


def _decoder() -> json.JSONDecoder:
    def parse_float(text: str) -> Written:
        return Written(float(text), text)

    def parse_constant(text: str) -> Written:
        return Written(float(text), text.lower().replace("infinity", "inf"))

    return json.JSONDecoder(
        object_pairs_hook=_pairs,
        parse_float=parse_float,
        parse_int=_parse_int,
        parse_constant=parse_constant,
    )


def _parse_int(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(
            f"a whole number has more than {MOST_DIGITS} digits; put it in quotes to pass it on as text"
        )
    return int(text)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one mapping")
    return found


def _read_json(text: str, problems: _FileProblems) -> Iterator[_Placed]:
    """Rows of a list, one after the other, so that the line of each is known."""
    decode = _decoder().raw_decode
    blank = re.compile(r"[ \t\n\r]*")
    place = _end(blank, text, 0)
    line, counted = 1 + text.count("\n", 0, place), place
    if text[place : place + 1] != "[":
        problems.add("this must be a list of mappings", '[{"lr": 0.1}, {"lr": 0.01}]', line)
        return
    place = _end(blank, text, place + 1)
    while text[place : place + 1] != "]":
        line, counted = line + text.count("\n", counted, place), place
        try:
            row, place = decode(text, place)
        except (ValueError, RecursionError) as error:
            at = line + text.count("\n", counted, getattr(error, "pos", counted))
            problems.add(f"this is not valid JSON: {_explain(error)}", "", at)
            return
        if _is_row(row, line, problems):
            yield row, line
        place = _end(blank, text, place)
        if text[place : place + 1] == ",":
            place = _end(blank, text, place + 1)
        elif text[place : place + 1] != "]":
            problems.add(
                "this is not valid JSON: a comma or ] is missing",
                "",
                1 + text.count("\n", 0, place),
            )
            return


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place


def _read_json_lines(text: str, problems: _FileProblems) -> Iterator[_Placed]:
    decode = _decoder().decode
    for line, written in enumerate(text.split("\n"), 1):
        if not written.strip():
            continue
        try:
            row = decode(written)
        except (ValueError, RecursionError) as error:
            problems.add(
                f"this is not valid JSON: {_explain(error)}", '{"lr": 0.1, "hidden": 64}', line
            )
            continue
        if _is_row(row, line, problems):
            yield row, line


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"lists or mappings are nested more than {DEEPEST} deep"
    return getattr(error, "msg", "") or str(error)


def _is_row(row: Any, line: int, problems: _FileProblems) -> bool:
    if not isinstance(row, dict) or not row:
        problems.add(
            "each row must be a mapping of names to values", '{"lr": 0.1, "hidden": 64}', line
        )
        return False
    for value in row.values():
        if isinstance(value, (dict, list)) and _depth(value) > DEEPEST:
            problems.add(f"lists or mappings are nested more than {DEEPEST} deep", "", line)
            return False
    if not _is_text(canonical_json(row)):
        problems.add("a text holds half a character", "write the character itself", line)
        return False
    return True


def _depth(value: Any) -> int:
    """How deep lists and mappings are nested; no more than one level beyond the limit is looked at."""
    level = [value]
    for depth in range(1, DEEPEST + 2):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return depth
    return DEEPEST + 1


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def locate_settings(given: str, folder: str) -> str:
    """The path of a settings file that a study in `folder` names."""
    return os.path.join(folder, os.path.expanduser(given))
