"""When an agent's time is up, and how its trials hear of it. Python 3.9, standard library."""

from __future__ import annotations

import math
import os
import time
from typing import Callable, Dict, Mapping, Optional

from windlass.agent.config import AgentConfig
from windlass.core.files import write_whole

NOTICE = "notice"  # its name in the agent's runtime folder
_BEGAN, _BEGAN_WALL = time.monotonic(), time.time()  # of this process, as nearly as it can know
_START_S = 60.0  # a job's time is in minutes, and its own start takes a part of the first
_CLOCKS_S = 5.0  # by which the clocks of the node and of the scheduler may differ
_EARLY_S = 90.0  # Slurm's signal may come so much before it is due
# Between the end of the last trial and that of the job: to record, to copy, to give back.
_RESERVE_S = 10.0


class Limits:
    """What an agent has to keep to: the lease others give it, and the time its job has."""

    def __init__(self, config: AgentConfig, job: bool, environ: Mapping[str, str]) -> None:
        self.lease_s = config.lease_s
        self.job = job
        self.job_time_s = config.job_time_s if job else None
        self.end_grace_s = config.end_grace_s if job else config.grace_s
        self.trial_time_s = config.trial_time_s
        self.usual_s: Optional[float] = None  # what trials have taken here; see Tally
        # Then trials may begin in one job and end in another.
        self.resumable = config.checkpoint is not None
        self._lead_s = config.lead_s
        self._end_is_known = False  # from Slurm
        self.deadline: Optional[float] = None  # when the job ends, on the monotonic clock
        self._near_at: Optional[float] = None
        # What of the time that was asked for is really there.
        self._real_time_s = self.job_time_s or 0.0
        if self.job_time_s is not None:
            end_time = environ.get("SLURM_JOB_END_TIME", "")
            left_s = int(end_time) - _BEGAN_WALL if end_time.isdigit() else self.job_time_s
            self._end_is_known = end_time.isdigit()
            self._set_deadline(_BEGAN + left_s, left_s)

    def _set_deadline(self, deadline: float, left_s: float) -> None:
        """Set when the job ends: at `deadline`, in `left_s`.

        Trials are notified before that, in its last quarter at the earliest.
        """
        # An administrator, or `scontrol update`, may have cut the time that was asked for.
        self._real_time_s = max(0.0, min(self._real_time_s, left_s))
        self._lead_s = min(self._lead_s, self._real_time_s / 4)
        self.deadline = deadline
        self._near_at = deadline - self._lead_s

    def shorten(self, ends: float, now: float) -> bool:
        """The scheduler has another end for the job, `ends` in Unix time. Returns whether it is an earlier one.

        A later one is left: trials were given the former, and other agents count on it.
        """
        if self.deadline is None or ends >= wall_of(self.deadline) - _CLOCKS_S:
            return False
        left_s = ends - time.time()
        self._end_is_known = True
        self._set_deadline(now + left_s, left_s)
        return True

    @property
    def reserve_s(self) -> float:
        return min(_RESERVE_S, self._lead_s / 4)

    @property
    def near_at(self) -> Optional[float]:
        """When trials are to be notified that the end is near."""
        return self._near_at

    @property
    def latest_begin(self) -> float:
        """After this no trial is begun: it could not end before the notice, which is when trials are asked to stop."""
        if self._near_at is None:
            return math.inf
        return self._near_at - (
            0.0 if self.resumable else max(self.trial_time_s or 0.0, self.usual_s or 0.0)
        )

    def too_late(self, now: float, ready_at: float, is_first: bool) -> bool:
        """Whether a trial begun now would be cut by the end of the job's time.

        The first trials of an agent that is just ready are begun however tight it is: no later job has more time.
        """
        return now > self.latest_begin and not (is_first and now - ready_at < _START_S)

    def is_near(self, now: float) -> bool:
        return self._near_at is not None and now >= self._near_at

    def at_its_end(self, now: float) -> bool:
        """Whether a signal that comes now is the scheduler's, because the job's time is up.

        Slurm sends it at the end or later. Without a time of its own, the end is only known so well as
        the time that the job took to start.
        """
        if self.deadline is None:
            return False
        return now > self.deadline - (
            _CLOCKS_S if self._end_is_known else min(_START_S, self._real_time_s / 4)
        )

    def hear(self, now: float) -> Optional[float]:
        """Somebody says that the end is near. Returns when it is; None where that is only Slurm being early."""
        if (
            self.deadline is None
            or self._near_at is None
            or self.deadline - now > self._lead_s + _EARLY_S
        ):
            return now + self._lead_s  # not the time limit: somebody wants us to go
        if now >= self._near_at:
            return self.deadline
        self._near_at = min(self._near_at, now + _START_S)
        return None

    def header(self) -> Dict[str, float]:
        """For the agent's journal: other agents foresee from it whether trials will come back."""
        if self.deadline is None or self._near_at is None:
            return {}
        return {
            "notice": round(wall_of(self._near_at), 1),
            "ends": round(wall_of(self.deadline), 1),
        }

    def variables(self) -> Dict[str, str]:
        """What trials are given when they begin."""
        if self.deadline is None or self._near_at is None:
            return {}
        return {
            "WINDLASS_DEADLINE": f"{wall_of(self.deadline - self.reserve_s):.0f}",
            "WINDLASS_STOP_AT": f"{wall_of(self._near_at):.0f}",
        }


class Notice:
    """A file that appears when trials are to stop; it holds the time by which they must have ended."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, NOTICE)
        self.spread: Callable[[str], None] = lambda text: None  # to the other nodes of a job

    def variables(self) -> Dict[str, str]:
        return {"WINDLASS_NOTICE": self._path}

    def write(self, until: float) -> None:
        text = f"{wall_of(until):.1f}"
        write_notice(self._path, text)
        self.spread(text)


def write_notice(path: str, until: str) -> None:
    try:
        write_whole(path, until)
    except OSError:
        pass  # trials are signalled as well


def wall_of(moment: float) -> float:
    """A moment of the monotonic clock as Unix time."""
    return time.time() + moment - time.monotonic()


def next_look(kill_at: Optional[float], deadline: Optional[float], tell_at: float) -> float:
    """When an attempt under way has to be looked at again."""
    if kill_at is not None:
        return kill_at
    return tell_at if deadline is None else min(deadline, tell_at)
