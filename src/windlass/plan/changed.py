"""What has become of a study since it was measured: other values, other variants, other lengths. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.measured import Measurement, Probe
from windlass.model import Parameter, Space, Study
from windlass.search.grid import is_discrete
from windlass.search.settings import iterate_settings
from windlass.search.values import value_key

_NAMED = 3  # of what a warning speaks of; of the rest the number
_LOOKED_AT = 20_000  # settings of a large study
_BOUNDED = ("uniform", "q_uniform", "int_uniform", "log_uniform_values", "q_log_uniform_values")
_AGAIN = "`windlass measure` finds out what trials need now"


def warn_of_changes(
    study: Study, measured: Measurement, lengths: Lengths | None, known: Iterable[Sequence[Any]]
) -> list[str]:
    """`known` are the variants of which somebody has seen what they take."""
    reckoned = {lengths.name} if lengths is not None else set()
    if has_other_variants(study, measured):
        return [_warn_of_other_variants(measured), *_warn_of_values(study, measured, reckoned)]
    return [
        *_warn_of_new_variants(study, known),
        *_warn_of_values(study, measured, {*study.variants} | reckoned),
    ]


# -- lengths


@dataclass(frozen=True)
class Lengths:
    """How many steps trials of the study have, where a parameter says so and others were measured."""

    name: str
    middle: float
    high: float
    measured: float  # the most that a trial which was measured had

    def times_s(self, probe: Probe) -> tuple[float, float] | None:
        """Of a trial with the usual and with the most steps, and with the pace of this one; None: not known."""
        steps = _number(probe.settings.get(self.name))
        if steps is None or probe.time_s is None or probe.step_s is None:
            return None
        least_s, step_s = probe.startup_s or 0.0, probe.step_s[1]
        middle_s, high_s = (
            probe.time_s[1] + (wanted - steps) * step_s for wanted in (self.middle, self.high)
        )
        return max(least_s, middle_s), max(least_s, high_s)

    def __str__(self) -> str:
        return f"with {self.name}={self.measured}, by its pace for {self.name}={self.high}"


def find_lengths(study: Study, measured: Measurement) -> Lengths | None:
    """None: no parameter says how many steps there are, or the fewest and the most of them were measured."""
    steps = study.progress.steps if study.progress is not None else None
    if not isinstance(steps, str):
        return None
    name = steps[1:-1]
    seen = _numbers(probe.settings.get(name) for probe in measured.probes)
    parameter = _parameters(study.space).get(name)
    if not seen or parameter is None:
        return None
    ends = _bounds(parameter)
    values = _numbers(parameter.values) if ends is None else list(ends)
    if not values or (min(values), max(values)) == (min(seen), max(seen)):
        return None
    lengths = Lengths(name, sum(values) / len(values), max(values), max(seen))
    return lengths if any(map(lengths.times_s, measured.probes)) else None


def without_whole_trials(measured: Measurement) -> Measurement:
    """Of rounds only the pace: their trials were of another length."""
    rounds = [
        replace(one, trial_s=None, trials_per_h=None) if one.rate else one
        for one in measured.rounds
    ]
    return replace(measured, rounds=tuple(rounds))


# -- values


def _warn_of_values(study: Study, measured: Measurement, but: set[str]) -> list[str]:
    """Of settings that were measured and that the study has not any more, or that it goes beyond."""
    gone: list[str] = []
    beyond: list[str] = []
    parameters = {} if study.tasks else _parameters(study.space)
    for name in [name for name in parameters if name not in but]:
        seen = [probe.settings[name] for probe in measured.probes if name in probe.settings]
        lost = dict.fromkeys(
            f"{name}={value}" for value in seen if not _has(parameters[name], value)
        )
        gone += lost
        numbers, most = _numbers(seen), max(_numbers(parameters[name].values), default=None)
        if (
            not lost
            and numbers
            and most is not None
            and most > max(numbers)
            and _is_plain_grid(study.space)
        ):
            beyond.append(f"{name}={most}")
    warnings = []
    if gone:
        warnings.append(
            f"measured with {_few(gone)}, which the study does not have any more; {_AGAIN}"
        )
    if beyond:
        warnings.append(f"not measured: {_few(beyond)}, only less than that; {_AGAIN}")
    return warnings


def _is_plain_grid(space: Space) -> bool:
    """Whether one trial has the largest value of every parameter: that one is measured."""
    limited = (
        space.zips
        or space.exclude
        or space.trials
        or any(parameter.when for parameter in space.parameters)
    )
    return space.method == "grid" and not limited


# -- variants


def has_other_variants(study: Study, measured: Measurement) -> bool:
    """Whether trials were chosen for measuring by other settings than those that now tell sizes apart."""
    return not set(study.variants) <= set(measured.variants)


def _warn_of_other_variants(measured: Measurement) -> str:
    before = (
        f"with `variants: [{', '.join(measured.variants)}]`"
        if measured.variants
        else "without variants"
    )
    return f"measured {before}: all trials are given what the largest one took; {_AGAIN}"


def _warn_of_new_variants(study: Study, known: Iterable[Sequence[Any]]) -> list[str]:
    """Of variants that nobody has seen."""
    keys = {tuple(map(value_key, variant)) for variant in known}
    missing = []
    for settings in itertools.islice(_iterate_variants(study), _LOOKED_AT):
        variant = [settings.get(name) for name in study.variants]
        key = tuple(map(value_key, variant))
        if key not in keys:
            keys.add(key)
            missing.append(
                " ".join(
                    f"{name}={value}" for name, value in zip(study.variants, variant, strict=True)
                )
            )
    if not missing:
        return []
    return [f"not measured: {_few(missing)}, given what the largest one took; {_AGAIN}"]


def _iterate_variants(study: Study) -> Iterator[Mapping[str, Any]]:
    """Settings of all variants; of a large study not those of all trials."""
    space, names = study.space, set(study.variants)
    if study.tasks or not names:
        return iter(())
    if space.method == "list" or (space.method == "grid" and space.trials is not None):
        return iterate_settings(space)
    by_name = {parameter.name: parameter for parameter in space.parameters}
    while True:  # with those that they move with or depend on
        more = {name for group in space.zips if names & {*group} for name in group}
        more |= {name for one in names if one in by_name for name in by_name[one].when}
        if more <= names:
            break
        names |= more
    kept = tuple(parameter for parameter in space.parameters if parameter.name in names)
    if not all(map(is_discrete, kept)):
        return iter(())
    thin = replace(
        space,
        method="grid",
        parameters=kept,
        zips=tuple(group for group in space.zips if names >= {*group}),
        exclude=tuple(rule for rule in space.exclude if names >= {*rule}),
        seeds=space.seeds if space.seed_name in names else (),
        trials=None,
    )
    return iterate_settings(thin)


# -- values of parameters


def _parameters(space: Space) -> dict[str, Parameter]:
    """By name. Of a list, with the values that its rows have."""
    if space.method != "list":
        return {parameter.name: parameter for parameter in space.parameters}
    names = dict.fromkeys(name for row in space.rows for name in row)
    columns = {
        name: Parameter(name, tuple(row[name] for row in space.rows if name in row))
        for name in names
    }
    return {**{parameter.name: parameter for parameter in space.parameters}, **columns}


def _bounds(parameter: Parameter) -> tuple[float, float] | None:
    distribution = parameter.distribution
    if distribution is None or distribution.kind not in _BOUNDED:
        return None
    return distribution.numbers["min"], distribution.numbers["max"]


def _has(parameter: Parameter, value: Any) -> bool:
    """Whether trials may have it; of what is drawn without bounds, any."""
    if parameter.distribution is None:
        return any(value_key(one) == value_key(value) for one in parameter.values)
    ends, number, rounded = (
        _bounds(parameter),
        _number(value),
        parameter.distribution.numbers.get("q", 0.0),
    )
    return ends is None or (number is not None and ends[0] - rounded <= number <= ends[1] + rounded)


def _numbers(values: Iterable[Any]) -> list[float]:
    return [value for value in values if _number(value) is not None]


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _few(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
