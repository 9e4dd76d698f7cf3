"""Refuses folders of many small files that trials would read from a shared disk."""

from __future__ import annotations

import os
from collections.abc import Sequence

from windlass.bundle.tree import is_tracked
from windlass.bundle.words import command_paths
from windlass.core.errors import Problem
from windlass.model import ANY_FILES, Plan
from windlass.plan.source_line import find_line

_MOST_LOOKED_AT = 20_000  # entries of a folder, before we give up counting
# Each node has these on a disk of its own.
_NODES_OWN = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")


def find_small_files(plan: Plan) -> list[Problem]:
    """Folders with more files than `small_files` that commands name and that are neither data nor outputs.

    What git tracks travels with frozen code: trials read it from the node's own disk.
    """
    study, limit = plan.study, plan.settings["small_files"].value
    known = [os.path.normpath(item.path) for item in study.data]
    known += [pattern.partition("*")[0].rstrip("/") for pattern in study.outputs]
    problems: dict[str, Problem] = {}
    for word, as_read in command_paths(study) if limit < ANY_FILES else ():
        path = os.path.normpath(os.path.join(study.workdir, as_read))
        name = os.path.relpath(path, study.project_dir)
        if (
            name == os.curdir
            or path in problems
            or not os.path.isdir(path)
            or _is_known(path, name, known)
        ):
            continue
        travels = plan.frozen and not os.path.isabs(as_read) and is_tracked(study.project_dir, name)
        if not travels and _has_more_files(path, limit):
            text = (
                f"the command names {word}, a folder of more than {limit:,} files: reading so many small files from a "
                "shared disk is slow for you and for everybody else"
            )
            allow = "`--small-files allow`, or `small_files: allow` in the study, lets trials read it as it is"
            line = find_line(study.source_text, "", "command") if study.source else 0
            problems[path] = Problem(
                text, f"{_remedy(path, name, bool(study.source))}; {allow}", study.source, line
            )
    return list(problems.values())


def _is_known(path: str, name: str, known: Sequence[str]) -> bool:
    """Whether a path is one of these or below it, or on a disk that each node has for itself."""
    if any(path == folder or path.startswith(folder + os.sep) for folder in _NODES_OWN):
        return True
    items = [item for item in known if item]
    return any(
        name == item or name.startswith(item + os.sep) or path.endswith(os.sep + item)
        for item in items
    )


def _remedy(path: str, name: str, has_file: bool) -> str:
    if not name.startswith(os.pardir):
        item = f"write `data: [{name}]`" if has_file else f"add `--data {name}`"
        return f"{item}, and let the command read $SLURM_TMPDIR/{name}, which is on the node's own disk"
    parent, base = os.path.split(path)
    return (
        f"make one file of it with `tar -cf {base}.tar -C {parent} {base}`, name that file's whole path as data, "
        f"and let the command read $SLURM_TMPDIR/{base}, which is on the node's own disk"
    )


def _has_more_files(path: str, limit: int) -> bool:
    files = looked = 0
    waiting = [path]
    while waiting and looked < max(_MOST_LOOKED_AT, 2 * limit):
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    looked += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        files += 1
                    if files > limit:
                        return True
        except OSError:
            continue
    return False
