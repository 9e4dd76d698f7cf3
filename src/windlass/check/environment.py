"""Item: the environment that trials are to be started in is there, and so are their programs and scripts."""

from __future__ import annotations

import shutil

from windlass.bundle.environment import find_environment_problems
from windlass.bundle.programs import find_program_problems
from windlass.check.imports import find_missing_at_start
from windlass.check.item import Item, failed, passed
from windlass.check.trial import TriedTrial
from windlass.core.errors import Problem
from windlass.model import Study
from windlass.search import iterate_trials

NAME = "environment"


def check_environment(study: Study, tried: TriedTrial | None) -> Item:
    """The item on the environment: fails where it, a program, or a module that a trial imports is missing.

    `tried` is a trial that was executed here; None where none was.
    """
    problems = find_environment_problems(study) or find_missing_at_start(study)
    missing, unseen = find_program_problems(study, iterate_trials(study))
    if problems or missing:
        first = [*problems, *missing][0]
        return failed(
            NAME, "; ".join(map(_describe, [*problems, *missing])), first.hint or "mend it"
        )
    if tried is not None and "ModuleNotFoundError" in tried.problem:
        return failed(
            NAME, f"a trial {tried.problem}", "install it in the environment that the study names"
        )
    if unseen:
        return passed(NAME, "; ".join(unseen))
    asked = study.environment
    if asked is not None and asked.kind:
        return passed(NAME, f"{asked.kind} {asked.value}".strip() + " is there")
    programs = dict.fromkeys(arguments[0] for _, arguments in next(iterate_trials(study)).stages)
    return passed(
        NAME,
        f"the one of this shell: {', '.join(shutil.which(program) or program for program in programs)}",
    )


def _describe(problem: Problem) -> str:
    where = f"{problem.file}:{problem.line} " if problem.line else ""
    return f"{where}{problem.message}"
