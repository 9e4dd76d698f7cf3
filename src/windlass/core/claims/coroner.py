"""Tells agents that live from those that are gone. Python 3.9, standard library."""

from __future__ import annotations

import enum
import json
import os
import threading
import time
from typing import Any, Mapping, Optional, Tuple

from windlass.core.claims.alive import (
    LEASE_S,
    about_seconds_silent,
    began_by_file_clock,
    is_alive,
    missed_beat_s,
    seconds_silent,
)
from windlass.core.journal.read import read_header
from windlass.core.paths import StudyPaths
from windlass.core.queue.ask import ask
from windlass.core.queue.gone import Gone, find_cause, job_gone
from windlass.core.queue.queue import Queue, read_queue
from windlass.core.states import Cause

_ANSWER_KEPT_S = 1.0  # much less than the ten seconds between two questions to the scheduler


class Fate(enum.Enum):
    """What is known of an agent that holds trials."""

    ALIVE = "alive"
    # Its job is not there any more, but it may still be: wait for its lease to end.
    SUSPECT = "suspect"
    DEAD = "dead"


def read_lease_s(paths: StudyPaths) -> float:
    """How long an agent of this study may be silent; as planned."""
    try:
        with open(paths.plan, encoding="utf-8") as file:
            return float(json.load(file).get("lease_s", LEASE_S))
    except (OSError, ValueError, TypeError, AttributeError):
        return LEASE_S


class Coroner:
    """Tells the living from the dead. The scheduler is asked only about agents that have fallen silent."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._lease_s = read_lease_s(paths)
        # How long the agent on another machine that was judged last had been silent.
        self.silent_s = 0.0
        # Of the scheduler, and when it was read.
        self._answer: Optional[Tuple[float, Optional[Queue]]] = None
        self._lock = threading.Lock()

    def fate(self, agent: str, header: Optional[Mapping[str, Any]] = None) -> Fate:
        """What became of an agent. `header` is the first line of its journal, where that has been read already."""
        fate, self.silent_s = self.judge(agent, header)
        return fate

    def judge(self, agent: str, header: Optional[Mapping[str, Any]] = None) -> Tuple[Fate, float]:
        """The same, and for how long an agent on another machine has been silent; 0 for one here. For any thread."""
        journal = self._paths.journal_of(agent)
        header = header or read_header(journal)
        if header is None:
            silent_s = seconds_silent(journal if os.path.exists(journal) else self._paths.claims)
            return Fate.DEAD if silent_s > self._lease_s else Fate.ALIVE, 0.0
        alive = is_alive(header)
        if alive is not None:
            return Fate.ALIVE if alive else Fate.DEAD, 0.0
        return self._judge_elsewhere(journal, header)

    def _judge_elsewhere(self, journal: str, header: Mapping[str, Any]) -> Tuple[Fate, float]:
        patience_s = missed_beat_s(self._lease_s) if header.get("job") else self._lease_s
        silent_s = about_seconds_silent(journal)
        if silent_s > patience_s:
            # By a clock that is read now: nobody is dead by an estimate.
            silent_s = seconds_silent(journal)
        if silent_s <= patience_s:
            # It has just spoken, whatever the scheduler thinks of its job.
            return (Fate.ALIVE, silent_s)
        return self._judge_silent(header, silent_s > self._lease_s), silent_s

    def _judge_silent(self, header: Mapping[str, Any], over: bool) -> Fate:
        """What became of an agent that has missed beats; `over`: its lease has ended."""
        if not header.get("job"):
            return Fate.DEAD
        gone = job_gone(header["job"], self._queue(), began_by_file_clock(header))
        if gone is Gone.NO:
            return Fate.ALIVE  # perhaps suspended; the scheduler would know if it were dead
        if gone is Gone.YES or over:
            return Fate.DEAD
        return Fate.SUSPECT if gone is Gone.PERHAPS else Fate.ALIVE

    def is_job_over(self, header: Mapping[str, Any]) -> bool:
        """Whether the scheduler says that an agent's job has ended, however lately the agent wrote."""
        return job_gone(header["job"], self._queue(), began_by_file_clock(header)) is Gone.YES

    def find_cause(self, header: Mapping[str, Any]) -> Cause:
        """What ended the job of an agent that is dead, as far as the scheduler still knows; else LOST."""
        if not header.get("job"):
            return Cause.LOST
        return find_cause(header["job"], self._queue(), began_by_file_clock(header))

    def _queue(self) -> Optional[Queue]:
        """The scheduler's answer. One reading serves all agents that are judged together: there may be a thousand."""
        with self._lock:
            if self._answer is None or time.monotonic() - self._answer[0] > _ANSWER_KEPT_S:
                self._answer = (time.monotonic(), read_queue(self._paths.queue, ask))
            return self._answer[1]
