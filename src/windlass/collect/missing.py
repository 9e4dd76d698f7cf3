"""What a study's journals lack: ends that the register remembers, and records whose number is another trial's now."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from typing import Protocol

from windlass.claims import ranges as rs
from windlass.claims.ranges import Range, Ranges
from windlass.claims.register import RegisterFile
from windlass.counted import counted
from windlass.damage import report_damage
from windlass.errors import FolderError
from windlass.paths import StudyPaths

_OF_AGENT = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}\.")  # see `ids.agent_id`; one on another node has a longer name

_LATELY_S = 90.0  # longer than any file system shows what is out of date


class Records(Protocol):
    """What journals have, as far as it is compared here."""

    def count_recorded(self, included: Sequence[Range]) -> int: ...

    def damaged(self) -> int: ...

    def others(self) -> Sequence[int]: ...

    def recorded_from(self, first: int) -> Sequence[int]: ...


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
    """Have the next listing of a folder, and the sizes of its files, come from the file system's server.

    NFS and sshfs answer from a cache for up to a minute, so that a file of an agent that has begun and ended
    meanwhile is not there, or is shorter. A client drops what it has cached of a folder when it changes the folder
    itself, and of a file when it opens it. Where this user may not write there, the cache's own time has to pass.

    Returns whether a file was written to lately: then a client that keeps sizes for a second may still be behind.
    """
    now = newest = 0.0
    with contextlib.suppress(OSError):
        path = os.path.join(folder, f".look-{os.uname().nodename}-{os.getpid()}")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        now = os.stat(path).st_mtime  # by the clock of the file system, as the times of the files
        os.unlink(path)
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
    for name in names:
        with contextlib.suppress(OSError):
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC)
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
    _compare_register(paths, records)
    _report_without_journal(paths)
    damaged = records.damaged()
    if damaged:
        problem = f"{counted(damaged, 'line of a journal is', 'lines of journals are')} damaged and left out"
        remedy = "if they were ends of trials, `windlass run` executes these again; a backup may have them"
        report_damage(paths.journal, problem, remedy, "lines")


def _compare_register(paths: StudyPaths, records: Records) -> None:
    """Report trials that agents have begun and the register does not know, and cancelled ones without a record."""
    try:
        register = RegisterFile(paths.claims, "reader").read()
    except FolderError:
        return
    cancelled = rs.subtract(rs.intersect(register.cancelled, register.current), register.held_ranges())
    unrecorded = rs.count(cancelled) - records.count_recorded(cancelled)
    if unrecorded > 0:
        problem = (
            f"{counted(unrecorded, 'trial is', 'trials are')} cancelled by the register, and no record tells of it"
        )
        remedy = "journals were damaged or removed; `windlass retry --cancelled` brings these trials back"
        report_damage(paths.journal, problem, remedy, "cancelled")
    unknown = records.recorded_from(register.count)
    if unknown:
        text = counted(len(unknown), "trial has a record", "trials have records")
        problem = f"the register has {counted(register.count, 'trial')}, and {text} that it does not have"
        remedy = "an earlier state was put back; `windlass run` with the study file brings the register up to date"
        report_damage(paths.claims, problem, remedy, "unknown")


def _report_without_journal(paths: StudyPaths) -> None:
    """Report agents that have left output and no journal. An agent begins its journal before it begins a trial."""
    left: set[str] = set()
    for folder in (paths.output, paths.outputs):
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                # On a network file system, what was made lately may not be seen everywhere yet.
                if _OF_AGENT.match(entry.name) and time.time() - entry.stat().st_mtime > _LATELY_S:
                    left.add(entry.name.partition(".")[0])
    missing = sorted(name for name in left if not os.path.lexists(paths.journal_of(name)))
    if missing:
        problem = f"{counted(len(missing), 'agent has', 'agents have')} left output here and no journal: {missing[0]}"
        remedy = "what they executed is not known; a backup of the folder may have their journals"
        report_damage(paths.journal, problem, remedy, "agents")


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
