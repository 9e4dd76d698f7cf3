"""Commands that make several trials write to one place, such as one ``--output-dir``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from windlass.model import Plan, Space, Study
from windlass.search.template import ARGS_WORDS, placeholder_names
from windlass.spec.option_names import is_output_place, own_place

_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.DOTALL)
# As Hydra has it.
_OVERRIDE = re.compile(r"\+{0,2}(?P<name>[A-Za-z][\w.]*)=(?P<value>.*)", re.DOTALL)
# Placeholders that tell trials apart.
_OWN = "trial_id", "checkpoint", "checkpoint_dir", "resume", "config"


def find_place_warnings(plan: Plan) -> Iterator[str]:
    """A warning for each option that names one place to write to for several trials.

    Where each trial has a working folder of its own, relative places are its own as well.
    """
    study = plan.study
    if plan.trial_count < 2:
        return
    found: dict[str, str] = {}
    for flag, value in _places(study):
        if (
            value.startswith(("-", "/dev/"))
            or "$" in value
            or (plan.own_folders and not value.startswith("/"))
        ):
            continue
        missing = _not_told_apart(value, study.space)
        if missing is None:
            continue
        which = "all trials"
        if len(missing) < len(_varying(study.space)):
            which = f"trials that differ in {missing[0]} alone"
        found.setdefault(
            flag,
            f"{which} write to {value} ({flag}) and replace each other's files; use {own_place(value)}",
        )
    yield from found.values()


def _places(study: Study) -> Iterator[tuple[str, str]]:
    """Options of commands, and parameters of one value, that say where a program writes; and what they say."""
    for stage in study.stages:
        if not stage.shell:
            yield from _options(stage.words)
    for parameter in study.space.parameters:
        if (
            len(parameter.values) == 1
            and isinstance(parameter.values[0], str)
            and _is_place(parameter.name)
        ):
            yield parameter.name, parameter.values[0]
    seen: set[tuple[str, str]] = set()
    for words in study.tasks:
        own = set(_options(words))
        yield from own & seen  # lines of a file of commands that name the same place
        seen |= own


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, word in enumerate(words):
        match = _FLAG.fullmatch(word)
        if match and _is_place(match["name"]):
            behind = words[number + 1] if number + 1 < len(words) else "-"
            yield word.split("=")[0], match["value"] if match["value"] is not None else behind
            continue
        match = _OVERRIDE.fullmatch(word)
        if match and _is_place(match["name"]):
            yield match["name"], match["value"]


def _is_place(name: str) -> bool:
    return is_output_place(name.replace("-", "_"))


def _not_told_apart(value: str, space: Space) -> list[str] | None:
    """The parameters in which trials differ that share this place; None where each trial has its own."""
    names = placeholder_names(value)
    if any(name in _OWN or name in ARGS_WORDS or ":" in name for name in names):
        return None
    if space.rows or any(parameter.when for parameter in space.parameters):
        return None if names else _varying(space)
    missing = [name for name in _varying(space) if name not in names]
    return missing if missing or not names else None


def _varying(space: Space) -> list[str]:
    names = [
        one.name for one in space.parameters if len(one.values) > 1 or one.distribution is not None
    ]
    if len(space.seeds) > 1:
        names.append(space.seed_name)
    return names
