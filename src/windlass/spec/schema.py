"""The study file as a JSON schema, with which editors complete and check it. Written to docs/ by `make docs`."""

from __future__ import annotations

from typing import Any

from windlass.settings import Row, rows_of
from windlass.spec.kinds import KINDS, choices_of
from windlass.spec.wandb import ALIASES, IGNORED


def render_schema() -> dict[str, Any]:
    """The schema of the whole file. It refuses no study that Windlass accepts; Windlass checks more than it can."""
    foreign: dict[str, Any] = {
        name: {"description": "A key of W&B, which has no effect here."} for name in IGNORED
    }
    renamed: dict[str, Any] = {
        name: {"description": f"The same as `{ours}`."} for name, ours in ALIASES.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Study file of Windlass",
        **_render_mapping(""),
        "properties": {**_render_properties(""), **renamed, **dict(sorted(foreign.items()))},
    }


def _render_mapping(section: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": _render_properties(section),
    }


def _render_properties(section: str) -> dict[str, Any]:
    return {name: _render_row(row) for name, row in rows_of(section).items()}


def _render_row(row: Row) -> dict[str, Any]:
    described: dict[str, Any] = {"description": describe(row)}
    if row.default_text:
        described["default"] = row.default_text
    if row.kind == "section":
        return {**described, **_render_mapping(row.name)}
    choices = choices_of(row)
    if choices:
        switches = [True, False] if "on" in choices else []
        return {**described, "enum": [*choices, *switches]}
    return {**described, **KINDS[row.kind].schema}


def describe(row: Row) -> str:
    """All that is written of a row: its help, and what only the reference has room for."""
    return f"{row.help} {row.more}".strip()
