"""What a trial may ask about its session: how long it lasts, whether to stop, where to keep checkpoints. Python 3.9."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, Optional

_listening = 0  # the process that has asked
_is_notified = False


def remaining_s() -> Optional[float]:
    """Seconds until this trial is ended, at least 0. None where nobody has set an end, as outside of jobs."""
    ends = [
        end
        for end in (_number(os.environ.get("WINDLASS_DEADLINE")), _number(_notice()))
        if end is not None
    ]
    return max(0.0, min(ends) - time.time()) if ends else None


def should_stop() -> bool:
    """Whether this trial has been notified to end soon: save a checkpoint, then exit with code 42 for another session.

    False outside of a trial. The call is cheap enough for every step. A program that asks is not ended by the signal
    that notifies it, unless it has a handler of its own.
    """
    if _is_notified:
        return True
    if _listening != os.getpid():
        _listen()
    stop_at = _number(os.environ.get("WINDLASS_STOP_AT"))
    return (stop_at is not None and time.time() >= stop_at) or _notice() is not None


def _listen() -> None:
    global _listening  # noqa: PLW0603
    if (
        "WINDLASS_NOTICE" not in os.environ
        or threading.current_thread() is not threading.main_thread()
    ):
        return
    _listening = os.getpid()
    for number in {
        signal.SIGTERM.value,
        int(os.environ.get("WINDLASS_STOP_SIGNAL") or signal.SIGTERM),
    }:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _hear)


def _hear(number: int, _frame: Any) -> None:
    global _is_notified  # noqa: PLW0603
    if os.getpid() == _listening:
        _is_notified = True
    else:  # a process forked since, which nobody has taught to stop by itself
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def checkpoint_dir() -> Optional[str]:
    """The folder for checkpoints of this trial alone, made if it is missing. None outside of a trial."""
    folder = os.environ.get("WINDLASS_CHECKPOINT_DIR")
    if folder:
        os.makedirs(folder, exist_ok=True)
    return folder or None


def _notice() -> Optional[str]:
    """What the agent has written for all its trials; None as long as they may go on."""
    path = os.environ.get("WINDLASS_NOTICE")
    if not path or not os.path.exists(path):
        return None
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return None


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return float(text) if text else None
    except ValueError:
        return None
