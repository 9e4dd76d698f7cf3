"""``windlass.log``: tells the agent a trial's metrics. Python 3.9, standard library, as few imports as can be."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Mapping, Optional

_MESSAGE_BYTES = 4096  # PIPE_BUF: what one write to a FIFO delivers whole, also with many writers
_pipe: Optional[int] = None
_pipe_of = ("", 0)  # path and process it was opened in: a forked child may have closed what it inherited


def log(
    values: Optional[Mapping[str, Any]] = None,
    step: Optional[float] = None,
    of: Optional[float] = None,
    **metrics: Any,
) -> None:
    """Record metrics, for example ``windlass.log(step=10, of=2000, loss=0.3)``.

    `of` says how many steps there will be: then the time left is known. Outside a trial it does nothing. It may be
    called from any number of threads and processes of a trial. Values are numbers or anything ``float()`` takes, such
    as a tensor with one element.
    """
    path = os.environ.get("WINDLASS_METRICS")
    if not path:
        return
    merged: Dict[str, Any] = {**(values or {}), **metrics}
    numbers = {name: _number(name, value) for name, value in merged.items()}
    total = None if of is None else _number("of", of)
    for message in _messages(numbers, None if step is None else _number("step", step), total):
        _send(path, message)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"windlass.log: {name} must be a number, not {type(value).__name__}") from None


def _messages(numbers: Dict[str, float], step: Optional[float], of: Optional[float]) -> List[bytes]:
    """One line, or several where one would not be delivered whole."""
    trial = int(os.environ.get("WINDLASS_TRIAL_NUMBER", "0"))
    attempt = int(os.environ.get("WINDLASS_ATTEMPT", "0"))
    # NaN and Infinity stay as Python's json writes them: only our own agent reads this.
    parts: List[Any] = [trial, attempt, time.time(), step, numbers] + ([] if of is None else [of])
    line = json.dumps(parts, separators=(",", ":")).encode() + b"\n"
    if len(line) <= _MESSAGE_BYTES:
        return [line]
    if len(numbers) == 1:
        raise ValueError("windlass.log: the name of a metric is too long")
    names = list(numbers)
    half = len(names) // 2
    halves = (names[:half], names[half:])
    return [message for part in halves for message in _messages({name: numbers[name] for name in part}, step, of)]


def send_line(said: Dict[str, Any]) -> None:
    """Tell the agent something that is no metric."""
    path = os.environ.get("WINDLASS_METRICS")
    if path:
        said["attempt"] = int(os.environ.get("WINDLASS_ATTEMPT", "0"))
        _send(path, json.dumps(said, separators=(",", ":")).encode() + b"\n")


def _send(path: str, message: bytes) -> None:
    global _pipe, _pipe_of  # noqa: PLW0603
    try:
        if _pipe is None or _pipe_of != (path, os.getpid()):
            # Non-blocking only to fail at once when no agent listens; afterwards a full pipe makes us wait.
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.set_blocking(pipe, True)
            _pipe, _pipe_of = pipe, (path, os.getpid())
        os.write(_pipe, message)
    except OSError:
        _pipe = None  # the agent is gone: a trial must not fail for that
