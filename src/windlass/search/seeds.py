"""Seeds: each setting once for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.model import Space
from windlass.search.grid import compile_condition, holds


def without_seeds(space: Space) -> Space:
    """The same without its seeds, and without the rules that name them."""
    rules = tuple(rule for rule in space.exclude if space.seed_name not in rule)
    return replace(space, seeds=(), exclude=rules)


def has_seed_rules(space: Space) -> bool:
    """Whether some rule removes a setting with some of its seeds only."""
    return bool(space.seeds) and any(space.seed_name in rule for rule in space.exclude)


def with_seeds(rows: Iterator[Mapping[str, Any]], space: Space) -> Iterator[Mapping[str, Any]]:
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
