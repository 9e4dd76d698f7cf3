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


def read_ended(paths: StudyPaths) -> Ranges:
    """The trials of the study that agents have let go of as ended; none where the register cannot be read."""
    try:
        register = RegisterFile(paths.claims, "reader").read()
    except FolderError:
        return []  # those who need the register report that
    return rs.intersect(register.ended, register.current)


def report_missing(paths: StudyPaths, ended: Ranges, records: Records) -> None:
    """Report lines that cannot be read, and trials that have ended of which no journal tells how."""
    missing = rs.count(ended) - records.count_recorded(ended)
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
