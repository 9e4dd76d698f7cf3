"""Files that are made for a trial on its node, and named by its command. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig
from windlass.agent.node.companions import Companions
from windlass.core.configcopy import CONFIG, render_config
from windlass.core.fill import fill_variables

_ARGUMENTS = "{args_json_file}"


class TrialFiles:
    """Makes `{args_json_file}` and `{config}` in the agent's own temporary folder, one of each a slot."""

    def __init__(self, config: AgentConfig, runtime_folder: str, env: Mapping[str, str]) -> None:
        self._config = config.config_file
        self._folder = runtime_folder
        self._env = env
        # Where trials have processes on other nodes as well.
        self.others: Optional[Companions] = None

    def make(self, attempt: Attempt, argv: List[str]) -> Dict[str, str]:
        """Write the files that a command names; their paths, by what stands for them in the command. Raises OSError."""
        slot = attempt.slot.number
        paths: Dict[str, str] = {}
        if any(_ARGUMENTS in argument for argument in argv):
            paths[_ARGUMENTS] = os.path.join(self._folder, f"arguments-{slot}.json")
            self._write(
                paths[_ARGUMENTS], attempt.trial.settings_json.decode("utf-8", "surrogateescape")
            )
        if self._config is not None and any(CONFIG in argument for argument in argv):
            paths[CONFIG] = os.path.join(self._folder, f"config-{slot}", self._config["name"])
            # $SLURM_TMPDIR is known on the node only, and a program that reads a file does not replace it.
            self._write(
                paths[CONFIG],
                fill_variables(render_config(self._config, attempt.trial.settings), self._env),
            )
        return paths

    def _write(self, path: str, text: str) -> None:
        write_file(path, text)
        if self.others is not None:
            self.others.put_file(path, text)


def write_file(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
