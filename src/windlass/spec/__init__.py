"""Study files, W&B sweeps, task files and command lines → Study. Errors name file, line, column and fix."""

from windlass.core.paths import find_study_file
from windlass.spec.build import Overrides, study_from_command
from windlass.spec.load import load_study
from windlass.spec.reference import render_study_reference

__all__ = [
    "Overrides",
    "find_study_file",
    "load_study",
    "render_study_reference",
    "study_from_command",
]
