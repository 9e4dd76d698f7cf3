"""Lines of journals as values: each kind that this version knows, and nothing for the rest."""

from __future__ import annotations

import math
from typing import Any

import pytest

from windlass.core.journal import events
from windlass.core.journal.events import Ended, Header, Ranges, Settled, Started, decode_event


def test_kinds_become_values() -> None:
    header = decode_event({"e": "agent", "t": 1.0, "id": "a", "slots": 4})
    assert (
        isinstance(header, Header)
        and (header.slots, header.ends) == (4, math.inf)
        and header.is_agent
    )
    end = decode_event(
        {"e": "end", "t": 2.0, "i": 7, "n": 1, "cause": "done", "dur": 1.5, "of_tomorrow": 1}
    )
    assert isinstance(end, Ended) and (end.number, end.own_s, end.fields["of_tomorrow"]) == (
        7,
        1.5,
        1,
    )
    retry = decode_event({"e": "retry", "t": 3.0, "r": [[0, 2]]})
    assert isinstance(retry, Ranges) and retry.is_retry and retry.ranges == [[0, 2]]
    refused = decode_event({"e": "refused", "t": 4.0, "sub": "s", "text": "no"})
    assert isinstance(refused, Settled) and (refused.job, refused.refused) == (None, "no")


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"e": "of tomorrow", "t": 1.0},
        {"e": ["start"], "t": 1.0, "i": 1},
        {"e": "start", "t": 1.0},
        {"e": "start", "t": 1.0, "i": "1"},
        {"e": "end", "t": 1.0, "i": 1},
    ],
)
def test_what_is_not_known_or_malformed_is_nothing(line: dict[str, Any]) -> None:
    assert decode_event(line) is None


def test_each_kind_of_the_list_above_has_a_value_but_beats_which_are_folded() -> None:
    described = {
        text.split(None, 1)[0] for text in (events.__doc__ or "").splitlines() if "{e,t" in text
    }
    assert described - {"beat"} == set(events._DECODERS)


def test_a_start_has_the_number_of_its_trial() -> None:
    start = decode_event({"e": "start", "t": 1.0, "i": 3, "n": 2, "s": 0, "id": "abcdefgh"})
    assert isinstance(start, Started) and (start.number, start.attempt) == (3, 2)
