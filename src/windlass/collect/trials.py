"""Finds the trials that the user names: by number, or by the beginning of an id."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence

from windlass.core.errors import InputError, Problem
from windlass.core.ids import id_number, id_number_stop
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile

_ID = re.compile(r"t[a-z2-7]{1,12}\Z")
_MOST_DIGITS = 19  # of a trial's number


def may_be_trial(name: str) -> bool:
    """Whether an argument has the form of a trial's number or id."""
    return name.isdecimal() or bool(_ID.match(name))


def find_trials(names: Sequence[str], paths: StudyPaths, count: int) -> list[int]:
    """The numbers of the named trials. Raises InputError for all names that mean none, or several."""
    problems = []
    found: list[int] = []
    file = TrialFile(paths)
    try:
        for name in names:
            numbers = _find(name, file, count)
            if len(numbers) == 1:
                found.append(numbers[0])
            elif numbers:
                problems.append(
                    Problem(
                        f"{name!r} is the beginning of several trials' ids", "give more letters"
                    )
                )
            else:
                hint = f"numbers go from 0 to {count - 1}; `windlass results` shows ids"
                problems.append(Problem(f"there is no trial {name!r}", hint))
    finally:
        file.close()
    if problems:
        raise InputError(problems)
    return found


def _find(name: str, file: TrialFile, count: int) -> list[int]:
    """The numbers of the trials that a name may mean: a number means one, the beginning of an id may mean several."""
    if name.isdecimal():
        return [int(name)] if len(name) < _MOST_DIGITS and int(name) < count else []
    if not _ID.match(name):
        return []
    try:
        first, stop = id_number(name), id_number_stop(name)
    except (binascii.Error, ValueError):
        return []
    return [number for number, identifier in file.id_numbers(count) if first <= identifier < stop]
