"""Answers questions about a study's trials from an index of its journals that is only a cache."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.collect import absorb, rows
from windlass.collect.best import STATS, best_numbers, find_unreported
from windlass.collect.cache import MEMORY_BELOW_BYTES, Cache, open_cache, open_memory, replace_cache
from windlass.collect.missing import (
    Expected,
    lacks_ends,
    may_be_behind,
    read_expected,
    renew_listing,
    report_missing,
)
from windlass.collect.timeleft import Durations
from windlass.collect.trial_ids import TrialIds
from windlass.core.claims.ranges import Range, contains, normalise
from windlass.core.errors import FolderError
from windlass.core.journal.fold import CANCEL, END
from windlass.core.journal.read import for_each, journal_files, writer_of
from windlass.core.journal.records import AgentRecord, MetricSummary, Note, TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import State

_LATEST = 1000  # trials whose durations tell the spread of all
_NOT_WELL = (State.FAILED, State.INTERRUPTED, State.CANCELLED)
_PAUSES_S = (0.0, 0.3, 0.7, 1.5)  # before another look for records that must be there


class StudyIndex:
    """What the journals held at the last `refresh`. Never the only copy of anything.

    Small journals are read into memory. Larger ones go to a file on local disk that is found again next time,
    so that only what is new is read. Several processes may use that file at once.
    """

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._small = True
        # By the first look, which tells how large the journals are.
        self._opened: Cache | None = None
        self._ids = TrialIds(paths)
        # Metric → values that kept output has.
        self._printed: dict[str, Mapping[int, MetricSummary]] = {}

    def close(self) -> None:
        if self._opened is not None:
            self._opened.connection.close()

    @property
    def _cache(self) -> Cache:
        return self._opened or self._open(self._sizes())

    def _open(self, sizes: absorb.Sized) -> Cache:
        self._small = sum(sizes.values()) < MEMORY_BELOW_BYTES
        self._opened = open_memory() if self._small else open_cache(self._paths)
        return self._opened

    @property
    def cache_path(self) -> str | None:
        """The file that holds the index; None when it is in memory."""
        return self._cache.path

    def refresh(self) -> None:
        """Read what is new in each journal. What is known to be missing in them is reported on standard error.

        Raises FolderError for one that cannot be read, JournalVersionError for one of a newer version.
        """
        # Before the journals: what an agent let go of by now has been journalled before that.
        expected = read_expected(self._paths)
        try:
            self._refresh(self._sizes())
            self._catch_up(expected)
        except OSError as error:
            remedy = "make it readable for this user, or move it out of the journal's folder"
            path = error.filename or self._paths.journal
            raise FolderError(f"{path}: {error.strerror or error}\n  hint: {remedy}") from error
        report_missing(self._paths, expected, self)

    def _catch_up(self, expected: Expected) -> None:
        """Look again where trials have ended without a record: a network file system may show earlier journals."""
        for pause_s in _PAUSES_S:
            if not lacks_ends(self._paths, expected, self) or not may_be_behind(
                self._paths.journal
            ):
                return
            time.sleep(pause_s)
            is_recent = renew_listing(self._paths.journal)
            self._refresh(self._sizes())
            if not is_recent:
                return

    def others(self) -> list[int]:
        """Numbers of trials that have no record of their own, but one of another trial, in order."""
        numbers: set[int] = set()
        for (state,) in self._select("SELECT state FROM journal"):
            numbers |= {
                number for number, present in absorb.parse_moved(state).items() if present is None
            }
        recorded = (
            {number for (number,) in self._select("SELECT number FROM trial WHERE starts > 0")}
            if numbers
            else ()
        )
        return sorted(numbers.difference(recorded))

    def moved(self, writer: str) -> Mapping[int, int | None]:
        """Numbers in a journal whose trials have others now; None where the study has no such trial any more."""
        found = next(self._select("SELECT state FROM journal WHERE writer = ?", (writer,)), None)
        return {} if found is None else absorb.parse_moved(found[0])

    def recorded_from(self, first: int) -> list[int]:
        """Trials from this number on that agents have begun."""
        query = "SELECT number FROM trial WHERE number >= ? AND starts > 0 ORDER BY number"
        return [number for (number,) in self._select(query, (first,))]

    def count_recorded(self, included: Sequence[Range], interrupted: bool = False) -> int:
        """How many of these trials have a record of how they ended; with `interrupted`, also of how it was stopped."""
        states = [
            state
            for state in (State.DONE, *_NOT_WELL)
            if interrupted or state is not State.INTERRUPTED
        ]
        listed = ", ".join(f"'{state.value}'" for state in states)

        def compute() -> int:
            query = f"SELECT count(*) FROM trial WHERE number >= ? AND number < ? AND state IN ({listed})"
            return sum(next(self._select(query, (first, stop)))[0] for first, stop in included)

        return int(self.remembered(f"recorded {interrupted} {json.dumps(list(included))}", compute))

    def list_behind(self, included: Sequence[Range], count: int, is_cancelled: bool) -> list[int]:
        """Those of these trials whose latest record is of an earlier round than `count`.

        Where trials have ended, a record that they were cancelled is one of an earlier round.
        """
        which = f"rank = {END} AND coalesce(round, 0) < ?" + (
            "" if is_cancelled else f" OR rank = {CANCEL}"
        )
        query = f"SELECT number FROM trial WHERE number >= ? AND number < ? AND ({which})"
        return [
            number
            for first, stop in included
            for (number,) in self._select(query, (first, stop, count))
        ]

    def _refresh(self, sizes: dict[str, int]) -> None:
        if self._opened is None:
            self._open(sizes)
        elif self._small and sum(sizes.values()) >= 4 * MEMORY_BELOW_BYTES:
            self.close()
            self._open(sizes)
        try:
            self._read_new(sizes)
        except (
            sqlite3.OperationalError
        ):  # held by another process for long, or no room: do without the file
            self.close()
            self._opened = open_memory()
            self._read_new(sizes)
        except sqlite3.DatabaseError:
            self._rebuild()

    def counts(self, total: int, included: Sequence[Range] | None = None) -> dict[State, int]:
        """How many of the included trials (all of the `total` by default) are in each state."""
        counts = dict.fromkeys(State, 0)
        for state, _, number in self._state_counts(total, included):
            counts[State(state)] += number
        everything = (
            total if included is None else sum(stop - first for first, stop in normalise(included))
        )
        counts[State.WAITING] = everything - sum(
            n for state, n in counts.items() if state != State.WAITING
        )
        return counts

    def causes(self, total: int, included: Sequence[Range] | None = None) -> dict[str, int]:
        """Why trials did not end well, with the number of trials."""
        causes: dict[str, int] = {}
        for state, cause, number in self._state_counts(total, included):
            if state in _NOT_WELL and number:
                causes[cause] = causes.get(cause, 0) + number
        return dict(sorted(causes.items(), key=lambda item: (-item[1], item[0])))

    def records(
        self, numbers: Iterable[int] | None = None, states: Collection[State] | None = None
    ) -> Iterator[TrialRecord]:
        """Records in order of their numbers; trials that nothing is known of, which wait, have none."""
        conditions = [("1", ())] if numbers is None else rows.chunks(numbers)
        for condition, parameters in conditions:
            where = condition + _state_condition(states)
            query = f"SELECT {rows.COLUMNS} FROM trial WHERE {where} ORDER BY number"
            found = map(rows.parse_record, self._select(query, parameters))
            yield from map(self._with_printed, found) if self._printed else found

    def add_printed(self, metric: str, values: Mapping[int, MetricSummary]) -> None:
        """From now on answer with these values of a metric, by trial, where the journals have none."""
        self._printed[metric] = values

    def unreported(self, metric: str) -> list[tuple[int, str, int]]:
        """Trials whose journals have no value of a metric, as `find_unreported` returns them."""
        found: list[tuple[int, str, int]] = self._retried(
            lambda: find_unreported(self._cache.connection, metric)
        )
        return found

    def _with_printed(self, record: TrialRecord) -> TrialRecord:
        """The record with metrics that were found in its output. What the trial reported itself comes first."""
        found = {
            name: values[record.number]
            for name, values in self._printed.items()
            if record.number in values
        }
        return replace(record, metrics={**found, **record.metrics}) if found else record

    def numbers(self, states: Collection[State]) -> Iterator[int]:
        """The trials in one of these states, without their records."""
        query = f"SELECT number FROM trial WHERE 1{_state_condition(states)} ORDER BY number"
        return (number for (number,) in self._select(query))

    def failed(self) -> Iterator[tuple[Any, ...]]:
        """Number, cause, exit code, signal, stage, last lines and note of each trial that failed."""
        columns = "number, cause, exit_code, signal, stage, why, note"
        return self._select(
            f"SELECT {columns} FROM trial WHERE 1{_state_condition((State.FAILED,))} ORDER BY number"
        )

    def tried_again(self) -> Iterator[TrialRecord]:
        """Trials that were begun more than once, in order."""
        query = f"SELECT {rows.COLUMNS} FROM trial WHERE starts > 1 ORDER BY number"
        return map(rows.parse_record, self._select(query))

    def record(self, number: int) -> TrialRecord | None:
        return next(self.records([number]), None)

    def running(self) -> list[TrialRecord]:
        """Trials whose last event is a start; whether their agents live is another question."""
        return list(self.records(states=(State.RUNNING,)))

    def best(
        self,
        metric: str,
        goal: str,
        stat: str = "last",
        limit: int = 1,
        *,
        included: Sequence[Range] | None = None,
    ) -> list[TrialRecord]:
        """Trials that are done with the best finite values, best first; of equals the lower number first."""
        numbers = self._retried(
            lambda: best_numbers(
                self._cache.connection, metric, goal, stat, limit=limit, included=included
            )
        )
        if self._printed.get(metric):
            numbers = [*numbers, *_included(self._printed[metric], included)]
        records = [record for record in self.records(numbers) if record.state is State.DONE]
        position, sign = STATS.index(stat), -1.0 if goal == "maximize" else 1.0
        ranked = [
            (sign * record.metrics[metric][position], record.number, record) for record in records
        ]
        ranked.sort(key=lambda one: one[:2])
        return [record for value, _, record in ranked if math.isfinite(value)][:limit]

    def durations(self) -> Durations:
        """Of trials that are done; the spread is that of the latest ones."""
        row = next(
            self._select("SELECT sum(timed), sum(duration_s) FROM summary WHERE state = 'done'")
        )
        if not row[0]:
            return Durations()
        query = "SELECT duration_s FROM trial WHERE state = 'done' ORDER BY number DESC LIMIT ?"
        ordered = sorted(
            d for (d,) in self._select(query, (_LATEST,)) if isinstance(d, (int, float))
        )
        low_s, high_s = (
            (ordered[int(share * (len(ordered) - 1))] for share in (0.1, 0.9))
            if ordered
            else (0.0, 0.0)
        )
        return Durations(int(row[0]), max(0.0, row[1] / row[0]), low_s, high_s)

    def agents(self) -> list[AgentRecord]:
        """In the order of their names, which is that of their beginnings."""
        found = self._select("SELECT state FROM journal ORDER BY writer")
        return [agent for (state,) in found if (agent := absorb.parse_agent(state)) is not None]

    def notes(self) -> list[Note]:
        """All notes of the journals, by time."""
        query = "SELECT t, writer, text, number, routine FROM note ORDER BY t, writer, rowid"
        return [
            Note(t, writer, text, number, bool(routine))
            for t, writer, text, number, routine in self._select(query)
        ]

    def damaged(self) -> int:
        """Lines of journals that could not be understood."""
        found = self._select("SELECT damaged, state FROM journal")
        return sum(damaged + absorb.parse_malformed(state) for damaged, state in found)

    def remembered(
        self, question: str, compute: Callable[[], Any], may_keep: Callable[[], bool] = lambda: True
    ) -> Any:
        """The JSON value that `compute` returns, which is called again only after the index changed.

        `may_keep` tells, once there is a value, whether the next look may do without `compute`.
        """
        generation = next(self._select("SELECT value FROM meta WHERE key = 'generation'"), (0,))[0]
        query = "SELECT value FROM answer WHERE question = ? AND generation = ?"
        found = next(self._select(query, (question, generation)), None)
        if found is not None:
            return json.loads(found[0])
        value = compute()
        with contextlib.suppress(sqlite3.Error):  # an answer that cannot be kept is still an answer
            if may_keep():
                row = (question, generation, json.dumps(value))
                self._cache.connection.execute(
                    "DELETE FROM answer WHERE generation <> ?", (generation,)
                )
                self._cache.connection.execute(
                    "INSERT OR REPLACE INTO answer VALUES (?, ?, ?)", row
                )
        return value

    def _sizes(self) -> dict[str, int]:
        """Journals with their sizes in bytes: one listing, and one more call for each."""
        paths = journal_files(self._paths.journal)
        return {
            path: size
            for path, size in zip(paths, for_each(_size_of, paths), strict=True)
            if size is not None
        }

    def _read_new(self, sizes: dict[str, int]) -> None:
        connection = self._cache.connection
        # Before the journals: a trial has its id before an agent can begin it.
        if self._ids.have_changed(connection):
            with self._transaction():
                absorb.clear(connection)
                self._ids.remember(connection)
        offsets = dict(connection.execute("SELECT writer, offset_bytes FROM journal"))
        if self._have_shrunk(sizes, offsets):
            with self._transaction():
                absorb.clear(connection)
            offsets = {}
        pending: absorb.Sized = {
            path: size for path, size in sizes.items() if size > offsets.get(writer_of(path), 0)
        }
        with without_collection():
            while pending:
                pending = self._absorb(pending, sizes)

    def _have_shrunk(self, sizes: absorb.Sized, offsets: Mapping[str, int]) -> bool:
        """Whether a journal is shorter than what was read of it, or gone.

        Its size is asked for again: since then another process may have read what was appended.
        """
        names = {writer_of(path): size for path, size in sizes.items()}
        short = [writer for writer, offset in offsets.items() if names.get(writer, -1) < offset]
        now = {writer: _size_of(self._paths.journal_of(writer)) for writer in short}
        return any((-1 if size is None else size) < offsets[writer] for writer, size in now.items())

    def _absorb(self, pending: absorb.Sized, everything: absorb.Sized) -> absorb.Sized:
        try:
            with self._transaction():
                return absorb.absorb(self._cache.connection, pending, self._ids)
        except absorb.ShrunkError:
            with self._transaction():
                absorb.clear(self._cache.connection)
            return everything

    def _rebuild(self) -> None:
        self.close()
        self._opened = replace_cache(self._paths)
        self._read_new(self._sizes())

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        connection = self._cache.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _select(self, query: str, parameters: Sequence[Any] = ()) -> Iterator[Any]:
        """Rows of a query. A file that turns out to be broken at its start is made anew."""

        def begin() -> tuple[sqlite3.Cursor, Any]:
            cursor = self._cache.connection.execute(query, parameters)
            return cursor, cursor.fetchone()

        cursor, first = self._retried(begin)
        if first is not None:
            yield first
            yield from cursor

    def _retried(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except sqlite3.DatabaseError:
            self._rebuild()
            return ask()

    def _state_counts(
        self, total: int, included: Sequence[Range] | None
    ) -> Iterator[tuple[str, str, int]]:
        ranges = [(0, total)] if included is None else normalise(included)
        highest = next(self._select("SELECT max(number) FROM trial"))[0]
        if ranges == [(0, total)] and (highest is None or highest < total):
            yield from self._select("SELECT state, cause, trials FROM summary")
            return
        for first, stop in ranges:
            within = "WHERE number >= ? AND number < ? GROUP BY 1, 2"
            query = f"SELECT state, coalesce(cause, ''), count(*) FROM trial {within}"
            yield from self._select(query, (first, stop))


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """While this is entered, nobody looks for cycles: events and rows make none, and looking doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def open_index(paths: StudyPaths) -> Iterator[StudyIndex]:
    """An index that has read all that the journals hold now; it is closed at the end of the block."""
    index = StudyIndex(paths)
    try:
        index.refresh()
        yield index
    finally:
        index.close()


def read_record(paths: StudyPaths, number: int) -> TrialRecord | None:
    """What the journals say of one trial; None where no event spoke of it."""
    with open_index(paths) as index:
        return index.record(number)


def read_done(paths: StudyPaths) -> list[int]:
    """The numbers of the trials that are done."""
    with open_index(paths) as index:
        return list(index.numbers((State.DONE,)))


def _size_of(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _included(numbers: Iterable[int], ranges: Sequence[Range] | None) -> list[int]:
    wanted = None if ranges is None else normalise(ranges)
    return [number for number in numbers if wanted is None or contains(wanted, number)]


def _state_condition(states: Collection[State] | None) -> str:
    """The SQL condition for trials in these states."""
    if states is None:
        return ""
    listed = ", ".join(f"'{State(state).value}'" for state in states)
    # Written out like this, the condition lets SQLite use the index of all that is not done.
    others = "" if State.DONE in states else " AND state <> 'done'"
    return f" AND state IN ({listed}){others}"
