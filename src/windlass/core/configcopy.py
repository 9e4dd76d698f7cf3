"""Writes a trial's own copy of the study's configuration file. Python 3.9, standard library.

plan.json holds the file as a tree, which `spec/config_tree.py` has read from it. A value that is no mapping and no list
is the text that stands for it in the file, so that what no parameter sets is read by the program as before. A mapping
is ``{"map": [[key, value], …]}``, a list is ``{"list": [value, …]}``; both may have a ``"tag"``.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from typing import Any

CONFIG = "{config}"  # what stands in a command for the path of the copy


def render_config(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The text of the copy: the file with every setting that has a place in it.

    Settings that a trial does not have leave the file's own value as it is. The text is YAML or JSON, as the file is.
    """
    tree: Any = copy.deepcopy(config["tree"])
    is_json = config["form"] == "json"
    for name, place in config["places"].items():
        if name in settings:
            value = settings[name]
            if place.get("float") and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            _put(tree, place["at"], render_inline(value, is_json), is_json)
    if is_json:
        return _render_json(tree, "\n") + "\n"
    return _render_yaml(tree, "\n").lstrip() + "\n"


def _put(tree: Any, steps: list[Any], text: str, is_json: bool) -> None:
    """Set one value. A number is a position in a mapping or a list, a text is a key that is added."""
    node = tree
    for step in steps[:-1]:
        node = _entry(node, step, is_json)[1]
    _entry(node, steps[-1], is_json)[1] = text


def _entry(node: Any, step: Any, is_json: bool) -> Any:
    """A pair of something and the value at a step; the value may be replaced in it."""
    if isinstance(step, int):
        return node["map"][step] if "map" in node else _Item(node["list"], step)
    key = render_inline(step, is_json)
    for entry in node["map"]:
        if entry[0] == key:
            return entry
    node["map"].append([key, {"map": []}])
    return node["map"][-1]


class _Item:
    """An item of a list, which looks like the pair of a key and a value that mappings consist of."""

    def __init__(self, items: list[Any], position: int) -> None:
        self._items = items
        self._position = position

    def __getitem__(self, _: int) -> Any:
        return self._items[self._position]

    def __setitem__(self, _: int, value: Any) -> None:
        self._items[self._position] = value


def render_inline(value: Any, is_json: bool) -> str:
    """A value on one line, so that every reader of YAML, or of JSON, finds the same type in it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _render_float(value, is_json)
    if isinstance(value, str):
        return quote(value, is_json)
    if isinstance(value, dict):
        pairs = [
            f"{render_inline(str(key), is_json)}: {render_inline(item, is_json)}"
            for key, item in value.items()
        ]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([render_inline(item, is_json) for item in value]) + "]"
    return str(value)


def _render_float(value: float, is_json: bool) -> str:
    if not math.isfinite(value):
        text = json.dumps(value)
        yaml = {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}
        return text if is_json else yaml[text]
    text = repr(float(value))
    mantissa, exponent_mark, exponent = text.partition("e")
    if exponent_mark and "." not in mantissa:
        mantissa += ".0"  # PyYAML takes 1e-05 for text
    return mantissa + exponent_mark + exponent


def quote(text: str, is_json: bool) -> str:
    """In double quotes. Characters that cannot be seen are escaped: some of them end a line in YAML."""
    if is_json:
        return json.dumps(text)
    signs = []
    for sign in text:
        if sign in '"\\' or (not sign.isprintable() and ord(sign) < 0x10000):
            signs.append(json.dumps(sign)[1:-1])
        elif not sign.isprintable():
            signs.append(f"\\U{ord(sign):08x}")
        else:
            signs.append(sign)
    return '"' + "".join(signs) + '"'


def _render_yaml(node: Any, line: str) -> str:
    """What follows a key and its colon. `line` begins a line with the indentation of the entries."""
    if isinstance(node, str):
        return " " + node if node else ""
    lead, entries, empty = _entries(node)
    text = f" {node['tag']}" if node.get("tag") else ""
    if not entries:
        return f"{text} {empty}"
    for key, child in entries:
        text += f"{line}{key}{lead}{_render_yaml(child, line + '  ')}"
    return text


def _render_json(node: Any, line: str) -> str:
    if isinstance(node, str):
        return node
    _, entries, empty = _entries(node)
    if not entries:
        return empty
    texts = []
    for key, child in entries:
        before = f"{key}: " if "map" in node else ""
        texts.append(f"{line}  {before}{_render_json(child, line + '  ')}")
    return empty[0] + ",".join(texts) + line + empty[1]


def _entries(node: dict[str, Any]) -> tuple[str, list[Any], str]:
    """What follows a key, the pairs of key and value, and how it is written without any."""
    if "map" in node:
        return ":", node["map"], "{}"
    return "-", [["", child] for child in node["list"]], "[]"
