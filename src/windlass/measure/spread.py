"""Which trials are measured: corners of the grid, one a variant, and company for them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.model import Parameter, Study, Trial
from windlass.search import count_trials, iterate_trials
from windlass.search.grid import values_of

_LOOKED_AT = 20_000  # of a larger study so many
_COMPANY = 96
_MOST_VARIANTS = 12


@dataclass(frozen=True)
class Spread:
    """The trials of a measurement: those that are looked at alone come first."""

    trials: tuple[Trial, ...]
    alone: int
    left_out: int = 0  # variants that nobody looks at


def choose_spread(study: Study, variants: Sequence[str]) -> Spread:
    """The largest and the smallest setting, the largest of each variant, and others from all over the study."""
    trials = _look_at(_thin(study, variants)) or _look_at(study)
    size_of = _Sizes(trials, study.space.seed_name)
    by_variant: dict[str, Trial] = {}
    for trial in trials:
        variant = _variant(trial, variants)
        if variant not in by_variant or size_of(trial) > size_of(by_variant[variant]):
            by_variant[variant] = trial
    largest = sorted(by_variant.values(), key=size_of, reverse=True)
    alone = largest[:_MOST_VARIANTS]
    smallest = min(trials, key=size_of)
    seed_name = study.space.seed_name
    if all(_without(trial, seed_name) != _without(smallest, seed_name) for trial in alone):
        alone.append(smallest)
    known = {trial.id for trial in alone}
    rank = {
        variant: number
        for number, variant in enumerate(
            sorted(by_variant, key=lambda one: size_of(by_variant[one]))
        )
    }
    others = sorted(
        (trial for trial in _evenly(trials, _COMPANY) if trial.id not in known),
        key=lambda trial: (rank[_variant(trial, variants)], *size_of(trial)),
    )
    # From the middle to the largest: those that are measured together are alike, and as usual ones are.
    others = others[len(others) // 2 :] + others[: len(others) // 2][::-1]
    return Spread((*alone, *others), len(alone), max(0, len(largest) - _MOST_VARIANTS))


def _variant(trial: Trial, variants: Sequence[str]) -> str:
    return repr([trial.settings.get(name) for name in variants])


def _look_at(study: Study) -> list[Trial]:
    return list(itertools.islice(iterate_trials(study), _LOOKED_AT))


def _thin(study: Study, variants: Sequence[str]) -> Study:
    """A large grid with fewer values of each parameter, but its ends: its first trials would be one corner of it.

    What is left are trials of the study, all of them.
    """
    space = study.space
    if (
        study.tasks
        or space.method != "grid"
        or space.trials is not None
        or count_trials(study) <= _LOOKED_AT
    ):
        return study
    whole = {*variants, *itertools.chain.from_iterable(space.zips)}
    kept_of_each = 2 * _COMPANY
    while kept_of_each > 2:
        kept_of_each = max(2, kept_of_each // 2)
        thinner = tuple(
            _thin_values(parameter, kept_of_each, whole) for parameter in space.parameters
        )
        study = replace(
            study, space=replace(space, parameters=thinner, seeds=space.seeds[:kept_of_each])
        )
        if count_trials(study) <= _LOOKED_AT:
            break
    return study


def _thin_values(parameter: Parameter, count: int, whole: Container[str]) -> Parameter:
    """A parameter with at most `count` of its values, the first and the last among them; those of `whole` keep all."""
    values = values_of(parameter)
    if parameter.name not in whole and len(values) > count:
        if not isinstance(values, range) and all(map(_is_number, values)):
            values = sorted(values)
        values = [values[number * (len(values) - 1) // (count - 1)] for number in range(count)]
    return replace(parameter, values=tuple(values), distribution=None, weights=())


def _without(trial: Trial, name: str) -> dict[str, Any]:
    return {key: value for key, value in trial.settings.items() if key != name}


def _evenly(trials: Sequence[Trial], count: int) -> Iterable[Trial]:
    step = max(1.0, len(trials) / count)
    return (trials[int(number * step)] for number in range(min(count, len(trials))))


class _Sizes:
    """How large a setting is: the mean rank of its numbers. Later trials are larger, all else being equal."""

    def __init__(self, trials: Sequence[Trial], seed_name: str) -> None:
        values: dict[str, set[float]] = {}
        for trial in trials:
            for name, value in trial.settings.items():
                if name != seed_name and _is_number(value):
                    values.setdefault(name, set()).add(float(value))
        self._ranks = {
            name: {value: rank / (len(found) - 1) for rank, value in enumerate(sorted(found))}
            for name, found in values.items()
            if len(found) > 1
        }
        self._order = {trial.id: number / len(trials) for number, trial in enumerate(trials)}

    def __call__(self, trial: Trial) -> tuple[float, float]:
        ranks = [
            known[float(trial.settings[name])]
            for name, known in self._ranks.items()
            if _is_number(trial.settings.get(name))
        ]
        return (round(sum(ranks) / len(ranks), 9) if ranks else 0.0, self._order[trial.id])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
