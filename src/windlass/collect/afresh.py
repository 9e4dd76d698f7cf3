"""Prepares the checkpoints of trials that the user puts back: where they go on from, or that they begin anew."""

from __future__ import annotations

import os

from windlass.agent.child import Trial
from windlass.agent.config import read_config, trial_environment
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.errors import FolderError
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile


def put_checkpoints_back(paths: StudyPaths, chosen: Ranges, afresh: Ranges) -> list[str]:
    """Before the chosen trials are put back. Those in `afresh` will begin at the beginning.

    Their checkpoints are moved, never deleted; returns the folders that they are in now. Raises FolderError.
    """
    config = read_config(paths.plan)
    env = trial_environment(config, dict(os.environ), paths.folder, paths.agent, "", "")
    try:
        checkpoints = Checkpoints(config, paths, env)
    except FolderError:  # the folder's name has a variable that only nodes have
        if afresh:
            raise
        return []
    moved = []
    trials = TrialFile(paths)
    try:
        for first, stop in chosen:
            for number, line in trials.iterate_lines(first, stop):
                aside = checkpoints.put_back(Trial(number, line), rs.contains(afresh, number))
                moved += [aside] if aside else []
    except OSError as error:
        raise FolderError(f"{error.filename}: {error.strerror}; no trial is put back") from error
    finally:
        trials.close()
    return moved
