"""Reads what the ``--help`` of a Hydra program prints: its groups, and its configuration as YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from windlass.core.errors import InputError
from windlass.model import Written, WrittenInt
from windlass.spec.document import parse_document
from windlass.spec.help_option import HelpOption
from windlass.spec.option_names import Kind

_GROUP = re.compile(r"([\w/@.-]+): ([^,\s]+(?:, [^,\s]+)*)")


def hydra_options(text: str) -> Iterator[HelpOption]:
    """Every value of the configuration by its dotted name, and every group that offers a choice.

    A value that the program leaves open (``???``) is required.
    """
    groups, _, config = text.partition("== Config ==")
    for line in groups.splitlines():
        match = _GROUP.fullmatch(line.strip())
        if match and "," in match[2]:
            choices = tuple(match[2].split(", "))
            yield HelpOption(
                match[1], match[1], None, choices, "str", "a group of the configuration"
            )
    body = config.split("Powered by Hydra", 1)[0].partition("\n\n")[2]
    try:
        document, _ = parse_document(body, "the program's --help")
    except InputError:
        return
    if isinstance(document.value, dict):
        yield from _values(document.value, "")


def _values(config: dict[str, Any], prefix: str) -> Iterator[HelpOption]:
    for key, value in config.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _values(value, name + ".")
        elif value == "???":
            yield HelpOption(name, name, None, (), "str", "", required=True)
        else:
            yield HelpOption(
                name, name, _text(value), (), _kind(value), "", several=isinstance(value, list)
            )


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, list):
        return None
    if isinstance(value, (Written, WrittenInt)):
        return value.text
    return str(value)


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "float" if isinstance(value, float) else "str"
