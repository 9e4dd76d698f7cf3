"""Ends attempts: on request, when their time is up, and when the agent's own end is near. Python 3.9."""

from __future__ import annotations

import math
import os
import signal
import time
from typing import Dict, List, Optional, Set

from windlass.agent.child import Attempt, kill_group
from windlass.agent.config import AgentConfig
from windlass.agent.interrupt import Limits, Notice, next_look
from windlass.agent.node.companions import Companions
from windlass.agent.node.job_end import EndCause
from windlass.agent.share.steps import signal_ranks, signal_steps
from windlass.core.states import STATE_OF, Cause, State

# The scheduler signals all processes of a job at once. A trial may die of the signal up to so long before the agent
# has read its own.
NOTIFIED_S = 1.0
# Once one rank of a trial has failed, the others are killed after so long.
_FAILED_RANK_S = 5.0
# Ranks may go on for so long once others have ended well: the first one often saves the result.
_LAST_RANKS_S = 300.0
# What an ended process left in its group has so long after SIGTERM until it is killed.
_LEFTOVER_GRACE_S = 2.0


class Stopping:
    """Which attempts of one agent are to end, and when a polite request turns into SIGKILL."""

    def __init__(
        self,
        config: AgentConfig,
        limits: Limits,
        agent: str,
        notice: Notice,
        attempts: Dict[int, Attempt],
        ended: List[Attempt],
    ) -> None:
        """`attempts` and `ended` are the runner's own and change as trials begin and end."""
        self._config = config
        self._limits = limits
        self._agent = agent
        self._notice = notice
        self._attempts = attempts
        self._ended = ended
        self._timed: Set[Attempt] = set()
        # Process groups whose leader is gone, and when each of them is killed.
        self._leftovers: Dict[int, float] = {}
        self._notify_at = math.inf  # when attempts get the signal that the end is near
        self._until = math.inf  # when that end is
        self.signal_number = int(getattr(signal, f"SIG{config.stop_signal}"))
        self._last_ranks_s = float(os.environ.get("WINDLASS_LAST_RANKS_S") or _LAST_RANKS_S)
        self.end_cause: Optional[EndCause] = None  # in a job
        self.others: Optional[Companions] = None  # in a job of several nodes: the other nodes

    def limit(self, attempt: Attempt) -> None:
        """Look after the attempt's own time limit."""
        self._timed.add(attempt)

    def forget(self, attempt: Attempt) -> None:
        """Send an attempt that has ended no more signals."""
        self._timed.discard(attempt)

    def end_group(self, attempt: Attempt) -> None:
        """Whatever an attempt whose process has ended left in its process group ends with it."""
        if kill_group(attempt.pid, signal.SIGTERM):
            self._leftovers[attempt.pid] = time.monotonic() + _LEFTOVER_GRACE_S
            attempt.left_processes = True
            kill_group(attempt.pid, signal.SIGCONT)

    def has_leftovers(self, group: int) -> bool:
        """Whether processes of this group have outlived their leader and were asked to end."""
        return group in self._leftovers

    def kill_leftovers(self) -> None:
        """Kill what is left at once: the agent ends and cannot wait for the grace to be over."""
        for group in self._leftovers:
            kill_group(group, signal.SIGKILL)

    def stop(self, attempt: Attempt, cause: Cause, grace_s: Optional[float] = None) -> None:
        """Ask an attempt to end; it is killed if it has not after `grace_s`.

        Only the first cause counts. Where the attempt will go on later, it gets the signal of the study, which a
        program may use to save a checkpoint; where it will not, SIGTERM.
        """
        if attempt.cause is None:
            attempt.cause = cause
            will_resume = STATE_OF[cause] is State.INTERRUPTED
            number = self.signal_number if will_resume else signal.SIGTERM
            if grace_s is None:
                grace_s = self._config.grace_s
            self._notify(attempt, number, time.monotonic() + grace_s)

    def _notify(self, attempt: Attempt, number: int, until: float) -> None:
        attempt.signal_number = number
        if attempt.ranks is not None and attempt.pid:
            signal_ranks(self._agent, attempt.attempt, number)
            if self.others is not None:
                self.others.tell("signal", attempt=attempt.attempt, number=number)
        elif not self._limits.job or not signal_steps(attempt, self._agent, number, self.others):
            attempt.send(number)
            attempt.send(signal.SIGCONT)
        attempt.kill_at = until if attempt.kill_at is None else min(until, attempt.kill_at)
        self._timed.add(attempt)

    def watch_ranks(self, attempt: Attempt) -> None:
        """A rank has reported: where one has failed, or only some have ended, the others may go on for a while."""
        now, ranks = time.monotonic(), attempt.ranks
        if ranks.has_failed:
            until = now + min(_FAILED_RANK_S, self._config.grace_s)
            attempt.kill_at = until if attempt.kill_at is None else min(until, attempt.kill_at)
            self._timed.add(attempt)
        elif ranks.missing:
            names = ", ".join(
                f"{rank} on {ranks.begun.get(rank, '?')}" for rank in ranks.missing[:3]
            )
            reason = f"rank {names} had not ended {self._last_ranks_s:g} s after others"
            attempt.straggling = (now + self._last_ranks_s, reason)
            self._timed.add(attempt)

    def _end_stragglers(self, attempt: Attempt, now: float) -> None:
        if attempt.straggling is not None and now >= attempt.straggling[0]:
            attempt.note, attempt.straggling = attempt.straggling[1], None
            self.stop(attempt, Cause.TIME)

    def warn_all(self, until: float) -> int:
        """Notify the attempts under way of the time by which they must have ended. Returns how many there are.

        The notice file is written at once. The signal follows, unless the trials have checkpoints, only when the
        grace begins.
        """
        self._notice.write(until)
        under_way = [
            attempt
            for attempt in self._attempts.values()
            if attempt.cause is None and attempt not in self._ended
        ]
        # A trial without checkpoints is not interrupted early: it may still get done.
        self._notify_at = until - (math.inf if self._limits.resumable else self._config.grace_s)
        self._timed.update(under_way)
        self._until = until
        self.check_limits(time.monotonic())
        return len(under_way)

    def stop_all(self, cause: Cause, kill: bool = False) -> None:
        """Ask all attempts to end, because the agent itself does. With `kill` they are killed at once."""
        grace_s = self._limits.end_grace_s
        self._notice.write(time.monotonic() + grace_s)
        under_way = [one for one in self._attempts.values() if one not in self._ended]
        for attempt in under_way:
            self.stop(attempt, cause, grace_s)
            if kill:
                attempt.send(signal.SIGKILL)
        if cause is Cause.STOPPED and self.end_cause is not None:
            self.end_cause.begin()

    def blame_us(self, cause: Cause) -> None:
        """Record this cause for attempts that ended badly a moment before the agent got its signal.

        The scheduler signals all processes of a job at once, so the same signal has ended them: they did not fail.
        """
        for attempt in self._ended:
            if attempt.cause is None and attempt.status:
                attempt.cause = cause

    def may_be_notified(self, now: float) -> bool:
        """Whether an attempt ended badly so shortly ago that the agent may be about to get the same signal."""
        return any(
            attempt.cause is None
            and not attempt.warned
            and attempt.status
            and now - attempt.ended < NOTIFIED_S
            for attempt in self._ended
        )

    def check_limits(self, now: float) -> Optional[float]:
        """Enforce time limits and graces. Returns when to look again, by the monotonic clock; None: not needed."""
        if not self._timed and not self._leftovers:
            return None
        for attempt in list(self._timed):
            self._end_stragglers(attempt, now)
            if attempt.kill_at is not None and now >= attempt.kill_at:
                attempt.send(signal.SIGKILL)
                attempt.kill_at = now + 1.0
            elif attempt.kill_at is None and now >= self._notify_at:
                attempt.warned = True
                self._notify(attempt, self.signal_number, self._until)
            elif (
                attempt.kill_at is None and attempt.deadline is not None and now >= attempt.deadline
            ):
                self.stop(attempt, Cause.TIME)
        for group, kill_at in list(self._leftovers.items()):
            if now >= kill_at:
                del self._leftovers[group]
                kill_group(group, signal.SIGKILL)
        times = [
            next_look(attempt.kill_at, attempt.deadline, self._notify_at) for attempt in self._timed
        ]
        times += [one.straggling[0] for one in self._timed if one.straggling is not None]
        return min((*times, *self._leftovers.values()), default=None)
