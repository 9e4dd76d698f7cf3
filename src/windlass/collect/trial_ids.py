"""Which trial a number stands for now, for whatever has the beginning of a trial's id beside its number.

A trial's number is its place in trials.jsonl. It has another one once that file was lost and written anew, or was
replaced. Journals have the beginning of the trial's id with each start, and with what users cancel and retry.
`renumber` gives their events the numbers that the trials have now.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.claims import ranges as rs
from windlass.claims.ranges import Ranges
from windlass.errors import FolderError
from windlass.events import ID_LETTERS
from windlass.ids import beginning_number, id_beginning
from windlass.journal.fold import parse_number
from windlass.paths import StudyPaths
from windlass.trialfile import (
    ENTRY_BYTES,
    TrialFile,
    entry_id,
    entry_offset,
    head_id,
    read_entries,
)

_SHIFT = 64 - 5 * (ID_LETTERS - 1)  # an id begins with a t, and each letter after it has five bits
_LETTERS = ID_LETTERS - 1
_HEAD_BYTES = 96  # a line's checksum, number and id
_GROUP = 2000  # lines whose ids are read together
_MOST_BYTES = 8 << 20  # of them
_MOST_LISTED = 2000  # trials of one `cancel` or `retry` whose ids are listed; of more there is a digest

Event = Mapping[str, Any]
Moved = dict[int, int | None]  # number in a journal → the one that the trial has now; None: the study has no such trial
_RANGES = ("cancel", "retry")
_MOST_NOTED = 1000  # trials of one event about many of them


class TrialIds:
    """The ids that the trials of a study's folder have now, by number.

    An index of journals depends on them: it remembers a digest of those it was made with.
    """

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._read: bytes | None = None
        self._status: list[int] | None = None  # of trials.idx and trials.jsonl when the ids were read
        self._numbers: dict[int, list[int]] | None = None  # the beginning of an id → numbers of trials, from the lines
        self._heads: dict[int, bytes | None] = {}  # ids of lines, by groups of numbers; see `_read_heads`

    def have_changed(self, connection: sqlite3.Connection) -> bool:
        """Read the ids. Returns whether an index was made with others; trials that were added alone change nothing."""
        status = self._fetch_status()
        if status is None or status != self._status:
            self._forget(status)
        found = connection.execute("SELECT value FROM meta WHERE key = 'trials'").fetchone()
        count, digest, known = (0, self._digest_first(0), None) if found is None else json.loads(found[0])
        if status is not None and status == known:
            return False
        present = len(self._entries) // ENTRY_BYTES
        if count > present or digest != self._digest_first(count):
            return True
        highest = connection.execute("SELECT max(number) FROM trial").fetchone()[0]
        if count < present and highest is not None and highest >= count:
            return True  # its record was taken as it was, because there was no id to compare it with
        if highest is not None and self._differs(min(count, highest + 1)):
            return True  # trials.jsonl has been replaced, and its index has not
        query = """SELECT 1 FROM journal WHERE state NOT LIKE '%"moved": {}%'"""
        if status != known and connection.execute(query).fetchone() is not None:
            return True  # the file that was replaced may have been put back
        if count < present or status != known:
            self.remember(connection)
        return False

    def remember(self, connection: sqlite3.Connection) -> None:
        """From now on the index is one that is made with the ids as they were last read."""
        count = len(self._entries) // ENTRY_BYTES
        row = (json.dumps([count, self._digest_first(count), self._status]),)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('trials', ?)", row)

    def place(self, number: int, beginning: str) -> int | None:
        """The number that a trial has now whose id begins so and that had `number`; None where there is no such trial.

        A number whose trial has no id that can be read stands for what it stood for.
        """
        present, expected = entry_id(self._entries, number), beginning_number(beginning)
        if expected is None:
            return number
        if present and present >> _SHIFT == expected >> _SHIFT and self._head(number) in (0, present):
            return number
        # Another trial, or the index of trials.jsonl is damaged: the lines decide.
        found = self._by_beginning().get(expected >> _SHIFT, [])
        if number in found or (not found and not present):
            return number
        return found[0] if len(found) == 1 else None

    def beginning(self, number: int) -> str:
        """The beginning of a trial's id, as journals have it; "" where it is not known."""
        identifier = entry_id(self._entries, number)
        return id_beginning(identifier, ID_LETTERS) if identifier else ""

    def render(self, ranges: Ranges) -> dict[str, str]:
        """What an event about these trials has beside their numbers: their ids, or of many a digest of the ids."""
        if not self._entries:
            return {}
        if rs.count(ranges) > _MOST_LISTED:
            return {"digest": self._digest(ranges)}
        letters = [self.beginning(number)[1:] or "-" * _LETTERS for number in rs.numbers(ranges)]
        return {"ids": "".join(letters)}

    def place_ranges(self, event: Mapping[str, Any], ranges: Ranges) -> Iterator[tuple[int, int | None]]:
        """Each number of an event about several trials, with the one that its trial has now."""
        letters, digest = event.get("ids"), event.get("digest")
        if isinstance(letters, str) and len(letters) == _LETTERS * rs.count(ranges):
            for at, number in enumerate(rs.numbers(ranges)):
                yield number, self.place(number, "t" + letters[at * _LETTERS : (at + 1) * _LETTERS])
            return
        is_other = isinstance(digest, str) and digest != self._digest(ranges)
        for number in rs.numbers(ranges):
            yield number, None if is_other else number

    def _digest_first(self, count: int) -> str:
        """A digest of the first `count` entries of the index."""
        return _hash(memoryview(self._entries)[: count * ENTRY_BYTES])

    def _digest(self, ranges: Ranges) -> str:
        """A digest of the ids alone: a line may be written anew in another place."""
        return _hash(b"".join(entry_id(self._entries, number).to_bytes(8, "big") for number in rs.numbers(ranges)))

    @property
    def _entries(self) -> bytes:
        if self._read is None:
            self._read = read_entries(self._paths)
        return self._read

    def _forget(self, status: list[int] | None) -> None:
        self._read, self._status, self._numbers, self._heads = None, status, None, {}

    def _fetch_status(self) -> list[int] | None:
        """What differs once trials.idx or trials.jsonl is another file or was written to; None where one is missing."""
        found: list[int] = []
        for path in (self._paths.trials_index, self._paths.trials):
            try:
                status = os.stat(path)
            except OSError:
                return None
            found += [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        return found

    def _differs(self, count: int) -> bool:
        """Whether a line of the first `count` trials has another id than the index."""
        return any(self._head(number) not in (0, entry_id(self._entries, number)) for number in range(count))

    def _head(self, number: int) -> int:
        """The id of the line that the index has for a number; 0 where there is no line of this number."""
        group, place = divmod(number, _GROUP)
        if group not in self._heads:
            self._heads[group] = self._read_heads(range(group * _GROUP, (group + 1) * _GROUP))
        heads = self._heads[group]
        if heads is not None:
            return int.from_bytes(heads[8 * place : 8 * place + 8], "big")
        offset = entry_offset(self._entries, number)
        return 0 if offset is None else head_id(self._read_piece(offset, _HEAD_BYTES), number)

    def _read_heads(self, numbers: range) -> bytes | None:
        """The ids of lines that follow each other, eight bytes each; None where they do not, or are very long.

        All of a group are kept: the trials of one agent are from all over the file, and so are those of the next.
        """
        offsets = [entry_offset(self._entries, number) for number in numbers]
        known = [offset for offset in offsets if offset is not None]
        if not known:
            return bytes(8 * len(numbers))
        if known != sorted(known) or known[-1] - known[0] > _MOST_BYTES:
            return None
        begin = known[0]
        piece = self._read_piece(begin, known[-1] - begin + _HEAD_BYTES)
        found = []
        for number, offset in zip(numbers, offsets, strict=True):
            head = b"" if offset is None else piece[offset - begin : offset - begin + _HEAD_BYTES]
            found.append(head_id(head, number).to_bytes(8, "big"))
        return b"".join(found)

    def _read_piece(self, offset: int, count: int) -> bytes:
        try:
            with open(self._paths.trials, "rb", buffering=0) as file:
                return os.pread(file.fileno(), count, offset)
        except (OSError, OverflowError):
            return b""

    def _by_beginning(self) -> dict[int, list[int]]:
        if self._numbers is None:
            found: dict[int, list[int]] = {}
            with contextlib.suppress(FolderError):
                file = TrialFile(self._paths)
                try:
                    for number, identifier in file.id_numbers(file.count_indexed()):
                        found.setdefault(identifier >> _SHIFT, []).append(number)
                finally:
                    file.close()
            self._numbers = found  # not before it is complete: another thread may look at it
        return self._numbers


def _hash(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def renumber(ids: TrialIds, moved: Moved, events: Iterable[Event]) -> list[Event]:
    """The next events of one journal, without those of trials that the study does not have any more.

    `moved` is what is known of this journal up to here, and is changed in place.
    """
    return list(iterate_renumbered(ids, moved, events))


def iterate_renumbered(ids: TrialIds, moved: Moved, events: Iterable[Event]) -> Iterator[Event]:
    """The same, one event at a time."""
    for event in events:
        kind = event.get("e")
        if kind == "start":
            _note_start(ids, moved, event)
        if kind in _RANGES:
            yield _renumber_ranges(ids, moved, event)
        elif moved:
            yield from _renumber_one(moved, event)
        else:
            yield event


def _note_start(ids: TrialIds, moved: Moved, event: Event) -> None:
    number, beginning = event.get("i"), event.get("id")
    if type(number) is not int or number < 0:
        return
    moved.pop(number, None)
    if beginning is not None:
        present = ids.place(number, beginning)
        if present != number:
            moved[number] = present


def _renumber_one(moved: Moved, event: Event) -> list[Event]:
    number, live = event.get("i"), event.get("live")
    if type(number) is int and number in moved:
        present = moved[number]
        return [] if present is None else [{**event, "i": present}]
    if isinstance(live, dict):
        changed = {str(moved.get(int(key), int(key))): value for key, value in live.items() if key.isdecimal()}
        changed.pop("None", None)
        return [{**event, "live": changed}]
    return [event]


def _renumber_ranges(ids: TrialIds, moved: Moved, event: Event) -> Event:
    try:
        ranges = [(parse_number(first), parse_number(stop)) for first, stop in event["r"]]
    except (KeyError, TypeError, ValueError):
        return event  # the fold counts it as malformed
    if "ids" not in event and "digest" not in event:
        return event  # of an earlier version
    kept: list[int] = []
    changed: Moved = {}
    for number, present in ids.place_ranges(event, ranges):
        if present is not None:
            kept.append(present)
        if present != number and len(changed) < _MOST_NOTED:
            changed[number] = present
    if not changed:
        return event
    moved.update(changed)
    return {**event, "r": rs.from_numbers(kept)}
