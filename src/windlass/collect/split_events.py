"""Splits events by the trials that they concern, so that a fold of very many trials takes a bounded amount of memory.

A fold has to have what is known of a trial at hand before it takes the next event of that trial. Both the index and the
count of a running study keep that elsewhere, so they ask here which trials a run of events touches, read those, fold,
and write them back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windlass.core.journal.fold import NUMBER_LIMIT, parse_number

MOST_TRIALS = 50_000  # that are folded at a time; one cancellation may be about millions

Event = Mapping[str, Any]


def split_events(events: Sequence[Event]) -> Iterator[tuple[list[Event], set[int]]]:
    """Yield the events in order, in parts, each with the numbers of the trials that it touches.

    A part touches few more than MOST_TRIALS trials. An event about ranges of more trials becomes several events about
    fewer. Events that concern no trial, and malformed ones, are passed on as they are.
    """
    part: list[Event] = []
    numbers: set[int] = set()
    for event in events:
        touched = event.get("i")
        if type(touched) is not int or not 0 <= touched < NUMBER_LIMIT:
            touched = _touched(event)
        if isinstance(touched, int):
            numbers.add(touched)
        elif touched is not None:
            for piece, piece_numbers in touched:
                part.append(piece)
                numbers.update(piece_numbers)
                if len(numbers) >= MOST_TRIALS:
                    yield part, numbers
                    part, numbers = [], set()
            continue
        part.append(event)
    if part:
        yield part, numbers


def _touched(event: Event) -> int | Iterator[tuple[Event, Any]] | None:
    """The one trial an event tells of; or its pieces, each with their trials; None if it tells of none."""
    number = event.get("i")
    if type(number) is int:
        return number if 0 <= number < NUMBER_LIMIT else None
    if "r" in event:
        return _range_pieces(event)
    live = event.get("live")
    if isinstance(live, dict) and live:
        return iter(
            [(event, [int(key) for key in live if key.isdecimal() and int(key) < NUMBER_LIMIT])]
        )
    return None


def _range_pieces(event: Event) -> Iterator[tuple[Event, Any]]:
    """An event about very many trials as several events about fewer, each with the trials that it concerns."""
    try:
        pairs = [(parse_number(first), parse_number(stop)) for first, stop in event["r"]]
    except (TypeError, ValueError):
        yield event, ()  # the fold counts it as malformed
        return
    if sum(max(0, stop - first) for first, stop in pairs) <= MOST_TRIALS:
        yield event, itertools.chain.from_iterable(range(*pair) for pair in pairs)
        return
    for first, stop in pairs:
        for begin in range(first, stop, MOST_TRIALS):
            end = min(begin + MOST_TRIALS, stop)
            yield {**event, "r": [[begin, end]]}, range(begin, end)
