"""The format of one line of trials.jsonl: its head, its checksum, its number. Python 3.9.

A line is trusted only where it is whole and is the one of its trial. Studies of earlier versions have lines without a
checksum and without a number; of these the fields that every trial has must be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from windlass.core.ids import letters_number
from windlass.core.sealed import seal, unseal

_HEAD = re.compile(rb'\{"crc":"[0-9a-f]{8}","n":(\d+),"id": ?"t([a-z2-7]{12})",')
_OLD_HEAD = re.compile(rb'\{"id": ?"t([a-z2-7]{12})",')
LOST = b',"lost":true}'  # how the line of a trial ends whose settings and command are lost; all others end in "}}"
NO_LINE = -1  # in place of an offset: the file has no usable line of that trial


def head_letters(lines: bytes, place: int, number: int) -> bytes:
    """The letters of the id of the trial whose line begins at `place`; b"" where it is no line of that number."""
    found = _HEAD.match(lines, place)
    if found is not None:
        return found[2] if int(found[1]) == number else b""
    old = _OLD_HEAD.match(lines, place)
    return b"" if old is None else old[1]


class FoundLines:
    """What reading trials.jsonl from its beginning has found."""

    def __init__(self) -> None:
        self.offsets: list[int] = []  # by number; NO_LINE where there is none
        self.sizes: list[int] = []
        self.ids: list[int] = []
        # Number → id of lines that are damaged, as far as it can still be read.
        self.salvaged: dict[int, int] = {}
        self.damaged = 0  # lines that cannot be used
        self._position = 0
        self._place = 0

    def add(self, line: bytes, numbers: Mapping[int, int]) -> None:
        """Take in the next line of the file; `numbers` are those of the index, by id."""
        offset, place = self._position, self._place
        self._position += len(line)
        self._place += 1
        identifier = id_of(line)
        number = number_of(line, numbers.get(identifier, NO_LINE if self.damaged else place))
        if number is None or number == NO_LINE:
            self.damaged += 1
            if identifier:
                self.salvaged[numbers.get(identifier, place)] = identifier
            return
        while len(self.offsets) <= number:
            self.offsets.append(NO_LINE)
            self.sizes.append(0)
            self.ids.append(0)
        self.offsets[number], self.sizes[number], self.ids[number] = offset, len(line), identifier


def is_line_of(line: bytes, number: int, identifier: int) -> bool:
    """Whether this is the whole line of that trial."""
    content = unseal(line)
    if content is None or not line.endswith(b"\n"):
        return False
    head = b'{"n":%d,"id":"t' % number
    if not content.startswith(head):
        # Perhaps of an earlier version.
        return number_of(line, number) == number and id_of(line) == identifier
    try:
        return letters_number(content[len(head) : len(head) + 12]) == identifier
    except ValueError:
        return False


def id_of(line: bytes) -> int:
    """The id that a line begins with, as a number; 0 where it has none."""
    head = _HEAD.match(line)
    if head is not None:
        return letters_number(head[2])
    old = _OLD_HEAD.match(line)
    return 0 if old is None else letters_number(old[1])


def number_of(line: bytes, expected: int) -> int | None:
    """The number of a whole line; None for a damaged one. Lines of earlier versions do not say: it is `expected`."""
    if not line.endswith(b"\n"):
        return None
    head = _HEAD.match(line)
    if head is not None:
        return int(head[1]) if unseal(line) is not None else None
    if _OLD_HEAD.match(line) is None:
        return None
    try:
        fields = json.loads(line)
        return expected if {"id", "stages", "settings"} <= fields.keys() else None
    except (ValueError, AttributeError, RecursionError):
        return None


def seal_line(number: int, line: bytes) -> bytes:
    """A line that begins with the trial's id, with its number and a checksum before that."""
    return seal(b'{"n":%d,' % number + line[1:])
