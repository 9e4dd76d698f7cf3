"""What is missing of a study, before anything is written: how many trials `run` would put up, and a few of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from windlass.bundle.folder import choose_sample
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.register import Register, RegisterFile, RegisterLost
from windlass.core.errors import FolderError
from windlass.core.ids import id_number
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile
from windlass.model import MOST_WALKED, Trial

_FIRST = 2  # trials that are shown before the last one


@dataclass(frozen=True)
class Missing:
    """`count`: trials that are neither done nor cancelled; `examples`: the first of them; and the last, of few."""

    count: int
    examples: tuple[Trial, ...]


def find_missing(
    paths: StudyPaths,
    trials: Callable[[], Iterator[Trial]],
    total: int,
    finished: Callable[[], Iterable[int]],
    sample: int | None = None,
) -> Missing:
    """What a run of the study would still have to execute, of the `total` trials that `trials` makes.

    `finished` gives the numbers of trials that must not be executed again. A trial that an agent executes now is
    missing, too. With `sample`, only the trials of that sample count. Nothing is written.
    """
    known: dict[int, int] = {}
    settled: Ranges = []
    if os.path.isdir(paths.journal):
        register = _read_register(paths)
        if register is None or register.count:
            settled = rs.union(
                register.cancelled if register is not None else [], rs.from_numbers(finished())
            )
            known = _read_numbers(paths, None if register is None else register.count)
    if not settled and sample is None:
        return Missing(total, _choose_examples(trials(), total))
    wanted = [(0, max(known.values(), default=0) + total + 1)]
    if sample is not None:
        wanted = choose_sample(
            rs.from_numbers(number for number, _ in _number(trials(), known)), sample
        )
    wanted = rs.subtract(wanted, settled)
    return _count_and_choose(
        trial for number, trial in _number(trials(), known) if rs.contains(wanted, number)
    )


def _count_and_choose(missing: Iterator[Trial]) -> Missing:
    """All of these trials are walked, and once: to make one takes longer than anything that is done with it here."""
    first = list(islice(missing, _FIRST + 1))
    count, last = len(first), first[-1:]
    for trial in missing:
        count += 1
        last = [trial]
    return Missing(
        count,
        (*first[:_FIRST], *(first[_FIRST:] if count > MOST_WALKED else last[: count - _FIRST])),
    )


def _read_register(paths: StudyPaths) -> Register | None:
    """The register; None where it is lost, which `run` will mend."""
    try:
        return RegisterFile(paths.claims, "reader").read()
    except RegisterLost:
        return None


def _read_numbers(paths: StudyPaths, count: int | None) -> dict[int, int]:
    """The number of each of the first `count` trials that the folder has, or of all, by the number that its id makes.

    Trials whose lines cannot be read have none: `run` writes them anew.
    """
    try:
        file = TrialFile(paths)
    except FolderError:
        return {}
    try:
        known = file.count_indexed() if count is None else count
        return {identifier: number for number, identifier in file.id_numbers(known)}
    except FolderError:
        return {}
    finally:
        file.close()


def _number(trials: Iterator[Trial], known: dict[int, int]) -> Iterator[tuple[int, Trial]]:
    """Each trial with the number that it has in the folder, or would get there."""
    fresh = max(known.values(), default=-1) + 1
    for trial in trials:
        number = known.get(id_number(trial.id))
        if number is None:
            number = fresh
            fresh += 1
        yield number, trial


def _choose_examples(trials: Iterator[Trial], count: int) -> tuple[Trial, ...]:
    """The first trials and the last one, whose settings differ most from theirs; of very many, the first alone."""
    first = tuple(islice(trials, _FIRST))
    if count > MOST_WALKED:
        return (*first, *islice(trials, 1))
    last: Trial | None = None
    for trial in trials:
        last = trial
    return first if last is None else (*first, last)
