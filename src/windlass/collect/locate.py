"""Finds the folder of the study that the user means: by name, by path, or the one submitted last."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from windlass.core.errors import FolderError, input_error
from windlass.core.ids import slug
from windlass.core.meant import did_you_mean
from windlass.core.paths import ELSEWHERE, STUDIES, StudyPaths, find_project

_SHOWN = 5  # names of studies in a hint


def study_roots(folder: str | None, start: str, scratch: str | None) -> list[str]:
    """Where studies of this project may lie, the likeliest first."""
    if folder is not None:
        return [os.path.abspath(os.path.expanduser(folder))]
    project = find_project(start)
    roots = [os.path.join(scratch, slug(os.path.basename(project)))] if scratch else []
    return list(dict.fromkeys([*roots, os.path.join(project, STUDIES), *read_elsewhere(project)]))


def read_elsewhere(project: str) -> list[str]:
    """Where else this project's studies have been put, by `folder:` or `--folder`."""
    try:
        with open(
            os.path.join(project, STUDIES, ELSEWHERE), encoding="utf-8", errors="surrogateescape"
        ) as file:
            return [line for line in file.read().splitlines() if line]
    except OSError:
        return []


def is_study_folder(path: str) -> bool:
    return os.path.isfile(StudyPaths(path).plan)


def list_studies(roots: Sequence[str]) -> list[str]:
    """All studies' folders below the roots, the one submitted last first."""
    found = []
    for root in roots:
        try:
            names = os.listdir(root)
        except OSError:
            continue
        for path in (os.path.join(root, name) for name in names if not name.startswith(".")):
            if is_study_folder(path):
                found.append((_submitted(path), path))
    return [path for _, path in sorted(found, reverse=True)]


def _submitted(folder: str) -> float:
    """When a study was last submitted: `run` and `retry` set the time of its study file. Agents never touch it."""
    paths = StudyPaths(folder)
    for path in (paths.study_file, paths.plan):
        try:
            return os.stat(path).st_mtime
        except OSError:
            continue
    return 0.0


def locate_study(name: str | None, roots: Sequence[str]) -> StudyPaths:
    """The folder of the named study, or of the one submitted last. Raises InputError with what there is."""
    if name is not None and is_study_folder(name):
        return StudyPaths(name)
    studies = list_studies(roots)
    if name is not None and os.path.isfile(name):
        source = os.path.abspath(name)
        studies_of_file = [path for path in studies if _source_of(path) == source]
        if studies_of_file:
            return StudyPaths(studies_of_file[0])
    if name is None:
        if studies:
            return StudyPaths(studies[0])
        _check_roots(roots)
        raise input_error("there is no study here yet", "windlass run study.yaml")
    wanted = _name_of_file(name)
    for path in studies:
        if os.path.basename(path) in (name, wanted):
            return StudyPaths(path)
    _check_roots(roots)
    names = [os.path.basename(path) for path in studies]
    more = (
        f" and {len(names) - _SHOWN} more (`windlass history --all`)" if len(names) > _SHOWN else ""
    )
    hint = (
        f"{did_you_mean(name, names)} there are: {', '.join(names[:_SHOWN])}{more}".lstrip()
        if names
        else "windlass run study.yaml"
    )
    raise input_error(f"there is no study named {name!r} in {', '.join(roots)}", hint)


def _check_roots(roots: Sequence[str]) -> None:
    """Raise FolderError where a study may well be there and cannot be seen: in a folder that cannot be listed."""
    for root in roots:
        try:
            os.listdir(root)
        except FileNotFoundError:
            _check_mounted(root)
        except OSError as error:
            raise FolderError(
                f"{root}: out of reach ({error.strerror}), so that it cannot be known which studies are there\n"
                "  hint: see to it that this user can list it, and run the command again"
            ) from error


def _check_mounted(root: str) -> None:
    """Raise FolderError where studies have been put below a folder that is gone as a whole, such as a scratch."""
    above = os.path.dirname(root)
    if os.path.basename(root) != STUDIES and above != "/" and not os.path.isdir(above):
        raise FolderError(
            f"{root}: out of reach: {above} is not there, and this project's studies may be in it\n"
            "  hint: see whether its file system is mounted on this machine; a login node may have it"
        )


def find_twin(folder: str, source_text: str) -> str:
    """The newest study beside `folder` that was made from the same text, where `folder` has no study yet; else "".

    Without `name:` a study has the name of its project's folder, so that it gets another one when that is renamed.
    """
    if not source_text or is_study_folder(folder):
        return ""
    for path in list_studies([os.path.dirname(folder)]):
        try:
            with open(
                StudyPaths(path).study_file, encoding="utf-8", errors="surrogateescape"
            ) as file:
                if file.read() == source_text:
                    return path
        except OSError:
            continue
    return ""


def _source_of(folder: str) -> str:
    """The study file that a study was last made from."""
    try:
        with open(StudyPaths(folder).plan, encoding="utf-8") as file:
            return str(json.load(file).get("source", ""))
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def _name_of_file(name: str) -> str:
    """A study file stands for the study it makes, as far as its name alone tells."""
    stem = os.path.splitext(os.path.basename(name))[0]
    if os.path.isfile(name) and stem in (
        "study",
        "sweep",
        "sweeper",
        "experiment_configuration",
        "experiment_configurations",
    ):
        return slug(os.path.basename(os.path.dirname(os.path.abspath(name))))
    return slug(stem)
