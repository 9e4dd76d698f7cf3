"""Counts trials by state while they run, from the journals alone and cheaply enough to do several times a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windlass.collect.trial_ids import Event, Moved, TrialIds, iterate_renumbered
from windlass.core.claims.ranges import Ranges, contains
from windlass.core.journal.read import JournalReader, for_each, is_of_client, journal_files
from windlass.core.paths import StudyPaths
from windlass.core.states import STATE_OF, State

_BY_HAND = ("cancel", "retry")  # what users do with trials
_TOGETHER = 64  # journals that are read at a time
_PIECE_BYTES = 1 << 20  # of each
_STATES = tuple(State)
_CODE = {state: code for code, state in enumerate(_STATES)}
_CODE_OF_CAUSE = {cause.value: _CODE[state] for cause, state in STATE_OF.items()}


def _fetch(reader: JournalReader) -> bytes:
    return reader.fetch(_PIECE_BYTES)


def _events(reader: JournalReader, block: bytes) -> Iterator[dict[str, Any]]:
    """All that is new in a journal, of which `block` was fetched already. A journal with little news is opened once."""
    yield from reader.take(block)
    while len(block) > _PIECE_BYTES // 2:
        block = reader.fetch(_PIECE_BYTES)
        yield from reader.take(block)


class Follower:
    """Counts as of the last `update`. One byte a trial; starts from what the caller knows already."""

    def __init__(
        self,
        paths: StudyPaths,
        count: int,
        included: Ranges,
        on_end: Callable[[str, Event], None] | None = None,
    ):
        self._paths = paths
        self._states = bytearray(count)
        self._included = included
        self._everything = included == [(0, count)]
        self._readers: dict[str, JournalReader] = {}
        self._ids = TrialIds(paths)
        self._moved: dict[str, Moved] = {}  # journal → numbers there whose trials have others now
        self._on_end = on_end
        # When the user put trials back (true) or cancelled them.
        self._by_hand: list[tuple[float, bool, Ranges]] = []
        self._latest_by_hand = 0.0
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
        paths = journal_files(self._paths.journal)
        # Events of commands about trials of dead agents: they are passed on after the agents' own.
        others: list[Event] = []
        # What the user did comes first: whether a verdict of an agent is older shows by its time.
        ordered = sorted(paths, key=lambda path: not is_of_client(path))
        for begin in range(0, len(ordered), _TOGETHER):
            readers = [
                self._readers.setdefault(path, JournalReader(path))
                for path in ordered[begin : begin + _TOGETHER]
            ]
            for reader, block in zip(readers, for_each(_fetch, readers), strict=True):
                events = _events(reader, block)
                for event in iterate_renumbered(
                    self._ids, self._moved.setdefault(reader.path, {}), events
                ):
                    news = True
                    if is_of_client(reader.path) and event.get("e") not in _BY_HAND:
                        others.append(event)
                    else:
                        self._take(event)
        for event in others:
            self._take(event)
        return news

    def _take(self, event: Event) -> None:
        """Count one event. Requests of the user come from other journals, so their time decides what they concern."""
        kind = event.get("e")
        if kind == "start":
            self._judge(event, _CODE[State.RUNNING])
        elif kind == "end":
            self._judge(event, _CODE_OF_CAUSE.get(event["cause"], _CODE[State.FAILED]))
            self.ended += 1
            if self._on_end is not None:
                self._on_end(event["cause"], event)
        elif kind == "again":
            self._judge(event, _CODE[State.WAITING])
        elif kind in _BY_HAND:
            self._by_hand.append((event["t"], kind == "retry", event["r"]))
            self._latest_by_hand = max(self._latest_by_hand, event["t"])
            code = _CODE[State.CANCELLED if kind == "cancel" else State.WAITING]
            for first, stop in event["r"]:
                for number in range(first, stop):
                    self._set(number, code)
        elif kind == "note" and not event.get("routine"):
            self.notes.append(event["text"])

    def _judge(self, event: Event, code: int) -> None:
        """Take an agent's verdict, unless the user put the trial back, or cancelled it before it was done, later."""
        number, when = event["i"], event["t"]
        if when <= self._latest_by_hand:
            for then, is_retry, ranges in self._by_hand:
                if (
                    when <= then
                    and (is_retry or code != _CODE[State.DONE])
                    and contains(ranges, number)
                ):
                    return
        self._set(number, code)

    def _set(self, number: int, code: int) -> None:
        """Set the state of a trial and keep the counts right. A trial that is done stays done until it is put back."""
        if number >= len(self._states):
            return
        old = self._states[number]
        if old == _CODE[State.DONE] and code != _CODE[State.WAITING]:
            return
        self._states[number] = code
        if self._everything or contains(self._included, number):
            self.counts[old] -= 1
            self.counts[code] += 1
