"""Fills the free slots of an agent with trials of the register. Python 3.9, standard library.

Trials that the agent holds and that fit come first; only where none of them does, more are claimed.
"""

from __future__ import annotations

import time
from typing import List, Protocol, Set, Union

from windlass.agent.child import Attempt
from windlass.agent.lease.holding import Holding
from windlass.agent.parts import Links, Shared
from windlass.agent.runner import Runner
from windlass.core.claims import ranges as rs
from windlass.core.journal.write import DiskFull


class Host(Protocol):
    """What claiming needs of the loop around it."""

    @property
    def given_up(self) -> Set[int]: ...

    def may_claim(self, now: float) -> bool: ...

    def flush_journal(self) -> bool: ...

    def cannot_write(self, error: Union[DiskFull, OSError]) -> None: ...


class Claiming:
    """Chooses what an agent begins next. The loop starts what was announced, once the journal has it."""

    def __init__(
        self, host: Host, shared: Shared, runner: Runner, links: Links, holding: Holding
    ) -> None:
        self._host = host
        self._journal = shared.journal
        self._runner = runner
        self._claimer = links.claimer
        self._queue = links.queue
        self._looks = links.waiting.looks
        self._holding = holding
        self._last_claim_at = time.monotonic()
        self._finished_then = 0  # how many attempts had finished at the last claim
        # Whether no trial that is held fits on any free device. That changes when a trial ends or a budget is learned.
        self._nobody_fits = False

    def fill(self, announced: List[Attempt]) -> None:
        """Announce a trial for every free slot, as far as trials fit, and append the attempts to `announced`."""
        runner = self._runner
        self._nobody_fits = False
        while runner.free:
            chosen = runner.sharing.choose(self._queue, runner.free) if self._queue else None
            if chosen is not None:
                announced.append(runner.announce(*chosen))
            elif not self._claim_more():
                break

    def due(self, now: float) -> float:
        """When `fill` is worth another call, by the monotonic clock; infinity: after something else."""
        if not self._runner.free or self._nobody_fits:
            return float("inf")
        if self._queue:
            return now
        return max(now, self._looks.claim_at(self._runner.finished))

    def _claim_more(self) -> bool:
        """Take as many trials as might fit, where none of those that are held does. Returns whether any were taken."""
        wanted = self._runner.sharing.wanted(self._runner.free)
        held = len(self._queue.window(wanted))
        if held < wanted and self._claim(wanted - held):
            return True
        self._nobody_fits = bool(self._queue) or wanted == 0
        return False

    def _claim(self, free: int) -> bool:
        now = time.monotonic()
        is_idle, ended = not self._runner.attempts, self._runner.finished
        if not self._looks.should_claim(now, is_idle, ended) or not self._host.may_claim(now):
            return False
        # Until it has succeeded: each way out below is then a failure.
        self._looks.claim_failed(now)
        # The rate since the last claim, not the one on the whole: the first trials may have waited for something.
        passed_s = max(now - self._last_claim_at, 0.001)
        rate_per_s = (ended - self._finished_then) / passed_s
        if not self._host.flush_journal():
            return False
        try:
            if self._runner.workplace is not None:
                self._runner.workplace.sync()  # ends must not be safer than outputs
            # A claim lets go of what is finished: everybody, on whatever machine, must be able to read that it is.
            self._journal.sync()
            held = {*self._host.given_up, *rs.numbers(self._queue.rest())}
            taken = self._claimer.take(free, rate_per_s, {*self._runner.busy, *held})
            self._holding.lose(self._claimer.lost)
        except (DiskFull, OSError) as error:
            self._host.cannot_write(error)
            return False
        self._queue.push(taken, self._claimer.rounds)
        self._last_claim_at, self._finished_then = now, ended
        self._looks.claimed(now, bool(taken), ended)
        return bool(taken)
