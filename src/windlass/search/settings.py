"""Space → settings, whichever method it uses, lazily."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windlass.model import Space
from windlass.search.count import count_combinations
from windlass.search.grid import axes_of, compile_rules
from windlass.search.methods.base import History, Searcher, make_searcher
from windlass.search.sampling import is_countable
from windlass.search.seeds import without_seeds

_MOST_AT_A_TIME = 1024


def iterate_settings(space: Space) -> Iterator[Mapping[str, Any]]:
    """The settings of all trials, in order, each once; the seed changes fastest.

    Few are made before they are needed, and no more than about a thousand are in memory.
    """
    return itertools.chain.from_iterable(_iterate_batches(make_searcher(space)))


def _iterate_batches(searcher: Searcher) -> Iterator[Sequence[Mapping[str, Any]]]:
    given, how_many = 0, 1
    while batch := searcher.next(History(given), how_many):
        yield batch
        given += len(batch)
        how_many = min(2 * how_many, _MOST_AT_A_TIME)


def count_settings(space: Space) -> int:
    """How many settings a study has; computed, not counted, wherever that is possible.

    A search without an end of its own has as many as the study asks for.
    """
    count = make_searcher(space).count()
    return (space.trials or 0) if count is None else count


def count_distinct(space: Space) -> int | None:
    """How many different settings can be drawn, without seeds; None where the number is not known."""
    if not is_countable(space):
        return None
    others = without_seeds(space)
    return count_combinations(axes_of(others), compile_rules(others))
