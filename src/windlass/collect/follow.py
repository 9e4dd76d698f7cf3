"""Counts trials by state while they run, from the journals alone and cheaply enough to do several times a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.claims.ranges import Ranges, contains
from windlass.journal.read import JournalReader, journal_files
from windlass.paths import StudyPaths
from windlass.states import STATE_OF, State

_STATES = tuple(State)
_CODE = {state: code for code, state in enumerate(_STATES)}
_CODE_OF_CAUSE = {cause.value: _CODE[state] for cause, state in STATE_OF.items()}


class Follower:
    """Counts as of the last `update`. One byte a trial; starts from what the caller knows already."""

    def __init__(
        self,
        paths: StudyPaths,
        count: int,
        included: Ranges,
        on_end: Callable[[str, dict[str, Any]], None] | None = None,
    ):
        self._paths = paths
        self._states = bytearray(count)
        self._included = included
        self._everything = included == [(0, count)]
        self._readers: dict[str, JournalReader] = {}
        self._on_end = on_end
        self.counts = [0] * len(_STATES)
        self.counts[_CODE[State.WAITING]] = sum(stop - first for first, stop in included)
        self.ended = 0  # attempts that ended since this object was made
        self.notes: list[str] = []

    def skip_existing(self, pass_on: bool = False) -> None:
        """Take in what the journals hold already, without counting it as news; `on_end` hears of it with `pass_on`."""
        on_end, self._on_end = self._on_end, self._on_end if pass_on else None
        self.update()
        self._on_end, self.ended = on_end, 0
        self.notes.clear()

    def count(self, state: State) -> int:
        return self.counts[_CODE[state]]

    def update(self) -> bool:
        """Read what is new. True when there was anything."""
        news = False
        for path in journal_files(self._paths.journal):
            reader = self._readers.setdefault(path, JournalReader(path))
            while events := reader.read():
                news = True
                for event in events:
                    self._take(event)
        return news

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("e")
        if kind == "start":
            self._set(event["i"], _CODE[State.RUNNING])
        elif kind == "end":
            self._set(event["i"], _CODE_OF_CAUSE.get(event["cause"], _CODE[State.FAILED]))
            self.ended += 1
            if self._on_end is not None:
                self._on_end(event["cause"], event)
        elif kind == "again":
            self._set(event["i"], _CODE[State.WAITING])
        elif kind in ("cancel", "retry"):
            code = _CODE[State.CANCELLED if kind == "cancel" else State.WAITING]
            for first, stop in event["r"]:
                for number in range(first, stop):
                    self._set(number, code)
        elif kind == "note" and not event.get("routine"):
            self.notes.append(event["text"])

    def _set(self, number: int, code: int) -> None:
        if number >= len(self._states):
            return
        old = self._states[number]
        if old == _CODE[State.DONE] and code != _CODE[State.WAITING]:
            return
        self._states[number] = code
        if self._everything or contains(self._included, number):
            self.counts[old] -= 1
            self.counts[code] += 1
