"""One option of a program, as its ``--help`` describes it."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.spec.option_names import Kind


@dataclass(frozen=True)
class HelpOption:
    """One option of a script. A positional argument has an empty `flag`."""

    name: str  # fit for a placeholder: dashes and dots are underscores
    flag: str
    default: str | None
    choices: tuple[str, ...]
    kind: Kind
    help: str
    required: bool = False
    several: bool = False  # takes more than one word
