"""Placeholders against parameters: each placeholder must have one, each parameter must be used."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from windlass.core.meant import nearest_word
from windlass.model import Space, Stage
from windlass.search.template import (
    AGENT_WORDS,
    ARGS_WORDS,
    BUILT_IN,
    CHECKPOINT_WORDS,
    CONFIG_WORD,
    ENVVAR_PREFIX,
    Placeholder,
    placeholder_names,
    split_word,
)
from windlass.spec.commands import PlacedStage
from windlass.spec.config_file import ConfigReader
from windlass.spec.document import Path, Problems
from windlass.spec.space import names_of


def check_usage(
    stages: list[PlacedStage],
    space: Space,
    texts: Mapping[Path, str],
    places: Mapping[str, Path],
    problems: Problems,
    config: ConfigReader,
) -> set[str]:
    """Problems for placeholders without a parameter and parameters that neither a command nor `config` uses.

    `texts` are the other places for placeholders (`env`, `outputs`), `places` where the parameters stand. Returns the
    names of the placeholders.
    """
    names, broken = names_of(space), set[str]()
    if space.seed_name not in names and "seeds" in problems.document.value:
        broken = {space.seed_name}  # the seeds have a problem of their own
    conditional = {parameter.name for parameter in space.parameters if parameter.when}
    used: set[str] = set()
    for stage, path in stages:
        for word in stage.words:
            used.update(_check_word(word, stage, path, [*names, *broken, *config.words], problems))
            if stage.shell:
                _check_shell(word, path, conditional, problems)
    for path, text in texts.items():
        for name in placeholder_names(text):
            used.update(
                (name, check_known(name, [*names, *broken], path, problems, with_args=False))
            )
    if stages and not (ARGS_WORDS | AGENT_WORDS) & used:
        for name in names:
            if name not in used and not config.takes(name):
                _add_unused(name, stages[0], space, places, problems, config)
    return used


def _check_word(
    word: str, stage: Stage, path: Path, names: list[str], problems: Problems
) -> set[str]:
    pieces = split_word(word)
    found = {piece.name for piece in pieces if isinstance(piece, Placeholder)}
    meant = {check_known(name, names, path, problems, with_args=True) for name in sorted(found)}
    for name in found:
        if name in ARGS_WORDS and not _stands_alone(word, name, stage.shell):
            problems.add(
                path, f"{{{name}}} becomes several words and must stand alone", f"… {{{name}}} …"
            )
    return found | meant


def _stands_alone(word: str, name: str, shell: bool) -> bool:
    return f"{{{name}}}" in (word.split() if shell else [word])


def check_known(
    name: str, names: list[str], path: Path, problems: Problems, with_args: bool
) -> str:
    """The parameter that a placeholder stands for, or, with a problem, the one that was probably meant."""
    known = {
        *names,
        *BUILT_IN,
        *((ARGS_WORDS | AGENT_WORDS | CHECKPOINT_WORDS) if with_args else ()),
    }
    if name in known or (with_args and name.startswith(ENVVAR_PREFIX)):
        return name
    nearest = nearest_word(name, [*names, *BUILT_IN, "args"])
    hint = f"did you mean {{{nearest}}}? " if nearest else ""
    if name == "seed":
        hint = "add seeds: 5. "
    elif name == CONFIG_WORD:
        hint = "add config: conf.yaml, the file of which each trial gets a copy. "
    elif name == "data":
        hint = "data are below ${SLURM_TMPDIR}, by the path that data: names, e.g. ${SLURM_TMPDIR}/datasets/mnist. "
    hint += f"{{{{{name}}}}} stands for a literal {{{name}}}"
    problems.add(path, f"{{{name}}} stands for no parameter", hint)
    return nearest


def _check_shell(text: str, path: Path, conditional: set[str], problems: Problems) -> None:
    """In a shell command, values bring their own quotes, and words cannot be dropped."""
    quotes = _quoted_positions(text)
    for piece in split_word(text):
        if not isinstance(piece, Placeholder):
            continue
        if piece.position in quotes:
            message = f"{{{piece.name}}} stands inside quotes, and its value is quoted already"
            problems.add(path, message, f"remove the quotes around {{{piece.name}}}")
        elif piece.name in conditional:
            message = f"{{{piece.name}}} is not there in every trial, and a shell command cannot leave it out"
            problems.add(path, message, "use {args}, or a command without shell: true")


def _quoted_positions(text: str) -> set[int]:
    positions: set[int] = set()
    quote = ""
    escaped = False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            if character == quote:
                quote = ""
            positions.add(position)
        elif character in "'\"":
            quote = character
    return positions


def _add_unused(
    name: str,
    placed: PlacedStage,
    space: Space,
    places: Mapping[str, Path],
    problems: Problems,
    config: ConfigReader,
) -> None:
    stage, path = placed
    is_seed = bool(space.seeds) and name == space.seed_name
    if config.file:
        place = ("seeds",) if is_seed else places.get(name, ("parameters",))
        problems.add(
            place, f"{config.file} has no key {name!r}", config.hint_for(name, is_seed), key=True
        )
        return
    written = problems.document.value.get(path[0]) if len(path) == 1 else None
    command = (
        written.strip() if isinstance(written, str) and path[0] == "command" else _join(stage.words)
    )
    if is_seed:
        message, hint = "no command uses the seed", f"command: {command} --{name} {{{name}}}"
        problems.add(("seeds",), message, hint, key=True)
        return
    hint = f"command: {command} --{name} {{{name}}}, or {{args}} for all parameters"
    problems.add(
        places.get(name, ("parameters",)), f"no command uses the parameter {name}", hint, key=True
    )


def _join(words: Iterable[str]) -> str:
    """Words as a command line; placeholders stay readable."""
    return " ".join(
        word if placeholder_names(word) and " " not in word else shlex.quote(word) for word in words
    )
