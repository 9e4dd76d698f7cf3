"""Files of any kind → Study: what kind a file is, is decided by its ending and by what is in it."""

from __future__ import annotations

import os

from windlass.core.counted import counted
from windlass.core.errors import InputError, Problem
from windlass.core.ids import slug
from windlass.core.paths import FILE_NAMES, SUBFOLDER, TASK_ENDINGS, YAML_ENDINGS, find_study_file
from windlass.model import Metric, Space, Study
from windlass.search.template import placeholder_names
from windlass.settings import flagged, rows_of
from windlass.spec.build import Overrides, Place, build_study
from windlass.spec.document import Document, parse_document
from windlass.spec.fields import check_metric
from windlass.spec.fields_search import check_repeat, check_seeds
from windlass.spec.not_tasks import find_program
from windlass.spec.project import locate_project
from windlass.spec.read_text import read_text
from windlass.spec.space import REPEAT_NAME, repetitions
from windlass.spec.tasks import parse_tasks
from windlass.spec.words import mentions_variable

# A file with one of these names says nothing about the study; its folder does.
_COMMON_STEMS = frozenset(name.rsplit(".", 1)[0] for name in FILE_NAMES)

NO_OVERRIDES = Overrides()
# What the command line may give for a file of commands.
_OF_TASKS = ("name", "seeds", "repeat", "metric")


def load_study(path: str, overrides: Overrides = NO_OVERRIDES) -> Study:
    """The study in a study file, a W&B sweep file or a task file; for a folder, the study file in it.

    Raises one InputError with every problem.
    """
    if os.path.isdir(path):
        found = find_study_file(path)
        if found is None:
            raise InputError(
                [Problem("there is no study file in this folder", "windlass init", path)]
            )
        path = found
    text = read_text(path, "windlass init writes one")
    if path.endswith(TASK_ENDINGS):
        return _task_study(text, path, overrides)
    try:
        document, problems = parse_document(text, path)
    except InputError:
        if path.endswith(YAML_ENDINGS):
            raise
        return _task_study(text, path, overrides)
    if _looks_like_study(document):
        return build_study(document, overrides, _place(path), problems)
    if path.endswith(YAML_ENDINGS):
        raise InputError([_not_a_study(document)])
    return _task_study(text, path, overrides)


def _looks_like_study(document: Document) -> bool:
    """A mapping; in a file without YAML's ending, one with a key that studies have."""
    if not isinstance(document.value, dict):
        return False
    return document.file.endswith(YAML_ENDINGS) or any(key in rows_of("") for key in document.value)


def _not_a_study(document: Document) -> Problem:
    if document.root is None:
        return Problem("the file is empty", "command: python train.py {args}", document.file)
    hint = "command: python train.py {args}; a file of one command a line must end in .txt"
    return Problem("a study file is a mapping of keys to values", hint, document.file, 1, 1)


def _place(path: str) -> Place:
    absolute = os.path.abspath(path)
    folder, file_name = os.path.split(absolute)
    if os.path.basename(folder) == SUBFOLDER:
        folder = os.path.dirname(folder)
    stem = os.path.splitext(file_name)[0]
    name = os.path.basename(folder) if stem in _COMMON_STEMS else stem
    return Place(folder, name or "study", absolute)


def _task_study(text: str, path: str, overrides: Overrides) -> Study:
    program = find_program(path, text)
    if program is not None:
        raise InputError([program])
    tasks, problems = parse_tasks(text, path)
    searched = [
        row.flag for row in flagged() if row.name in overrides.given and row.name not in _OF_TASKS
    ]
    for flag in ["--param"] * bool(overrides.params) + searched:
        problems.append(
            Problem("a file of commands has no parameters to search", "write a study.yaml", flag)
        )
    warnings: list[str] = []
    variable = next(filter(None, map(mentions_variable, tasks)), None)
    if variable:
        warnings.append(
            f"{variable} in a command is passed on as it stands; `bash -c '…'` would replace it"
        )
    seeds = _task_seeds(tasks, overrides, problems, warnings)
    repeats = _task_repeats(overrides, problems)
    place = _place(path)
    name = slug(overrides.given.get("name") or place.default_name)
    project_dir, misplaced = locate_project(place.folder, name, place.source, warnings)
    problems += misplaced
    if problems:
        raise InputError(problems)
    return Study(
        name=name,
        stages=(),
        space=Space(
            "list",
            seeds=seeds or repeats,
            seed_name=REPEAT_NAME if repeats else "seed",
            repeats=bool(repeats),
        ),
        workdir=place.folder,
        project_dir=project_dir,
        source=place.source,
        source_text=text,
        tasks=tasks,
        metric=_task_metric(overrides),
        submitter=os.path.basename(path) in FILE_NAMES,
        warnings=tuple(warnings),
    )


def _task_repeats(overrides: Overrides, problems: list[Problem]) -> tuple[int, ...]:
    if "repeat" not in overrides.given:
        return ()
    if "seeds" in overrides.given:
        problems.append(
            Problem("either seeds or repetitions, not both", "leave one of them out", "--repeat")
        )
    try:
        return repetitions(check_repeat(overrides.given["repeat"]))
    except ValueError as error:
        problems.append(Problem(str(error), "--repeat 30", "--repeat"))
        return ()


def _task_metric(overrides: Overrides) -> Metric | None:
    return check_metric(overrides.given["metric"]) if "metric" in overrides.given else None


def _task_seeds(
    tasks: tuple[tuple[str, ...], ...],
    overrides: Overrides,
    problems: list[Problem],
    warnings: list[str],
) -> tuple[int, ...]:
    if "seeds" not in overrides.given:
        return ()
    try:
        seeds = check_seeds(overrides.given["seeds"])
    except ValueError as error:
        problems.append(Problem(str(error), "--seeds 5", "--seeds"))
        return ()
    if not any("seed" in placeholder_names(word) for words in tasks for word in words):
        problems.append(
            Problem("no line uses the seed", "python train.py --seed {seed}", "--seeds")
        )
    if len(seeds) <= 3:
        warnings.append(
            f"{counted(len(seeds), 'seed says', 'seeds say')} little about chance; 5 or more are usual"
        )
    return seeds
