"""What a study's journals lack: ends that the register remembers, and records whose number is another trial's now."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Range, Ranges
from windlass.core.claims.register import RegisterFile, Rounds
from windlass.core.counted import counted
from windlass.core.damage import report_damage
from windlass.core.errors import FolderError
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import ENTRY_BYTES

# See `ids.agent_id`; one on another node has a longer name.
_OF_AGENT = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}\.")

_LATELY_S = 90.0  # longer than any file system shows what is out of date
_NAMED = 5  # trials that a message names


class Records(Protocol):
    """What journals have, as far as it is compared here."""

    def count_recorded(self, included: Sequence[Range], interrupted: bool = False) -> int: ...

    def list_behind(
        self, included: Sequence[Range], count: int, is_cancelled: bool
    ) -> Sequence[int]: ...

    def damaged(self) -> int: ...

    def others(self) -> Sequence[int]: ...

    def recorded_from(self, first: int) -> Sequence[int]: ...


class Expected(NamedTuple):
    """What the register knows to have happened, so that journals must tell of it."""

    ended: Ranges  # trials that agents have let go of as ended
    rounds: Rounds  # of these, those that were executed in several rounds, by the number of the last one
    cancelled_rounds: Rounds  # the same of trials that are cancelled


def read_expected(paths: StudyPaths) -> Expected:
    """What journals must tell of the study's trials; nothing where the register cannot be read."""
    try:
        register = RegisterFile(paths.claims, "reader").read()
    except FolderError:
        return Expected([], {}, {})  # The callers that need the register report its damage.
    ended = rs.intersect(register.ended, register.current)
    cancelled = rs.subtract(
        rs.intersect(register.cancelled, register.current), register.held_ranges()
    )
    rounds = {count: rs.intersect(ended, trials) for count, trials in register.rounds.items()}
    of_cancelled = {
        count: rs.intersect(cancelled, trials) for count, trials in register.rounds.items()
    }
    return Expected(ended, rounds, of_cancelled)


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


def lacks_ends(paths: StudyPaths, expected: Expected, records: Records) -> bool:
    """Whether there are trials that ended and have no record of how, or only one of an earlier round."""
    if _list_behind(expected, records):
        return True
    ended = expected.ended
    missing = rs.count(ended) - records.count_recorded(ended)
    return missing > 0 and missing > rs.count(
        rs.intersect(ended, _select_current(paths, records.others()))
    )


def _list_behind(expected: Expected, records: Records) -> list[int]:
    """Trials whose latest record is of an earlier round than the one that the register knows of, in order."""
    found: list[int] = []
    for rounds, is_cancelled in ((expected.rounds, False), (expected.cancelled_rounds, True)):
        for count, trials in rounds.items():
            found += records.list_behind(trials, count, is_cancelled) if trials else ()
    return sorted(found)


def _report_behind(paths: StudyPaths, expected: Expected, records: Records) -> None:
    """Report trials that were put back and executed since, and are shown as they were before that."""
    behind = _list_behind(expected, records)
    if not behind:
        return
    named = " ".join(str(number) for number in behind[:_NAMED])
    more = f" and {len(behind) - _NAMED:,} more" if len(behind) > _NAMED else ""
    lacking = counted(len(behind), "trial lacks", "trials lack")
    problem = f"{lacking} the last record, and an earlier one is shown: {named}{more}"
    remedy = (
        "journals were removed, or put back as they were at an earlier time; without a backup of them,"
        f" `windlass retry {named}` executes these trials again"
    )
    report_damage(paths.journal, problem, remedy, "rounds")


def report_missing(paths: StudyPaths, expected: Expected, records: Records) -> None:
    """Report what the journals lack: ends of trials, lines that cannot be read, and what they have of other trials."""
    ended = expected.ended
    others = _select_current(paths, records.others())
    if others:
        count = counted(rs.count(others), "trial has a record", "trials have records")
        problem = f"{count} of another trial under the same number, which is left out"
        remedy = (
            "trials.jsonl was lost and written anew, or files of another study were copied here; without a backup of"
            " the files that belong together, `windlass run` executes these trials again"
        )
        report_damage(paths.journal, problem, remedy, "others")
    missing = (
        rs.count(ended) - records.count_recorded(ended) - rs.count(rs.intersect(ended, others))
    )
    if missing > 0:
        problem = f"{counted(missing, 'trial was', 'trials were')} executed, and no record tells with what result"
        remedy = (
            "journals were damaged or removed; without a backup of them, "
            "`windlass run` executes these trials again"
        )
        report_damage(paths.journal, problem, remedy, "ends")
    _report_behind(paths, expected, records)
    _compare_register(paths, records)
    _report_without_journal(paths)
    damaged = records.damaged()
    if damaged:
        problem = f"{counted(damaged, 'line of a journal is', 'lines of journals are')} damaged and left out"
        remedy = "if they were ends of trials, `windlass run` executes these again; a backup may have them"
        report_damage(paths.journal, problem, remedy, "lines")


def _compare_register(paths: StudyPaths, records: Records) -> None:
    """Report trials that agents have begun and the register does not know, and cancelled ones without a record."""
    # Before the register: whoever adds trials is named there until they are counted.
    written = _count_written(paths)
    try:
        register = RegisterFile(paths.claims, "reader").read()
    except FolderError:
        return
    cancelled = rs.subtract(
        rs.intersect(register.cancelled, register.current), register.held_ranges()
    )
    unrecorded = rs.count(cancelled) - records.count_recorded(cancelled, interrupted=True)
    if unrecorded > 0:
        are = counted(unrecorded, "trial is", "trials are")
        problem = f"{are} cancelled by the register, and no record tells of it"
        remedy = "journals were damaged or removed; `windlass retry --cancelled` brings these trials back"
        report_damage(paths.journal, problem, remedy, "cancelled")
    unknown = records.recorded_from(register.count)
    if unknown:
        text = counted(len(unknown), "trial has a record", "trials have records")
        problem = (
            f"the register has {counted(register.count, 'trial')}, and {text} that it does not have"
        )
        remedy = "an earlier state was put back; `windlass run` with the study file brings the register up to date"
        report_damage(paths.claims, problem, remedy, "unknown")
    elif written > register.count and register.preparer is None:
        more = counted(written - register.count, "trial")
        problem = (
            f"the register has {counted(register.count, 'trial')}, and trials.jsonl has {more} more"
        )
        remedy = (
            "an earlier state was put back, or a `windlass run` was ended too early; `windlass run` with the study file"
            " brings the register up to date"
        )
        report_damage(paths.claims, problem, remedy, "unknown")


def _count_written(paths: StudyPaths) -> int:
    """How many trials the folder has, whether or not the register counts them."""
    try:
        return os.stat(paths.trials_index).st_size // ENTRY_BYTES
    except OSError:
        return 0


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
