"""A parsed document (or a command line) and what the command line overrides → Study."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.core.errors import InputError, Problem
from windlass.core.ids import slug
from windlass.model import Parameter, Study, Warm
from windlass.settings import flagged, settings
from windlass.spec.commands import build_stages
from windlass.spec.config_file import ConfigReader
from windlass.spec.document import Document, Path, Problems, parse_document
from windlass.spec.keys import Keys
from windlass.spec.ladder import build_ladder
from windlass.spec.names import check_names
from windlass.spec.on_node import build_checkpoint, build_environment
from windlass.spec.parameters import Placed, parse_parameters
from windlass.spec.project import locate_project
from windlass.spec.settings_file import KEY as SETTINGS_KEY
from windlass.spec.settings_file import find_settings_file, locate_settings, read_settings
from windlass.spec.space import build_space, names_of
from windlass.spec.structure import check_keys
from windlass.spec.usage import check_usage
from windlass.spec.words import looks_like_list


class Overrides:
    """What the command line gives in place of the file: the rows that describe a study, by their names.

    `params` are texts such as ``lr=[0.1, 0.01]``. None stands for an option that is not given.
    """

    def __init__(self, params: Sequence[str] = (), **given: Any) -> None:
        self.params = tuple(params)
        self.given = {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Place:
    """Where a study was found, and what it is called when it does not say."""

    folder: str
    default_name: str
    source: str = ""


def study_from_command(words: Sequence[str], overrides: Overrides) -> Study:
    """A study without a file: the command's words as given, parameters and seeds from `overrides`."""
    if not words:
        hint = "windlass run --param 'lr=[0.1, 0.01]' -- python train.py --lr {lr}"
        raise InputError([Problem("there is no command", hint)])
    document = Document(file="", text="", value={"command": list(words)})
    return build_study(document, overrides, Place(os.getcwd(), _script_name(words)), [])


def _script_name(words: Sequence[str]) -> str:
    """The script's name without its ending: the first word that is a file of a known kind, or the program."""
    endings = (".py", ".sh", ".r", ".jl", ".R", ".pl", ".rb", ".js")
    script = next((word for word in words if word.endswith(endings)), words[0])
    return os.path.splitext(os.path.basename(script))[0] or "study"


def build_study(
    document: Document, overrides: Overrides, place: Place, found: list[Problem]
) -> Study:
    """The study, or one InputError with everything that is wrong with it."""
    problems = Problems(document, found)
    warnings: list[str] = []
    _apply_overrides(document, overrides)
    keys = check_keys(document.value, problems, warnings)
    given = dict(keys.parameters) if isinstance(keys.parameters, dict) else {}
    rows = _rows_of_file(keys, given, place, problems)
    zipped = frozenset(name for group in keys.zip or () for name in group)
    placed = parse_parameters(given, ("parameters",), problems, zipped)
    placed = _override_parameters(placed, keys, overrides, problems, zipped)
    warnings += _warn_of_lists(given)
    stages = build_stages(keys, problems, warnings)
    workdir = _workdir(keys, place, problems)
    config = ConfigReader(keys.config, workdir, problems)
    used: set[str] = set()
    space = build_space(keys, placed, rows, problems, warnings)
    if (
        not isinstance(document.value.get("parameters"), (dict, list))
        or keys.parameters is not None
    ):
        places = {item.parameter.name: item.path for item in placed}
        used = check_usage(stages, space, _other_texts(keys), places, problems, config)
    given_settings = _given_settings(keys, place, problems)
    environment = build_environment(keys, problems)
    checkpoint = build_checkpoint(keys, [stage for stage, _ in stages], problems)
    ladder = build_ladder(keys, stages, space, problems)
    names = [*names_of(space), *(name for rung in ladder for name in rung.parameters)]
    config_file = config.build(stages, list(dict.fromkeys(names)), used, space)
    check_names(keys, names_of(space), problems)
    name = slug(keys.name or place.default_name)
    project_dir, misplaced = locate_project(workdir, name, place.source, warnings)
    problems.found += misplaced
    problems.raise_if_any()
    return Study(
        name=name,
        stages=tuple(stage for stage, _ in stages),
        space=space,
        workdir=workdir,
        project_dir=project_dir,
        source=place.source,
        source_text=document.text,
        metric=keys.metric,
        metrics=keys.metrics or (),
        on_nan=keys.on_nan or "warn",
        given=given_settings,
        env=keys.env or {},
        outputs=keys.outputs or (),
        data=keys.data or (),
        environment=environment,
        checkpoint=checkpoint,
        warm=keys.warm or Warm(),
        variants=keys.variants or (),
        progress=keys.progress,
        ladder=ladder,
        config=config_file,
        warnings=tuple(warnings),
    )


def _rows_of_file(
    keys: Keys, given: dict[str, Any], place: Place, problems: Problems
) -> tuple[Mapping[str, Any], ...] | None:
    """The settings in the file that `parameters` names, which is taken out of `given`; None where it names none."""
    file = find_settings_file(keys)
    if file is None:
        return None
    del given[SETTINGS_KEY]
    return read_settings(locate_settings(file, place.folder), problems.found)


def _apply_overrides(document: Document, overrides: Overrides) -> None:
    """Put the command line's values in place of the file's, remembering which option gave each."""
    value = document.value = dict(document.value)
    if "trials" in overrides.given:
        value.pop("run_cap", None)
    for row in flagged():
        if row.name not in overrides.given or row.section is None or row.is_setting:
            continue
        inside = value
        if row.section:
            inside = value[row.section] = dict(value.get(row.section) or {})
        inside[row.name] = _override_value(
            row.name, overrides.given[row.name], inside.get(row.name)
        )
        path: Path = (row.section, row.name) if row.section else (row.name,)
        document.overridden[path] = row.flag


