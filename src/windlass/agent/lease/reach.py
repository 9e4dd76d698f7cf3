"""Whether the study's folder can be reached, and which process holds the clock where it cannot. Python 3.9."""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional, TypeVar

from windlass.agent.lease.fence_page import FencePage, clock_s
from windlass.agent.lease.guard import FenceRule, release_guard, start_guard
from windlass.agent.lease.pulse import Pulse, pause_s
from windlass.core.claims.alive import beat_s, fence_s
from windlass.core.errors import WindlassError
from windlass.core.journal.write import JournalWriter
from windlass.core.passing import passing_error

# For a folder that is out of reach when nothing is under way; at least one lease.
PATIENCE_S = 120.0
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 5.0

Result = TypeVar("Result")


def patiently(action: Callable[[], Result], lease_s: float = 0.0) -> Result:
    """What `action` returns. Tries again, after growing waits, while the folder gives errors that may pass."""
    until = time.monotonic() + max(PATIENCE_S, lease_s)
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            return action()
        except (OSError, WindlassError) as error:
            passing = passing_error(error)
            if passing is None or time.monotonic() + wait_s > until:
                raise
            if wait_s == _FIRST_WAIT_S:
                print(f"windlass agent: {error}; trying again", file=sys.stderr)
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


class Reach:
    """The agent's connection to its folder: a thread that proves it, a guard that ends trials without it, and waits.

    Others may begin this agent's trials once its lease is over. So nothing is begun while the last proof is older than
    a part of the lease, and after each pause the register is read first: see `needs_check`.
    """

    def __init__(
        self,
        agent: str,
        runtime_folder: str,
        journal: JournalWriter,
        page: FencePage,
        rule: FenceRule,
    ) -> None:
        self._agent = agent
        self._runtime_folder = runtime_folder
        self._rule = rule
        self.page = page
        self.pulse = Pulse(journal, page, rule.lease_s)
        self._guard = (0, -1)
        self._marks = (0, 0)
        self._checked_at = clock_s()
        self._failing_since: Optional[float] = None  # see `clock_s`
        self._wait_s = _FIRST_WAIT_S
        self._next_try = 0.0
        self.others_claim = True  # whether other agents may take trials from this one
        self._wake_by = 0.0
        self.blocked_s = 0.0  # for how long the agent did not look, before what it handles now

    # -- the guard and the thread

    def open(self) -> None:
        self._guard = start_guard(self._agent, self._runtime_folder, self.page, self._rule)
        self.pulse.start()

    def replace_guard(self, pid: int) -> None:
        """If this process, which has ended, was the guard, start another."""
        if pid == self._guard[0]:
            release_guard(*self._guard)
            self._guard = start_guard(self._agent, self._runtime_folder, self.page, self._rule)

    def release_guard(self) -> None:
        """The agent has ended all that it had started."""
        release_guard(*self._guard)

    # -- pauses

    @property
    def may_begin(self) -> bool:
        """Whether a trial may begin: nobody can have taken this agent for dead, and the guard would let it run."""
        return clock_s() - self.page.proved <= fence_s(self._rule.lease_s)

    @property
    def is_proof_old(self) -> bool:
        """Whether the last proof is older than it is while trials are under way."""
        return clock_s() - self.page.proved > 1.5 * beat_s(self._rule.lease_s)

    @property
    def can_begin(self) -> bool:
        """The same for a process of a trial that is under way: the register must have been read since a pause."""
        return self.may_begin and not self.needs_check()

    @property
    def lease_ended(self) -> float:
        """The earliest moment, on the monotonic clock, at which others may have taken this agent for dead."""
        proved = self.page.proved
        if clock_s() - proved <= pause_s(self._rule.lease_s) and self.page.pauses:
            proved = self.page.before_pause
        return time.monotonic() - (clock_s() - proved) + self._rule.lease_s

    def needs_check(self) -> bool:
        """Whether others may have taken trials from this agent since the register was last read for that."""
        if not self.others_claim:
            return False
        if (self.page.pauses, self.page.fired) != self._marks:
            return True
        now, limit_s = clock_s(), pause_s(self._rule.lease_s)
        return now - self.page.proved > limit_s and now - self._checked_at > limit_s

    def begin_check(self) -> Callable[[], None]:
        """To be called before the register is read. What it returns is to be called once that has succeeded."""
        marks, now = (self.page.pauses, self.page.fired), clock_s()

        def succeed() -> None:
            self._marks, self._checked_at = marks, now

        return succeed

    # -- errors

    def fail(self, error: BaseException) -> None:
        """The folder has given an error that may pass: leave it alone for a while, longer each time."""
        now = clock_s()
        if self._failing_since is not None and self.page.proved > self._failing_since:
            self._failing_since = None
        if self._failing_since is None:
            self._failing_since, self._wait_s = now, _FIRST_WAIT_S
            print(
                f"windlass agent: the study's folder is out of reach: {error}; trying again",
                file=sys.stderr,
            )
        self._next_try = time.monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S, self._rule.lease_s / 15)

    def waits_s(self) -> float:
        """For how long the folder is to be left alone."""
        return max(0.0, self._next_try - time.monotonic())

    @property
    def is_given_up(self) -> bool:
        """Whether the folder has been out of reach for so long that this agent may as well go."""
        if self._failing_since is None or self.page.proved > self._failing_since:
            return False
        patience_s = fence_s(self._rule.lease_s) + max(PATIENCE_S, self._rule.lease_s)
        return clock_s() - self._failing_since > patience_s

    # -- the loop's own waiting

    def begin_wait(self, wait_s: float) -> None:
        """The loop is about to wait for events."""
        since = self.page.busy_since
        now = clock_s()
        self.blocked_s = now - since if since else 0.0
        self._wake_by = now + wait_s
        self.page.set_busy(False)

    def end_wait(self) -> None:
        self.page.set_busy(True)
        self.blocked_s = max(self.blocked_s, clock_s() - self._wake_by)
