"""Copies the files a study wants to keep into its folder. Python 3.9, standard library."""

from __future__ import annotations

import glob
import os
import shutil

from windlass.agent.child import Trial
from windlass.agent.config import AgentConfig
from windlass.paths import StudyPaths


def keep_outputs(config: AgentConfig, paths: StudyPaths, trial: Trial) -> str:
    """Copy what the patterns match to outputs/<trial id>/, with the same relative paths. Returns a note or ""."""
    target = paths.outputs_of(trial.id)
    missing = []
    for pattern in config.outputs:
        filled = pattern.replace("{trial_id}", trial.id)
        for name, value in trial.settings.items():
            filled = filled.replace("{" + name + "}", str(value))
        found = glob.glob(os.path.join(glob.escape(config.workdir), filled), recursive=True)
        if not found:
            missing.append(filled)
        for path in found:
            try:
                _copy(path, os.path.join(target, os.path.relpath(path, config.workdir).replace("../", "")))
            except OSError as error:
                return f"outputs: {path} could not be kept: {error.strerror}"
    return f"outputs: nothing matched {', '.join(missing)}" if missing else ""


def _copy(source: str, target: str) -> None:
    """Whole or not at all: the name appears when the content is complete."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        shutil.copytree(source, target, dirs_exist_ok=True)
        return
    partial = f"{target}.part-{os.getpid()}"
    shutil.copy2(source, partial)
    os.replace(partial, target)
