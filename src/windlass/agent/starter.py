"""Makes a process of an attempt: its variables, its command, its pipes. Python 3.9, standard library.

The runner decides when an attempt starts and keeps the books; what stands here is only how. A command is put
together in a fixed order: the trial's own arguments, then the path of its checkpoint, then what only the node
knows (folders, files of the trial), and around all of that the launcher.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, NamedTuple, Optional, Union

from windlass.agent.child import (
    NOT_EXECUTABLE,
    Attempt,
    Spawner,
    explain_start_error,
    fill_in,
    trial_variables,
)
from windlass.agent.config import AgentConfig
from windlass.agent.interrupt import Limits, wall_of
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.agent.keep.trial_files import TrialFiles
from windlass.agent.parts import Equipment
from windlass.agent.report.pipes import Pipes
from windlass.agent.share.placing import Placing
from windlass.core.fill import fill_text, fill_variables, has_placeholder
from windlass.launchers.base import load_launcher


class StartProblem(NamedTuple):
    """Why a process could not be started."""

    code: int  # the exit code that is recorded, as a shell would give it
    text: str  # for the trial's output
    error: OSError


class Starter:
    """Starts the stages of attempts, cold or from a warm interpreter. Remembers nothing of those it has started."""

    def __init__(
        self,
        config: AgentConfig,
        env: Mapping[str, str],
        limits: Limits,
        equipment: Equipment,
        checkpoints: Checkpoints,
        files: TrialFiles,
        pipes: Pipes,
    ) -> None:
        self._config = config
        self._env = env  # the variables that all trials get
        self._limits = limits
        self._warming = equipment.warming
        self._checkpoints = checkpoints
        self._files = files
        self._pipes = pipes
        self._launcher = load_launcher(config.launch)
        self._enter = equipment.enter
        self.placing = Placing(
            config, env, equipment.enter, equipment.runtime_folder, len(equipment.slots)
        )
        self._spawner = Spawner(env)
        self._filled_in = [
            (name, value) for name, value in config.env.items() if has_placeholder(value)
        ]

    def set_variables(self, attempt: Attempt) -> None:
        """Give an attempt the variables that are its own. Those that all trials share are added when it starts."""
        trial = attempt.trial
        seed = trial.settings.get(self._config.seed_name)
        attempt.variables = trial_variables(trial, attempt.attempt, attempt.slot, seed)
        for name, value in self._filled_in:
            filled = fill_text(value, trial, self._config.name)
            if filled is not None:
                text = fill_variables(filled, self._env)
                attempt.variables[os.fsencode(name)] = os.fsencode(text)
        folder = os.fsencode(self._checkpoints.folder_of(trial))
        attempt.variables[b"WINDLASS_CHECKPOINT_DIR"] = folder
        attempt.variables[b"checkpoint_dir"] = folder
        if attempt.deadline is not None:
            until = min(attempt.deadline, self._limits.deadline or attempt.deadline)
            attempt.variables[b"WINDLASS_DEADLINE"] = b"%d" % wall_of(until)

    def start(self, attempt: Attempt) -> Optional[StartProblem]:
        """Start the current stage of an attempt. Returns None where that worked, and else why it did not.

        Afterwards `attempt.pid` is known, unless `attempt.warm` says that a warm interpreter was asked to start it:
        that one reports the process later. The attempt's pipes are open in both cases.
        """
        try:
            bare = self._make_command(attempt)
        except OSError as error:
            text = f"windlass: {error.filename}: {error.strerror}"
            return StartProblem(NOT_EXECUTABLE, text, error)
        try:
            argv, own = self._launcher.wrap(bare, self.placing.place(attempt))
        except OSError as error:
            return StartProblem(NOT_EXECUTABLE, f"windlass: there is no free port: {error}", error)
        attempt.ranks = self.placing.make_ranks(attempt)
        # A warm server is in the environment already: a trial that is forked from it does not enter once more.
        warm_argv = bare if argv == self._enter(bare) else argv
        for name, value in own.items():
            attempt.variables[os.fsencode(name)] = os.fsencode(value)
        out_write, err_write = self._pipes.open(attempt)
        problem: Optional[Union[OSError, ValueError]] = None
        try:
            attempt.warm = self._start_warm(attempt, warm_argv, out_write, err_write)
            if not attempt.warm:
                attempt.pid = self._spawner.spawn(
                    argv, attempt.variables, out_write, err_write, attempt.workdir
                )
        except (OSError, ValueError) as error:
            problem = error
        # Only the process may hold the writing ends: the agent takes end of file for the end of the output.
        os.close(out_write)
        os.close(err_write)
        if problem is None:
            return None
        if not isinstance(problem, OSError):
            problem = OSError(0, str(problem))
        return StartProblem(*explain_start_error(problem, argv), problem)

    def _make_command(self, attempt: Attempt) -> List[str]:
        """The arguments of the current stage, filled in. Raises OSError where a file of the trial cannot be made."""
        argv = attempt.trial.stages[attempt.stage][1]
        if self._checkpoints.configured:
            argv = self._checkpoints.fill_in(attempt.trial, attempt.stage, argv, attempt.checkpoint)
        if attempt.trial.has_node_parts:
            files = self._files.make(attempt, argv)
            argv = fill_in(argv, self._all_variables(attempt), files)
        return argv

    def _all_variables(self, attempt: Attempt) -> Dict[str, str]:
        own = {os.fsdecode(name): os.fsdecode(value) for name, value in attempt.variables.items()}
        return {**self._env, **own}

    def _start_warm(self, attempt: Attempt, argv: List[str], out: int, err: int) -> bool:
        """Have a warm interpreter start it. False where there is none, or where the command is not one for it."""
        if self._warming is None:
            return False
        env = self._all_variables(attempt)
        if not self._warming.takes(argv, env):
            return False
        self._warming.spawn(attempt.attempt, argv, env, out, err, attempt.workdir)
        return True
