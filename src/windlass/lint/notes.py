"""What a look at a script turned up, before it has a file's name."""

from __future__ import annotations

from typing import NamedTuple


class Note(NamedTuple):
    line: int
    wrong: bool
    message: str
    hint: str = ""


def wrong(line: int, message: str, hint: str = "") -> Note:
    """Refused, ignored, or fails later."""
    return Note(line, True, message, hint)


def remark(line: int, message: str, hint: str = "") -> Note:
    """May be meant."""
    return Note(line, False, message, hint)
