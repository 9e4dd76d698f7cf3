"""How many trials share a device best: which number to try next, and which to choose. Pure.

The agent tries, the planner chooses among what was tried: Python 3.9, standard library.

Doubling finds the order of magnitude and stops where it no longer pays; one look between the last two refines it.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

PLAIN, MPS = "plain", "mps"
LEAST_GAIN = 1.10  # of a doubling that pays
_AS_GOOD = 0.97  # of the best: then fewer neighbours are better
_UNLIKELY = 1.3  # k trials cannot do more than k times what one does, but for noise
_UNNOTICED = 1.10  # slowdown of one trial that `prefer: latency` puts up with


class Point(NamedTuple):
    """k trials at a time and what comes of it: trials, or steps, in a unit of time. 0: it did not work."""

    mode: str
    k: int
    value: float
    one_s: Optional[float] = None  # time of one trial, or of one step, at this concurrency level


def next_k(points: Sequence[Point], first: int, most: int) -> Optional[int]:
    """The next number to try in one mode; None when enough is known. `points` are of that mode."""
    known = {point.k: point.value for point in points}
    if first not in known:
        return first if first <= most else None
    tried = _doublings(known, first)
    last = tried[-1]
    pays = len(tried) == 1 or known[last] >= known[tried[-2]] * LEAST_GAIN
    if pays and last < most and known[last] > 0:
        return min(2 * last, most)
    if pays:
        return None
    middle = (tried[-2] + last) // 2
    return middle if middle not in known else None


def _doublings(known: Dict[int, float], first: int) -> List[int]:
    """The numbers that were tried one after another, without what was looked at in between."""
    tried = [first]
    while True:
        larger = sorted(k for k in known if k > tried[-1])
        if not larger:
            return tried
        if 2 * tried[-1] in known:
            tried.append(2 * tried[-1])
        elif len(larger) == 1:
            tried.append(larger[0])  # the most that there could be
        else:
            return [*tried, larger[-1]]  # a look in between, and the end


def choose(points: Sequence[Point], prefer: str = "throughput") -> Optional[Point]:
    """The best of what was tried; None where nothing worked.

    Of numbers that are as good as the best the smallest is taken: it leaves memory free and each trial is done sooner.
    """
    worked = [point for point in points if point.value > 0]
    if not worked:
        return None
    alone = [point for point in worked if point.k == 1]
    if prefer == "latency":
        base_s = min((point.one_s for point in alone if point.one_s), default=None)
        quick = [
            point
            for point in worked
            if base_s and point.one_s and point.one_s <= base_s * _UNNOTICED
        ]
        worked = quick or alone or worked
    best = max(point.value for point in worked)
    good = [point for point in worked if point.value >= best * _AS_GOOD]
    return min(good, key=lambda point: (point.k, point.mode != PLAIN, -point.value))


def find_disturbed(points: Sequence[Point]) -> Optional[Point]:
    """A point that cannot be, because it is far more than k times one trial: something kept the machine busy then."""
    alone = max((point.value for point in points if point.k == 1), default=0.0)
    return next(
        (point for point in points if alone and point.value > _UNLIKELY * point.k * alone), None
    )
