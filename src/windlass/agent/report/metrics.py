"""What a trial reports, by windlass.log or in what it prints, as it is recorded. Python 3.9, standard library."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from windlass.agent.report.lines import LineCutter
from windlass.agent.report.printed import OTHER_SET, PLAIN, TRAINING, UNDECIDED
from windlass.core.journal.events import finite_number, parse_texts, unwire_number, wire_number
from windlass.core.journal.write import AppendFile

_LONGEST_MESSAGE = 8192  # twice what windlass.log writes at a time
# A tqdm bar: " 45%|####      | 450/1000 [00:01<00:02, 300it/s, loss=0.5]"
_BAR = re.compile(rb"\|\s*(\d+)/(\d+) \[")
_STEP = re.compile(
    rb"(?:^|[\s,{\[\"'])(?:global_step|step|epoch|iteration|iter|update)[\"']?\s*[=: ]\s*(\d+)",
    re.IGNORECASE,
)

_LOGGED = "windlass.log"
_MOST_LINES = 1 << 18  # points that are kept in memory while they cannot be written

Value = Union[float, str]


class MetricBook:
    """Last, least, greatest and count of each metric of one attempt; grows with the number of names only.

    The values of one metric come from one source: windlass.log where the trial uses it for this metric, else the
    number printed under its name alone, else the first label it was printed under. A better source that comes later
    takes the place of what was recorded before. Where one label is that of the training data and another is not, the
    metric has no value: a trial is not judged by its training data unless nothing else is printed. `before` has the
    same of the sessions that the attempt went on from, as a journal carries it.
    """

    def __init__(self, before: Optional[Mapping[str, Any]] = None) -> None:
        self.values: Dict[str, List[float]] = {}
        self.texts: Dict[str, str] = {}  # the last text of each name
        self._before = _unwired(before or {})
        self.texts.update(parse_texts(before or {}))
        self.step: Optional[float] = None
        # Metric → where its values come from; see `printed.Reading`.
        self._sources: Dict[str, str] = {}

    def add_logged(self, name: str, value: float) -> None:
        """Record a value from windlass.log."""
        if self._sources.get(name) != _LOGGED:
            self._sources[name] = _LOGGED
            self.values.pop(name, None)
        self.add(name, value)

    def takes(self, name: str, source: str) -> bool:
        """Whether printed values of this source count for a metric, now that one has come."""
        known = self._sources.setdefault(name, source)
        if known == source and source not in (UNDECIDED, OTHER_SET):
            return True
        if known == _LOGGED:
            return False
        if source == PLAIN or (
            known == OTHER_SET and source not in (TRAINING, UNDECIDED, OTHER_SET)
        ):
            self._sources[name] = source
            self.values.pop(name, None)
            return True
        if known != PLAIN and (source == UNDECIDED or TRAINING in (known, source)):
            self._sources[name] = UNDECIDED
            self.values.pop(name, None)
            self._before.pop(name, None)
        return False

    def add(self, name: str, value: float) -> None:
        entry = self.values.get(name)
        if entry is None:
            self.values[name] = [value, value, value, 1]
            return
        entry[0] = value
        entry[3] += 1
        # A comparison with NaN is False: a first NaN gives way to the first real number.
        if value < entry[1] or math.isnan(entry[1]):
            entry[1] = value
        if value > entry[2] or math.isnan(entry[2]):
            entry[2] = value

    def __bool__(self) -> bool:
        return bool(self.values or self._before or self.texts)

    def to_json(self) -> Dict[str, Any]:
        """The metrics of all sessions up to now, as journals carry them: four numbers, or one text."""
        whole = {**self._before, **self.values}
        for name in self._before:
            if name in self.values:
                whole[name] = _joined(self._before[name], self.values[name])
        wired: Dict[str, Any] = {name: [text] for name, text in self.texts.items()}
        wired.update(
            (name, [*map(wire_number, entry[:3]), int(entry[3])]) for name, entry in whole.items()
        )
        return wired


def _joined(before: List[float], after: List[float]) -> List[float]:
    """Of two sessions, one after the other: a number that is not finite counts only where there is no other."""
    lows, highs = [[v for v in (before[at], after[at]) if not math.isnan(v)] for at in (1, 2)]
    return [
        after[0],
        min(lows, default=math.nan),
        max(highs, default=math.nan),
        before[3] + after[3],
    ]


def _unwired(metrics: Mapping[str, Any]) -> Dict[str, List[float]]:
    """What `MetricBook.to_json` returned; anything else in a file that was damaged is left out."""
    found: Dict[str, List[float]] = {}
    for name, entry in metrics.items():
        try:
            last, low, high, count = map(unwire_number, entry)
        except (TypeError, ValueError):
            continue
        found[name] = [last, low, high, count]
    return found


def find_step(line: bytes) -> Optional[float]:
    """The step that a line of output is about, where it says so."""
    progress = _BAR.search(line) or _STEP.search(line)
    return finite_number(progress.group(1)) if progress else None


class Curve:
    """Decides which points of a trial's curves are kept: all at first, then ever fewer, so that files stay small."""

    __slots__ = ("_begin", "_count", "_next")

    def __init__(self) -> None:
        self._count = 0
        self._begin = 0.0
        self._next = 0.0

    def keep(self, now: float) -> bool:
        if self._count == 0:
            self._begin = now
        self._count += 1
        if self._count > 100 and now < self._next:
            return False
        self._next = now + (now - self._begin) / 500
        return True


