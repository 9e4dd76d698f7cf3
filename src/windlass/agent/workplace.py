"""Gives each trial a working folder of its own, and keeps what it leaves there. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig
from windlass.agent.finder import Finder
from windlass.agent.outputs import OutputKeeper
from windlass.agent.stage import move_variables
from windlass.agent.trial_folder import TrialFolders
from windlass.paths import StudyPaths
from windlass.states import Cause


class Workplace:
    """Where the trials of one agent work: from an attempt's first moment until its files are safe."""

    def __init__(
        self, config: AgentConfig, paths: StudyPaths, agent: str, env: Mapping[str, str], folders: TrialFolders
    ) -> None:
        """`env` is what all trials of the agent are started with."""
        self._config = config
        self._env = env
        self._folders = folders
        keeps = config.keep != "none"
        finder = Finder(config.outputs if keeps else [], env)
        self._keeper = OutputKeeper(finder, paths, agent, env.get("SLURM_TMPDIR", ""), keeps_rest=keeps)
        self._moved: Dict[int, Dict[bytes, bytes]] = {}  # slot → variables that lead to its folder

    def enter(self, attempt: Attempt) -> None:
        """Have a folder ready for an attempt, and its variables lead there. Raises OSError."""
        slot = attempt.slot.number
        attempt.workdir = self._folders.enter(slot)
        self._keeper.describe(self._folders, slot)
        if slot not in self._moved:
            self._moved[slot] = move_variables(self._env, self._config, self._folders.project_of(slot))
        attempt.variables = {**self._moved[slot], **attempt.variables, b"PWD": os.fsencode(attempt.workdir)}
        self._keeper.begin(attempt.attempt, attempt.trial, attempt.variables)

    def start_again(self, attempt: Attempt) -> None:
        """The attempt's process was ended before it got anywhere: it finds its folder as at first. Raises OSError."""
        self._folders.clear(attempt.slot.number, discard=True)
        self.enter(attempt)

    def is_cleared(self, attempt: Attempt) -> bool:
        """Whether what the attempt wrote is safe, and its folder as it was before. False: ask again."""
        attempt.begin_out()
        slot = attempt.slot.number
        where = (attempt.attempt, attempt.trial, attempt.variables)
        if not self._keeper.safe(*where, lambda: self._folders.place_of(slot)):
            return False
        note, is_unsafe, is_lost = self._keeper.settle(attempt.attempt)
        attempt.note = note or attempt.note
        if is_lost:
            attempt.cause = attempt.cause or Cause.STOPPED  # a trial is done when there is something to show for it
        if is_unsafe:
            self._keeper.remember_unsafe(attempt.trial, self._folders.set_aside(slot))
        else:
            # What a trial left running may still write to its folder: the next trial gets another.
            self._folders.clear(slot, discard=attempt.left_processes)
        attempt.end_out()
        return True

    @property
    def is_full(self) -> bool:
        """Whether something could not be kept for want of room."""
        return self._keeper.full

    def sync(self) -> None:
        """What was kept is on the disk when this returns, as far as that is possible."""
        self._keeper.sync()

    def close(self) -> List[str]:
        """Returns what is to be noted about the agent as a whole."""
        self._keeper.close()
        return self._keeper.notes
