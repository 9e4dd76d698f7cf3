"""All combinations of values, or the first `trials` of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from windlass.search.count import count_combinations
from windlass.search.grid import axes_of, compile_rules, iterate_grid
from windlass.search.methods.base import FixedSearcher, Settings
from windlass.search.seeds import has_seed_rules, with_seeds, without_seeds


class Grid(FixedSearcher):
    """The last declared parameter changes fastest, and the seed before it."""

    draws = False

    def iterate(self) -> Iterator[Settings]:
        space = self.space
        if space.trials is None or not space.seeds:
            return itertools.islice(iterate_grid(space, axes_of(space)), space.trials)
        others = without_seeds(space)
        return with_seeds(
            itertools.islice(iterate_grid(others, axes_of(others)), space.trials), space
        )

    def count(self) -> int:
        space = self.space
        if space.trials is None:
            return count_combinations(axes_of(space), compile_rules(space))
        if has_seed_rules(space):
            return super().count()
        others = replace(space, seeds=())
        settings = count_combinations(axes_of(others), compile_rules(others))
        return min(settings, space.trials) * (len(space.seeds) or 1)


MEMBER = Grid
