"""Finds the finished trials with the best value of a metric, at once even among a million, and those without one."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence

from windlass.core.claims.ranges import Range, contains, normalise
from windlass.core.errors import input_error
from windlass.core.journal.fold import END, parse_metrics
from windlass.core.states import State

STATS = ("last", "min", "max")
GOALS = ("minimize", "maximize")


def best_numbers(
    connection: sqlite3.Connection,
    metric: str,
    goal: str,
    stat: str,
    *,
    limit: int,
    included: Sequence[Range] | None = None,
) -> list[int]:
    """Numbers of done trials by their value, the best first; values that are not finite take no part.

    The first question about a metric goes through all trials and leaves an index behind, which SQLite then
    keeps up to date.
    """
    if stat not in STATS:
        raise input_error(f"there is no statistic {stat!r}", f"one of: {', '.join(STATS)}")
    if goal not in GOALS:
        raise input_error(f"there is no goal {goal!r}", f"one of: {', '.join(GOALS)}")
    if '"' in metric or "\\" in metric or not _has_json(connection):
        numbers = _scan(connection, metric, goal, STATS.index(stat))
    else:
        numbers = _query(connection, metric, goal, STATS.index(stat))
    return _take(numbers, limit, included)


def find_unreported(connection: sqlite3.Connection, metric: str) -> list[tuple[int, str, int]]:
    """Trials that have ended and whose journals have no value of a metric: number, agent, and that agent's attempt.

    Empty where every done trial has a value, whatever the others have: they are not compared.
    """
    query = "SELECT number, writer, attempt, metrics, state FROM trial WHERE rank = ? AND state <> 'cancelled'"
    if '"' in metric or "\\" in metric or not _has_json(connection):
        ended = connection.execute(f"{query} ORDER BY number", (END,))
        rows = [
            row for row in ended if not row[3] or metric not in parse_metrics(json.loads(row[3]))
        ]
    else:
        if _all_reported(connection, metric):
            return []
        value = "json_extract(metrics, '$.\"{}\"')".format(metric.replace("'", "''"))
        missing = f"{query} AND (metrics IS NULL OR {value} IS NULL) ORDER BY number"
        rows = connection.execute(missing, (END,)).fetchall()
    if all(row[4] != State.DONE.value for row in rows):
        return []
    return [(number, agent, attempt or 0) for number, agent, attempt, _, _ in rows]


def _all_reported(connection: sqlite3.Connection, metric: str) -> bool:
    """Whether every done trial has a number; answered from the index that the question for the best leaves behind."""
    _, condition = _value_and_condition(metric, 0)
    (with_value,) = connection.execute(f"SELECT count(*) FROM trial WHERE {condition}").fetchone()
    (done,) = connection.execute(
        "SELECT coalesce(sum(trials), 0) FROM summary WHERE state = 'done'"
    ).fetchone()
    return bool(with_value == done)


def _take(numbers: Iterator[int], limit: int, included: Sequence[Range] | None) -> list[int]:
    if included is not None:
        ranges = normalise(included)
        numbers = (number for number in numbers if contains(ranges, number))
    return list(itertools.islice(numbers, limit))


def _value_and_condition(metric: str, position: int) -> tuple[str, str]:
    """SQL for a value of a metric, and for done trials that have it as a number."""
    quoted = metric.replace("'", "''")
    value = f"json_extract(metrics, '$.\"{quoted}\"[{position}]')"
    return value, f"state = 'done' AND typeof({value}) IN ('real', 'integer')"


def _query(connection: sqlite3.Connection, metric: str, goal: str, position: int) -> Iterator[int]:
    """The numbers of the trials that are done, the best first.

    An index in the database makes this fast also for a million trials; without it the answer is the same.
    """
    value, condition = _value_and_condition(metric, position)
    order = "DESC" if goal == "maximize" else "ASC"
    name = "best_" + hashlib.blake2b(f"{value} {order}".encode(), digest_size=8).hexdigest()
    try:
        connection.execute(
            f"CREATE INDEX IF NOT EXISTS {name} ON trial ({value} {order}) WHERE {condition}"
        )
    except sqlite3.OperationalError:
        pass  # busy or full: slower, and the same answer
    query = f"SELECT number FROM trial WHERE {condition} ORDER BY {value} {order}, number"
    return (number for (number,) in connection.execute(query))


def _scan(connection: sqlite3.Connection, metric: str, goal: str, position: int) -> Iterator[int]:
    """The same as `_query`, row by row, for names that SQLite cannot address, or where it lacks JSON."""
    sign = -1.0 if goal == "maximize" else 1.0
    found: list[tuple[float, int]] = []
    for number, text in connection.execute(
        "SELECT number, metrics FROM trial WHERE state = 'done' AND metrics IS NOT NULL"
    ):
        summary = parse_metrics(json.loads(text)).get(metric)
        if summary is not None and math.isfinite(summary[position]):
            found.append((sign * summary[position], number))
    for _, number in sorted(found):
        yield number


def _has_json(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT json_extract('[1]', '$[0]')")
    except sqlite3.OperationalError:
        return False
    return True
