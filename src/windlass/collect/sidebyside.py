"""Does something with each of many files of a shared folder, several at a time where each makes the caller wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

THREADS = 16
_SLOW_S = 0.0002  # a call that takes longer waits for a network, not for this machine
_FIRST = 8  # calls in a row that show how long one takes


def for_each(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """What `function` returns for each item, in their order.

    A local disk answers at once, and threads would cost more than they save. On a network file system each call waits
    for a server, and 16 can wait at the same time.
    """
    results: list[_Result] = []
    while len(results) < len(items):
        began = time.perf_counter()
        some = items[len(results) : len(results) + _FIRST]
        results += map(function, some)
        if time.perf_counter() - began > _SLOW_S * len(some):
            break
    return results + _in_threads(function, items[len(results) :])


def _in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    threads = min(THREADS, len(items))
    if threads < 2:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor  # brings many modules along, which a small study does not need

    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda first: list(map(function, items[first::threads])), range(threads)))
    return [parts[place % threads][place // threads] for place in range(len(items))]
