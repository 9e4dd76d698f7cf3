"""Reads kept output again for a metric that no agent looked for, and lists which numbers the output has."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from windlass.agent.report.metrics import MetricBook
from windlass.agent.report.nan_lines import names_metric
from windlass.agent.report.printed import READING, PrintedMetrics, find_numbers
from windlass.agent.report.tables import Tables
from windlass.collect.index import StudyIndex
from windlass.collect.output import GAP, OutputReader, Piece
from windlass.core.claims.ranges import Ranges, contains
from windlass.core.journal.fold import parse_metrics
from windlass.core.journal.pieces import OURS
from windlass.core.journal.records import MetricSummary
from windlass.core.paths import StudyPaths
from windlass.core.states import State

_LISTED_TRIALS = 20  # whose output is looked through for names
_LISTED_NAMES = 12
_LINE_BYTES = 64 * 1024  # of a line that does not end; the agent reads no more of one either

# Of trials: number, agent, and that agent's number of the attempt.
Attempts = Iterable[tuple[int, str, int]]


@dataclass(frozen=True)
class PrintedNumber:
    """A number that trials print under a name: how many of those looked at, and the last value of one of them."""

    name: str
    trials: int
    value: float


@dataclass
class _Lines:
    """Puts lines together from pieces of output, which are cut anywhere."""

    take: Callable[[int, bytes], None]
    rests: dict[tuple[int, int], bytes | None] = field(default_factory=dict)
    has_gap: bool = False

    def feed(self, number: int, stream: int, data: bytes) -> None:
        """Take a piece of a trial's output and pass on the lines that are complete with it."""
        rest = self.rests.get((number, stream), None if self.has_gap else b"")
        if rest is None:  # The beginning of this line may be missing.
            _, newline, data = data.partition(b"\n")
            if not newline:
                return
            rest = b""
        *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self.take(number, line)
        self.rests[number, stream] = rest[-_LINE_BYTES:]

    def forget(self, cut: Piece) -> None:
        """Something is missing: it is not known how the last line goes on, nor where the next one begins."""
        for key in list(self.rests) if cut is GAP else [(cut.number, cut.stream)]:
            self.rests[key] = None
        self.has_gap = self.has_gap or cut is GAP

    def finish(self) -> None:
        for (number, _), rest in self.rests.items():
            if rest is not None:
                self.take(number, rest)


def add_printed(
    paths: StudyPaths, index: StudyIndex, metric: str, pattern: str | None = None
) -> None:
    """Have the index answer with printed values of a metric for trials that did not report it.

    `pattern` is the study's own regular expression for the metric, if it has one. What was read is remembered until a
    journal grows; while trials run it is read anew, because their output may be on its way.
    """

    def read() -> list[tuple[int, dict[str, list[float]]]]:
        books = read_printed(paths, index.unreported(metric), metric, pattern)
        return [(number, book.to_json()) for number, book in books.items()]

    question = json.dumps(["printed", READING, metric, pattern])
    running = next(index.numbers((State.RUNNING,)), None) is not None
    answer = read() if running else index.remembered(question, read)
    values: dict[int, MetricSummary] = {}
    for number, wired in answer:
        summary = parse_metrics(wired).get(metric)
        if summary is not None:
            values[number] = summary
    index.add_printed(metric, values)


def read_printed(
    paths: StudyPaths, attempts: Attempts, metric: str, pattern: str | None = None
) -> dict[int, MetricBook]:
    """The values of a metric that these attempts printed, by the trial's number; only of trials that printed any."""
    printed = PrintedMetrics([(metric, pattern)])
    books: dict[int, MetricBook] = {}

    tables: dict[int, Tables] = {}

    def take(number: int, line: bytes) -> None:
        found = printed.read(line, tables.setdefault(number, Tables())).get(metric)
        if found is not None:
            book = books.setdefault(number, MetricBook())
            if book.takes(metric, found.source):
                book.add(metric, found.value)

    _read_lines(paths, attempts, take)
    return {number: book for number, book in books.items() if book}


def list_printed(
    paths: StudyPaths, index: StudyIndex, included: Ranges, parameters: Iterable[str] = ()
) -> list[PrintedNumber]:
    """Which numbers the output of some done trials has, without the study's parameters; likely metrics come first."""
    records = (
        record
        for record in index.records(states=(State.DONE,))
        if contains(included, record.number)
    )
    some = itertools.islice(records, _LISTED_TRIALS)
    attempts = [(record.number, record.agent, record.attempt) for record in some]
    left_out = {name.lower() for name in parameters}
    seen: dict[str, dict[int, float]] = {}
    tables: dict[int, Tables] = {}

    def take(number: int, line: bytes) -> None:
        for name, value in find_numbers(line, tables.setdefault(number, Tables())):
            if name.lower() not in left_out:
                seen.setdefault(name, {})[number] = value

    _read_lines(paths, attempts, take)
    found = [
        PrintedNumber(name, len(values), list(values.values())[-1]) for name, values in seen.items()
    ]
    found.sort(key=lambda one: (not names_metric(one.name), -one.trials))
    return found[:_LISTED_NAMES]


def _read_lines(paths: StudyPaths, attempts: Attempts, take: Callable[[int, bytes], None]) -> None:
    """Pass each line that these attempts printed to `take`, with the number of its trial."""
    by_agent: dict[str, dict[int, int]] = {}
    for number, agent, attempt in attempts:
        by_agent.setdefault(agent, {})[attempt] = number
    for agent, wanted in by_agent.items():
        lines = _Lines(take)
        for piece in OutputReader(paths, agent).read(wanted):
            if piece.is_cut:
                lines.forget(piece)
            elif piece.stream != OURS:
                lines.feed(piece.number, piece.stream, piece.data)
        lines.finish()
