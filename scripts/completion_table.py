"""The table that completion reads: every verb with its options and arguments, and what completes their values."""

from __future__ import annotations

import json
from typing import Any

import click

from windlass.cli import VERBS, windlass
from windlass.cli.examples import read_examples

# What completes a value: by the option's name or by the placeholder that --help shows. See completion/candidates.py.
_BY_NAME = {
    "--study": "study",
    "--by": "parameters",
    "--state": "states",
    "--configs": "study-file",
    "--output": "files",
}
_BY_PLACEHOLDER = {
    "STUDY|JOB": "study",
    "STUDY": "study",
    "STUDY] [TRIAL": "study-or-trial",
    "TRIAL": "trial",
    "STUDY.yaml | PATHS": "files",
    "SCRIPT": "files",
    "NAME=VALUES": "parameter",
    "NAME=VALUE": "setting",
    "FILE": "files",
    "PATH": "folders",
    "PATHS": "files",
    "FOLDER": "folders",
}
_SITES = ("--site",)
_CHOICES = {
    "--example": ["list", *sorted(read_examples())],
}


def render_table() -> str:
    """JSON, one option a line, so that a change of one is a change of one line."""
    root = click.Context(windlass, info_name="windlass", help_option_names=["-h", "--help"])
    table: dict[str, Any] = {"options": _options(windlass, root), "verbs": {}}
    for name in VERBS:
        verb = windlass.get_command(root, name)
        assert verb is not None
        table["verbs"][name] = {"help": VERBS[name], **_describe(verb, name, root)}
    return _render(table, 0) + "\n"


def _describe(verb: click.Command, verb_name: str, root: click.Context) -> dict[str, Any]:
    context = click.Context(
        verb, info_name=verb.name, parent=root, help_option_names=["-h", "--help"]
    )
    described: dict[str, Any] = {"options": _options(verb, context)}
    if isinstance(verb, click.Group):
        inner = {}
        for name in verb.list_commands(context):
            one = verb.get_command(context, name)
            assert one is not None
            inner[name] = {"help": one.get_short_help_str(80), **_describe(one, name, context)}
        return {**described, "verbs": inner}
    of_file = any("--param" in option.opts for option in verb.params)
    arguments = [one for one in verb.params if isinstance(one, click.Argument)]
    return {
        **described,
        "arguments": [_argument(one, verb_name, context, of_file) for one in arguments],
    }


def _options(verb: click.Command, context: click.Context) -> list[dict[str, Any]]:
    found = []
    for one in verb.get_params(context):
        if not isinstance(one, click.Option) or one.hidden:
            continue
        described: dict[str, Any] = {"names": [*one.opts, *one.secondary_opts]}
        if one.is_flag or one.count:
            described["value"] = False
        else:
            described.update(_values(one, context))
        text = (one.help or "").split("; ")[0].split(" (")[0].rstrip(".")
        found.append({**described, "help": text})
    return found


def _argument(
    one: click.Argument, verb: str, context: click.Context, of_file: bool
) -> dict[str, Any]:
    described = _values(one, context)
    if one.name == "study" and (of_file or verb == "doctor"):
        described["kind"] = "study-file"
    if one.name == "script":
        described["kind"] = "script"
    if one.name == "name" and verb == "site":
        described["kind"] = "site"
    return {**described, "many": True} if one.nargs == -1 else described


def _values(one: click.Parameter, context: click.Context) -> dict[str, Any]:
    if isinstance(one.type, click.Choice):
        return {"choices": list(one.type.choices)}
    for name in one.opts:
        if name in _CHOICES:
            return {"choices": _CHOICES[name]}
        if name in _SITES:
            return {"kind": "site"}
        if name in _BY_NAME:
            return {"kind": _BY_NAME[name]}
    placeholder = one.make_metavar(context).strip("[].").removesuffix("...").strip("[]")
    kind = _BY_PLACEHOLDER.get(placeholder)
    return {"kind": kind} if kind else {}


def _render(value: Any, depth: int) -> str:
    """Verbs and lists over several lines, an option or an argument on one."""
    pad = " " * (depth + 1)
    if isinstance(value, dict) and ("verbs" in value or "options" in value or depth == 1):
        rows = [f"{pad}{json.dumps(key)}: {_render(one, depth + 1)}" for key, one in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = [pad + json.dumps(one, ensure_ascii=False) for one in value]
        return "[\n" + ",\n".join(rows) + "\n" + " " * depth + "]"
    return json.dumps(value, ensure_ascii=False)
