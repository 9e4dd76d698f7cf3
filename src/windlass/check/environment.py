"""Item: the environment that trials are to be started in is there."""

from __future__ import annotations

import shutil

from windlass.bundle.environment import find_environment_problems
from windlass.check.item import Item, failed, passed
from windlass.check.trial import TriedTrial
from windlass.model import Study

NAME = "environment"


def check_environment(study: Study, programs: list[str], tried: TriedTrial | None) -> Item:
    """`programs` are the first words of what a trial starts."""
    problems = find_environment_problems(study)
    if problems:
        first = problems[0]
        return failed(NAME, "; ".join(problem.message for problem in problems), first.hint or "mend it")
    if tried is not None and "ModuleNotFoundError" in tried.problem:
        return failed(NAME, f"a trial {tried.problem}", "install it in the environment that the study names")
    said = study.environment
    if said is not None and said.kind:
        return passed(NAME, f"{said.kind} {said.value}".strip() + " is there")
    missing = [program for program in programs if shutil.which(program, path=None) is None and "/" not in program]
    if missing:
        return failed(NAME, f"there is no {missing[0]} here", "environment: {venv: PATH} in the study, or activate one")
    return passed(NAME, f"the one of this shell: {', '.join(shutil.which(program) or program for program in programs)}")
