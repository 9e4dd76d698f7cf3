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
from typing import Any, NamedTuple

from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.errors import FolderError
from windlass.core.ids import beginning_number, id_beginning, letters_number
from windlass.core.journal.events import ID_LETTERS
from windlass.core.journal.fold import parse_number
from windlass.core.paths import StudyPaths
from windlass.core.trial_lines import head_letters
from windlass.core.trialfile import (
    ENTRY_BYTES,
    TrialFile,
    entry_id,
    entry_pairs,
    read_entries,
)

_SHIFT = 64 - 5 * (ID_LETTERS - 1)  # an id begins with a t, and each letter after it has five bits
_LETTERS = ID_LETTERS - 1
_WHOLE = 12  # letters of a whole id
_NO_LETTERS = b"-" * _WHOLE
_HEAD_BYTES = 96  # a line's checksum, number and id
_GROUP = 2000  # lines whose ids are read together
_MOST_BYTES = 8 << 20  # of them
# Trials of one `cancel` or `retry` whose ids are listed; of more there is a digest.
_MOST_LISTED = 2000

Event = Mapping[str, Any]
# Number in a journal → the one that the trial has now; None: the study has no such trial.
Moved = dict[int, int | None]
_RANGES = ("cancel", "retry")
_MOST_NOTED = 1000  # trials of one event about many of them


class _Heads(NamedTuple):
    """The ids of a group of lines, as many letters for each line; hyphens for a line that has none."""

    letters: bytes  # all but the t
    agreed: str  # the beginning, as journals have it, where the index has the same id; otherwise hyphens


