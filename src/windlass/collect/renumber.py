"""Gives the events of a journal the numbers that their trials have now.

A trial's number is its place in trials.jsonl. It has another one once that file was lost and written anew, or was
replaced. Journals have the beginning of the trial's id with each start, and with what users cancel and retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.claims import ranges as rs
from windlass.collect.trial_ids import TrialIds
from windlass.journal.fold import parse_number

Event = Mapping[str, Any]
Moved = dict[int, int | None]  # number in a journal → the one that the trial has now; None: the study has no such trial
_RANGES = ("cancel", "retry")
_MOST_NOTED = 1000  # trials of one event about many of them


def renumber(ids: TrialIds, moved: Moved, events: Iterable[Event]) -> list[Event]:
    """The next events of one journal, without those of trials that the study does not have any more.

    `moved` is what is known of this journal up to here, and is changed in place.
    """
    return list(iterate_renumbered(ids, moved, events))


def iterate_renumbered(ids: TrialIds, moved: Moved, events: Iterable[Event]) -> Iterator[Event]:
    """The same, one event at a time."""
    for event in events:
        kind = event.get("e")
        if kind == "start":
            _note_start(ids, moved, event)
        if kind in _RANGES:
            yield _renumber_ranges(ids, moved, event)
        elif moved:
            yield from _renumber_one(moved, event)
        else:
            yield event


def _note_start(ids: TrialIds, moved: Moved, event: Event) -> None:
    number, beginning = event.get("i"), event.get("id")
    if type(number) is not int or number < 0:
        return
    moved.pop(number, None)
    if beginning is not None:
        present = ids.place(number, beginning)
        if present != number:
            moved[number] = present


def _renumber_one(moved: Moved, event: Event) -> list[Event]:
    number, live = event.get("i"), event.get("live")
    if type(number) is int and number in moved:
        present = moved[number]
        return [] if present is None else [{**event, "i": present}]
    if isinstance(live, dict):
        changed = {str(moved.get(int(key), int(key))): value for key, value in live.items() if key.isdecimal()}
        changed.pop("None", None)
        return [{**event, "live": changed}]
    return [event]


def _renumber_ranges(ids: TrialIds, moved: Moved, event: Event) -> Event:
    try:
        ranges = [(parse_number(first), parse_number(stop)) for first, stop in event["r"]]
    except (KeyError, TypeError, ValueError):
        return event  # the fold counts it as malformed
    if "ids" not in event and "digest" not in event:
        return event  # of an earlier version
    kept: list[int] = []
    changed: Moved = {}
    for number, present in ids.place_ranges(event, ranges):
        if present is not None:
            kept.append(present)
        if present != number and len(changed) < _MOST_NOTED:
            changed[number] = present
    if not changed:
        return event
    moved.update(changed)
    return {**event, "r": rs.from_numbers(kept)}