class MetricsFile:
    """The curves of all trials of one agent: one line a kept point. Made when the first point comes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Optional[AppendFile] = None
        self._lines: List[str] = []

    def add(
        self,
        number: int,
        attempt: int,
        when: float,
        step: Optional[float],
        values: Mapping[str, float],
    ) -> None:
        wired = {name: wire_number(value) for name, value in values.items()}
        self._lines.append(
            json.dumps([number, attempt, round(when, 3), step, wired], separators=(",", ":"))
        )

    def flush(self) -> None:
        if not self._lines:
            return
        lines = list(self._lines)
        self._lines.clear()
        try:
            if self._file is None:
                self._file = AppendFile(self._path, exclusive=False)
            self._file.write(("\n".join(lines) + "\n").encode())
        except OSError:
            # The folder is out of reach, perhaps not for long.
            self._lines[:] = lines[-_MOST_LINES:]
            raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


# Trial, attempt, when, step, metrics, steps in all.
Message = Tuple[int, int, float, Optional[float], Dict[str, Value], Optional[float]]


def parse_value(value: Any) -> Value:
    """A number, or text as it is. Raises ValueError or TypeError for anything else."""
    return value if isinstance(value, str) else float(value)


class MessageReader:
    """Cuts what comes out of the FIFO into messages of windlass.log. What is no message is passed over, with a note."""

    def __init__(
        self,
        deliver: Callable[[Message], None],
        deliver_report: Callable[[Dict[str, Any]], None],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._lines = LineCutter(_LONGEST_MESSAGE)
        self._deliver = deliver
        self._deliver_report = deliver_report
        self._note = note
        self._has_noted = False

    def feed(self, data: bytes) -> None:
        """Deliver the messages that are whole now."""
        lines = self._lines.cut(data)
        if self._lines.dropped and not self._has_noted:
            self._has_noted = True
            self._note(
                "a trial writes to the pipe of windlass.log itself; what is no message is passed over"
            )
        for line in lines:
            try:
                parts = json.loads(line)
                if isinstance(parts, dict):
                    self._deliver_report(parts)
                    continue
                number, attempt, when, step, values, *of = parts
                entries = {str(name): parse_value(value) for name, value in values.items()}
                # A step or a total that is no number can be counted with by nobody.
                total = finite_number(of[0]) if of else None
                message = (
                    int(number),
                    int(attempt),
                    float(when),
                    finite_number(step),
                    entries,
                    total,
                )
            except (ValueError, TypeError, AttributeError, OverflowError):
                continue  # not from windlass.log
            self._deliver(message)
