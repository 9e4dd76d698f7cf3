"""Reports on standard error which file a command waits for while its file system does not answer at all.

A server that is gone lets calls fail, and `patience.py` makes them again. One that hangs lets them wait without end,
and the command with them. A single thread looks once a second whether a call has been under way for long; calls
themselves only note when they began.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from windlass.core.units import render_duration

SILENT_S = 4.0  # a call that takes longer is reported
_LOOK_S = 1.0
Call = Callable[..., Any]
Result = TypeVar("Result")

# Thread → the path or descriptor of the call that it is in, and when that began.
_under_way: dict[int, tuple[Any, float]] = {}


def watched(call: Call) -> Call:
    """The same call, whose first argument is a path or a descriptor. It is reported while it hangs."""
    under_way, own, clock = _under_way, threading.get_ident, time.monotonic

    def watched_call(*arguments: Any, **named: Any) -> Any:
        me = own()
        under_way[me] = (arguments[0] if arguments else named.get("path", "."), clock())
        try:
            return call(*arguments, **named)
        finally:
            under_way.pop(me, None)

    watched_call.__name__ = call.__name__
    return watched_call


def watch(path: Any, call: Callable[[], Result]) -> Result:
    """Make a call that reads from this path. It is reported while it hangs."""
    me = threading.get_ident()
    _under_way[me] = (path, time.monotonic())
    try:
        return call()
    finally:
        _under_way.pop(me, None)


@contextlib.contextmanager
def reporting(name: Callable[[Any], str | None]) -> Iterator[None]:
    """While this is entered, one line is printed once a call hangs, and another once none does any more.

    `name` returns the path to be shown for a call's first argument; None for what is no file, such as a pipe.
    """
    over = threading.Event()
    thread = threading.Thread(target=_look, args=(name, over), name="hanging", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _look(name: Callable[[Any], str | None], over: threading.Event) -> None:
    """Look for calls that hang, until nobody wants to know any more."""
    began: float | None = None
    while not over.wait(min(_LOOK_S, SILENT_S)):
        now = time.monotonic()
        hanging = [one for one in list(_under_way.values()) if now - one[1] >= SILENT_S]
        places = [shown for place, _ in hanging if (shown := name(place)) is not None]
        if began is None and places:
            began = min(since for _, since in hanging)
            _print(
                f"waiting for {places[0]}: the file system has not answered for "
                f"{render_duration(now - began)} (Ctrl-C ends it)"
            )
        elif began is not None and not hanging:
            _print(f"it answers again after {render_duration(now - began)}")
            began = None


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
