"""Tells whether a number in a journal still stands for the trial that an agent executed under it."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3

from windlass.errors import FolderError
from windlass.events import ID_LETTERS
from windlass.paths import StudyPaths
from windlass.trialfile import ENTRY_BYTES, TrialFile, beginning_number, entry_id, read_entries

_SHIFT = 64 - 5 * (ID_LETTERS - 1)  # an id begins with a t, and each letter after it has five bits


class TrialIds:
    """The ids that the trials of a study's folder have now, by number.

    An index of journals depends on them: it remembers a digest of those it was made with.
    """

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._read: bytes | None = None
        self._status: list[int] | None = None  # of trials.idx when the ids were read

    def have_changed(self, connection: sqlite3.Connection) -> bool:
        """Read the ids. Returns whether an index was made with others; trials that were added alone change nothing."""
        status = self._fetch_status()
        if status is None or status != self._status:
            self._read, self._status = None, status
        found = connection.execute("SELECT value FROM meta WHERE key = 'trials'").fetchone()
        count, digest, known = (0, self._digest(0), None) if found is None else json.loads(found[0])
        if status is not None and status == known:
            return False
        present = len(self._entries) // ENTRY_BYTES
        if count > present or digest != self._digest(count):
            return True
        highest = connection.execute("SELECT max(number) FROM trial").fetchone()[0]
        if count < present and highest is not None and highest >= count:
            return True  # its record was taken as it was, because there was no id to compare it with
        if count < present or status != known:
            self.remember(connection)
        return False

    def remember(self, connection: sqlite3.Connection) -> None:
        """From now on the index is one that is made with the ids as they were last read."""
        count = len(self._entries) // ENTRY_BYTES
        row = (json.dumps([count, self._digest(count), self._status]),)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('trials', ?)", row)

    def is_other(self, number: int, beginning: str) -> bool:
        """Whether the trial of a number has an id that does not begin so. A trial whose id is not known has not."""
        present, expected = entry_id(self._entries, number), beginning_number(beginning)
        if not present or expected is None or present >> _SHIFT == expected >> _SHIFT:
            return False
        return self._has_other_line(number, beginning)  # it may be the index of trials.jsonl that is damaged

    @property
    def _entries(self) -> bytes:
        if self._read is None:
            self._read = read_entries(self._paths)
        return self._read

    def _fetch_status(self) -> list[int] | None:
        """What differs once trials.idx is another file or was written to; None where it cannot be read."""
        try:
            found = os.stat(self._paths.trials_index)
        except OSError:
            return None
        return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]

    def _has_other_line(self, number: int, beginning: str) -> bool:
        try:
            file = TrialFile(self._paths)
        except FolderError:
            return False
        try:
            return not str(file.read(number)["id"]).startswith(beginning)
        except FolderError:
            return False
        finally:
            file.close()

    def _digest(self, count: int) -> str:
        beginning = memoryview(self._entries)[: count * ENTRY_BYTES]
        return hashlib.blake2b(beginning, digest_size=16).hexdigest()
