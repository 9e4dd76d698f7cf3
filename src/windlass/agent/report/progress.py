"""How far a trial is and how fast it goes, from its output or its messages. Python 3.9, standard library.

`Progress` reads lines; `Rate` turns steps and moments into a time to the first step, a steady rate and a time left.
"""

from __future__ import annotations

import math
import re
from typing import List, NamedTuple, Optional, Pattern, Tuple

from windlass.core.journal.events import finite_number

_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|[\x08]+")
# tqdm: "train:  37%|███▋      | 374/1000 [00:12<00:21, 29.6it/s]"; also with counts such as 1.2k/5.0k, and ASCII bars.
_TQDM = re.compile(
    rb"^(?P<before>.*?)\d+%\|[^|]*\|\s*(?P<step>[\d.]+[kMG]?)/(?P<total>[\d.]+[kMG]?)\s*\["
)
# Keras: "313/1563 [====>.....] - ETA: 4s", "313/1563 ━━━━━━ 4s 3ms/step"; Lightning with rich: "… ━━━━ 450/1000 0:00".
_KERAS = re.compile(
    rb"^\s*(?P<step>\d+)/(?P<total>\d+)\s*(?:\[[=>.\s]+\]|(?:\xe2\x94\x81|\xe2\x95\xb8|\xe2\x95\xba))"
)
_RICH = re.compile(
    rb"^(?P<before>.*?)(?:\xe2\x94\x81|\xe2\x95\xb8|\xe2\x95\xba)+\s*(?:\d+%\s*)?(?P<step>\d+)/(?P<total>\d+)\s"
)
_EPOCH = re.compile(
    rb"\bepochs?\b\s*[:=#]?\s*[\[(]?\s*(?P<step>\d+)\s*(?:/|of)\s*(?P<total>\d+)", re.IGNORECASE
)
_EPOCH_ALONE = re.compile(rb"\bepoch\b\s*[:=#]?\s*[\[(]?\s*(?P<step>\d+)", re.IGNORECASE)
# The same and others without a total: "epoch 0 loss=0.31", "step 100: loss 0.4".
_STEP_ALONE = re.compile(
    rb"\b(?:global[_ ]step|step|iteration|iter|update|timesteps?)\b"
    rb"\s*[:=#]?\s*[\[(]?\s*(?P<step>\d+)(?![\d.]|\s*(?:/|of))",
    re.IGNORECASE,
)
_FIGURE = re.compile(rb"[=:]\s*[-+]?\.?\d|\d\.\d|\de-\d|\bnan\b", re.IGNORECASE)
_EPOCH_BAR = re.compile(rb"\bepochs?\b\W*$", re.IGNORECASE)
_STEP = re.compile(
    rb"\b(?:global[_ ]step|step|steps|iteration|iterations|iter|update|updates|batch|timestep|timesteps)\b"
    rb"\s*[:=#]?\s*[\[(]?\s*(?P<step>\d+)\s*(?:/|of)\s*(?P<total>\d+)",
    re.IGNORECASE,
)
_BRACKETS = re.compile(rb"[\[(]\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)(?=\s*[\])]|\s*\(\d)")
# Bars beside the training itself.
_ASIDE = re.compile(
    rb"valid|eval|\btest|sanity|predict|download|load|\bmap\b|tokeni|prepar|filter|fetch|compil|saving|\bval\b",
    re.IGNORECASE,
)
# One of these is in each line that tells.
_HINTS = b"/", b" of ", b"poch", b"POCH", b"tep", b"iter", b"Iter", b"pdate"
# A line with figures is printed when an epoch is over, not when it begins.
_RESULT = re.compile(rb"\d\.\d")
_SCALE = {b"k": 1e3, b"M": 1e6, b"G": 1e9}


class Sighting(NamedTuple):
    """A step, and how many there will be if that is known."""

    step: float
    total: Optional[float]


