"""Where the project of a study's folder is now: it may have been moved or copied, with the folder in it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import Any

from windlass.errors import InputError, input_error
from windlass.ids import slug
from windlass.paths import STUDIES, StudyPaths, find_project

_WITH_PATHS = ("workdir", "project_dir", "scratch_dir", "source", "code", "data", "live", "environment", "terms")


def refuse_another(paths: StudyPaths, workdir: str) -> None:
    """Raise InputError where the folder has a study of the same name that runs elsewhere: its results are not ours."""
    try:
        said = _read_plan(paths)
        if said["workdir"] == workdir or os.path.samefile(said["workdir"], workdir):
            return
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return  # there is none yet, or its project was moved
    raise _belongs_elsewhere(paths, said, "give this study another name (`-e NAME`) or place (`--folder PATH`)")


def refuse_copy(paths: StudyPaths) -> None:
    """Raise InputError where the project that we are in is a copy, and the study's trials run in the original."""
    said = _original(paths)
    if said is not None:
        hint = (
            f"`cd {shlex.quote(said['workdir'])}` goes to the folder that they run in; "
            "`windlass run -e NAME` makes a study of this folder"
        )
        raise _belongs_elsewhere(paths, said, hint)


def describe_copy(paths: StudyPaths) -> str:
    """A note for whoever looks at a study in a copy of its project; "" where this is the study's own project."""
    said = _original(paths)
    if said is None:
        return ""
    return f"{_where(paths, said)}: commands and paths below are of that folder, which is another than this one"


def follow_move(plan: dict[str, Any], paths: StudyPaths) -> dict[str, Any]:
    """The plan with the project's paths as they are now, where the project was moved; else the plan as it is."""
    here = _project_here(paths, plan)
    if here is None or os.path.isdir(plan["workdir"]):
        return plan
    former = str(plan.get("project_dir") or plan["workdir"])
    moved = {key: _with_prefix(plan[key], former, here) for key in _WITH_PATHS if key in plan}
    return {**plan, **moved} if os.path.isdir(moved["workdir"]) else plan


def _with_prefix(value: Any, former: str, now: str) -> Any:
    if isinstance(value, str):
        is_inside = value == former or value.startswith(former + os.sep)
        return now + value[len(former) :] if is_inside else value
    if isinstance(value, list):
        return [_with_prefix(entry, former, now) for entry in value]
    if isinstance(value, dict):
        return {key: _with_prefix(entry, former, now) for key, entry in value.items()}
    return value


def _original(paths: StudyPaths) -> Mapping[str, Any] | None:
    """The plan of a study whose project is there and is not the one that its folder belongs to here; else None."""
    try:
        said = _read_plan(paths)
        here = _project_here(paths, said)
        if here is None or not os.path.isdir(said["workdir"]):
            return None
        former = str(said.get("project_dir") or said["workdir"])
        return None if os.path.samefile(former, here) else said
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _read_plan(paths: StudyPaths) -> Any:
    """plan.json without a look at its checksum: only its paths are used, and only to refuse or to tell. Raises much."""
    with open(paths.plan, encoding="utf-8") as file:
        return json.load(file)


def _project_here(paths: StudyPaths, plan: Mapping[str, Any]) -> str | None:
    """The project that a study's folder belongs to by its place; None where its place does not tell."""
    root = os.path.dirname(os.path.realpath(paths.folder))
    if os.path.basename(root) == STUDIES:
        # Where the user has put the folder into another project's, with `--folder`, it lies where the plan says.
        is_put_there = os.path.realpath(str(plan.get("scratch_dir", ""))) == root
        return None if is_put_there else os.path.dirname(root)
    here = find_project(os.getcwd())
    scratch = os.environ.get("SCRATCH")
    if scratch and os.path.realpath(os.path.join(scratch, slug(os.path.basename(here)))) == root:
        return here
    return None


def _belongs_elsewhere(paths: StudyPaths, said: Mapping[str, Any], hint: str) -> InputError:
    return input_error(_where(paths, said), hint)


def _where(paths: StudyPaths, said: Mapping[str, Any]) -> str:
    source = said.get("source") or said["workdir"]
    return f"{paths.folder} has the trials of {source}, which run in {said['workdir']}"
