"""``windlass.log``: tells the agent a trial's metrics. Python 3.9, standard library, as few imports as can be."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping as AnyMapping
from typing import Any, Dict, List, Mapping, Optional, Set, Union

Value = Union[float, str]
_MESSAGE_BYTES = 4095  # PIPE_BUF, less a newline: what one write to a FIFO delivers whole, also with many writers
_TEXT_CHARACTERS = 1000
_TEXT_BYTES = 3000  # of a text as JSON, beside a name and the rest of a message
_NAME_CHARACTERS = 100
_MOST_NOTED = 20
_pipe: Optional[int] = None
_noted: Set[str] = set()  # names of values that were left out
# Path and process it was opened in: a forked child may have closed what it inherited.
_pipe_of = "", 0


def log(
    values: Optional[Mapping[str, Any]] = None,
    step: Optional[float] = None,
    of: Optional[float] = None,
    **metrics: Any,
) -> None:
    """Record metrics, for example ``windlass.log(step=10, of=2000, loss=0.3)``.

    `of` is the number of steps there will be: then the time left is known. Outside a trial it does nothing. It may be
    called from any number of threads and processes of a trial.

    Values are numbers, or anything that ``float()`` takes, such as a tensor with one element; or text, of which the
    last one is kept. Any other value is left out and noted once. No value makes this raise an error.
    """
    path = os.environ.get("WINDLASS_METRICS")
    if not path:
        return
    merged: Dict[Any, Any] = dict(metrics)
    if isinstance(values, AnyMapping):
        merged = {**values, **metrics}
    elif values is not None:
        _note_bad(path, "values", values, "a mapping of names to values")
    kept: Dict[str, Value] = {}
    for name, value in merged.items():
        found = _value(value)
        if found is None:
            _note_bad(path, str(name), value, "a number or text")
        else:
            kept[str(name)] = found
    for message in _messages(path, kept, _count(path, "step", step), _count(path, "of", of)):
        _send(path, message)


def _value(value: Any) -> Optional[Value]:
    """A number where the value can be one, else text; None for anything else."""
    try:
        return float(value)
    except Exception:
        pass
    try:
        text = os.fspath(value)
        if isinstance(text, str):
            return _shortened(text)
    except Exception:
        pass
    return None


def _shortened(text: str) -> str:
    """So much of a text as surely fits into a message."""
    text = text[:_TEXT_CHARACTERS]
    while len(json.dumps(text)) > _TEXT_BYTES:
        text = text[: len(text) // 2]
    return text


def _count(path: str, name: str, value: Any) -> Optional[float]:
    """A step, or how many there are; None where none is given."""
    if value is None:
        return None
    found = _value(value)
    if isinstance(found, float):
        return found
    _note_bad(path, name, value, "a number")
    return None


def _note_bad(path: str, name: str, value: Any, wanted: str) -> None:
    """Have the agent note a value that is left out, once for each name."""
    if name in _noted or len(_noted) >= _MOST_NOTED:
        return
    _noted.add(name)
    kind = type(value).__name__
    shown = "None" if value is None else f"a value of type {kind}"
    if isinstance(value, int):
        shown = "an integer that is too large for a float"
    text = f"windlass.log left out {name[:_NAME_CHARACTERS]}: it is {shown}, not {wanted}"
    send_line({"note": _shortened(text)})


def _messages(
    path: str, values: Dict[str, Value], step: Optional[float], of: Optional[float]
) -> List[bytes]:
    """One line, or several where one would not be delivered whole."""
    trial, attempt = _own_number("WINDLASS_TRIAL_NUMBER"), _own_number("WINDLASS_ATTEMPT")
    # NaN and Infinity stay as Python's json writes them: only our own agent reads this.
    parts: List[Any] = [trial, attempt, time.time(), step, values] + ([] if of is None else [of])
    line = json.dumps(parts, separators=(",", ":")).encode() + b"\n"
    if len(line) <= _MESSAGE_BYTES:
        return [line]
    names = list(values)
    if len(names) == 1:
        _note_bad(path, names[0], names[0], "a name of less than 1,000 characters")
        return []
    half = len(names) // 2
    halves = (names[:half], names[half:])
    return [
        message
        for part in halves
        for message in _messages(path, {name: values[name] for name in part}, step, of)
    ]


def _own_number(variable: str) -> int:
    """A number that the agent gave to this trial; a program may have overwritten it."""
    try:
        return int(os.environ.get(variable, "0"))
    except ValueError:
        return 0


def send_line(report: Dict[str, Any]) -> None:
    """Tell the agent something that is no metric."""
    path = os.environ.get("WINDLASS_METRICS")
    if path:
        report["attempt"] = _own_number("WINDLASS_ATTEMPT")
        _send(path, json.dumps(report, separators=(",", ":")).encode() + b"\n")


def _send(path: str, message: bytes) -> None:
    global _pipe, _pipe_of  # noqa: PLW0603
    try:
        if _pipe is None or _pipe_of != (path, os.getpid()):
            # Non-blocking only to fail at once when no agent listens; afterwards a full pipe makes us wait.
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.set_blocking(pipe, True)
            _pipe, _pipe_of = pipe, (path, os.getpid())
        # The newline before it ends whatever another program may have written to the pipe without one.
        os.write(_pipe, b"\n" + message)
    except OSError:
        _pipe = None  # the agent is gone: a trial must not fail for that
