"""The progress of a study as one line: live for a terminal, plain for a pipe or a log file."""

from __future__ import annotations

import math
import unicodedata
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from windlass.core.units import UNKNOWN, render_duration
from windlass.view.escapes import DIM, GREEN, RED, paint
from windlass.view.numbers import render_number

_BAR_CELLS = 24  # a longer bar says no more
_SMALLEST_BAR_CELLS = 6
_SETTLE_S = 0.5


@dataclass(frozen=True)
class Progress:
    """How far a study is. `best` is a metric's name and its best value so far."""

    total: int
    done: int
    failed: int
    running: int
    interrupted: int
    cancelled: int
    elapsed_s: float
    rate_per_s: float | None
    eta_s: float | None
    best: tuple[str, float] | None = None

    @property
    def ended(self) -> int:
        """Trials that will not be taken again; interrupted ones will be."""
        return self.done + self.failed + self.cancelled


@dataclass(frozen=True)
class _Part:
    """A piece of the line. The smaller `rank` is, the longer it stays when the line gets too narrow."""

    rank: int
    text: str
    color: str = ""


def render_line(progress: Progress, width: int, color: bool, ascii_only: bool = False) -> str:
    """One line of at most `width` cells (escape sequences not counted), without a line end.

    What does not fit is left out, least important first; the counts stay longest. With `ascii_only`, every
    character is ASCII.
    """
    separator = " | " if ascii_only else " · "
    shown = [replace(part, text=_shown(part.text, ascii_only)) for part in _parts(progress)]
    parts = _fitting(shown, width, len(separator))
    if not parts:
        # A number that lost its last digits would lie.
        percent = f"{_share(progress):.0%}"
        return percent if len(percent) <= width else ""
    text = separator.join(paint(part.text, part.color if color else "") for part in parts)
    used = sum(_cells(part.text) for part in parts) + len(separator) * (len(parts) - 1)
    bar_cells = min(_BAR_CELLS, width - used - 1)
    if bar_cells < _SMALLEST_BAR_CELLS:
        return text
    return f"{_bar(progress, bar_cells, color, ascii_only)} {text}"


def render_plain(progress: Progress) -> str:
    """The whole story on one line, without control characters and of any length."""
    return _printable(", ".join(part.text for part in _parts(progress)))


def render_rate(rate_per_s: float | None) -> str:
    """A rate in the unit that makes a readable number: a second, a minute or an hour."""
    if rate_per_s is None or math.isnan(rate_per_s):
        return f"{UNKNOWN}/s"
    if rate_per_s >= 1 or rate_per_s <= 0:
        return f"{_short(rate_per_s)}/s"
    if rate_per_s * 60 >= 1:
        return f"{_short(rate_per_s * 60)}/min"
    return f"{_short(rate_per_s * 3600)}/h"


class RateMeter:
    """Trials a second over the recent past; a stall shows as a falling rate.

    The window reaches back `window_s`, and further as long as it holds fewer than `least_finished` trials, so
    that trials of an hour have a rate as well as trials of a millisecond. Its memory does not grow with the
    number of trials.
    """

    def __init__(self, window_s: float = 30.0, least_finished: int = 10) -> None:
        self._window_s = window_s
        self._least_finished = least_finished
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, finished: int) -> float | None:
        """Note that `finished` trials have ended by `now` (seconds of any steady clock); give the rate.

        None until a trial has ended since the first call and half a second has passed: a rate from less than
        that is noise. A count or a clock that falls starts the measurement afresh.
        """
        samples = self._samples
        if samples and (finished < samples[-1][1] or now < samples[-1][0]):
            samples.clear()
        # Samples closer than a hundredth of the window change nothing; the first is where measuring starts.
        if not samples or (
            finished > samples[-1][1] and now - samples[-1][0] >= self._window_s / 100
        ):
            samples.append((now, finished))
        while len(samples) > 1 and self._may_forget_first(now, finished):
            samples.popleft()
        began, before = samples[0]
        if finished == before or now - began < _SETTLE_S:
            return None
        return (finished - before) / (now - began)

    def _may_forget_first(self, now: float, finished: int) -> bool:
        second_time, second_finished = self._samples[1]
        return (
            now - second_time >= self._window_s
            and finished - second_finished >= self._least_finished
        )


def _parts(progress: Progress) -> list[_Part]:
    """All there is to say, in reading order."""
    parts = [_Part(0, f"{progress.ended:,}/{progress.total:,}")]
    if progress.failed:
        parts.append(_Part(1, f"{progress.failed:,} failed", RED))
    if progress.running:
        parts.append(_Part(4, f"{progress.running:,} running"))
    if progress.interrupted:
        parts.append(_Part(5, f"{progress.interrupted:,} interrupted"))
    if progress.cancelled:
        parts.append(_Part(6, f"{progress.cancelled:,} cancelled"))
    if progress.rate_per_s is not None:
        parts.append(_Part(3, render_rate(progress.rate_per_s)))
    if progress.ended >= progress.total:
        parts.append(_Part(2, f"took {render_duration(progress.elapsed_s)}", DIM))
    else:
        parts.append(_Part(2, f"{render_duration(progress.eta_s)} left"))
        parts.append(_Part(8, f"after {render_duration(progress.elapsed_s)}", DIM))
    if progress.best is not None:
        name, value = progress.best
        parts.append(_Part(7, f"best {name} {render_number(value)}"))
    return parts


def _fitting(parts: Sequence[_Part], width: int, separator_cells: int) -> list[_Part]:
    """The most important parts that fit next to each other, in reading order."""
    kept: set[int] = set()
    used = -separator_cells
    for part in sorted(parts, key=lambda part: part.rank):
        used += _cells(part.text) + separator_cells
        if used > width:
            break
        kept.add(part.rank)
    return [part for part in parts if part.rank in kept]


def _bar(progress: Progress, cells: int, color: bool, ascii_only: bool) -> str:
    """Full only when everything has ended, and never empty once something has."""
    full_sign, rest_sign = ("#", "-") if ascii_only else ("━", "─")
    full = max(int(cells * _share(progress)), 1 if progress.ended else 0)
    end_color = (RED if progress.failed else GREEN) if color else ""
    return paint(full_sign * full, end_color) + paint(
        rest_sign * (cells - full), DIM if color else ""
    )


def _share(progress: Progress) -> float:
    """How much has ended, 0 to 1; 1 only when nothing is left, whatever the rounding."""
    if progress.ended >= progress.total:
        return 1.0
    return min(progress.ended / progress.total, 0.99)


def _shown(text: str, ascii_only: bool) -> str:
    text = _printable(text)
    return (
        text.replace(UNKNOWN, "-").encode("ascii", "replace").decode("ascii")
        if ascii_only
        else text
    )


def _printable(text: str) -> str:
    """A metric's name may hold anything; nothing in it may move the cursor."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _cells(text: str) -> int:
    """Cells of a terminal that `text` takes, at most."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _short(number: float) -> str:
    """Three digits at most before they stop meaning anything: 0.52, 3.1, 47, 12,345."""
    if number >= 1e15:
        return f"{number:.2g}"
    if number >= 9.95:
        return f"{number:,.0f}"
    return f"{number:.1f}"
