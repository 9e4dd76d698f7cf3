"""A document → its checked keys, or sentences with line, column and a fix."""

from __future__ import annotations

from typing import Any

from windlass.core.meant import did_you_mean
from windlass.settings import rows_of, section_names
from windlass.spec.document import Path, Problems
from windlass.spec.fields import WrongValue
from windlass.spec.keys import Keys
from windlass.spec.kinds import check_value
from windlass.spec.wandb import ALIASES, IGNORED, SILENT


def check_keys(value: dict[str, Any], problems: Problems, warnings: list[str]) -> Keys:
    """The keys that are right; a problem for each that is not."""
    kept = _without_foreign_keys(value, problems, warnings)
    for name in [key for key, item in kept.items() if item is None]:
        problems.add(
            (name,), f"{name} has no value", f"give it one, or remove the line {name}:", key=True
        )
        del kept[name]
    return _check_section("", kept, (), problems)


def _check_section(section: str, given: dict[str, Any], path: Path, problems: Problems) -> Keys:
    """The checked values of a section. A section in which something is wrong counts as not given."""
    values: dict[str, Any] = {}
    rows = rows_of(section)
    for name in [
        *(name for name in rows if name in given),
        *(name for name in given if name not in rows),
    ]:
        before = len(problems.found)
        checked = _check_key(section, name, given[name], (*path, name), problems)
        if len(problems.found) == before:
            values[name] = checked
    return Keys(section, values)


def _check_key(section: str, name: str, value: Any, path: Path, problems: Problems) -> Any:
    row = rows_of(section).get(name)
    if row is None:
        _add_unknown_key(path, problems)
        return None
    if row.kind != "section":
        try:
            return check_value(row, value)
        except WrongValue as error:
            label = ".".join(map(str, path))
            message = (
                error.message if error.message.startswith(label) else f"{label}: {error.message}"
            )
            problems.add(path + error.at, message, error.hint)
            return None
    if isinstance(value, dict):
        return _check_section(name, value, path, problems)
    keys = ", ".join(rows_of(name))
    problems.add(path, f"{name} must be a mapping with the keys {keys}", f"{name}: {row.example}")
    return None


def _without_foreign_keys(
    value: dict[str, Any], problems: Problems, warnings: list[str]
) -> dict[str, Any]:
    """W&B's keys renamed or left out with a warning."""
    kept = dict(value)
    for theirs, ours in ALIASES.items():
        if theirs in kept:
            if ours in kept:
                problems.add(
                    (theirs,), f"{theirs} and {ours} mean the same", "keep one of the two", key=True
                )
            kept.setdefault(ours, kept[theirs])
            del kept[theirs]
    ignored = set(IGNORED)
    if isinstance(kept.get("launch"), dict):
        ignored.add("launch")  # W&B has a mapping there; a launcher of ours is a name.
    for name in ignored.intersection(kept):
        if name not in SILENT:
            warnings.append(f"{name} has no effect here")
        del kept[name]
    warnings.sort()
    return kept


def _find_elsewhere(name: str) -> str:
    """Where a key belongs that exactly one other place of the file has; "" where there is no such place."""
    places = [
        f"{section}: {{{name}: …}}" for section in section_names() if name in rows_of(section)
    ]
    places += [f"{name}: …, outside of any section"] if name in rows_of("") else []
    return f"it belongs to another place: {places[0]}" if len(places) == 1 else ""


def _add_unknown_key(path: Path, problems: Problems) -> None:
    name = str(path[-1])
    nested = len(path) > 1
    known = list(rows_of(str(path[-2]) if nested else ""))
    hint = did_you_mean(name, known) or _find_elsewhere(name) or f"the keys are {', '.join(known)}"
    owner = f"{path[-2]} has no key" if nested else "there is no key"
    problems.add(path, f"{owner} {name!r}", hint, key=True)