class Progress:
    """Where one trial is, in steps since its beginning. Epochs and steps within them are put together."""

    def __init__(self, pattern: Optional[str] = None) -> None:
        """`pattern` is the user's own, with groups `step` and perhaps `total`: then nothing else is looked for."""
        self._own: Optional[Pattern[bytes]] = re.compile(pattern.encode()) if pattern else None
        if self._own is not None and "step" not in self._own.groupindex:
            raise ValueError("the pattern has no group named step: write (?P<step>\\d+)")
        self.step: Optional[float] = None
        self.total: Optional[float] = None
        self._epochs: Optional[float] = None
        self._epoch: Optional[float] = None  # how many are behind us
        self._within: Optional[Sighting] = None
        self._before: float = 0.0  # steps of epochs that are over, where their number is not known
        self._from_zero = False
        self._is_reported = False
        self._alone = ""  # what is counted without a total: epoch or step
        self.is_bar = False  # the last sighting was on a progress bar, which is drawn by the clock

    def read(self, line: bytes) -> Optional[Sighting]:
        """What a line tells, if anything. Of a line redrawn with carriage returns the last drawing counts."""
        if self._is_reported:
            return None
        if self._own is None and not any(hint in line for hint in _HINTS):
            return None
        for drawing in reversed(line.rstrip(b"\r\n").split(b"\r")):
            if drawing.strip():
                return self._read_drawing(
                    _COLOURS.sub(b"", drawing) if b"\x1b" in drawing else drawing
                )
        return None

    def tell(self, step: float, total: Optional[float] = None) -> Optional[Sighting]:
        """A message of the trial itself (windlass.log): from now on output is not searched."""
        self._is_reported = True
        self.is_bar = False
        return self._settle(step, total if total is not None else self.total)

    def _read_drawing(self, line: bytes) -> Optional[Sighting]:
        if self._own is not None:
            found = self._own.search(line)
            if found is None:
                return None
            groups = found.groupdict()
            step = _number(groups["step"])
            total = _number(groups.get("total"))
            return (
                None
                if step is None
                else self._settle(step, total if total is not None else self.total)
            )
        bar = _TQDM.match(line) or _RICH.match(line) or _KERAS.match(line)
        self.is_bar = bar is not None
        if bar is not None:
            # Lightning's rich bar says 0/9 to 9/9 where there are ten epochs.
            more = 1 if bar.re is _RICH else 0
            before = bar.groupdict().get("before") or b""
            return self._read_bar(before, _number(bar["step"]), _number(bar["total"]), more)
        if _ASIDE.search(line[:40]) and not _EPOCH.match(line):
            is_summary = _EPOCH_ALONE.match(line.lstrip()) and _FIGURE.search(line)
            return self._read_alone(line) if is_summary else None
        return self._read_phrase(line)

    def _read_bar(
        self, before: bytes, step: Optional[float], total: Optional[float], more: int
    ) -> Optional[Sighting]:
        if step is None or not total or _ASIDE.search(before):
            return None
        if _EPOCH_BAR.search(before):
            self._set_epoch(step, total)
            return self._combined()
        epoch = _EPOCH.search(before)
        if epoch is not None:
            self._set_epoch(self._behind(float(epoch["step"]) + more), float(epoch["total"]) + more)
        return self._set_within(step, total)

    def _read_phrase(self, line: bytes) -> Optional[Sighting]:
        epoch = _EPOCH.search(line)
        if epoch is not None:
            self._set_epoch(self._behind(float(epoch["step"])), float(epoch["total"]))
        rest = line[epoch.end() :] if epoch is not None else line
        within = _STEP.search(rest)
        if within is None and (
            epoch is not None or _EPOCH_ALONE.search(line) or line.lstrip()[:1] in (b"[", b"(")
        ):
            within = _BRACKETS.search(rest)
        if within is not None:
            return self._set_within(float(within["step"]), float(within["total"]))
        if epoch is None:
            return self._read_alone(line)
        if self._within is None and _RESULT.search(rest):
            self._set_epoch(self._behind(float(epoch["step"])) + 1, float(epoch["total"]))
        return self._combined()

    def _read_alone(self, line: bytes) -> Optional[Sighting]:
        """A count without a total, of a program that prints nothing better. Steps tell more than epochs."""
        if self._epochs is not None or (self._within is not None and not self._alone):
            return None
        step = _STEP_ALONE.search(line)
        if step is not None and _FIGURE.search(line[step.end() :]):
            if self._alone == "epoch":
                self._within, self._before = None, 0.0
            self._alone = "step"
            return self._set_within(float(step["step"]), None)
        epoch = _EPOCH_ALONE.search(line)
        if epoch is None or self._alone == "step":
            return None
        self._alone = "epoch"
        over = self._behind(float(epoch["step"])) + (
            1 if _FIGURE.search(line[epoch.end() :]) else 0
        )
        if self._within is not None and over <= self._within.step:
            return None  # more than one line an epoch
        return self._set_within(over, None)

    def _behind(self, number: float) -> float:
        """How many epochs are over when this one is under way: some count from 0, and begin with it."""
        self._from_zero = self._from_zero or number == 0
        return number if self._from_zero else number - 1

    def _set_epoch(self, behind: float, epochs: float) -> None:
        if self._epoch is not None and behind > self._epoch and self._within is not None:
            self._within = Sighting(0.0, self._within.total)
        self._epoch, self._epochs = max(0.0, behind), epochs

    def _set_within(self, step: float, total: Optional[float]) -> Optional[Sighting]:
        if total is not None and self._alone:
            self._within, self._before, self._alone = None, 0.0, ""  # here is something better
        last = self._within
        if last is not None and step < last.step:
            if step > last.step / 2:
                return None  # several processes print, and not quite in order
            if self._epoch is None:
                self._before += last.total or last.step
            elif self._epochs is not None:
                self._epoch = min(self._epoch + 1, self._epochs - 1)
        elif last is not None and last.total != total and self._epoch is None:
            self._before = 0.0  # another count altogether
        self._within = Sighting(step, total)
        return self._combined()

    def _combined(self) -> Optional[Sighting]:
        within = self._within
        if self._epochs is not None and self._epoch is not None:
            if within is None or not within.total:
                return self._settle(self._epoch, self._epochs)
            return self._settle(
                self._epoch * within.total + within.step, self._epochs * within.total
            )
        if within is None:
            return None
        # Begun anew without saying how often that will be: the end is not known.
        return self._settle(self._before + within.step, None if self._before else within.total)

    def _settle(self, step: float, total: Optional[float]) -> Optional[Sighting]:
        if not math.isfinite(step):
            return None
        self.step, self.total = step, finite_number(total)
        return Sighting(self.step, self.total)


