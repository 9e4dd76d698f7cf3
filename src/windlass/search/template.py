"""Commands with placeholders: split once for a study, filled in for each trial.

A word is literal text and ``{name}`` placeholders; ``{{name}}`` is a literal ``{name}``, ``${name}`` is left
alone, and other braces have no meaning. Where a parameter is absent from a trial, the words that mention it
are dropped, and so is a flag (it starts with ``-``) directly before a word that is only the placeholder.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.model import Stage
from windlass.search.values import render_json, render_value, renderer_of

NAME_PATTERN = r"[^\W\d][\w./-]*"
# Words that become several words, or one made of all parameters.
ARGS_WORDS = frozenset({"args", "args_no_hyphens", "args_no_boolean_flags", "args_json"})
# Left in the words as they are; the agent puts a path, an environment variable's value, or words for resuming there.
AGENT_WORDS = frozenset({"args_json_file"})
# The agent's as well, but a parameter wins.
CHECKPOINT_WORDS = frozenset({"checkpoint", "checkpoint_dir", "resume"})
CONFIG_WORD = "config"  # likewise, in studies with `config:`
SHELL = ("/bin/sh", "-c")
ENVVAR_PREFIX = "envvar:"
BUILT_IN = frozenset({"trial_id", "study"})

_PLACEHOLDER = re.compile(
    rf"\{{\{{(?P<literal>{NAME_PATTERN})\}}\}}|(?<!\$)\{{(?P<name>{ENVVAR_PREFIX}\w+|{NAME_PATTERN})\}}"
)

Settings = Mapping[str, Any]
Names = tuple[str, ...]
Render = Callable[[Any], str]
Part = str | Callable[[Settings, str], str]  # of a word; called with a trial's settings and id


@dataclass(frozen=True)
class Placeholder:
    name: str
    position: int = 0  # in the word it was found in


Piece = str | Placeholder


def split_word(word: str) -> tuple[Piece, ...]:
    """Literal text and placeholders, in order; joining them back loses only the escapes."""
    pieces: list[Piece] = []
    literal, end = "", 0
    for match in _PLACEHOLDER.finditer(word):
        literal += word[end : match.start()]
        end = match.end()
        if match["literal"] is not None:
            literal += "{" + match["literal"] + "}"
            continue
        if literal:
            pieces.append(literal)
        literal = ""
        pieces.append(Placeholder(match["name"], match.start()))
    literal += word[end:]
    if literal or not pieces:
        pieces.append(literal)
    return tuple(pieces)


def placeholder_names(word: str) -> list[str]:
    """The names in a word, in order, each as often as it stands there."""
    return [piece.name for piece in split_word(word) if isinstance(piece, Placeholder)]


def fill_text(text: str, settings: Settings, extra: Mapping[str, str]) -> str:
    """A text with its placeholders filled in; names that neither mapping knows stay as they are."""
    filled = ""
    for piece in split_word(text):
        if isinstance(piece, str):
            filled += piece
        elif piece.name in settings:
            filled += render_value(settings[piece.name])
        else:
            filled += extra.get(piece.name, "{" + piece.name + "}")
    return filled


class Template:
    """The stages of a study, ready to be filled in.

    What depends only on which parameters are present is worked out once for each set of names: filling in a
    trial touches only the words that change.
    """

    def __init__(self, stages: tuple[Stage, ...], study_name: str) -> None:
        self._study_name = study_name
        self._stages = [(stage, [split_word(word) for word in stage.words]) for stage in stages]
        self._compiled: dict[tuple[str, ...], list[_CompiledStage]] = {}

    def fill(self, settings: Settings, trial_id: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The argument list of each stage for one trial."""
        names = tuple(settings)
        compiled = self._compiled.get(names)
        if compiled is None:
            compiled = [self._compile(stage, words, names) for stage, words in self._stages]
            self._compiled[names] = compiled
        if len(compiled) == 1:
            return (compiled[0].fill(settings, trial_id),)
        return tuple([stage.fill(settings, trial_id) for stage in compiled])

    def _compile(
        self, stage: Stage, words: list[tuple[Piece, ...]], names: Names
    ) -> _CompiledStage:
        compiler = _Compiler(stage, names, self._study_name)
        if stage.shell:
            compiler.add_shell_text(words[0])
        else:
            for word in words:
                compiler.add_word(word)
        return compiler.compiled


