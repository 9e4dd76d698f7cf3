"""`ladder` of a study file → rungs: smaller versions of the training, each with what it must reach."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.model import Rung, Space, Stage
from windlass.search.template import AGENT_WORDS, ARGS_WORDS, CONFIG_WORD, placeholder_names
from windlass.spec.commands import PlacedStage, build_command
from windlass.spec.document import Path, Problems
from windlass.spec.keys import Keys
from windlass.spec.space import names_of
from windlass.spec.usage import check_known
from windlass.spec.words import UnclosedQuoteError, split_words


def build_ladder(
    keys: Keys, stages: list[PlacedStage], space: Space, problems: Problems
) -> tuple[Rung, ...]:
    """The rungs, each with its whole command."""
    own = tuple(stage for stage, _ in stages)
    return tuple(
        _build_rung(rung, ("ladder", number), keys, own, space, problems)
        for number, rung in enumerate(keys.ladder or ())
    )


def _build_rung(
    rung: Mapping[str, Any],
    path: Path,
    keys: Keys,
    study: tuple[Stage, ...],
    space: Space,
    problems: Problems,
) -> Rung:
    stages = study
    if rung.get("command") is not None:
        placed = build_command(rung["command"], (*path, "command"), keys, problems)
        stages = tuple(stage for stage, _ in placed)
    words = _split(rung.get("args"), (*path, "args"), problems)
    if words and stages:
        stages = _with_args(stages, words)
    own = [CONFIG_WORD] if keys.config is not None else []
    names = [
        *names_of(space),
        *own,
        *(name for name in rung["parameters"] if name not in names_of(space)),
    ]
    for key, texts in (("args", words), ("command", [w for stage in stages for w in stage.words])):
        if rung.get(key) is not None:
            for name in {name for text in texts for name in placeholder_names(text)}:
                check_known(name, names, (*path, key), problems, with_args=True)
    _check_used(rung["parameters"], stages, keys, (*path, "parameters"), problems)
    return Rung(
        rung["name"],
        rung["expect"],
        stages,
        rung["parameters"],
        stages != study,
        rung.get("timeout"),
    )


def _with_args(stages: tuple[Stage, ...], words: Sequence[str]) -> tuple[Stage, ...]:
    """The words go to the stage that has `{args}`, else to the first."""
    spread = [n for n, stage in enumerate(stages) if ARGS_WORDS & _names(stage)]
    chosen = spread[0] if spread else 0
    stage = stages[chosen]
    longer = (f"{stage.words[0]} {shlex.join(words)}",) if stage.shell else (*stage.words, *words)
    return (*stages[:chosen], replace(stage, words=longer), *stages[chosen + 1 :])


def _names(stage: Stage) -> set[str]:
    return {name for word in stage.words for name in placeholder_names(word)}


def _check_used(
    parameters: Mapping[str, Any],
    stages: tuple[Stage, ...],
    keys: Keys,
    path: Path,
    problems: Problems,
) -> None:
    used = set().union(*(_names(stage) for stage in stages)) if stages else set()
    used |= {name for text in (keys.env or {}).values() for name in placeholder_names(text)}
    if not stages or (ARGS_WORDS | AGENT_WORDS | {CONFIG_WORD}) & used:
        return
    for name in parameters:
        if name not in used:
            hint = f"args: --{name} {parameters[name]}, or {{{name}}} in the command"
            problems.add((*path, name), f"no command uses the parameter {name}", hint, key=True)


def _split(value: Any, path: Path, problems: Problems) -> tuple[str, ...]:
    if value is None or isinstance(value, list):
        return tuple(value or ())
    try:
        return tuple(word.text for word in split_words(value))
    except UnclosedQuoteError as error:
        problems.add(path, f"a quote is opened and never closed: {error.quote}", "close it")
        return ()
