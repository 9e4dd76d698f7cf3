"""The end of an agent: all that it has started ends, and what it knows is written down. Python 3.9."""

from __future__ import annotations

import sys
from typing import Callable

from windlass.agent.runner import Runner
from windlass.core.claims.strays import AGENT_VARIABLE, end_strays
from windlass.core.errors import WindlassError
from windlass.core.journal.write import DiskFull
from windlass.core.states import Cause


class TakeDown:
    """Takes an agent down step by step. A step that fails is reported and does not keep the others from being taken."""

    def __init__(self, agent: str, runner: Runner) -> None:
        self._agent = agent
        self._runner = runner
        self.is_failed = False
        self.is_full = False  # for want of room

    def end_processes(self) -> None:
        """End whatever runs, and write what has come from it."""
        runner = self._runner
        runner.stopping.stop_all(Cause.STOPPED, kill=True)
        if runner.warming is not None:
            self.attempt("warm interpreters could not be ended", runner.warming.close)
        self.attempt("what trials share could not be ended", runner.sharing.close)
        end_strays(AGENT_VARIABLE, self._agent, looks=1)
        self.attempt("some output could not be kept", runner.close)
        # An output that is lost was reported, and is no reason for another exit code.
        self.is_failed = False

    def attempt(self, problem: str, step: Callable[[], None]) -> None:
        """Take a step; `problem` is reported where the folder or something else of the system does not allow it."""
        try:
            step()
        except (DiskFull, OSError, WindlassError) as error:
            print(f"windlass agent: {problem}: {error}", file=sys.stderr)
            self.is_failed = True
            self.is_full = self.is_full or isinstance(error, DiskFull)
