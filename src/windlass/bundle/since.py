"""Whether the project still has the code that an attempt was executed with, and where that code is otherwise."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.bundle.again import excluded_from
from windlass.bundle.code import excluded_paths, find_differing, hash_files
from windlass.bundle.sources import find_changed_sources, list_sources
from windlass.bundle.tree import CODE_LIMIT_FILES, list_code
from windlass.core.errors import InputError
from windlass.core.journal.code import render_code
from windlass.core.paths import StudyPaths
from windlass.core.planfile import PlanFile, read_plan_if_there
from windlass.model import Plan

_SHOWN = 3


def find_changes_of_code(plan: Plan) -> list[str]:
    """Source files that have changed since the last run, where trials are executed with the code as it was then."""
    if not plan.frozen:
        return []
    before = read_plan_if_there(StudyPaths(plan.folder).plan).source_files
    return find_changed_sources(before, list_sources(plan.study.project_dir, excluded_paths(plan)))


def describe_other_code(
    paths: StudyPaths, plan: PlanFile, ran: Mapping[str, Any] | None, began: float
) -> list[str]:
    """Comments for a shell that go before lines which execute a trial in the project as it is now.

    `ran` is what an attempt recorded of its code, `began` when it began. Returns nothing where the project has the
    same code now, and where nobody can tell.
    """
    project = plan.project_dir
    if not ran or not os.path.isdir(project):
        return []
    if ran.get("live"):
        return _describe_live(paths, plan, ran, began)
    files = list_code(project, excluded_from(plan, paths, project))
    archive = os.path.join(paths.folder, f"{ran.get('key')}.tar.gz")
    try:
        if f"code-{hash_files(project, files)}" == ran.get("key"):
            return []
        differing = find_differing(project, files, archive)
    except InputError:  # a file of the project cannot be read, or changes while it is
        return []
    if differing is None:
        lines = [
            f"# These lines use the project as it is now. The attempt ran other code: {render_code(ran)}."
        ]
        return [*lines, f"# Its archive is no longer there{_with_git(project, ran)}"]
    if plan.source:
        # The study's own file is read when a study is submitted, not by its trials.
        differing.discard(os.path.relpath(plan.source, project))
    if not differing:
        return []
    workdir = os.path.relpath(plan.workdir or project, project)
    folder = '"$source_dir"' if workdir == "." else f'"$source_dir"/{shlex.quote(workdir)}'
    return [
        "# These lines use the project as it is now. The attempt ran other code: "
        f"{render_code(ran)}; {_list(sorted(differing))} differ{'s' if len(differing) == 1 else ''}.",
        "# To execute it with that code, use these in place of the lines with `cd` and `source_dir`:",
        f'#   export source_dir="$(mktemp -d)" && tar -xzf {shlex.quote(archive)} -C "$source_dir"',
        f"#   cd {folder}",
    ]


def _describe_live(
    paths: StudyPaths, plan: PlanFile, ran: Mapping[str, Any], began: float
) -> list[str]:
    """Live code is not kept: what is known are files that were written since."""
    project = plan.project_dir
    changed = []
    for file in list_code(project, excluded_from(plan, paths, project), CODE_LIMIT_FILES):
        try:
            if os.lstat(os.path.join(project, file.name)).st_mtime > began:
                changed.append(file.name)
        except OSError:
            continue
    if not changed:
        return []
    return [
        "# These lines use the project as it is now. Files that were changed since the attempt began: "
        f"{_list(changed)}.",
        f"# The code was live, so there is no archive of it{_with_git(project, ran)}",
    ]


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _with_git(project: str, ran: Mapping[str, Any]) -> str:
    commit = ran.get("commit")
    if not commit:
        return ", and no commit was recorded."
    besides = ", without what was not committed then" if ran.get("dirty") else ""
    return f": `git -C {shlex.quote(project)} worktree add FOLDER {str(commit)[:10]}` has its commit{besides}."
