"""One answer of squeue's for all processes of a user, on whatever machine. The agent needs it: Python 3.9.

The answer lies in a file on the shared folder. Whoever finds it too old makes the lock file of the next answer and
asks; the others wait for it. Every answer has a number and every lock the number of the answer it leads to, so that
a process that was asleep for long takes the lock of an answer that is there already, and sees that.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from windlass.core.fileclock import estimate_file_clock
from windlass.core.files import write_whole
from windlass.core.queue.rows import (
    QUEUE_ENV,
    QUEUE_FORMAT,
    Queue,
    QueueRow,
    parse_queue,
    queue_command,
)

__all__ = [
    "QUEUE_ENV",
    "QUEUE_FORMAT",
    "Ask",
    "Queue",
    "QueueRow",
    "forget_queue",
    "parse_queue",
    "read_last_queue",
    "read_queue",
]

Ask = Callable[[Sequence[str], Mapping[str, str]], Optional[str]]

USABLE_S = 60.0  # an answer of this age is better than none
STALE_S = 60.0  # a process that has been asking for so long is gone
_PATIENCE_S = 12.0  # for another's answer where there is none that could be used
_POLL_S = 0.1
_LEFTOVER_S = 3600.0
_VERSION = 1


class _Kept:
    """What the file says: the last answer, and the last that was not a failure."""

    def __init__(
        self, number: int = 0, asked: float = 0.0, text: Optional[str] = None, good: Any = None
    ) -> None:
        self.number = number
        self.asked = asked
        self.text = text
        self.good: Optional[Tuple[float, str]] = good

    def queue(self) -> Optional[Queue]:
        return None if self.text is None else Queue(parse_queue(self.text), self.asked)


# Answers that could not be shared because the folder cannot be written.
_alone: Dict[str, _Kept] = {}


def read_queue(cache: str, ask: Ask, max_age_s: float = 10.0) -> Optional[Queue]:
    """The user's jobs, not older than `max_age_s` where possible. None: the scheduler does not answer.

    Through one `cache` the scheduler is asked at most once in `max_age_s`, also when it does not answer.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        now = _clock(cache)
        kept = _read(cache)
        if _fresh(kept, now, max_age_s):
            return kept.queue()
        try:
            ours = _take_lock(cache, kept.number + 1, now)
        except OSError:
            return _ask_alone(cache, ask, now, max_age_s)
        if ours:
            new = _ask_for_all(cache, ask, kept.number + 1, max_age_s)
            if new is None:
                continue
            return new.queue()
        if kept.text is not None and now - kept.asked <= USABLE_S:
            deadline = min(deadline, time.monotonic() + 1.0)
        if time.monotonic() >= deadline:
            return kept.queue() if now - kept.asked <= USABLE_S else None
        time.sleep(_POLL_S)


def read_last_queue(cache: str) -> Optional[Queue]:
    """The last answer there was, however old; nobody is asked."""
    kept = _read(cache)
    return None if kept.good is None else Queue(parse_queue(kept.good[1]), kept.good[0])


def forget_queue(cache: str) -> None:
    """What was answered is not true any more, by our own doing: whoever looks next asks anew."""
    with contextlib.suppress(OSError):
        os.unlink(cache)


def _ask_for_all(cache: str, ask: Ask, number: int, max_age_s: float) -> Optional[_Kept]:
    """Ask as the process that holds the lock of answer `number`. None if answers came in before we had it."""
    kept, now = _read(cache), _clock(cache)
    if kept.number + 1 != number or _fresh(kept, now, max_age_s):
        _remove_locks(cache, kept.number)
        return None
    text = ask(queue_command(), QUEUE_ENV)
    # A failure takes its time; counted from its end, the next question does not follow at once.
    asked = now if text is not None else _clock(cache)
    new = _Kept(number, asked, text, kept.good if text is None else (now, text))
    try:
        _write(cache, new)
    except OSError:
        return new  # the lock stays: nobody asks again until it is stale
    _remove_locks(cache, number)
    return new


def _ask_alone(cache: str, ask: Ask, now: float, max_age_s: float) -> Optional[Queue]:
    kept = _alone.get(cache)
    if kept is None or not _fresh(kept, now, max_age_s):
        text = ask(queue_command(), QUEUE_ENV)
        kept = _alone[cache] = _Kept(1, now if text is not None else time.time(), text)
    return kept.queue()


def _fresh(kept: _Kept, now: float, max_age_s: float) -> bool:
    return -STALE_S < now - kept.asked < max_age_s


def _take_lock(cache: str, number: int, now: float) -> bool:
    """Whether we may ask for answer `number`; False while another process does."""
    for attempt in range(1000):
        path = f"{cache}.asking-{number}-{attempt}"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            return True
        except FileExistsError:
            try:
                if now - os.stat(path).st_mtime < STALE_S:
                    return False
            except FileNotFoundError:
                return False  # it was answered this moment
    return False


def _remove_locks(cache: str, number: int) -> None:
    """Remove the locks of all answers up to this one, and what killed processes have left."""
    folder, name = os.path.split(cache)
    for other in _listed(folder):
        head, found, tail = other.partition(name + ".asking-")
        is_lock = bool(found) and not head
        if (is_lock and int(tail.split("-")[0]) <= number) or (
            not is_lock and _is_leftover(folder, name, other)
        ):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, other))


def _is_leftover(folder: str, name: str, other: str) -> bool:
    """Whether this is a probe or a half-written answer that nobody will finish."""
    if not other.startswith(name + "."):
        return False
    try:
        return time.time() - os.stat(os.path.join(folder, other)).st_mtime > _LEFTOVER_S
    except OSError:
        return False


def _listed(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(cache: str) -> _Kept:
    try:
        with open(cache, encoding="utf-8") as file:
            owner = os.fstat(file.fileno()).st_uid
            fields = json.load(file)
        if fields["v"] != _VERSION:
            return _Kept()
        if fields["user"] != os.getuid() or owner not in (os.geteuid(), 0):
            return _Kept(int(fields["number"]))
        good = fields["good"]
        return _Kept(
            int(fields["number"]),
            float(fields["asked"]),
            fields["text"],
            None if good is None else (float(good[0]), good[1]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return _Kept()


def _write(cache: str, kept: _Kept) -> None:
    fields = {
        "v": _VERSION,
        "user": os.getuid(),
        "number": kept.number,
        "asked": kept.asked,
        "text": kept.text,
        "good": kept.good,
    }
    write_whole(cache, json.dumps(fields))


def _clock(cache: str) -> float:
    """The time by the file system's own clock, which all machines share."""
    return estimate_file_clock(f"{cache}.")
