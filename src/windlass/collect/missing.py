"""What is known to be missing in a study's journals: the register remembers which trials have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windlass.claims import ranges as rs
from windlass.claims.ranges import Range, Ranges
from windlass.claims.register import RegisterFile
from windlass.counted import counted
from windlass.damage import report_damage
from windlass.errors import FolderError
from windlass.paths import StudyPaths


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
