"""The interface of a searcher, which chooses the settings of trials. Pure."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from windlass.core.members import load_member, member_names
from windlass.model import Space
from windlass.search import methods

Settings = Mapping[str, Any]


class Outcome(NamedTuple):
    """What a trial has reported: its metric, or None where it failed."""

    settings: Settings
    value: float | None


class History(NamedTuple):
    """All that a searcher may go by, besides the study: what it has given, and what came of it."""

    given: int = 0  # how many settings
    outcomes: Sequence[Outcome] = ()


class Searcher(ABC):
    """Chooses settings. What it gives depends on the space and the history alone.

    So a search that was killed, moved or extended goes on the same, from any process that has the journal.
    """

    # Whether it draws `trials` settings of its own choice, instead of listing values.
    draws: ClassVar[bool]

    def __init__(self, space: Space) -> None:
        self.space = space

    @abstractmethod
    def count(self) -> int | None:
        """How many settings it gives in all; None: as many as are asked for."""

    @abstractmethod
    def next(self, history: History, how_many: int) -> Sequence[Settings]:
        """The next settings, at most so many; none once it has given all.

        Raises InputError where the space has no more settings than were given, and more were asked for.
        """


class FixedSearcher(Searcher):
    """A searcher whose settings do not depend on results. They are made one after another, as they are asked for."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._rest, self._given = self.iterate(), 0

    @abstractmethod
    def iterate(self) -> Iterator[Settings]:
        """All settings, in order, lazily."""

    def count(self) -> int:
        return sum(1 for _ in self.iterate())

    def next(self, history: History, how_many: int) -> Sequence[Settings]:
        if history.given != self._given:  # asked by another process before, or asked again
            self._rest, self._given = (
                itertools.islice(self.iterate(), history.given, None),
                history.given,
            )
        found = list(itertools.islice(self._rest, how_many))
        self._given += len(found)
        return found


def searcher_names() -> list[str]:
    """Every method that there is."""
    return member_names(methods)


def searcher_type(method: str) -> type[Searcher]:
    """The searcher of a method. Raises KeyError where there is none of that name."""
    found: type[Searcher] = load_member(methods, method)
    return found


def make_searcher(space: Space) -> Searcher:
    """The searcher of the method that a space names."""
    return searcher_type(space.method)(space)
