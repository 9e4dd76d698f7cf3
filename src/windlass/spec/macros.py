"""W&B's command macros → our placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterable

from windlass.core.meant import did_you_mean
from windlass.core.paths import NODE_VARIABLES
from windlass.spec.document import Path, Problems

DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")

_MACRO = re.compile(r"\$\{([A-Za-z_]\w*(?::[A-Za-z_]\w*)?)\}")
_PLACEHOLDERS = {
    "args": "{args}",
    "args_no_hyphens": "{args_no_hyphens}",
    "args_no_boolean_flags": "{args_no_boolean_flags}",
    "args_json": "{args_json}",
    "args_json_file": "{args_json_file}",
}
KNOWN = frozenset({"env", "interpreter", "program", *_PLACEHOLDERS})


def has_macros(words: Iterable[str]) -> bool:
    """Whether a command is written in W&B's way."""
    names = (match[1] for word in words for match in _MACRO.finditer(word))
    return any(name in KNOWN or name.startswith("envvar:") for name in names)


def replace_macros(
    words: Iterable[str], program: str | None, path: Path, problems: Problems
) -> tuple[str, ...]:
    """The words with every macro replaced; a macro W&B does not have is a problem."""
    return tuple(
        _MACRO.sub(lambda match: _replacement(match[1], program, path, problems), word)
        for word in words
    )


def _replacement(name: str, program: str | None, path: Path, problems: Problems) -> str:
    if name == "env":
        return "/usr/bin/env"
    if name == "interpreter":
        return "python"
    if name == "program":
        if program is None:
            problems.add(
                path, "the command has ${program}, and there is no program", "program: train.py"
            )
        return program or ""
    if name in NODE_VARIABLES:
        return f"${{{name}}}"
    if name.startswith("envvar:"):
        return "{" + name + "}"
    if name not in _PLACEHOLDERS:
        hint = (
            did_you_mean(name, KNOWN) or f"${{envvar:{name}}} for the environment variable {name}"
        )
        problems.add(path, f"there is no macro ${{{name}}}", hint)
        return ""
    return _PLACEHOLDERS[name]