class _CompiledStage:
    """A stage for one set of parameter names: the words that never change, and where the others go."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.words: list[str] = []
        # Word number, literal text before the value, how to write the value, parameter.
        self.values: list[tuple[int, str, Render, str]] = []
        # Word number and its parts: literal text, or something to be called.
        self.mixed: list[tuple[int, list[Part]]] = []
        # Become any number of words.
        self.several: list[tuple[int, Callable[[Settings], list[str]]]] = []

    def fill(self, settings: Settings, trial_id: str) -> tuple[str, tuple[str, ...]]:
        words = self.words.copy()
        for number, before, render, name in self.values:
            words[number] = before + render(settings[name])
        for number, parts in self.mixed:
            texts = [part if isinstance(part, str) else part(settings, trial_id) for part in parts]
            words[number] = "".join(texts)
        for number, expand in reversed(self.several):
            words[number : number + 1] = expand(settings)
        return self.name, tuple(words)


class _Compiler:
    """Builds a `_CompiledStage`."""

    def __init__(self, stage: Stage, names: tuple[str, ...], study_name: str) -> None:
        self._stage = stage
        self._names = names
        self._study_name = study_name
        self.compiled = _CompiledStage(stage.name)

    def _is_absent(self, name: str) -> bool:
        known = name in self._names or name in BUILT_IN or name in ARGS_WORDS or _is_for_agent(name)
        return not known

    def add_word(self, pieces: tuple[Piece, ...]) -> None:
        """Add an argument. One that names an absent parameter is left out, with the option before it."""
        words = self.compiled.words
        if any(isinstance(piece, Placeholder) and self._is_absent(piece.name) for piece in pieces):
            if (
                len(pieces) == 1
                and words
                and words[-1].startswith("-")
                and self._is_literal(len(words) - 1)
            ):
                words.pop()
            return
        only = pieces[0] if len(pieces) == 1 else None
        if (
            isinstance(only, Placeholder)
            and only.name in ARGS_WORDS
            and only.name not in self._names
        ):
            self._add_args(only.name)
            return
        before = pieces[0] if len(pieces) == 2 and isinstance(pieces[0], str) else ""
        last = pieces[-1]
        simple = len(pieces) == 1 or bool(before)
        if simple and isinstance(last, Placeholder) and last.name in self._names:
            self.compiled.values.append((len(words), before, render_value, last.name))
            words.append("")
        elif all(isinstance(piece, str) for piece in pieces):
            words.append("".join(map(str, pieces)))
        else:
            self.compiled.mixed.append(
                (len(words), [self._part(piece, _unquoted) for piece in pieces])
            )
            words.append("")

    def _is_literal(self, number: int) -> bool:
        filled = {entry[0] for entry in self.compiled.values}
        filled.update(entry[0] for entry in self.compiled.mixed)
        return number not in filled and all(number != entry[0] for entry in self.compiled.several)

    def _add_args(self, word: str) -> None:
        words = self.compiled.words
        if word == "args_json":
            self.compiled.several.append(
                (len(words), lambda settings: [render_json(dict(settings))])
            )
            words.append("")
        elif word == "args_no_boolean_flags":
            self.compiled.several.append((len(words), _flags_without_booleans))
            words.append("")
        else:
            args_format = self._stage.args_format
            bare = word == "args_no_hyphens" or args_format == "k=v"
            # W&B writes values plainly in all its forms; only our own k=v is made for hydra.
            render = render_value if word == "args_no_hyphens" else renderer_of(args_format)
            apart = word == "args" and args_format == "--k v"
            for name in self._names:
                if apart:
                    words.append(f"--{name}")
                before = "" if apart else f"{name}=" if bare else f"--{name}="
                self.compiled.values.append((len(words), before, render, name))
                words.append("")

    def add_shell_text(self, pieces: tuple[Piece, ...]) -> None:
        """One string for the shell: every value is quoted for it, ``{args}`` becomes quoted words."""
        self.compiled.mixed.append(
            (len(SHELL), [self._part(piece, shlex.quote) for piece in pieces])
        )
        self.compiled.words += [*SHELL, ""]

    def _part(self, piece: Piece, quote: Render) -> Part:
        if isinstance(piece, str):
            return piece
        name = piece.name
        if name in self._names:
            return lambda settings, trial_id: quote(render_value(settings[name]))
        if name == "trial_id":
            return lambda settings, trial_id: quote(trial_id)
        if name == "study":
            return quote(self._study_name)
        if name in ARGS_WORDS:
            inner = _Compiler(self._stage, self._names, self._study_name)
            inner._add_args(name)
            return lambda settings, trial_id: " ".join(
                map(quote, inner.compiled.fill(settings, trial_id)[1])
            )
        if _is_for_agent(name):
            return "{" + name + "}"
        return ""  # an absent parameter inside a shell command


def _is_for_agent(name: str) -> bool:
    is_own = name in AGENT_WORDS or name in CHECKPOINT_WORDS or name == CONFIG_WORD
    return is_own or name.startswith(ENVVAR_PREFIX)


def _unquoted(text: str) -> str:
    return text


def _flags_without_booleans(settings: Settings) -> list[str]:
    """W&B's form: true is a bare flag, false is nothing, all else is ``--name=value``."""
    words = []
    for name, value in settings.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not False:
            words.append(f"--{name}={render_value(value)}")
    return words
