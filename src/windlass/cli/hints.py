"""Commands in what is printed of a study, completed so that they mean that study when they are copied."""

from __future__ import annotations

import os
import re
import shlex
import sys

from windlass.collect.locate import list_studies, study_roots
from windlass.core.paths import StudyPaths, find_study_file
from windlass.core.planfile import NO_PLAN, read_plan_if_there
from windlass.core.trust import describe_copy

_COMMAND = re.compile(r"`(windlass (\w+)[^`\n]*)`")
_OF_STUDY = (
    "cancel",
    "diff",
    "explain",
    "history",
    "logs",
    "outputs",
    "results",
    "retry",
    "status",
    "throttle",
    "watch",
)
_WITH_FILE = ("check", "plan", "run")
_SAME_WORDS = "…"


def name_study(text: str, paths: StudyPaths) -> str:
    """The text with the study in each command of ours between backquotes, where the command would mean another one."""
    if "`windlass " not in text:
        return text
    study, file = _shortest_name(paths), _study_file(paths)

    def complete(match: re.Match[str]) -> str:
        line, verb = match[1], match[2]
        if verb in _OF_STUDY and study and not line.endswith("history --all"):
            line = line.replace(f"windlass {verb}", f"windlass {verb} {shlex.quote(study)}", 1)
        elif verb in _WITH_FILE and file:
            line += f" {file if file == _SAME_WORDS else shlex.quote(file)}"
        return f"`{line}`"

    return _COMMAND.sub(complete, text)


def warn_of_copy(paths: StudyPaths) -> None:
    """Print a note where the study's trials run in another folder, of which the project that we are in is a copy."""
    text = describe_copy(paths)
    if text:
        print(f"note: {text}", file=sys.stderr)


def _shortest_name(paths: StudyPaths) -> str:
    """What stands for the study on a command line here; "" where it is the only one."""
    roots = study_roots(None, os.getcwd(), os.environ.get("SCRATCH"))
    folder, name = os.path.realpath(paths.folder), os.path.basename(paths.folder)
    studies = [os.path.realpath(path) for path in list_studies(roots)]
    if studies == [folder]:
        return ""
    of_that_name = [path for path in studies if os.path.basename(path) == name]
    return name if of_that_name == [folder] else paths.folder


def _study_file(paths: StudyPaths) -> str:
    """The file that the study was made from; "" where none is known, or a command without a file means it too.

    A study that was given on the command line has no file: the same arguments stand there again.
    """
    plan = read_plan_if_there(paths.plan)
    if plan is NO_PLAN:
        return ""
    source = plan.source
    if not source:
        return _SAME_WORDS
    usual = find_study_file(os.getcwd())
    if not os.path.isfile(source) or (
        usual is not None and os.path.realpath(usual) == os.path.realpath(source)
    ):
        return ""
    return os.path.relpath(source) if source.startswith(os.getcwd() + os.sep) else source
