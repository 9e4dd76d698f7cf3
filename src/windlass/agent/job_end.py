"""Notices that the time of the agent's job was cut while it runs. Python 3.9, standard library."""

from __future__ import annotations

import os
import time
from typing import Any, Mapping, Optional

from windlass.agent.interrupt import Limits
from windlass.slurm.queue import read_last_queue
from windlass.slurm.states import JobState

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
        if row is None or row.id != self._job["id"] or row.state is not JobState.RUNNING or row.end is None:
            return False
        return self._limits.shorten(row.end, now)
