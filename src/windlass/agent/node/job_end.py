"""Finds out when, and why, the agent's job ends before its time. Python 3.9, standard library."""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Any, Callable, Mapping, Optional

from windlass.agent.interrupt import Limits
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import read_last_queue
from windlass.core.queue.states import JobState
from windlass.core.states import Cause

_LOOK_S = 10.0


class JobEnd:
    """Reads when the job ends from the scheduler's last answer, which clients and other agents have asked for.

    The scheduler is not asked: where nobody else does, its signal before the end (`--signal`) tells the agent in time.
    """

    def __init__(self, cache: str, job: Mapping[str, Any], limits: Limits) -> None:
        self._cache = cache
        self._job = job
        self._limits = limits
        self._began = time.time()
        self._next_look = 0.0
        self._seen: Optional[int] = None

    def look(self, now: float) -> bool:
        """Whether the job ends earlier than was known so far. Costs one `stat` while there is no new answer."""
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_S
        try:
            changed = os.stat(self._cache).st_mtime_ns
        except OSError:
            return False
        if changed == self._seen:
            return False
        self._seen = changed
        queue = read_last_queue(self._cache)
        if queue is None or queue.asked < self._began:
            return False  # it may be of a former start of this job
        row = queue.row_of(self._job["array"], self._job["task"], self._job["id"])
        if (
            row is None
            or row.id != self._job["id"]
            or row.state is not JobState.RUNNING
            or row.end is None
        ):
            return False
        return self._limits.shorten(row.end, now)


_ANSWER_S = 1.0  # how long the record of a trial's end waits for the scheduler's answer
_RESTARTS = re.compile(r"\bRestarts=(\d+)")
_PREEMPTED = re.compile(r"\bPreemptTime=\d")


class EndCause:
    """Asks the scheduler, once, why it ends the agent's job: it may be cancelled, or put back into the queue.

    The question is asked beside the loop, while trials have their time to end. Each agent asks about its own job only.
    """

    def __init__(self, job: Mapping[str, Any], ask: Callable[..., Optional[str]] = ask) -> None:
        self._job = job
        self._ask = ask
        self._thread: Optional[threading.Thread] = None
        self._cause = Cause.STOPPED

    def begin(self) -> None:
        """The agent got the signal to end."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._find, daemon=True)
            self._thread.start()

    def find(self) -> Cause:
        """The cause of trials that end because of it. STOPPED where the job was cancelled, or nobody answers soon."""
        if self._thread is not None:
            self._thread.join(_ANSWER_S)
        return self._cause

    def _find(self) -> None:
        about = self._ask(["scontrol", "show", "job", "--oneliner", str(self._job["id"])], {}) or ""
        restarts = _RESTARTS.search(about)
        is_put_back = restarts is not None and int(restarts.group(1)) > self._job["restart"]
        if not is_put_back and not _PREEMPTED.search(about):
            return
        node = str(self._job.get("node") or "")
        state = (
            self._ask(["sinfo", "--noheader", f"--nodes={node}", "--format=%T"], {})
            if node
            else None
        )
        self._cause = Cause.NODE if (state or "").startswith("down") else Cause.PREEMPTED
