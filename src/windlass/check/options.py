"""Item: the program knows the options that a trial would give it, by its own --help."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence

from windlass.bundle.programs import find_search_path
from windlass.bundle.zipapp import build_agent
from windlass.core.errors import Problem
from windlass.core.processes import ask
from windlass.model import Study
from windlass.search import iterate_trials

_PATIENCE_S = 120.0
_IMPORT = re.compile(r"^(?:ModuleNotFoundError|ImportError)\b.*", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"


def find_option_problems(study: Study) -> list[Problem]:
    """A problem for each option that a program's --help does not list, and for each --help that does not answer.

    The programs are started as trials start them: with the environment of the study as far as it is known here, and
    with `import windlass`.
    """
    trial = next(iterate_trials(study))
    problems = []
    with tempfile.TemporaryDirectory(prefix="windlass-help-") as folder:
        agent = os.path.join(folder, "agent.pyz")
        with open(agent, "wb") as file:
            file.write(build_agent())
        python_path = os.environ.get("PYTHONPATH")
        env = {
            **os.environ,
            "PATH": find_search_path(study, os.environ).path,
            "PYTHONPATH": python_path + os.pathsep + agent if python_path else agent,
        }
        for stage, arguments in trial.stages:
            problems += _look(study, stage, arguments, env)
    return problems


def _look(
    study: Study, stage: str, arguments: Sequence[str], env: Mapping[str, str]
) -> list[Problem]:
    """The problems of one stage: options that it passes and that its program's --help does not list."""
    options = {
        argument.partition("=")[0] for argument in arguments if re.match(r"--[A-Za-z]", argument)
    }
    if not options:
        return []
    program = list(itertools.takewhile(lambda argument: not argument.startswith("--"), arguments))
    shown = f"{stage}: `{shlex.join(program)} --help`"
    answer = ask([*program, "--help"], _PATIENCE_S, env=env, cwd=study.workdir)
    if answer.code is None:
        return [
            Problem(f"{shown} did not answer: {answer.errors}", "leave out --check", study.source)
        ]
    text = answer.text + answer.errors
    if not answer.ok and _TRACEBACK in answer.errors:
        return [_died(study, shown, answer.errors)]
    missing = sorted(
        option for option in options if not re.search(re.escape(option) + r"(?![\w-])", text)
    )
    return [
        Problem(f"{shown} does not list {option}", "add it to the program", study.source)
        for option in missing
    ]


def _died(study: Study, shown: str, errors: str) -> Problem:
    """What the program died of: an import that fails says nothing about its options."""
    imports = _IMPORT.findall(errors)
    if imports:
        hint = "install it in the environment that the study names, or name one: environment: {venv: PATH}"
        return Problem(f"{shown} could not import what it needs: {imports[-1]}", hint, study.source)
    last = [line for line in errors.splitlines() if line.strip()][-1].strip()
    return Problem(f"{shown} ended with an error: {last}", "mend the program", study.source)
