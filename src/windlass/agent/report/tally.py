"""What an agent has executed, for the log of its job and for its exit code. Python 3.9, standard library."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

from windlass.agent.child import Attempt, cause_of
from windlass.agent.first import FirstTrials
from windlass.core.journal.code import render_code
from windlass.core.states import Cause
from windlass.core.units import render_duration

_MOST_TRIALS = 200  # A line for each of many short trials would only make a second, worse journal.
_FAILED = 1
_MEDIAN_OF = 25


class JobLog:
    """Lines in the job's own log, which Slurm keeps. Trials print elsewhere."""

    def __init__(
        self, name: str, folder: str, project: str, agent: str, job: Mapping[str, Any]
    ) -> None:
        self._began = time.monotonic()
        self._left = _MOST_TRIALS
        task = "" if job.get("task") is None else f"_{job['task']}"
        when = time.strftime("%Y-%m-%d %H:%M:%S %Z")
        self.write(
            f"study {name} in {folder}: job {job['array']}{task} on {job['node']}, agent {agent}, {when}"
        )
        self.write(
            f"what trials print is not here: `windlass logs {name} TRIAL` in {project} shows it"
        )

    def write(self, text: str) -> None:
        try:
            print(f"windlass: {text}", flush=True)
        except (OSError, ValueError):
            pass  # The journal is what counts.

    def stage_in(self, code: Mapping[str, Any], times: Mapping[str, float]) -> None:
        self.write(f"code: {render_code(code)}")
        self.write(f"stage-in: {render_times(list(times.items()))}")

    def trial(self, attempt: Attempt, cause: Cause, how: str) -> None:
        if self._left <= 0:
            return
        self._left -= 1
        times = render_times(stage_times(attempt))
        self.write(
            f"trial {attempt.trial.number} ({attempt.trial.id}): {cause.value}{how}: {times}"
        )
        if not self._left:
            self.write("further trials are not listed here: `windlass results`")


def render_times(times: List[Tuple[str, float]]) -> str:
    return (
        ", ".join(f"{name} {render_duration(seconds)}" for name, seconds in times)
        or "nothing to do"
    )


def stage_times(attempt: Attempt) -> List[Tuple[str, float]]:
    """How long each stage of an attempt took, in order, and the copying of its outputs after them."""
    names = [name for name, _ in attempt.trial.stages]
    times = [(names[number], seconds) for number, seconds in enumerate(attempt.stage_s)]
    return times if attempt.out_s is None else [*times, ("stage-out", attempt.out_s)]


class Tally:
    """Counts what has ended. With `as_trial`, an agent that has executed one trial alone ends with its exit code."""

    def __init__(self, log: Optional[JobLog] = None, as_trial: bool = False) -> None:
        self._log = log
        self._as_trial = as_trial
        self.first: Optional[FirstTrials] = None
        self.failed = 0  # trials that are not tried again
        self._only: Optional[int] = None  # the one trial so far; -1 for several
        self._code = 0
        self._counts: Dict[str, int] = {}
        self.longest_s: Optional[float] = None  # of the trials that are done
        self.usual_s: Optional[float] = None  # their median, of the last ones; the lower one of two
        self._last_s: Deque[float] = deque(maxlen=_MEDIAN_OF)

    @property
    def cut(self) -> int:
        """How many attempts the end of the job's time cut off."""
        return self._counts.get(Cause.JOB_TIME.value, 0)

    def begun(self, number: int) -> None:
        self._only = number if self._only in (None, number) else -1
        if self.first is not None:
            self.first.begun(number)

    def ended(self, attempt: Attempt, cause: Cause, code: int, number: int) -> None:
        self._code = code or (128 + number if number else _FAILED)
        self._counts[cause.value] = self._counts.get(cause.value, 0) + 1
        if self.first is not None:
            self.first.ended(attempt, cause)
        if cause is Cause.DONE and not attempt.late_s:
            self._last_s.append(attempt.ended - attempt.started)
            self.longest_s = max(self.longest_s or 0.0, self._last_s[-1])
            self.usual_s = sorted(self._last_s)[(len(self._last_s) - 1) // 2]
        if self._log is not None:
            how = f" (signal {number})" if number else f" (exit code {code})" if code else ""
            self._log.trial(attempt, cause, how)

    def news(self) -> Optional[Dict[str, Any]]:
        """What agents have learned, if a report of this agent has changed it since the last call."""
        return None if self.first is None else self.first.news()

    def failed_for_good(self, attempt: Attempt, cause: Cause) -> None:
        """The attempt has failed, and its trial is not tried again."""
        self.failed += 1
        if self.first is not None:
            _, code, number = cause_of(attempt.status)
            self.first.failed(attempt, cause, code, number)

    def close(self, reason: str) -> None:
        if self._log is not None:
            counts = ", ".join(f"{count} {cause}" for cause, count in self._counts.items())
            self._log.write(f"attempts: {counts or 'none'}; the agent ends: {reason}")

    def exit_code(self) -> int:
        """0 where no trial has failed. The code of a process that a signal ended is the shell's: 128 and its number."""
        if not self.failed:
            return 0
        return self._code if self._as_trial and self._only not in (None, -1) else _FAILED
