"""`command`, `program` and `stages` → Stages."""

from __future__ import annotations

from typing import Any

from windlass.model import ArgsFormat, Stage
from windlass.spec.document import Path, Problems
from windlass.spec.fields import kind_of
from windlass.spec.keys import Keys
from windlass.spec.macros import DEFAULT_COMMAND, has_macros, replace_macros
from windlass.spec.words import UnclosedQuoteError, first_operator, mentions_variable, split_words

MAIN = "main"

# A stage and where its command stands, to place problems with it.
PlacedStage = tuple[Stage, Path]


def build_stages(keys: Keys, problems: Problems, warnings: list[str]) -> list[PlacedStage]:
    """The stages in order; exactly one of `command`, `stages` and `program` gives them."""
    builder = _Builder(keys, problems, warnings)
    if keys.stages is not None:
        for other in ("command", "program"):
            if getattr(keys, other) is not None:
                hint = f"put it under stages, or remove {other}"
                problems.add((other,), f"{other} and stages exclude each other", hint, key=True)
        return builder.stages()
    if keys.command is not None:
        return builder.one(MAIN, keys.command, ("command",))
    if keys.program is not None:
        return builder.one(MAIN, list(DEFAULT_COMMAND), ("program",))
    if not any(path in problems.document.value for path in ("command", "stages", "program")):
        problems.add((), "there is no command", "command: python train.py {args}")
    return []


def build_command(value: Any, path: Path, keys: Keys, problems: Problems) -> list[PlacedStage]:
    """The stage of a command that stands elsewhere in the study file; none where it cannot be read."""
    return _Builder(keys, problems, []).one(MAIN, value, path)


class _Builder:
    def __init__(self, keys: Keys, problems: Problems, warnings: list[str]) -> None:
        self._keys = keys
        self._problems = problems
        self._warnings = warnings

    def stages(self) -> list[PlacedStage]:
        """The stages of the study in order, each with its place in the file. A name that occurs twice is a problem."""
        found: list[PlacedStage] = []
        for name, value in self._keys.stages.items():
            path: Path = ("stages", name)
            if not _is_several(value):
                found += self.one(name, value, path)
                continue
            for number, command in enumerate(value):
                own_name = name if number == 0 else f"{name}-{number + 1}"
                found += self.one(own_name, command, (*path, number))
        names = [stage.name for stage, _ in found]
        for stage, path in found:
            if names.count(stage.name) > 1:
                self._problems.add(
                    path, f"two stages have the name {stage.name}", "rename one of them"
                )
        return found

    def one(self, name: str, value: Any, path: Path) -> list[PlacedStage]:
        """The stage of one command; none where it cannot be read."""
        if not isinstance(value, (str, list)) or not value:
            self._problems.add(
                path, f"a command must be text or a list of words, not {kind_of(value)}"
            )
            return []
        if self._keys.shell:
            return self._shell(name, value, path)
        words = self._split(value, path) if isinstance(value, str) else self._listed(value, path)
        if not words:
            return []
        args_format: ArgsFormat = self._keys.args or "--k v"
        if self._keys.program is not None or has_macros(words):
            words = replace_macros(words, self._keys.program, path, self._problems)
            args_format = self._keys.args or "--k=v"
        elif isinstance(value, str):
            self._warn_of_variables(value)
        return [(Stage(name, words, args_format=args_format), path)]

    def _shell(self, name: str, value: Any, path: Path) -> list[PlacedStage]:
        if not isinstance(value, str):
            hint = "write it as one string, or remove shell: true"
            self._problems.add(path, "with shell: true the command must be one string", hint)
            return []
        return [(Stage(name, (value,), shell=True, args_format=self._keys.args or "--k v"), path)]

    def _listed(self, value: list[Any], path: Path) -> tuple[str, ...]:
        for number, word in enumerate(value):
            if isinstance(word, (dict, list, bool)) or word is None:
                message = f"each word of a command must be text, not {kind_of(word)}"
                self._problems.add((*path, number), message, "put it in quotes")
                return ()
        return tuple(getattr(word, "text", None) or str(word) for word in value)

    def _split(self, text: str, path: Path) -> tuple[str, ...]:
        try:
            words = split_words(text)
        except UnclosedQuoteError as error:
            message = f"the command ends inside a quote: {error.quote} is opened and never closed"
            self._problems.add(
                path, message, f"close it, or write \\{error.quote} for the character itself"
            )
            return ()
        operator = first_operator(words)
        if operator is not None:
            message = f"{operator} means something only to a shell, and no shell is involved"
            self._problems.add(
                path, message, f"shell: true, or '{operator}' in quotes to pass it to the program"
            )
        if any(word.on_new_line for word in words):
            message = "the command has several lines, and no shell is involved"
            self._problems.add(
                path,
                message,
                "end a line that goes on with a backslash, or use stages, or shell: true",
            )
        if not words:
            self._problems.add(path, "the command is empty", "command: python train.py {args}")
        return tuple(word.text for word in words)

    def _warn_of_variables(self, text: str) -> None:
        variable = mentions_variable([word.text for word in split_words(text)])
        if variable:
            self._warnings.append(
                f"{variable} in the command is passed on as it stands; shell: true would replace it"
            )


def _is_several(value: Any) -> bool:
    """A list of commands rather than a list of words: it holds lists, or texts with spaces between words."""
    if not isinstance(value, list):
        return False
    if any(isinstance(item, list) for item in value):
        return True
    return all(isinstance(item, str) and len(item.split()) > 1 for item in value)
