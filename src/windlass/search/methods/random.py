"""Settings drawn at random, each different from the others."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.search.grid import axes_of
from windlass.search.methods.base import FixedSearcher, Settings
from windlass.search.sampling import iterate_random
from windlass.search.seeds import has_seed_rules, with_seeds, without_seeds


class Random(FixedSearcher):
    """Draws `trials` settings. The first ones stay the same when more are asked for."""

    draws = True

    def iterate(self) -> Iterator[Settings]:
        others = without_seeds(self.space)
        return with_seeds(iterate_random(others, axes_of(others)), self.space)

    def count(self) -> int:
        if has_seed_rules(self.space):
            return super().count()
        return (self.space.trials or 0) * (len(self.space.seeds) or 1)


MEMBER = Random
