"""Every combination of a study's values, lazily: the last declared changes fastest, the seed before all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from windlass.model import Distribution, Parameter, Space
from windlass.search.values import value_key

# itertools.product keeps a copy of every axis; a longer one (a wide integer range) is walked instead.
LONGEST_COPIED_AXIS = 1_000_000

Condition = Mapping[str, frozenset[Hashable]]


@dataclass(frozen=True)
class Axis:
    """One dimension of the space: a parameter, or several that move together."""

    names: tuple[str, ...]
    values: Sequence[Any]  # for several names, each value is a tuple
    when: Condition
    parameters: tuple[Parameter, ...]


def is_discrete(parameter: Parameter) -> bool:
    """Whether a grid can list the parameter's values."""
    return parameter.distribution is None or parameter.distribution.kind in {
        "int_uniform",
        "q_uniform",
    }


def values_of(parameter: Parameter) -> Sequence[Any]:
    """All values of a discrete parameter, in order; those of weight zero never occur."""
    if parameter.distribution is not None:
        return _listed(parameter.distribution)
    if parameter.weights:
        pairs = zip(parameter.values, parameter.weights, strict=True)
        return [value for value, weight in pairs if weight > 0]
    return parameter.values


def _listed(distribution: Distribution) -> Sequence[Any]:
    numbers = distribution.numbers
    if distribution.kind == "int_uniform":
        return range(int(numbers["min"]), int(numbers["max"]) + 1)
    return _Steps(numbers)


class _Steps(Sequence[Any]):
    """The multiples of a step, each computed when it is asked for; the end itself is not one, as in W&B."""

    def __init__(self, numbers: Mapping[str, float]) -> None:
        self._step, self._low, high = (Decimal(str(numbers[key])) for key in ("q", "min", "max"))
        self._is_whole = all(isinstance(numbers[key], int) for key in ("q", "min"))
        self.count_all = math.ceil((high - self._low) / self._step)

    def __len__(self) -> int:
        return self.count_all

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -self.count_all <= index < self.count_all:
            raise IndexError(index)
        point = self._low + self._step * (index % self.count_all)
        return int(point) if self._is_whole else float(point)


def size_of(values: Sequence[Any]) -> int:
    """How many values there are; `len` fails for more than a machine word can count."""
    if isinstance(values, range):
        return max(0, values.stop - values.start)  # all of ours have a step of 1
    return values.count_all if isinstance(values, _Steps) else len(values)


def axes_of(space: Space) -> list[Axis]:
    """The dimensions in the order they are walked: as declared, but each after those its `when` names."""
    by_name = {parameter.name: parameter for parameter in space.parameters}
    group_of = {name: group for group in space.zips for name in group}
    axes: list[Axis] = []
    done: set[str] = set()
    for parameter in space.parameters:
        if parameter.name in done:
            continue
        members = tuple(by_name[name] for name in group_of.get(parameter.name, (parameter.name,)))
        done.update(member.name for member in members)
        axes.append(_axis(members))
    axes = _parents_first(axes)
    if space.seeds:
        seeds = Parameter(space.seed_name, values=space.seeds)
        axes.append(Axis((space.seed_name,), space.seeds, {}, (seeds,)))
    return axes


def _axis(members: tuple[Parameter, ...]) -> Axis:
    names = tuple(member.name for member in members)
    when = compile_condition(members[0].when)
    if not all(map(is_discrete, members)):
        return Axis(names, (), when, members)
    if len(members) == 1:
        return Axis(names, values_of(members[0]), when, members)
    return Axis(
        names, list(zip(*(member.values for member in members), strict=True)), when, members
    )


def _parents_first(axes: list[Axis]) -> list[Axis]:
    """A stable order in which every axis follows the axes its condition names."""
    ordered: list[Axis] = []
    known: set[str] = set()
    waiting = list(axes)
    while waiting:
        ready = next((axis for axis in waiting if known.issuperset(axis.when)), None)
        if ready is None:
            raise ValueError("parameters depend on each other in a circle")
        waiting.remove(ready)
        ordered.append(ready)
        known.update(ready.names)
    return ordered


def compile_condition(rule: Mapping[str, Sequence[Any]]) -> Condition:
    """A `when` or `exclude` rule in a form that is quick to test."""
    return {name: frozenset(map(value_key, values)) for name, values in rule.items()}


def holds(condition: Condition, settings: Mapping[str, Any]) -> bool:
    """Whether every name of the condition is present with one of its values."""
    return all(
        name in settings and value_key(settings[name]) in keys for name, keys in condition.items()
    )


def iterate_grid(space: Space, axes: list[Axis]) -> Iterator[dict[str, Any]]:
    """All settings of the axes that no `exclude` rule removes."""
    rules = compile_rules(space)
    if rules or any(axis.when or size_of(axis.values) > LONGEST_COPIED_AXIS for axis in axes):
        return _walk(axes, _rules_by_axis(axes, rules), 0, {})
    return _combinations(axes)


def compile_rules(space: Space) -> list[Condition]:
    """The `exclude` rules of a space in a form that is quick to test."""
    return [compile_condition(rule) for rule in space.exclude]


def _combinations(axes: list[Axis]) -> Iterator[dict[str, Any]]:
    names = [name for axis in axes for name in axis.names]
    products = itertools.product(*(axis.values for axis in axes))
    if all(len(axis.names) == 1 for axis in axes):
        for values in products:
            yield dict(zip(names, values))  # noqa: B905 - a strict zip costs a tenth of the time of a trial
        return
    nested = [len(axis.names) > 1 for axis in axes]
    for values in products:
        flat: list[Any] = []
        for value, deep in zip(values, nested, strict=True):
            flat.extend(value if deep else (value,))
        yield dict(zip(names, flat, strict=True))


def _rules_by_axis(
    axes: list[Axis], rules: list[Condition]
) -> list[list[tuple[Condition, Condition]]]:
    """For each axis the rules that can be judged once it has a value, and not before.

    Each rule is in two parts: what it demands of the axes before, and of this one. A rule that names what no axis has
    never holds and is left out.
    """
    place = {name: number for number, axis in enumerate(axes) for name in axis.names}
    found: list[list[tuple[Condition, Condition]]] = [[] for _ in axes]
    for rule in rules:
        if not place.keys() >= rule.keys():
            continue
        last = max(place[name] for name in rule)
        before = {name: keys for name, keys in rule.items() if place[name] < last}
        here = {name: keys for name, keys in rule.items() if place[name] == last}
        found[last].append((before, here))
    return found


def _walk(
    axes: list[Axis],
    rules: list[list[tuple[Condition, Condition]]],
    depth: int,
    settings: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Nested loops over the axes from `depth` on, leaving out those whose condition does not hold.

    A rule removes all that is below a value at once.
    """
    if depth == len(axes):
        yield settings.copy()
        return
    axis = axes[depth]
    if not holds(axis.when, settings):
        yield from _walk(axes, rules, depth + 1, settings)
        return
    removed = [here for before, here in rules[depth] if holds(before, settings)]
    for value in axis.values:
        settings.update(zip(axis.names, value if len(axis.names) > 1 else (value,), strict=True))
        if removed and any(holds(rule, settings) for rule in removed):
            continue
        yield from _walk(axes, rules, depth + 1, settings)
    for name in axis.names:
        settings.pop(name, None)
