"""The verbs and their options as completion needs them, from a file that `make docs` writes.

Reading the verbs themselves would import click, pydantic and the YAML reader at every press of the tab key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "table.json")


@dataclass(frozen=True)
class Word:
    """An option or an argument: what its values are."""

    kind: str = ""  # what completes a value: a key of candidates.KINDS; "": nothing does
    choices: tuple[str, ...] = ()
    help: str = ""
    takes_value: bool = True
    many: bool = False  # an argument that stands for all that follow


@dataclass(frozen=True)
class Verb:
    """A verb, or a verb of a verb (`data pack`)."""

    help: str = ""
    options: Mapping[str, Word] = field(default_factory=dict)  # by each of its names
    arguments: tuple[Word, ...] = ()
    verbs: Mapping[str, Verb] = field(default_factory=dict)

    def argument(self, place: int) -> Word:
        """What the argument at this place is; an empty name where the verb takes no more."""
        if place < len(self.arguments):
            return self.arguments[place]
        return self.arguments[-1] if self.arguments and self.arguments[-1].many else Word()


def read_table() -> Verb:
    """The command itself, with all its verbs."""
    with open(PATH, encoding="utf-8") as file:
        return parse_verb(json.load(file))


def parse_verb(text: Mapping[str, Any]) -> Verb:
    """A verb with its options, arguments and verbs below it, from table.json."""
    options: dict[str, Word] = {}
    for one in text.get("options", ()):
        options.update(dict.fromkeys(one["names"], _parse_word(one)))
    arguments = tuple(_parse_word(one) for one in text.get("arguments", ()))
    verbs = {name: parse_verb(one) for name, one in text.get("verbs", {}).items()}
    return Verb(text.get("help", ""), options, arguments, verbs)


def _parse_word(text: Mapping[str, Any]) -> Word:
    """An option's value, or an argument, from table.json."""
    return Word(
        kind=text.get("kind", ""),
        choices=tuple(text.get("choices", ())),
        help=text.get("help", ""),
        takes_value=text.get("value", True),
        many=text.get("many", False),
    )