class Estimate(NamedTuple):
    """Seconds, and the range they are likely to be in."""

    low: float
    middle: float
    high: float


class _Point(NamedTuple):
    when: float
    step: float


_KEPT = 256
_PERIODS_KEPT, _FEWEST_PERIODS = 64, 8
_UNEVEN = 0.3  # of the average: so much the number of steps between reports may vary
_WINDOWS = 10


class Rate:
    """How fast steps follow each other. `began` and the moments of `add` are of one clock."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._points: List[_Point] = []
        self._stride = 1
        self._count = 0
        self._newest: Optional[_Point] = None
        self._periods: List[float] = []  # steps from one report to the next, the newest of them

    def add(self, when: float, step: float, by_clock: bool = False) -> None:
        """A step was seen. One that goes back (another count began) starts the measurement anew.

        `by_clock`: it was reported because time had passed, as progress bars do, and not because of the step it is.
        """
        if self._newest is not None and step < self._newest.step:
            self._points.clear()
            self._periods.clear()
            self._stride, self._count = 1, 0
        if step <= 0 or (self._newest is not None and step == self._newest.step and self._points):
            return
        if self._newest is not None and self._points and not by_clock:
            self._periods = [*self._periods[1 - _PERIODS_KEPT :], step - self._newest.step]
        self._newest = _Point(when, step)
        if self._count % self._stride == 0:
            self._points.append(self._newest)
            if len(self._points) > _KEPT:
                del self._points[1::2]
                self._stride *= 2
        self._count += 1

    @property
    def step(self) -> float:
        return self._newest.step if self._newest is not None else 0.0

    @property
    def newest_when(self) -> Optional[float]:
        """The moment of the last step that was seen."""
        return self._newest.when if self._newest is not None else None

    def uneven_period(self) -> Optional[Tuple[float, float]]:
        """The fewest and the most steps between two reports, where they differ much; None: a fixed period, or too few.

        A remainder at the end of an epoch does not make a period uneven.
        """
        periods = self._periods
        if len(periods) < _FEWEST_PERIODS:
            return None
        average = sum(periods) / len(periods)
        spread = (sum((period - average) ** 2 for period in periods) / len(periods)) ** 0.5
        return (min(periods), max(periods)) if spread > _UNEVEN * average else None

    def count_since(self, when: float) -> int:
        """How many steps were seen, and kept, since then."""
        return sum(point.when > when for point in self._points)

    @property
    def first_step_s(self) -> Optional[float]:
        """From the beginning to the first step that was seen."""
        return self._points[0].when - self._began if self._points else None

    @property
    def startup_s(self) -> Optional[float]:
        """The part of it that the steps themselves do not explain: imports, data, compilation."""
        middle = self.step_s()
        if middle is None or not self._points:
            return None
        return max(0.0, self._points[0].when - self._began - self._points[0].step * middle.middle)

    @property
    def per_s(self) -> Optional[float]:
        """Steps a second, lately."""
        step_s = self.step_s()
        return (
            finite_number(1 / step_s.middle) if step_s is not None and step_s.middle > 0 else None
        )

    def step_s(self) -> Optional[Estimate]:
        """Seconds a step: the average of the later half, and the range that its spread and drift suggest.

        None before two steps were seen at different moments, and where they are too close to be counted with.
        """
        points = self._steady()
        if len(points) < 2:
            return None
        middle_when = (points[0].when + points[-1].when) / 2
        later = [point for point in points if point.when >= middle_when]
        if len(later) < 3:
            later = points
        middle = _slope(later)
        windows = _windows(later)
        spread = 0.0
        if len(windows) > 1:
            variance = sum((value - middle) * (value - middle) for value in windows) / (
                len(windows) - 1
            )
            spread = 2 * (variance / len(windows)) ** 0.5
        else:
            spread = middle / 2  # two moments say nothing of how steady it is
        spread = max(spread, abs(middle - _slope(points)))
        return (
            Estimate(max(0.0, middle - spread), middle, middle + spread)
            if math.isfinite(middle + spread)
            else None
        )

    def remaining_s(self, total: float, now: Optional[float] = None) -> Optional[Estimate]:
        """Time to the step `total`, counted from `now`, or from the last step seen. None while there is no rate."""
        step_s = self.step_s()
        if step_s is None or self._newest is None:
            return None
        passed = max(0.0, now - self._newest.when) if now is not None else 0.0
        left = max(0.0, total - self._newest.step)
        estimate = Estimate(*(max(0.0, left * value - passed) for value in step_s))
        return estimate if math.isfinite(estimate.high) else None

    def _steady(self) -> List[_Point]:
        """All points and the newest, without the first stretch, in which kernels are tuned and caches filled."""
        points = list(self._points)
        if self._newest is not None and points and points[-1] != self._newest:
            points.append(self._newest)
        if len(points) >= 5:
            points = points[1:]
        return points if len(points) > 1 and points[-1].when > points[0].when else []


def _slope(points: List[_Point]) -> float:
    return (points[-1].when - points[0].when) / (points[-1].step - points[0].step)


def _windows(points: List[_Point]) -> List[float]:
    """Seconds a step in each of some stretches of about equal numbers of points."""
    size = max(1, (len(points) - 1) // _WINDOWS)
    cuts = points[::size]
    return [_slope(cuts[number : number + 2]) for number in range(len(cuts) - 1)]


def _number(text: Optional[bytes]) -> Optional[float]:
    if not text:
        return None
    scale = _SCALE.get(text[-1:], 1.0)
    number = finite_number(text[:-1] if scale != 1.0 else text)
    return None if number is None else number * scale
