"""Counts trials by state while they run, from the journals alone and cheaply enough to do several times a second.

What an event means is decided by `core/journal/fold.py`, as everywhere. This module only keeps what the fold has to
remember of each trial, without the events themselves: a study may have a million trials, and the index that `windlass
status` reads is a database, which is too slow to be asked several times a second.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from windlass.collect.split_events import Event, split_events
from windlass.collect.trial_ids import Moved, TrialIds, renumber
from windlass.core.claims.ranges import Ranges, contains
from windlass.core.journal.fold import (
    END,
    RANKS,
    Folded,
    TrialHistory,
    Verdict,
    fold_events,
    state_of,
)
from windlass.core.journal.read import (
    JournalReader,
    for_each,
    is_of_client,
    journal_files,
    writer_of,
)
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause, State

_TOGETHER = 64  # journals that are read at a time
_PIECE_BYTES = 1 << 20  # of each
_STATES = tuple(State)
_CODE = {state: code for code, state in enumerate(_STATES)}
# All kinds of verdicts: rank, cause of an end, whether it is the success that counts. Their places fit into one byte.
# "" stands for all causes that this version does not know.
_KINDS: tuple[tuple[int, str, bool], ...] = (
    *((rank, "", False) for rank in RANKS),
    *((END, cause.value, False) for cause in Cause),
    (END, Cause.DONE.value, True),
)
_PLACE_OF_KIND = {kind: place for place, kind in enumerate(_KINDS, start=1)}
# Of an event, the fold and the state need nothing but its cause once the event was taken.
_EVENT_OF_CAUSE: dict[str, Event] = {cause: {"cause": cause} for _, cause, _ in _KINDS}


def _fetch(reader: JournalReader) -> bytes:
    return reader.fetch(_PIECE_BYTES)


class _Histories:
    """What the fold has to remember of each trial, in 13 bytes.

    Only the last verdict of a trial is kept for all of them. A success that is not the last verdict, a retry and a
    cancellation are rare, and have dictionaries.
    """

    def __init__(self, count: int) -> None:
        self._kinds = bytearray(count)  # place in _KINDS, from 1; 0: nothing is known yet
        self._times = array("d", bytes(8 * count))
        self._writers = array("I", bytes(array("I").itemsize * count))
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._done: dict[int, Verdict | None] = {}
        self._retry: dict[int, Verdict | None] = {}
        self._cancel: dict[int, Verdict | None] = {}

    def load(self, number: int) -> TrialHistory | None:
        """The history as the fold left it, less attempts and measurements; None where no event spoke of the trial."""
        place = self._kinds[number]
        if not place:
            return None
        rank, cause, is_success = _KINDS[place - 1]
        writer = self._names[self._writers[number]]
        last = Verdict(self._times[number], rank, writer, _EVENT_OF_CAUSE[cause])
        return TrialHistory(
            last=last,
            done=last if is_success else self._done.get(number),
            retry=self._retry.get(number),
            cancel=self._cancel.get(number),
        )

    def save(self, number: int, history: TrialHistory) -> None:
        """Keep what `load` returns later."""
        last = history.last
        if last is None:
            return
        cause = str(last.event["cause"]) if last.rank == END else ""
        kind = (last.rank, cause, last.rank == END and history.done is last)
        self._kinds[number] = _PLACE_OF_KIND.get(kind) or _PLACE_OF_KIND[END, "", False]
        self._times[number] = last.t
        place = self._places.get(last.writer)
        if place is None:
            place = self._places[last.writer] = len(self._names)
            self._names.append(last.writer)
        self._writers[number] = place
        _keep(self._done, number, None if history.done is last else history.done)
        _keep(self._retry, number, history.retry)
        _keep(self._cancel, number, history.cancel)


def _keep(rare: dict[int, Verdict | None], number: int, verdict: Verdict | None) -> None:
    if verdict is not None:
        cause = _EVENT_OF_CAUSE[Cause.DONE.value if verdict.rank == END else ""]
        rare[number] = Verdict(verdict.t, verdict.rank, verdict.writer, cause)
    elif number in rare:
        del rare[number]


class Follower:
    """Counts as of the last `update`. Some fifteen bytes a trial; starts from what the caller knows already."""

    def __init__(
        self,
        paths: StudyPaths,
        count: int,
        included: Ranges,
        on_end: Callable[[str, Event], None] | None = None,
    ):
        self._paths = paths
        self._count = count
        self._histories = _Histories(count)
        self._states = bytearray(count)
        self._included = included
        self._everything = included == [(0, count)]
        self._readers: dict[str, JournalReader] = {}
        self._folded = Folded(on_end=self._take_end)
        self._ids = TrialIds(paths)
        self._moved: dict[str, Moved] = {}  # journal → numbers there whose trials have others now
        self._on_end = on_end
        self._new_ends: list[Event] = []
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
        """How many of the included trials are in this state."""
        return self.counts[_CODE[state]]

    def update(self) -> bool:
        """Read what is new. True when there was anything.

        `on_end` hears of what commands report of trials of dead agents after all that agents report themselves.
        """
        news = False
        ordered = sorted(journal_files(self._paths.journal), key=is_of_client)
        for begin in range(0, len(ordered), _TOGETHER):
            readers = [
                self._readers.setdefault(path, JournalReader(path))
                for path in ordered[begin : begin + _TOGETHER]
            ]
            for reader, block in zip(readers, for_each(_fetch, readers), strict=True):
                news = self._take_blocks(reader, block) or news
        return news

    def _take_blocks(self, reader: JournalReader, block: bytes) -> bool:
        """Fold all that is new in a journal, of which `block` was fetched already. Returns whether there was any.

        A journal with little news is opened once.
        """
        moved = self._moved.setdefault(reader.path, {})
        news = False
        while block:
            events = renumber(self._ids, moved, reader.take(block))
            news = news or bool(events)
            for part, numbers in split_events(events):
                self._fold(writer_of(reader.path), part, numbers)
            block = reader.fetch(_PIECE_BYTES) if len(block) > _PIECE_BYTES // 2 else b""
        return news

    def _fold(self, writer: str, events: list[Event], numbers: set[int]) -> None:
        """Take events of one writer about the trials `numbers`, and correct the counts."""
        folded, count = self._folded, self._count
        for number in numbers:
            known = self._histories.load(number) if number < count else None
            if known is not None:
                folded.histories[number] = known
        fold_events(folded, writer, events)
        for number, history in folded.histories.items():
            if number < count:
                self._histories.save(number, history)
                self._set(number, _CODE[state_of(history.shown)])
        folded.histories.clear()
        self.notes += [note.text for note in folded.notes if not note.routine]
        folded.notes.clear()
        self._pass_on_ends()

    def _take_end(self, event: Event) -> None:
        self._new_ends.append(event)

    def _pass_on_ends(self) -> None:
        """Count attempts that have ended. Not while the fold is under way: it would take an error there for damage."""
        ends, self._new_ends = self._new_ends, []
        self.ended += len(ends)
        if self._on_end is not None:
            for event in ends:
                self._on_end(event["cause"], event)

    def _set(self, number: int, code: int) -> None:
        """Set the state of a trial and keep the counts right."""
        old = self._states[number]
        self._states[number] = code
        if old != code and (self._everything or contains(self._included, number)):
            self.counts[old] -= 1
            self.counts[code] += 1
