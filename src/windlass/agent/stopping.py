"""Ends attempts: on request, when their time is up, and when the agent's own end is near. Python 3.9."""

from __future__ import annotations

import math
import signal
import time
from typing import Dict, List, Optional, Set

from windlass.agent.child import Attempt, kill_group
from windlass.agent.companions import Companions
from windlass.agent.config import AgentConfig
from windlass.agent.interrupt import Limits, Notice, next_look
from windlass.agent.steps import signal_steps
from windlass.states import STATE_OF, Cause, State

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
        """`attempts` and `ended` are the runner's own."""
        self._config = config
        self._limits = limits
        self._agent = agent
        self._notice = notice
        self._attempts = attempts
        self._ended = ended
        self._timed: Set[Attempt] = set()
        self._leftovers: Dict[int, float] = {}  # process group whose leader is gone → when it is killed
        self._tell_at = self._until = math.inf  # when attempts are told by signal that the end is near, and when it is
        self.word = int(getattr(signal, f"SIG{config.stop_signal}"))
        self.others: Optional[Companions] = None  # where trials have processes on other nodes as well

    def limit(self, attempt: Attempt) -> None:
        """Look after the attempt's own time limit."""
        self._timed.add(attempt)

    def forget(self, attempt: Attempt) -> None:
        self._timed.discard(attempt)

    def end_group(self, attempt: Attempt) -> None:
        """Whatever an attempt whose process has ended left in its process group ends with it."""
        if kill_group(attempt.pid, signal.SIGTERM):
            self._leftovers[attempt.pid] = time.monotonic() + _LEFTOVER_GRACE_S
            attempt.left_processes = True
            kill_group(attempt.pid, signal.SIGCONT)

    def has_leftovers(self, group: int) -> bool:
        return group in self._leftovers

    def kill_leftovers(self) -> None:
        for group in self._leftovers:
            kill_group(group, signal.SIGKILL)

    def stop(self, attempt: Attempt, cause: Cause, grace_s: Optional[float] = None) -> None:
        """Ask an attempt to end; it is killed if it does not."""
        if attempt.cause is None:
            attempt.cause = cause
            number = self.word if STATE_OF[cause] is State.INTERRUPTED else signal.SIGTERM
            self._tell(attempt, number, time.monotonic() + (self._config.grace_s if grace_s is None else grace_s))

    def _tell(self, attempt: Attempt, number: int, until: float) -> None:
        attempt.word = number
        if not self._limits.job or not signal_steps(attempt, self._agent, number, self.others):
            attempt.send(number)
            attempt.send(signal.SIGCONT)
        attempt.kill_at = until if attempt.kill_at is None else min(until, attempt.kill_at)
        self._timed.add(attempt)

    def warn_all(self, until: float) -> int:
        """Tell the attempts under way by when they must have ended. Returns how many there are."""
        self._notice.write(until)
        told = [attempt for attempt in self._attempts.values() if attempt.cause is None and attempt not in self._ended]
        # Who saves nothing is left alone for as long as can be: it may still get done.
        self._tell_at = until - (math.inf if self._limits.resumable else self._config.grace_s)
        self._timed.update(told)
        self._until = until
        self.check_limits(time.monotonic())
        return len(told)

    def stop_all(self, cause: Cause, kill: bool = False) -> None:
        grace_s = self._limits.end_grace_s
        self._notice.write(time.monotonic() + grace_s)
        for attempt in [attempt for attempt in self._attempts.values() if attempt not in self._ended]:
            self.stop(attempt, cause, grace_s)
            if kill:
                attempt.send(signal.SIGKILL)

    def blame_us(self, cause: Cause) -> None:
        """Attempts that ended badly a moment before we were told to end: the same word reached both."""
        for attempt in self._ended:
            if attempt.cause is None and attempt.status:
                attempt.cause = cause

    def check_limits(self, now: float) -> Optional[float]:
        """Enforce time limits and graces; returns when to look again."""
        if not self._timed and not self._leftovers:
            return None
        for attempt in list(self._timed):
            if attempt.kill_at is not None and now >= attempt.kill_at:
                attempt.send(signal.SIGKILL)
                attempt.kill_at = now + 1.0
            elif attempt.kill_at is None and now >= self._tell_at:
                attempt.warned = True
                self._tell(attempt, self.word, self._until)
            elif attempt.kill_at is None and attempt.deadline is not None and now >= attempt.deadline:
                self.stop(attempt, Cause.TIME)
        for group, kill_at in list(self._leftovers.items()):
            if now >= kill_at:
                del self._leftovers[group]
                kill_group(group, signal.SIGKILL)
        times = [next_look(attempt.kill_at, attempt.deadline, self._tell_at) for attempt in self._timed]
        return min((*times, *self._leftovers.values()), default=None)
