"""Takes what is new in a study's journals into the index, a bounded piece at a time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.collect import rows
from windlass.collect.cache import TABLES
from windlass.collect.split_events import MOST_TRIALS, Event, split_events
from windlass.collect.trial_ids import Moved, TrialIds, renumber
from windlass.core.journal.fold import (
    Folded,
    TrialHistory,
    WriterState,
    fold_events,
)
from windlass.core.journal.read import JournalReader, for_each, writer_of
from windlass.core.journal.records import AgentRecord

BATCH_BYTES = 8 << 20  # of journal in one transaction; bounds memory to some ten times as much

Sized = Mapping[str, int]  # paths of journals with their sizes in bytes
_Summary = dict[tuple[str, str], list[float]]


class ShrunkError(Exception):
    """A journal became shorter: what was read from it before may no longer be so."""


@dataclass
class _Pending:
    """A journal with more than the index has, and what has to be remembered of it."""

    reader: JournalReader
    state: WriterState
    size: int  # when it was last looked at
    limit: int  # bytes to be read now

    @property
    def writer(self) -> str:
        return writer_of(self.reader.path)

    def fetch(self) -> bytes:
        return self.reader.fetch(self.limit, self.size)


def absorb(connection: sqlite3.Connection, pending: Sized, ids: TrialIds) -> Sized:
    """Read about BATCH_BYTES of the `pending` journals into the index; return those that may have more.

    `pending` maps the paths of journals to their sizes. Trials are recorded under the numbers that they have now, see
    `renumber`.

    To be called inside a transaction. Offsets are the database's, so two processes never take a line twice.
    """
    left = dict(pending)
    batch = _choose(connection, left)
    gathered = _Gathered(connection, ids)
    grown: list[_Pending] = []
    for journal, block in zip(batch, for_each(_Pending.fetch, batch), strict=True):
        if journal.reader.restarted:
            raise ShrunkError(journal.reader.path)
        if block:
            gathered.add(journal.writer, journal.state, journal.reader.take(block))
            grown.append(journal)
        # What is behind the last whole line belongs to a line that is being written.
        if not block or journal.reader.offset >= journal.size:
            del left[journal.reader.path]
    gathered.store()
    read = [
        (one.writer, one.reader.offset, one.reader.damaged, _render_state(one.state))
        for one in grown
    ]
    connection.executemany("INSERT OR REPLACE INTO journal VALUES (?, ?, ?, ?)", read)
    if grown:
        bump_generation(connection)
    return left


def _choose(connection: sqlite3.Connection, pending: dict[str, int]) -> list[_Pending]:
    """The first of the pending journals, as many as have BATCH_BYTES together.

    Those that another process has read as far as they are to be read here are taken out of `pending`.
    """
    batch: list[_Pending] = []
    budget = BATCH_BYTES
    known = {
        row[0]: row[1:]
        for row in connection.execute("SELECT writer, offset_bytes, damaged, state FROM journal")
    }
    for path, size in list(pending.items()):
        found = known.get(writer_of(path))
        if found is not None and found[0] >= size:
            del pending[path]
            continue
        if budget <= 0:
            break
        batch.append(_Pending(*_load_journal(path, found), size, budget))
        budget -= size - batch[-1].reader.offset
    return batch


class _Gathered:
    """Events of several journals on their way into the tables, so that many trials are stored at a time."""

    def __init__(self, connection: sqlite3.Connection, ids: TrialIds) -> None:
        self._connection = connection
        self._ids = ids
        self._writers: dict[str, WriterState] = {}
        self._parts: list[tuple[str, list[Event]]] = []
        self._numbers: set[int] = set()

    def add(self, writer: str, state: WriterState, events: list[dict[str, Any]]) -> None:
        """Take events of one journal. They are stored once they concern so many trials that memory would grow."""
        name = _name_of(writer, state, events)
        if self._writers.get(name, state) is not state:
            self.store()  # of two journals with the same header, one was put in another's place
        self._writers[name] = state
        for part, numbers in split_events(renumber(self._ids, state.moved, events)):
            self._parts.append((name, part))
            self._numbers |= numbers
            if len(self._numbers) >= MOST_TRIALS:
                self.store()

    def store(self) -> None:
        folded = Folded(writers=self._writers)
        _fold_parts(self._connection, folded, self._parts, self._numbers)
        self._parts, self._numbers = [], set()


def _name_of(writer: str, state: WriterState, events: Sequence[Event]) -> str:
    """The agent that wrote a journal: its files have its name, also where the journal was put in another's place."""
    if state.agent is not None:
        return state.agent.id
    first = events[0] if events else {}
    return (
        str(first["id"])
        if first.get("e") == "agent" and isinstance(first.get("id"), str)
        else writer
    )


