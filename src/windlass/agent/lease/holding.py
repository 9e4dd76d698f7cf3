"""What this agent still holds after a pause in which others may have taken it for dead. Python 3.9."""

from __future__ import annotations

from typing import Callable

from windlass.agent.claim import Claimer, TrialQueue
from windlass.agent.lease.reach import Reach
from windlass.agent.runner import Runner
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.counted import counted


class Holding:
    """Compares what the agent is busy with to what the register gives it."""

    def __init__(
        self,
        claimer: Claimer,
        queue: TrialQueue,
        runner: Runner,
        reach: Reach,
        note: Callable[[str], None],
    ) -> None:
        self._claimer = claimer
        self._queue = queue
        self._runner = runner
        self._reach = reach
        self._note = note

    def check(self) -> None:
        """Go on only with what is still this agent's own. Nothing is read where there was no pause."""
        if not self._reach.needs_check():
            return
        succeed = self._reach.begin_check()
        busy = {*self._runner.busy, *rs.numbers(self._queue.rest())}
        held = self._claimer.reclaim(busy) if busy else []
        succeed()
        self.lose(rs.subtract(rs.from_numbers(busy), held))

    def lose(self, lost: Ranges) -> None:
        """Other agents have these trials: they are begun no more, and stopped where they have begun."""
        if not lost:
            return
        self._queue.drop(lost)
        begun = self._runner.lose(lost, self._reach.lease_ended)
        trials = counted(rs.count(lost), "trial was", "trials were")
        self._note(
            f"{trials} taken over by other agents during a pause of this one; {begun} had begun here"
        )
