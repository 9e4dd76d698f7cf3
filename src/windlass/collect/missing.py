"""What a study's journals lack: ends that the register remembers, and records whose number is another trial's now."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Sequence
from typing import Protocol

from windlass.claims import ranges as rs
from windlass.claims.ranges import Range, Ranges
from windlass.claims.register import RegisterFile
from windlass.counted import counted
from windlass.damage import report_damage
from windlass.errors import FolderError
from windlass.events import ID_LETTERS
from windlass.journal.read import journal_files
from windlass.paths import StudyPaths
from windlass.trialfile import ENTRY_BYTES, TrialFile, beginning_number, entry_id, read_entries

_SHIFT = 64 - 5 * (ID_LETTERS - 1)  # an id begins with a t, and each letter after it has five bits

_LATELY_S = 90.0  # longer than any file system shows what is out of date


class Records(Protocol):
    """What journals have, as far as it is compared here."""

    def count_recorded(self, included: Sequence[Range]) -> int: ...

    def damaged(self) -> int: ...

    def others(self) -> Sequence[int]: ...


def read_ended(paths: StudyPaths) -> Ranges:
    """The trials of the study that agents have let go of as ended; none where the register cannot be read."""
    try:
        register = RegisterFile(paths.claims, "reader").read()
    except FolderError:
        return []  # those who need the register report that
    return rs.intersect(register.ended, register.current)


def may_be_behind(folder: str) -> bool:
    """Whether a folder is on a file system without a disk of its own, as all network file systems are.

    Their clients may show what the folder was some time ago.
    """
    with contextlib.suppress(OSError):
        return os.major(os.stat(folder).st_dev) == 0
    return False


def renew_listing(folder: str) -> bool:
    """Have the next listing of a journals' folder, and the sizes of its files, come from the file system's server.

    NFS and sshfs answer from a cache for up to a minute, so that the journal of an agent that has begun and ended
    meanwhile is not there, or is shorter. A client drops what it has cached of a folder when it changes the folder
    itself, and of a file when it opens it. Where this user may not write there, the cache's own time has to pass.

    Returns whether a journal was written to lately: then a client that keeps sizes for a second may still be behind.
    """
    now = newest = 0.0
    with contextlib.suppress(OSError):
        path = os.path.join(folder, f".look-{os.uname().nodename}-{os.getpid()}")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        now = os.stat(path).st_mtime  # by the clock of the file system, as the times of the journals
        os.unlink(path)
    for path in journal_files(folder):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            newest = max(newest, os.fstat(descriptor).st_mtime)
            os.close(descriptor)
    return now > 0 and (newest == 0 or now - newest < _LATELY_S)


def lacks_ends(paths: StudyPaths, ended: Ranges, records: Records) -> bool:
    """Whether there are trials that ended and have no record of how."""
    missing = rs.count(ended) - records.count_recorded(ended)
    return missing > 0 and missing > rs.count(rs.intersect(ended, _select_current(paths, records.others())))


def report_missing(paths: StudyPaths, ended: Ranges, records: Records) -> None:
    """Report what the journals lack: ends of trials, lines that cannot be read, and what they have of other trials."""
    others = _select_current(paths, records.others())
    if others:
        count = counted(rs.count(others), "trial has a record", "trials have records")
        problem = f"{count} of another trial under the same number, which is left out"
        remedy = (
            "trials.jsonl was lost and written anew, or files of another study were copied here; without a backup of"
            " the files that belong together, `windlass run` executes these trials again"
        )
        report_damage(paths.journal, problem, remedy, "others")
    missing = rs.count(ended) - records.count_recorded(ended) - rs.count(rs.intersect(ended, others))
    if missing > 0:
        problem = f"{counted(missing, 'trial was', 'trials were')} executed, and no record tells with what result"
        remedy = (
            "journals were damaged or removed; without a backup of them, `windlass run` executes these trials again"
        )
        report_damage(paths.journal, problem, remedy, "ends")
    damaged = records.damaged()
    if damaged:
        problem = f"{counted(damaged, 'line of a journal is', 'lines of journals are')} damaged and left out"
        remedy = "if they were ends of trials, `windlass run` executes these again; a backup may have them"
        report_damage(paths.journal, problem, remedy, "lines")


def _select_current(paths: StudyPaths, numbers: Sequence[int]) -> Ranges:
    """Those of the numbers that the study has now or is about to add; all where the register cannot be read."""
    if not numbers:
        return []
    found = rs.from_numbers(numbers)
    try:
        register = RegisterFile(paths.claims, "reader").read()
    except FolderError:
        return found
    former = rs.subtract([(0, register.count)], register.current)
    return rs.subtract(found, former)


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