class TrialIds:
    """The ids that the trials of a study's folder have now, by number.

    An index of journals depends on them: it remembers a digest of those it was made with.
    """

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._read: bytes | None = None
        # Of trials.idx and trials.jsonl when the ids were read.
        self._status: list[int] | None = None
        # The beginning of an id → numbers of trials, from the lines.
        self._numbers: dict[int, list[int]] | None = None
        # Numbers of trials whose lines have an id; known once `_numbers` is.
        self._identified: set[int] = set()
        # Ids of lines, by groups of numbers; see `_read_heads`.
        self._heads: dict[int, _Heads | None] = {}

    def have_changed(self, connection: sqlite3.Connection) -> bool:
        """Read the ids. Returns whether an index was made with others; trials that were added alone change nothing."""
        status = self._fetch_status()
        if status is None or status != self._status:
            self._forget(status)
        found = connection.execute("SELECT value FROM meta WHERE key = 'trials'").fetchone()
        count, digest, known = (
            (0, self._digest_first(0), None) if found is None else json.loads(found[0])
        )
        if status is not None and status == known:
            return False
        present = len(self._entries) // ENTRY_BYTES
        if count > present or digest != self._digest_first(count):
            return True
        highest = connection.execute("SELECT max(number) FROM trial").fetchone()[0]
        if count < present and highest is not None and highest >= count:
            # Its record was taken as it was, because there was no id to compare it with.
            return True
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
        if self._is_plainly(number, beginning):
            return number
        present, expected = entry_id(self._entries, number), beginning_number(beginning)
        if expected is None:
            return number
        if (
            present
            and present >> _SHIFT == expected >> _SHIFT
            and self._head(number) in (0, present)
        ):
            return number
        # Another trial, or the index of trials.jsonl is damaged: the lines decide.
        found = self._by_beginning().get(expected >> _SHIFT, [])
        if number in found or not (found or present or number in self._identified):
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

    def place_ranges(
        self, event: Mapping[str, Any], ranges: Ranges
    ) -> Iterator[tuple[int, int | None]]:
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
        return _hash(
            b"".join(
                entry_id(self._entries, number).to_bytes(8, "big") for number in rs.numbers(ranges)
            )
        )

    @property
    def _entries(self) -> bytes:
        if self._read is None:
            self._read = read_entries(self._paths)
        return self._read

    def _forget(self, status: list[int] | None) -> None:
        self._read, self._status, self._numbers, self._heads = None, status, None, {}
        self._identified = set()

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
        return any(
            self._head(number) not in (0, entry_id(self._entries, number))
            for number in range(count)
        )

    def _head(self, number: int) -> int:
        """The id of the line that the index has for a number; 0 where there is no line of this number."""
        group, place = divmod(number, _GROUP)
        heads = self._group(group)
        if heads is not None:
            letters = heads.letters[_WHOLE * place : _WHOLE * (place + 1)].replace(b"-", b"")
        else:
            offsets = [
                offset for offset, _ in entry_pairs(self._entries, range(number, number + 1))
            ]
            pieces = [
                self._read_piece(offset, _HEAD_BYTES) for offset in offsets if offset is not None
            ]
            letters = head_letters(pieces[0], 0, number) if pieces else b""
        return letters_number(letters) if letters else 0

    def _is_plainly(self, number: int, beginning: str) -> bool:
        """Whether the index and the line of a trial agree on an id that begins so: a fast way to see what is usual."""
        group, place = divmod(number, _GROUP)
        heads = self._group(group)
        return (
            heads is not None
            and heads.agreed[ID_LETTERS * place : ID_LETTERS * (place + 1)] == beginning
        )

    def _group(self, group: int) -> _Heads | None:
        if group not in self._heads:
            self._heads[group] = self._read_heads(range(group * _GROUP, (group + 1) * _GROUP))
        return self._heads[group]

    def _read_heads(self, numbers: range) -> _Heads | None:
        """The ids of lines that follow each other; None where they do not, or are very long.

        All of a group are kept: the trials of one agent are from all over the file, and so are those of the next.
        """
        pairs = entry_pairs(self._entries, numbers)
        known = [offset for offset, _ in pairs if offset is not None]
        if not known:
            return _Heads(b"", "")
        if known != sorted(known) or known[-1] - known[0] > _MOST_BYTES:
            return None
        begin = known[0]
        piece = self._read_piece(begin, known[-1] - begin + _HEAD_BYTES)
        found, agreed = [], []
        for number, (offset, identifier) in zip(numbers, pairs, strict=False):
            letters = b"" if offset is None else head_letters(piece, offset - begin, number)
            found.append(letters or _NO_LETTERS)
            is_agreed = bool(letters) and letters_number(letters) == identifier
            agreed.append(b"t" + letters[:_LETTERS] if is_agreed else _NO_LETTERS[:ID_LETTERS])
        return _Heads(b"".join(found), b"".join(agreed).decode("ascii"))

    def _read_piece(self, offset: int, count: int) -> bytes:
        """Bytes of trials.jsonl; none where they cannot be read."""
        try:
            with open(self._paths.trials, "rb", buffering=0) as file:
                return os.pread(file.fileno(), count, offset)
        except (OSError, OverflowError):
            return b""

    def _by_beginning(self) -> dict[int, list[int]]:
        """The numbers of trials by the beginning of their ids.

        The file of trials is read once, when this is first needed.
        """
        if self._numbers is None:
            found: dict[int, list[int]] = {}
            with contextlib.suppress(FolderError):
                file = TrialFile(self._paths)
                try:
                    for number, identifier in file.id_numbers(file.count_lines()):
                        found.setdefault(identifier >> _SHIFT, []).append(number)
                        self._identified.add(number)
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
    kept: list[Event] = []
    for event in events:
        kind = event.get("e")  # not decoded: this reads the lines of large studies
        if kind == "start":
            _note_start(ids, moved, event)
        if kind in _RANGES:
            kept.append(_renumber_ranges(ids, moved, event))
        elif moved:
            kept += _renumber_one(moved, event)
        else:
            kept.append(event)
    return kept


def _note_start(ids: TrialIds, moved: Moved, event: Event) -> None:
    """Remember which trial an agent's number stands for, from the id that the event of a start carries."""
    number, beginning = event.get("i"), event.get("id")
    if type(number) is not int or number < 0:
        return
    moved.pop(number, None)
    if beginning is not None:
        present = ids.place(number, beginning)
        if present != number:
            moved[number] = present


def _renumber_one(moved: Moved, event: Event) -> list[Event]:
    """An event with the numbers that its trials have now; nothing where the study no longer has the trial."""
    number, live = event.get("i"), event.get("live")
    if type(number) is int and number in moved:
        present = moved[number]
        return [] if present is None else [{**event, "i": present}]
    if isinstance(live, dict):
        changed = {
            str(moved.get(int(key), int(key))): value
            for key, value in live.items()
            if key.isdecimal()
        }
        changed.pop("None", None)
        return [{**event, "live": changed}]
    return [event]


def _renumber_ranges(ids: TrialIds, moved: Moved, event: Event) -> Event:
    """An event about ranges of trials, such as a cancellation, with the numbers that they have now."""
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
