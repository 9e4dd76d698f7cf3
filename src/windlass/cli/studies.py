"""Which study a command line means. All verbs take it the same way: `windlass logs STUDY TRIAL`.

Where none is named, verbs take the study that was submitted last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import click

from windlass.cli.options import Function
from windlass.collect.jobs import find_job, parse_job
from windlass.collect.locate import list_studies, locate_study, study_roots
from windlass.collect.trials import may_be_trial
from windlass.core.errors import InputError, input_error
from windlass.core.paths import StudyPaths
from windlass.core.trust import close_umask, is_shared

Job = tuple[int, int | None]  # number, task
_JOB = re.compile(r"\d+_\d+")
_LEFT_BEHIND = "left-behind"  # as in core/journal/kept.py, which is slow to import


def study_and_trials(metavar: str) -> Callable[[Function], Function]:
    """The arguments `[STUDY] [TRIAL]...`, as `arguments`, and `--study` for a name that could be taken for a trial."""

    def decorate(function: Function) -> Function:
        text = "The study, where its name could be taken for that of a trial."
        function = click.option("--study", metavar="STUDY", help=text)(function)
        return click.argument("arguments", nargs=-1, metavar=metavar)(function)

    return decorate


def find_study(name: str | None, folder: str | None) -> StudyPaths:
    """The study of that name, path or study file; the one submitted last for None. Raises InputError."""
    start = (
        os.path.dirname(os.path.abspath(name))
        if name is not None and os.path.isfile(name)
        else os.getcwd()
    )
    paths = locate_study(name, _roots(folder, start))
    close_umask(is_shared(paths.folder))
    return paths


def find_study_and_trials(
    arguments: tuple[str, ...], study: str | None, folder: str | None
) -> tuple[StudyPaths, tuple[str, ...]]:
    """The study, and the trials or jobs that were named in it.

    The first argument is the study where a study has that name, or where it can be neither a trial nor a job.
    """
    if study is None and arguments and _means_study(arguments[0], folder):
        return find_study(arguments[0], folder), arguments[1:]
    return find_study(study, folder), arguments


def _means_study(argument: str, folder: str | None) -> bool:
    if argument.isdecimal() or _JOB.fullmatch(argument) or argument == _LEFT_BEHIND:
        return False
    names = {os.path.basename(path) for path in list_studies(_roots(folder, os.getcwd()))}
    return argument in names or os.path.exists(argument) or not may_be_trial(argument)


def take_one_trial(trials: tuple[str, ...]) -> str | None:
    """The only trial that is named, or None. Raises InputError where several are."""
    if len(trials) > 1:
        raise input_error(
            f"this takes one trial, and {len(trials)} are given: {' '.join(trials)}",
            "name one of them",
        )
    return trials[0] if trials else None


def find_study_or_job(name: str | None, folder: str | None) -> tuple[StudyPaths, Job | None]:
    """The study of that name, or the one that the job of that number belongs to."""
    try:
        return find_study(name, folder), None
    except InputError:
        if name is None or parse_job(name) is None:
            raise
    found = find_job(name, _roots(folder, os.getcwd()))
    if found is None:
        raise input_error(f"no study has a job {name}", "`squeue --me` lists all your jobs")
    return found[0], (found[1], found[2])


def name_of(paths: StudyPaths) -> str:
    """The name of a study, for a verb that has changed it."""
    return os.path.basename(os.path.abspath(paths.folder))


def _roots(folder: str | None, start: str) -> list[str]:
    return study_roots(folder, start, os.environ.get("SCRATCH"))
