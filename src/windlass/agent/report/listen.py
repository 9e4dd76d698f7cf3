"""Takes down the numbers that trials report, by windlass.log or in what they print. Python 3.9, standard library."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional, Set

from windlass.agent.child import NO_METRICS, Attempt
from windlass.agent.config import AgentConfig
from windlass.agent.gauge.gauge import Gauges
from windlass.agent.report.metrics import Curve, Message, MetricBook, MetricsFile, find_step
from windlass.agent.report.nan_lines import find_not_finite
from windlass.agent.report.printed import PrintedMetrics, Reading
from windlass.agent.report.tables import Tables
from windlass.core.journal.reason import shorten
from windlass.launchers.base import PLAIN

_MOST_NOTES = 10  # about values that trials log and that are left out
_FIRST = b"[rank0]: "  # what launchers/_task.py puts before its lines
_SHOWN = 120  # characters of a line that is quoted


class Listener:
    """Books and curves of the attempts of one agent."""

    def __init__(
        self,
        config: AgentConfig,
        curves: MetricsFile,
        gauges: Gauges,
        diverged: Callable[[Attempt], None],
    ) -> None:
        self._config = config
        self._gauges = gauges
        self._curves = curves
        self._printed = PrintedMetrics(config.metrics)
        self._diverged = diverged  # what to do about an attempt whose metric is no number any more
        self.note: Callable[[str], None] = lambda text: None
        self._noted: Set[str] = set()

    def line_reader(self, attempt: Attempt) -> Callable[[bytes], None]:
        """What reads each line that an attempt prints; of several ranks, the lines of the first one."""
        if self._config.launch != PLAIN:
            return _first_rank(self._reader(attempt))
        return self._reader(attempt)

    def _reader(self, attempt: Attempt) -> Callable[[bytes], None]:
        progress = self._gauges.of(attempt).read
        if not self._printed and not self._config.watch_nan:
            return progress

        tables = Tables()

        def read(line: bytes) -> None:
            progress(line)
            found = self._printed.read(line, tables)
            if found:
                self._record_printed(attempt, line, found)
            if self._config.watch_nan and attempt.cause is None:
                self._watch(attempt, line)

        return read

    def _record_printed(self, attempt: Attempt, line: bytes, found: Dict[str, Reading]) -> None:
        book = _book(attempt)
        values = {
            name: reading.value
            for name, reading in found.items()
            if book.takes(name, reading.source)
        }
        if values:
            for name, value in values.items():
                book.add(name, value)
            self._record(attempt, time.time(), find_step(line), values)

    def _watch(self, attempt: Attempt, line: bytes) -> None:
        """Without a name for its metrics, what a trial prints is searched for the usual ones."""
        found = find_not_finite(line)
        if found is not None:
            step = find_step(line)
            shown = line.decode("utf-8", "replace").strip()[:_SHOWN]
            self._not_a_number(attempt, *found, step, f": it printed {shown!r}")

    def take_logged(self, attempt: Attempt, message: Message) -> None:
        """What windlass.log has sent."""
        _, _, when, step, values, of = message
        if step is not None:
            self._gauges.of(attempt).tell(attempt.started + when - attempt.started_wall, step, of)
        book = _book(attempt)
        book.texts.update((name, value) for name, value in values.items() if isinstance(value, str))
        numbers = {name: value for name, value in values.items() if not isinstance(value, str)}
        for name, number in numbers.items():
            book.add_logged(name, number)
        self._record(attempt, when, step, numbers)

    def take_report(self, attempt: Attempt, reported: Dict[str, Any]) -> None:
        """A note of windlass.log, which is repeated once for the study and once for the trial; else use of memory."""
        text = reported.get("note")
        if not isinstance(text, str):
            self._gauges.of(attempt).take_report(reported)
            return
        text = shorten(text)
        if text not in attempt.remarks and len(attempt.remarks) < _MOST_NOTES:
            attempt.remarks.append(text)
        if text not in self._noted and len(self._noted) < _MOST_NOTES:
            self._noted.add(text)
            self.note(f"trial {attempt.trial.number}: {text}")

    def _record(
        self, attempt: Attempt, when: float, step: Optional[float], values: Dict[str, float]
    ) -> None:
        book = _book(attempt)
        if step is not None:
            book.step = step
        for name, value in values.items():
            if (name == self._config.metric or self._config.watch_nan) and not abs(value) < float(
                "inf"
            ):
                self._not_a_number(attempt, name, value, step)
        if attempt.curve is None:
            attempt.curve = Curve()
        if values and attempt.curve.keep(when):
            self._curves.add(attempt.trial.number, attempt.attempt, when, step, values)

    def _not_a_number(
        self, attempt: Attempt, name: str, value: float, step: Optional[float], printed: str = ""
    ) -> None:
        if step is None:
            step = (
                attempt.book.step
                if attempt.book.step is not None
                else self._gauges.of(attempt).progress.step
            )
        at_step = "" if step is None else f" at step {step:g}"
        attempt.note = attempt.note or f"{name} became {value}{at_step}{printed}"
        if self._config.stop_on_nan and attempt.cause is None:
            self._diverged(attempt)


def _first_rank(read: Callable[[bytes], None]) -> Callable[[bytes], None]:
    def read_marked(line: bytes) -> None:
        if not line.startswith(b"[rank"):
            read(line)
        elif line.startswith(_FIRST):
            read(line[len(_FIRST) :])

    return read_marked


def _book(attempt: Attempt) -> MetricBook:
    if attempt.book is NO_METRICS:
        attempt.book = MetricBook()
    return attempt.book
