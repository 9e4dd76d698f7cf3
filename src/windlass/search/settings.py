"""Space → settings, whichever method it uses, lazily."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.model import Space
from windlass.search.count import count_combinations
from windlass.search.grid import axes_of, compile_condition, compile_rules, holds, iterate_grid
from windlass.search.sampling import is_countable, iterate_random


def iterate_settings(space: Space) -> Iterator[Mapping[str, Any]]:
    """The settings of all trials, in order, each once; the seed changes fastest."""
    if space.method == "list":
        return _with_seeds(_kept_rows(space), space)
    if space.method == "random":
        others = without_seeds(space)
        return _with_seeds(iterate_random(others, axes_of(others)), space)
    if space.trials is not None and space.seeds:
        others = without_seeds(space)
        capped = itertools.islice(iterate_grid(others, axes_of(others)), space.trials)
        return _with_seeds(capped, space)
    return itertools.islice(iterate_grid(space, axes_of(space)), space.trials)


def count_settings(space: Space) -> int:
    """How many settings `iterate_settings` gives; computed, not counted, wherever that is possible."""
    seed_rules = any(space.seed_name in rule for rule in space.exclude) and bool(space.seeds)
    if space.method == "grid" and space.trials is None:
        return count_combinations(axes_of(space), compile_rules(space))
    if seed_rules or (space.method == "list" and space.exclude):
        return sum(1 for _ in iterate_settings(space))
    seeds = len(space.seeds) or 1
    if space.method == "list":
        others = replace(space, seeds=())
        return len(space.rows) * count_combinations(axes_of(others), []) * seeds
    trials = space.trials or 0
    if space.method == "random":
        return trials * seeds
    others = replace(space, seeds=())
    return min(count_combinations(axes_of(others), compile_rules(others)), trials) * seeds


def count_distinct(space: Space) -> int | None:
    """How many different settings can be drawn, without seeds; None where that cannot be said."""
    if not is_countable(space):
        return None
    others = without_seeds(space)
    return count_combinations(axes_of(others), compile_rules(others))


def without_seeds(space: Space) -> Space:
    """The same without its seeds, and without the rules that name them."""
    return replace(space, seeds=(), exclude=_rules_without_seed(space))


def _rules_without_seed(space: Space) -> tuple[Mapping[str, tuple[Any, ...]], ...]:
    return tuple(rule for rule in space.exclude if space.seed_name not in rule)


def _kept_rows(space: Space) -> Iterator[Mapping[str, Any]]:
    """Each row with all values of the parameters, if there are any, less what the rules remove."""
    rules = [compile_condition(rule) for rule in _rules_without_seed(space)]
    others = replace(space, seeds=(), exclude=())
    axes = axes_of(others)
    for row in space.rows:
        for more in iterate_grid(others, axes):
            settings = {**row, **more}
            if not any(holds(rule, settings) for rule in rules):
                yield settings


def _with_seeds(rows: Iterator[Mapping[str, Any]], space: Space) -> Iterator[Mapping[str, Any]]:
    """Each setting once for each seed, less what the rules that name the seed remove."""
    if not space.seeds:
        yield from rows
        return
    rules = [compile_condition(rule) for rule in space.exclude if space.seed_name in rule]
    for row in rows:
        for seed in space.seeds:
            settings = {**row, space.seed_name: seed}
            if not any(holds(rule, settings) for rule in rules):
                yield settings
