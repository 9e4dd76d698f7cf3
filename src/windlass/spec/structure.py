"""A document → its checked keys. pydantic's errors become sentences with line, column and a fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from windlass.spec.document import Path, Problems
from windlass.spec.schema import WANDB_ALIASES, WANDB_IGNORED, WANDB_SILENT, StudyKeys
from windlass.spec.sections import SECTIONS


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the nearest known word, or nothing."""
    nearest = nearest_word(word, known)
    return f"did you mean {nearest}?" if nearest else ""


def nearest_word(word: str, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else ""


def check_keys(value: dict[str, Any], problems: Problems, warnings: list[str]) -> StudyKeys:
    """The keys that are right; a problem for each that is not."""
    kept = _without_foreign_keys(value, problems, warnings)
    for name in [key for key, item in kept.items() if item is None]:
        problems.add((name,), f"{name} has no value", f"give it one, or remove the line {name}:", key=True)
        del kept[name]
    try:
        return StudyKeys.model_validate(kept)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            _add_problem(details, problems)
            kept.pop(str(details["loc"][0]), None)
    return StudyKeys.model_validate(kept)


def _without_foreign_keys(value: dict[str, Any], problems: Problems, warnings: list[str]) -> dict[str, Any]:
    """W&B's keys renamed or left out with a warning."""
    kept = dict(value)
    for theirs, ours in WANDB_ALIASES.items():
        if theirs in kept:
            if ours in kept:
                problems.add((theirs,), f"{theirs} and {ours} mean the same", "keep one of the two", key=True)
            kept.setdefault(ours, kept[theirs])
            del kept[theirs]
    for name in WANDB_IGNORED.intersection(kept):
        if name not in WANDB_SILENT:
            warnings.append(f"{name} has no effect here")
        del kept[name]
    warnings.sort()
    return kept


def _add_problem(details: ErrorDetails, problems: Problems) -> None:
    path: Path = tuple(details["loc"])
    if details["type"] == "extra_forbidden":
        _add_unknown_key(path, problems)
        return
    if details["type"] == "windlass":
        context = details["ctx"]
        name = str(path[0]) if len(path) == 1 else ".".join(map(str, path))
        message = context["message"]
        message = message if message.startswith(name) else f"{name}: {message}"
        problems.add(path + tuple(context["at"]), message, context["hint"])
        return
    if details["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        extra = StudyKeys.model_fields[str(path[0])].json_schema_extra
        example = str(extra["example"]) if isinstance(extra, dict) else ""
        keys = ", ".join(_keys_of(str(path[-1])))
        problems.add(path, f"{path[-1]} must be a mapping with the keys {keys}", example)
        return
    problems.add(path, f"{'.'.join(map(str, path))}: {details['msg'].lower()}")


def _keys_of(section: str) -> list[str]:
    return [field.alias or name for name, field in SECTIONS[section].model_fields.items()]


def _find_elsewhere(name: str) -> str:
    """Where a key belongs that exactly one other place of the file has; "" where there is no such place."""
    places = [f"{section}: {{{name}: …}}" for section in SECTIONS if name in _keys_of(section)]
    places += [f"{name}: …, outside of any section"] if name in StudyKeys.model_fields else []
    return f"it belongs to another place: {places[0]}" if len(places) == 1 else ""


def _add_unknown_key(path: Path, problems: Problems) -> None:
    name = str(path[-1])
    nested = len(path) > 1
    known = _keys_of(str(path[-2])) if nested else list(StudyKeys.model_fields)
    hint = did_you_mean(name, known) or _find_elsewhere(name) or f"the keys are {', '.join(known)}"
    owner = f"{path[-2]} has no key" if nested else "there is no key"
    problems.add(path, f"{owner} {name!r}", hint, key=True)
