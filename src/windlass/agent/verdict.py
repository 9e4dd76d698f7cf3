"""Judges the sessions of a trial: how each ended, and whether it brought progress. Python 3.9.

A session is what a trial does between two interruptions. The next one begins with the newest whole checkpoint.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Optional, Tuple

from windlass.agent.child import Attempt, cause_of
from windlass.agent.config import AgentConfig
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.agent.report.diagnose import OomWatch, explain_refusal, refine_cause
from windlass.agent.report.metrics import MetricBook
from windlass.core.journal.events import finite_number
from windlass.core.journal.pieces import STDERR, STDOUT
from windlass.core.journal.reason import find_reason
from windlass.core.states import STATE_OF, Cause, State

_IDLE_SESSIONS = 2  # After so many sessions in a row without progress a trial is not given another.


class Sessions:
    """Decides what an attempt's end means."""

    def __init__(
        self, config: AgentConfig, checkpoints: Checkpoints, job_time_s: Optional[float]
    ) -> None:
        self._config = config
        self._checkpoints = checkpoints
        self._job_time_s = job_time_s
        self.kills = OomWatch()

    def begin(self, attempt: Attempt, note: Callable[[str], None]) -> bool:
        """Find what the attempt continues from. False where nothing is left to be done. Raises OSError."""
        trial = attempt.trial
        if not self._checkpoints.configured:
            self._go_on(attempt)
            return True
        moved = self._checkpoints.claim_folder(trial)
        if moved:
            note(moved)
        done = self._checkpoints.is_done(trial)
        if done:
            attempt.note = f"done already: {done} is there"
            return False
        os.makedirs(self._checkpoints.folder_of(trial), exist_ok=True)
        attempt.checkpoint = self._checkpoints.newest(trial, note)
        self._go_on(attempt)
        return True

    def _go_on(self, attempt: Attempt) -> None:
        """Time and metrics of the sessions that it goes on from are the trial's own."""
        earlier = self._checkpoints.earlier(attempt.trial, attempt.checkpoint)
        attempt.before_s = finite_number(earlier.get("spent_s")) or 0.0
        if earlier.get("m"):
            attempt.book = MetricBook(earlier["m"])

    def judge(self, attempt: Attempt) -> Tuple[Cause, int, int]:
        """Cause, exit code and signal."""
        _blame_rank(attempt)
        cause, code, number = cause_of(attempt.status)
        if (
            attempt.cause is None
            and not attempt.warned
            and cause is Cause.DONE
            and not self._checkpoints.says_done
        ):
            return cause, code, number  # nearly all
        cause = self._cause(attempt, cause, code, number)
        if cause is not Cause.DONE:
            spent_s = attempt.before_s + attempt.ended - attempt.started
            self._carry(attempt, cause is Cause.AGAIN, spent_s)
        if STATE_OF[cause] is State.INTERRUPTED and self._is_session(attempt, cause):
            idle = self._checkpoints.progress(attempt.trial, attempt.book.step)
            if idle >= _IDLE_SESSIONS:
                attempt.note = f"{idle} sessions brought no new checkpoint and no higher step; it gets no other"
                return Cause.NO_PROGRESS, code, number
        return cause, code, number

    def _carry(self, attempt: Attempt, asked: bool, spent_s: float) -> None:
        try:
            self._checkpoints.carry(attempt.trial, asked, spent_s, attempt.book.to_json())
        except OSError as error:
            attempt.note = attempt.note or f"metrics of this session are not carried on: {error}"

    def _cause(self, attempt: Attempt, cause: Cause, code: int, number: int) -> Cause:
        through = cause is Cause.DONE and attempt.stage + 1 == len(attempt.trial.stages)
        if (
            self._checkpoints.says_done
            and STATE_OF[attempt.cause or Cause.STOPPED] is State.INTERRUPTED
        ):
            if through and self._checkpoints.is_done(attempt.trial):
                return Cause.DONE
            through = False
        if attempt.cause is not None:
            # Also when it then ended with 0: it was asked to stop before it was done.
            return attempt.cause
        if attempt.warned:
            return Cause.DONE if through else Cause.JOB_TIME
        if cause is Cause.DONE or (code and code == self._config.again_code):
            return Cause.AGAIN
        by_kind = {kind: stream.tail() for kind, stream in attempt.streams.items()}
        tails = list(by_kind.values())
        attempt.why = attempt.why or find_reason(by_kind.get(STDERR, b""), by_kind.get(STDOUT, b""))
        attempt.note = attempt.note or explain_refusal(tails, self._config.data)
        return refine_cause(
            cause,
            number,
            tails,
            code,
            lambda: self.kills.has_killed(attempt.attempt, attempt.started),
        )

    def _is_session(self, attempt: Attempt, cause: Cause) -> bool:
        """Whether it had the time to get somewhere: who was sent away early is not to blame."""
        if cause is Cause.AGAIN:
            return True
        return (
            cause is Cause.JOB_TIME
            and self._job_time_s is not None
            and attempt.ended - attempt.started > self._job_time_s / 2
        )


def _blame_rank(attempt: Attempt) -> None:
    """Of a trial with several ranks, the end of the one that failed first is the end of the trial.

    The launcher ends with a code of its own, and the other ranks with that of the signal which ended them.
    """
    first = attempt.ranks.first_failure() if attempt.ranks is not None else None
    if first is None:
        return
    rank, end = first
    attempt.status = end["sig"] or end["code"] << 8
    how = f"was ended by signal {end['sig']}" if end["sig"] else f"exited with {end['code']}"
    attempt.note = attempt.note or f"rank {rank} on {end['node']} {how} before the others"
    if attempt.cause is None:
        printed = re.sub(rf"(?m)^\[rank{rank}\]: ?", "", end["tail"])  # torch marks tracebacks so
        attempt.why = attempt.why or find_reason(printed.encode(), b"")