def _override_value(name: str, given: Any, in_file: Any) -> Any:
    if name == "seeds":  # a list may have its brackets
        return given.strip().removeprefix("[").removesuffix("]")
    if name == "metric" and isinstance(in_file, dict) and in_file.get("name") == given:
        return in_file  # named again without a goal: the file's goal holds
    return given


def _override_parameters(
    placed: list[Placed],
    keys: Keys,
    overrides: Overrides,
    problems: Problems,
    zipped: frozenset[str],
) -> list[Placed]:
    """Parameters of the command line replace those of the same name, or are added at the end."""
    if overrides.params and isinstance(keys.parameters, list):
        problems.found.append(
            Problem("a list of rows cannot be changed by a parameter", "edit the rows", "--param")
        )
        return placed
    result = list(placed)
    texts: dict[str, str] = {}
    for text in overrides.params:
        for new in _parse_param(text, problems, zipped):
            first = texts.setdefault(new.parameter.name, text)
            if first != text:
                problems.found.append(_given_twice(new.parameter.name, first, text))
                continue
            same = [
                number
                for number, old in enumerate(result)
                if old.parameter.name == new.parameter.name
            ]
            if same:
                kept = replace(
                    new.parameter, when=new.parameter.when or result[same[0]].parameter.when
                )
                result[same[0]] = Placed(kept, new.path)
            else:
                result.append(new)
    return result


def _given_twice(name: str, first: str, second: str) -> Problem:
    both = f"--param {shlex.quote(first)} --param {shlex.quote(second)}"
    hint = "leave one of them out"
    values = [text.partition("=")[2].strip() for text in (first, second)]
    if not any(value.startswith("{") for value in values):
        listed = ", ".join(value.removeprefix("[").removesuffix("]") for value in values)
        hint += f", or give several values in brackets: --param {shlex.quote(f'{name}=[{listed}]')}"
    return Problem(f"{name} is given twice: {both}", hint, f"--param {name}")


def _parse_param(text: str, problems: Problems, zipped: frozenset[str]) -> list[Placed]:
    name, equals, value = text.partition("=")
    name = name.strip()
    label = f"--param {name}"
    if not equals or not name:
        problems.found.append(
            Problem(f"{text!r} is no parameter", "--param 'lr=[0.1, 0.01]'", "--param")
        )
        return []
    path: Path = ("--param", name)
    problems.document.overridden[path] = label
    try:
        document, found = parse_document(value, label)
    except InputError as error:
        problems.found += [
            Problem(p.message, p.hint or f"--param '{name}=[0.1, 0.01]'", label)
            for p in error.problems
        ]
        return [Placed(Parameter(name), path)]
    problems.found += [Problem(problem.message, problem.hint, label) for problem in found]
    if isinstance(document.value, str) and looks_like_list(value):
        listed = f"--param {shlex.quote(f'{name}=[{value.strip()}]')}"
        single = (
            f"--param {shlex.quote(f'{name}=[{json.dumps(value.strip(), ensure_ascii=False)}]')}"
        )
        message = (
            f"{value.strip()!r} is one text with a comma in it, or several values without brackets"
        )
        problems.found.append(
            Problem(message, f"for several values {listed}; for the one text {single}", label)
        )
        return [Placed(Parameter(name), path)]
    given = (
        document.value if document.value is not None else [document.value if value.strip() else ""]
    )
    parsed = parse_parameters({name: given}, ("--param",), problems, zipped)
    return [Placed(item.parameter, path) for item in parsed]


def _warn_of_lists(parameters: Mapping[str, Any]) -> list[str]:
    """Numbers with commas between them are one text in YAML, which is seldom meant."""
    found = []
    for name, value in parameters.items():
        if isinstance(value, str) and looks_like_list(value, only_numbers=True):
            found.append(
                f"{name} is the one text {value!r}; for several values write {name}: [{value}]"
            )
    return found


def _other_texts(keys: Keys) -> dict[Path, str]:
    texts: dict[Path, str] = {("env", name): value for name, value in (keys.env or {}).items()}
    for number, pattern in enumerate(keys.outputs or ()):
        texts[("outputs", number)] = pattern
    return texts


def _workdir(keys: Keys, place: Place, problems: Problems) -> str:
    if keys.workdir is None:
        return place.folder
    workdir = os.path.abspath(os.path.join(place.folder, os.path.expanduser(keys.workdir)))
    if not os.path.isdir(workdir):
        problems.add(
            ("workdir",), f"there is no folder {workdir}", "a path relative to the study file"
        )
    return workdir


def _given_settings(keys: Keys, place: Place, problems: Problems) -> dict[str, Any]:
    """The settings that the file gives, by their names in a plan. Other layers may give them too."""
    given: dict[str, Any] = {}
    for row in settings():
        section = getattr(keys, row.section) if row.section else keys
        if row.section is not None and section is not None:
            given[row.plan_key] = getattr(section, row.name)
    given["folder"] = _folder(given["folder"], place, problems)
    return {key: value for key, value in given.items() if value is not None}


def _folder(given: str | None, place: Place, problems: Problems) -> str | None:
    if given is None:
        return None
    expanded = os.path.expandvars(os.path.expanduser(given))
    if "$" in expanded:
        problems.add(
            ("folder",),
            f"{expanded} names an environment variable that is not set",
            "export it first",
        )
    return os.path.abspath(os.path.join(place.folder, expanded))