def clear(connection: sqlite3.Connection) -> None:
    """Forget everything; the generation goes on, so that no remembered answer comes back."""
    for table in TABLES:
        connection.execute(f"DELETE FROM {table}")
    bump_generation(connection)


def bump_generation(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('generation', 0)")
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'")


def parse_agent(state: str) -> AgentRecord | None:
    """The agent in a journal's remembered state."""
    agent = json.loads(state)["agent"]
    return None if agent is None else AgentRecord(**agent)


def parse_malformed(state: str) -> int:
    return int(json.loads(state)["malformed"])


def parse_moved(state: str) -> Moved:
    """The numbers in a journal's remembered state whose trials have others now."""
    return {int(number): present for number, present in json.loads(state)["moved"].items()}


def _load_journal(
    path: str, found: tuple[int, int, str] | None
) -> tuple[JournalReader, WriterState]:
    """A reader that goes on where the index stopped, and what has to be remembered of the journal up to there."""
    if found is None:
        return JournalReader(path), WriterState()
    reader = JournalReader(path, found[0])
    reader.damaged = found[1]
    saved = json.loads(found[2])
    under_way = {
        int(number): (attempt, start) for number, (attempt, start) in saved["open"].items()
    }
    agent, moved = parse_agent(found[2]), parse_moved(found[2])
    return reader, WriterState(saved["clock"], saved["malformed"], under_way, agent, moved)


def _render_state(state: WriterState) -> str:
    agent = None if state.agent is None else vars(state.agent)
    saved = {"clock": state.clock, "malformed": state.malformed, "open": state.open, "agent": agent}
    saved["moved"] = state.moved
    return json.dumps(saved)


def _fold_parts(
    connection: sqlite3.Connection,
    folded: Folded,
    parts: list[tuple[str, list[Event]]],
    numbers: set[int],
) -> None:
    """Take events, each part of one of the writers that `folded` has, into the tables."""
    summary: _Summary = {}
    for row in _load_rows(connection, numbers):
        folded.histories[row[0]] = rows.parse_row(row)
        _count(summary, row, -1)
    for writer, events in parts:
        fold_events(folded, writer, events)
    _store(connection, folded.histories, summary)
    if folded.notes:
        connection.executemany(
            "INSERT INTO note VALUES (?, ?, ?, ?, ?)", map(rows.plain_row, folded.notes)
        )


def _load_rows(connection: sqlite3.Connection, numbers: set[int]) -> Iterator[rows.Row]:
    """The rows of these trials that the index has. Neighbouring trials are read together."""
    highest = connection.execute("SELECT max(number) FROM trial").fetchone()[0]
    if highest is None:
        return
    for condition, parameters in rows.chunks(numbers, slack=2):
        for row in connection.execute(
            f"SELECT {rows.COLUMNS} FROM trial WHERE {condition}", parameters
        ):
            if row[0] in numbers:
                yield row


def _store(
    connection: sqlite3.Connection, histories: dict[int, TrialHistory], summary: _Summary
) -> None:
    """Write the histories of trials and add up the summary, both in one step.

    A value that SQLite cannot hold makes all rows of the piece plain, instead of losing them.
    """
    new_rows = [rows.render_row(number, histories[number]) for number in sorted(histories)]
    connection.execute("SAVEPOINT store")
    try:
        connection.executemany(rows.INSERT, new_rows)
    except (sqlite3.InterfaceError, sqlite3.ProgrammingError, OverflowError, UnicodeEncodeError):
        connection.execute("ROLLBACK TO store")
        new_rows = [rows.plain_row(row) for row in new_rows]
        connection.executemany(rows.INSERT, new_rows)
    connection.execute("RELEASE store")
    for row in new_rows:
        _count(summary, row, 1)
    connection.executemany(
        "INSERT INTO summary VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (state, cause) DO UPDATE SET"
        " trials = trials + ?3, timed = timed + ?4, duration_s = duration_s + ?5",
        [(*key, *delta) for key, delta in summary.items()],
    )


def _count(summary: _Summary, row: rows.Row, sign: int) -> None:
    """Add a row to the summary by state and cause, or with a `sign` of -1 take it out."""
    key = (row[rows.STATE], row[rows.CAUSE] or "")
    delta = summary.get(key)
    if delta is None:
        delta = summary[key] = [0, 0, 0.0]
    delta[0] += sign
    duration_s = row[rows.DURATION_S]
    if isinstance(duration_s, (int, float)):
        delta[1] += sign
        delta[2] += sign * duration_s
