"""Rows of tables that programs print, as names with values. Python 3.9, standard library.

Two kinds are known. Stable-Baselines3 prints a table with sections, ``| rollout/ | |``, and rows below them,
``|    ep_rew_mean | 21.3 |``. Many programs print a row of names once, ``epoch  loss  acc``, and rows of numbers after
it. The row of names counts only for rows with as many cells, all of them numbers. Where its first name is a counter,
such as ``epoch``, other lines may stand between the rows; else the first other line ends the table.
"""

from __future__ import annotations

import re
from typing import List, Optional

_NUMBER = rb"[-+]?(?:\d[\d_,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf|NaN|Infinity)"
_SECTION = re.compile(rb"\|\s*([A-Za-z][\w.-]*)/\s*\|\s*\|")
_ENTRY = re.compile(rb"\|\s+([A-Za-z][\w./-]*)\s*\|\s*(" + _NUMBER + rb")\s*\|")
_RULE = re.compile(rb"(?:[\s|+=:_*-]|\xe2\x94[\x80-\xbf]|\xe2\x95[\x80-\xbf])*")
_NAME = re.compile(rb"[A-Za-z][\w ./@%()#-]*")
_CELL = re.compile(rb"(?:" + _NUMBER + rb")\s*%?|\d+:\d\d(?::\d\d)?(?:\.\d+)?|-+")
_COUNTER = re.compile(
    rb"#?(?:epochs?|steps?|iter|iters|iteration|it|round|update|timesteps?|batch|global_step)", re.I
)
_SPACES = re.compile(rb"\s{2,}")
_MOST_BYTES = 1000  # of a row; a longer line is none


class Tables:
    """The tables of one stream of output, as far as they have been printed."""

    __slots__ = ("_count", "_has_counter", "_names", "_section", "_separator")

    def __init__(self) -> None:
        self._section = b""
        # Of the columns; two ways to read them where names may have spaces.
        self._names: List[List[bytes]] = []
        self._separator: Optional[bytes] = None
        self._has_counter = False
        self._count = 0.0

    def read(self, line: bytes, is_wanted: bool) -> Optional[bytes]:
        """A row as ``name=value, name=value``; None where the line is none.

        `is_wanted`: whether the line has a name that is searched for. Without one it can begin no table of use.
        """
        if not is_wanted and not self._names and not self._section and line[:1] != b"|":
            return None  # nearly all lines end here
        text = line.strip()
        if len(text) > _MOST_BYTES:
            return None
        if text.startswith(b"|"):
            section = _SECTION.fullmatch(text)
            if section is not None:
                self._section, self._names = section[1] + b"/", []
                return None
            entry = _ENTRY.fullmatch(text) if self._section else None
            if entry is not None:
                return self._section + entry[1] + b"=" + entry[2]
        else:
            self._section = b""
        row = self._read_row(text)
        if row is None and is_wanted:
            self._begin(text)
        return row

    def _read_row(self, text: bytes) -> Optional[bytes]:
        if not self._names or not text or _RULE.fullmatch(text):
            return None
        cells = _split(text, self._separator)
        if all(_CELL.fullmatch(cell) for cell in cells):
            for names in self._names:
                if len(names) == len(cells) and self._goes_on(cells[0]):
                    return b", ".join(name + b"=" + cell for name, cell in zip(names, cells))  # noqa: B905
        if not self._has_counter:
            self._names = []
        return None

    def _goes_on(self, first: bytes) -> bool:
        """Whether a row comes after the one before, where the first column counts."""
        if not self._has_counter:
            return True
        try:
            count = float(first.replace(b",", b"").rstrip(b"% "))
        except ValueError:
            return False
        is_next = count >= self._count
        self._count = max(count, self._count)
        return is_next

    def _begin(self, text: bytes) -> None:
        """Take the line for the names of a table's columns, if it can be that."""
        separator = next((sign for sign in (b"|", b"\t", b",") if sign in text), None)
        ways = [_split(text, separator)]
        if separator is None and len(_SPACES.split(text)) > 1:
            ways.append(_SPACES.split(text))
        ways = [names for names in ways if _are_names(names)]
        has_counter = bool(ways) and _COUNTER.fullmatch(ways[0][0]) is not None
        # A sentence of as many words does not end a table whose rows are numbered.
        if ways and (has_counter or not self._has_counter or not self._names):
            self._names, self._separator = ways, separator
            self._has_counter, self._count = has_counter, 0.0


def _split(text: bytes, separator: Optional[bytes]) -> List[bytes]:
    if separator is None:
        return text.split()
    return [
        cell.strip() for cell in text.strip(b"|" if separator == b"|" else b"").split(separator)
    ]


def _are_names(cells: List[bytes]) -> bool:
    return (
        len(cells) > 1
        and len(set(cells)) == len(cells)
        and all(_NAME.fullmatch(cell) for cell in cells)
    )
