"""The rows that the study lists, each with all values of the parameters, if there are any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from windlass.search.count import count_combinations
from windlass.search.grid import axes_of, compile_rules, holds, iterate_grid
from windlass.search.methods.base import FixedSearcher, Settings
from windlass.search.seeds import with_seeds, without_seeds


class Rows(FixedSearcher):
    """Settings in the order of the rows, less what the rules remove."""

    draws = False

    def iterate(self) -> Iterator[Settings]:
        return with_seeds(self._kept_rows(), self.space)

    def _kept_rows(self) -> Iterator[Settings]:
        rules = compile_rules(without_seeds(self.space))
        others = replace(self.space, seeds=(), exclude=())
        axes = axes_of(others)
        for row in self.space.rows:
            for more in iterate_grid(others, axes):
                settings = {**row, **more}
                if not any(holds(rule, settings) for rule in rules):
                    yield settings

    def count(self) -> int:
        space = self.space
        if space.exclude:
            return super().count()
        others = replace(space, seeds=())
        return len(space.rows) * count_combinations(axes_of(others), []) * (len(space.seeds) or 1)


MEMBER = Rows
