"""Space → settings, whichever method it uses, lazily."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.model import Space
from windlass.search.grid import axes_of, compile_condition, count_grid, holds, iterate_grid
from windlass.search.sampling import is_countable, iterate_random


def iterate_settings(space: Space) -> Iterator[Mapping[str, Any]]:
    """The settings of all trials, in order, each once; the seed changes fastest."""
    if space.method == "list":
        return _with_seeds(_kept_rows(space), space)
    if space.method == "random":
        without_seeds = replace(space, seeds=(), exclude=_rules_without_seed(space))
        return _with_seeds(iterate_random(without_seeds, axes_of(without_seeds)), space)
    if space.trials is not None and space.seeds:
        without_seeds = replace(space, seeds=(), exclude=_rules_without_seed(space))
        capped = itertools.islice(iterate_grid(without_seeds, axes_of(without_seeds)), space.trials)
        return _with_seeds(capped, space)
    return itertools.islice(iterate_grid(space, axes_of(space)), space.trials)


def count_settings(space: Space) -> int:
    """How many settings `iterate_settings` gives; computed, not counted, wherever that is possible."""
    seed_rules = any(space.seed_name in rule for rule in space.exclude) and bool(space.seeds)
    if seed_rules or (space.method == "list" and space.exclude):
        return sum(1 for _ in iterate_settings(space))
    seeds = len(space.seeds) or 1
    if space.method == "list":
        return len(space.rows) * seeds
    if space.method == "random":
        return (space.trials or 0) * seeds
    without_seeds = replace(space, seeds=())
    count = count_grid(without_seeds, axes_of(without_seeds), space.trials)
    return (count if space.trials is None else min(count, space.trials)) * seeds


def count_distinct(space: Space, limit: int) -> int | None:
    """How many different settings can be drawn, without seeds; None where that cannot be said.

    Where they have to be walked, the count stops at `limit`.
    """
    if not is_countable(space):
        return None
    without_seeds = replace(space, seeds=(), exclude=_rules_without_seed(space))
    return count_grid(without_seeds, axes_of(without_seeds), limit)


def _rules_without_seed(space: Space) -> tuple[Mapping[str, tuple[Any, ...]], ...]:
    return tuple(rule for rule in space.exclude if space.seed_name not in rule)


def _kept_rows(space: Space) -> Iterator[Mapping[str, Any]]:
    rules = [compile_condition(rule) for rule in _rules_without_seed(space)]
    for row in space.rows:
        if not any(holds(rule, row) for rule in rules):
            yield dict(row)


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
