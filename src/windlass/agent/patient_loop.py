"""Runs the steps of an agent, and waits where the study's folder is out of reach. Python 3.9, standard library."""

from __future__ import annotations

import select
import sys
import time

from windlass.agent import ends
from windlass.agent.ends import Mode
from windlass.agent.interrupt import Limits
from windlass.agent.lease.reach import Reach
from windlass.agent.runner import Runner
from windlass.core.errors import WindlassError
from windlass.core.passing import passing_error
from windlass.core.states import Cause


class PatientLoop:
    """A loop whose step may fail because of the folder, and is then taken again after a wait.

    Trials go on meanwhile, and what they print is read: only the guard ends them, once the folder has been out of reach
    for a part of the lease. After that the agent waits for the folder a while longer, with nothing under way.
    """

    def __init__(self, runner: Runner, poller: select.epoll, limits: Limits, reach: Reach) -> None:
        self._runner = runner
        self._poller = poller
        self._limits = limits
        self._reach = reach
        self._mode, self._reason = Mode.RUN, "nothing left"
        self._exit = ends.EXIT_DONE

    def _attend(self) -> bool:
        """One step, or a wait for a folder that is out of reach. False: the agent is done."""
        if self._reach.waits_s() <= 0.0:
            try:
                return self._step()
            except (OSError, WindlassError) as error:
                if passing_error(error) is None:
                    raise
                self._reach.fail(error)
                self._reap()  # the signal that announced them may have been read already
        if self._reach.is_given_up:
            print(
                "windlass agent: the study's folder stayed out of reach: this agent leaves",
                file=sys.stderr,
            )
            self._stop("the study's folder is out of reach", Cause.FOLDER)
            self._exit = ends.EXIT_AWAY
            return False
        if self._mode is Mode.STOP and not self._runner.unended:
            return False
        now = time.monotonic()
        if self._limits.is_near(now) and self._mode in (Mode.RUN, Mode.DRAIN):
            self._end_is_near(self._limits.deadline or now)
        due = self._runner.stopping.check_limits(now)
        wait_s = self._reach.waits_s()
        self._wait(wait_s if due is None else min(wait_s, max(0.0, due - now)))
        return True

    def _wait(self, wait_s: float) -> None:
        """Wait for something to happen, at most so long, and handle it."""
        self._reach.begin_wait(wait_s)
        events = self._poller.poll(wait_s)
        self._reach.end_wait()
        for descriptor, _ in events:
            self._handle(descriptor)

    # -- what the loop itself does

    def _step(self) -> bool:
        raise NotImplementedError

    def _handle(self, descriptor: int) -> None:
        raise NotImplementedError

    def _reap(self) -> None:
        raise NotImplementedError

    def _end_is_near(self, until: float) -> None:
        raise NotImplementedError

    def _stop(self, reason: str, cause: Cause = Cause.STOPPED) -> None:
        raise NotImplementedError
