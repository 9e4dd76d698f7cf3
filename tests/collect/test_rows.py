"""The short way from a row of the index to a record returns what the way by the event returns."""

from __future__ import annotations

import pytest

from windlass.collect.rows import Row, parse_any_record, parse_record

_HEAD = (3, "done", "done", 1700000030.5, 2, "agent-1", 1)


def row(
    metrics: str | None, use: str | None, duration_s: float | None = 30.5, attempt: int | None = 2
) -> Row:
    details = (attempt, 1700000000.0, duration_s, 0, None, "main", 120, 512.5, 27.0, 9.0)
    return (*_HEAD, *details, metrics, None, use, None, 1, None)


@pytest.mark.parametrize(
    "found",
    [
        row('{"loss":[0.5,0.25,1,10]}', '{"mem_mb":300.5,"k":2}'),
        row('{"loss":["nan",0.25,"inf",10],"name":["a text"],"bad":[1]}', None),
        row(None, None),
        row(None, '{"before_s":12.5}'),
        row(None, None, duration_s=None, attempt=None),
        row(None, None, duration_s=30),
    ],
)
def test_short_way_returns_the_same_record(found: Row) -> None:
    assert repr(parse_record(found)) == repr(parse_any_record(found))
    assert vars(parse_record(found)).keys() == vars(parse_any_record(found)).keys()
