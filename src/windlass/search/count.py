"""How many settings a grid has, without listing them: values that no rule tells apart are counted together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.search.grid import Axis, Condition, holds, size_of
from windlass.search.values import value_key


@dataclass(frozen=True)
class _Group:
    """Values of an axis that every rule and every condition treats alike."""

    settings: Mapping[str, Any]  # of one of them
    size: int


def count_combinations(axes: Sequence[Axis], rules: Sequence[Condition]) -> int:
    """Exactly how many settings of the axes are there that no rule removes.

    The cost depends on how many values the rules and conditions name, not on how many values there are.
    """
    conditions = [*rules, *(axis.when for axis in axes if axis.when)]
    named = {name for condition in conditions for name in condition}
    plain = [axis for axis in axes if not axis.when and named.isdisjoint(axis.names)]
    others = [axis for axis in axes if axis.when or not named.isdisjoint(axis.names)]
    product = math.prod(size_of(axis.values) for axis in plain)
    if not others:
        return product
    groups = [_group(axis, conditions) for axis in others]
    return product * _count(others, groups, rules, 0, {})


def _group(axis: Axis, conditions: Sequence[Condition]) -> list[_Group]:
    relevant = [
        condition for condition in conditions if not condition.keys().isdisjoint(axis.names)
    ]
    if not relevant:
        return [_Group(dict.fromkeys(axis.names), size_of(axis.values))]
    found: dict[tuple[bool, ...], _Group] = {}
    for value in axis.values:
        values = value if len(axis.names) > 1 else (value,)
        settings = dict(zip(axis.names, values, strict=True))
        keys = {name: value_key(item) for name, item in settings.items()}
        alike = tuple(
            keys[name] in condition[name]
            for condition in relevant
            for name in axis.names
            if name in condition
        )
        known = found.get(alike)
        found[alike] = _Group(known.settings if known else settings, known.size + 1 if known else 1)
    return list(found.values())


def _count(
    axes: Sequence[Axis],
    groups: Sequence[Sequence[_Group]],
    rules: Sequence[Condition],
    depth: int,
    settings: dict[str, Any],
) -> int:
    if any(holds(rule, settings) for rule in rules):
        return 0
    if depth == len(axes):
        return 1
    if not holds(axes[depth].when, settings):
        return _count(axes, groups, rules, depth + 1, settings)
    total = 0
    for group in groups[depth]:
        settings.update(group.settings)
        total += group.size * _count(axes, groups, rules, depth + 1, settings)
    for name in axes[depth].names:
        settings.pop(name, None)
    return total
