"""Which project a study belongs to, and what is wrong with that folder."""

from __future__ import annotations

import os
import shlex

from windlass.core.errors import Problem
from windlass.core.paths import (
    STUDIES,
    StudyPaths,
    find_project,
    passed_over,
    why_no_project,
    why_no_study,
)


def locate_project(
    workdir: str, study_name: str, source: str, warnings: list[str]
) -> tuple[str, list[Problem]]:
    """The root of the project that trials are executed in, and a problem where it cannot be one.

    A warning is added where a folder above, which does not count as a project, holds a study of the same name: that
    study would have been continued by versions that took the folder for the project.
    """
    project = find_project(workdir)
    why = why_no_study(project)
    if why:
        hint = f"move the study into a folder of its own: mkdir {_example(project)}"
        message = f"{project} {why}, and all that is in it would be this study's project"
        return project, [Problem(message, hint, source)]
    for folder in passed_over(workdir):
        old = os.path.join(folder, STUDIES, study_name)
        new = os.path.join(project, STUDIES)
        # A folder that all users can write to is passed over, and is the project's root where the study is in itself.
        if os.path.realpath(folder) != os.path.realpath(project) and os.path.isfile(
            StudyPaths(old).plan
        ):
            command = f"mkdir -p {shlex.quote(new)} && mv {shlex.quote(old)} {shlex.quote(new)}"
            warnings.append(
                f"{old} is not continued: {folder} {why_no_project(folder)} and is no project's root. "
                f"If it is this study, move it here first: {command}"
            )
    return project, []


def _example(folder: str) -> str:
    return shlex.quote(os.path.join(folder, "my-study"))
