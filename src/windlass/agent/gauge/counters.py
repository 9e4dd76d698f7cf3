"""Arithmetic with what the kernel counts of processes. Python 3.9, standard library."""

from __future__ import annotations

from typing import Tuple

# CPU seconds, bytes read, written, fetched from storage, sent to it: of a process and the children it has waited for.
Counters = Tuple[float, float, float, float, float]
NOTHING: Counters = (0.0, 0.0, 0.0, 0.0, 0.0)


def plus(one: Counters, other: Counters) -> Counters:
    return (
        one[0] + other[0],
        one[1] + other[1],
        one[2] + other[2],
        one[3] + other[3],
        one[4] + other[4],
    )


def minus(one: Counters, other: Counters) -> Counters:
    return (
        one[0] - other[0],
        one[1] - other[1],
        one[2] - other[2],
        one[3] - other[3],
        one[4] - other[4],
    )


def at_least(one: Counters, other: Counters) -> Counters:
    return (
        max(one[0], other[0]),
        max(one[1], other[1]),
        max(one[2], other[2]),
        max(one[3], other[3]),
        max(one[4], other[4]),
    )
