"""trials.jsonl and its index: one line a trial, found by number without reading the rest. Python 3.9.

trials.jsonl   {"id": "t…", "stages": [["main", ["python", "train.py", …]]], "settings": {…}}, one line a trial;
               trials of a ladder have a "rung" as well, and
               "written" before "settings" has the text of those that JSON writes otherwise: {"lr": "1e-3"}
trials.idx     16 bytes a trial: where its line begins and a number made of its id, both little-endian
A trial's number is its position. Lines are only ever added. How many of them count is said by the claims register;
what a killed writer left beyond that is cut off before the next lines are added.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from windlass.paths import StudyPaths

_ENTRY = struct.Struct("<QQ")


def id_number(trial_id: str) -> int:
    """A trial's id as a 64-bit number; two trials have the same number only if they have the same id.

    Works for the beginning of an id, too: the ids that begin so have the numbers from this one up to
    `id_number_stop`.
    """
    return int.from_bytes(base64.b32decode(trial_id[1:].upper().ljust(13, "A") + "==="), "big")


def id_number_stop(beginning: str) -> int:
    """The first number that no id beginning so has."""
    return id_number(beginning) + (1 << (64 - 5 * len(beginning[1:])))


class TrialFile:
    """Reads trials by number. Holds two descriptors and no trials."""

    def __init__(self, paths: StudyPaths) -> None:
        self._index = os.open(paths.trials_index, os.O_RDONLY | os.O_CLOEXEC)
        self._lines = os.open(paths.trials, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._index)
        os.close(self._lines)

    def _offset(self, number: int) -> int:
        entry = os.pread(self._index, _ENTRY.size, number * _ENTRY.size)
        if len(entry) == _ENTRY.size:
            return int(_ENTRY.unpack(entry)[0])
        return os.fstat(self._lines).st_size

    def read_bytes(self, first: int, stop: int) -> bytes:
        begin, end = self._offset(first), self._offset(stop)
        return os.pread(self._lines, end - begin, begin)

    def read(self, number: int) -> dict[str, Any]:
        line = self.read_bytes(number, number + 1)
        if not line:
            raise IndexError(number)
        trial: dict[str, Any] = json.loads(line)
        return trial

    def iterate_lines(self, first: int, stop: int, chunk: int = 2000) -> Iterator[tuple[int, bytes]]:
        """Lines of trials `first` to `stop` - 1 with their numbers, a chunk in memory at a time."""
        for begin in range(first, stop, chunk):
            lines = self.read_bytes(begin, min(begin + chunk, stop)).split(b"\n")
            yield from enumerate(lines[:-1], begin)

    def iterate(self, first: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Trials `first` to `stop` - 1 with their numbers."""
        for number, line in self.iterate_lines(first, stop):
            yield number, json.loads(line)

    def id_numbers(self, count: int) -> Iterator[tuple[int, int]]:
        """(number, id_number) of the first `count` trials."""
        with os.fdopen(os.dup(self._index), "rb") as index:
            index.seek(0)
            for number in range(count):
                entry = index.read(_ENTRY.size)
                if len(entry) < _ENTRY.size:
                    return
                yield number, int(_ENTRY.unpack(entry)[1])


def append_trials(paths: StudyPaths, count: int, lines: Iterable[tuple[str, bytes]]) -> int:
    """Add `(id, line)` pairs behind the first `count` trials and return the new count.

    Whatever stands behind them, from a writer that was killed, is cut off first.
    """
    with _open_for_update(paths.trials) as trials, _open_for_update(paths.trials_index) as index:
        end = 0
        if count:
            index.seek((count - 1) * _ENTRY.size)
            trials.seek(_ENTRY.unpack(index.read(_ENTRY.size))[0])
            trials.readline()
            end = trials.tell()
        index.truncate(count * _ENTRY.size)
        trials.truncate(end)
        trials.seek(end)
        index.seek(count * _ENTRY.size)
        for trial_id, line in lines:
            trials.write(line)
            index.write(_ENTRY.pack(end, id_number(trial_id)))
            end += len(line)
            count += 1
        trials.flush()
        index.flush()
        os.fsync(trials.fileno())
        os.fsync(index.fileno())
    return count


def _open_for_update(path: str) -> BinaryIO:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    return os.fdopen(descriptor, "r+b", buffering=1 << 20)
