"""How the done trials of a study stand by its metric: the best of them, and how many did not report it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.collect.facts import read_facts
from windlass.collect.index import StudyIndex, open_index
from windlass.collect.look import read_register
from windlass.collect.printed import PrintedNumber, add_printed, list_printed
from windlass.collect.results import Row, best_rows
from windlass.core.claims.ranges import Ranges, contains, normalise
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import TrialFile
from windlass.model import Metric, Range
from windlass.secrets import mask_row

_PARAMETERS_FROM = 200  # trials that tell which parameters vary


@dataclass(frozen=True)
class Missing:
    """Done trials without a value of a metric.

    Where none has one, `reported` are the names that they passed to windlass.log or were recorded for them, and
    `listed` is what the output has.
    """

    metric: str
    done: int
    without: int
    listed: tuple[PrintedNumber, ...] = ()
    reported: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """The best trial, or setting, by the study's metric, with the parameters that vary; and what is missing."""

    metric: Metric
    best: Row | None
    varying: tuple[str, ...]
    missing: Missing


def find_missing(
    paths: StudyPaths, index: StudyIndex, included: Sequence[Range], metric: str
) -> Missing:
    """Count the done trials that have no value of a metric, neither reported nor printed; 0 of 0 where all have one."""
    ranges = normalise(included)
    ended = {number for number, _, _ in index.unreported(metric)}
    if not ended:
        return Missing(metric, 0, 0)
    done = {number for number in index.numbers((State.DONE,)) if contains(ranges, number)}
    without = [record for record in index.records(done & ended) if metric not in record.metrics]
    listed: tuple[PrintedNumber, ...] = ()
    reported: dict[str, None] = {}
    if done and len(without) == len(done):
        listed = tuple(list_numbers(paths, index, ranges))
        for record in without:
            reported.update(dict.fromkeys(record.metrics))
    return Missing(metric, len(done), len(without), listed, tuple(reported))


def list_numbers(
    paths: StudyPaths, index: StudyIndex, included: Sequence[Range]
) -> list[PrintedNumber]:
    """Which numbers the output of done trials has, without the study's parameters; likely metrics come first."""
    ranges = normalise(included)
    parameters = {name: None for settings in _settings(paths, ranges) for name in settings}
    return list_printed(paths, index, ranges, parameters)


def read_standing(paths: StudyPaths) -> Standing | None:
    """The standing of a study's current trials by its own metric; None where it names none."""
    facts = read_facts(paths)
    if facts.metric is None:
        return None
    with open_index(paths) as index:
        included = read_register(paths).current
        add_printed(paths, index, facts.metric.name, facts.patterns.get(facts.metric.name))
        best = best_rows(paths, index, included, facts.metric, seed_name=facts.seed_name)
        varying = tuple(name for name in _varying(paths, included) if name != facts.seed_name)
        missing = find_missing(paths, index, included, facts.metric.name)
        return Standing(facts.metric, mask_row(best[0]) if best else None, varying, missing)


def _settings(paths: StudyPaths, ranges: Ranges) -> list[Row]:
    """The settings of some trials from all over the study."""
    numbers = [
        number
        for first, stop in ranges
        for number in range(first, stop, max(1, (stop - first) // 100))
    ]
    trials = TrialFile(paths)
    try:
        return [trials.read(number)["settings"] for number in numbers[:_PARAMETERS_FROM]]
    finally:
        trials.close()


def _varying(paths: StudyPaths, ranges: Ranges) -> list[str]:
    """The parameters that differ between these trials."""
    settings = _settings(paths, ranges)
    names = {name: None for one in settings for name in one}
    return [
        name for name in names if any(one.get(name) != settings[0].get(name) for one in settings)
    ]
