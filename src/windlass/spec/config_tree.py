"""Reads a configuration file, YAML or JSON, into the tree that `core/configcopy.py` writes trials' copies from."""

from __future__ import annotations

import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from windlass.core.configcopy import quote
from windlass.core.errors import InputError, Problem
from windlass.spec.document import parse_document

_TAG = "tag:yaml.org,2002:"
_MOST_VALUES = 100_000  # of a file; aliases are written out in each trial's copy
_FLOAT = re.compile(r"[-+]?(?:\d[\d_]*\.[\d_]*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")

Tree = Any  # a text, {"map": [[key, Tree], …]} or {"list": [Tree, …]}


def parse_config(text: str, file: str) -> tuple[Tree, dict[str, list[int]]]:
    """The tree of a file, and where each of its values is in it, by dotted names.

    Raises InputError for a file that cannot be read or that is no mapping.
    """
    parser = _Parser(file)
    places: dict[str, list[int]] = {}
    try:
        tree = parser.parse_json(text) if file.endswith(".json") else parser.parse_yaml(text)
        _find_places(tree, "", [], places, parser.names)
    except RecursionError:
        raise InputError([Problem("this file is nested too deeply", "", file)]) from None
    return tree, places


def value_at(tree: Tree, steps: list[int]) -> Tree:
    for step in steps:
        tree = tree["map"][step][1] if "map" in tree else tree["list"][step]
    return tree


def is_float(text: Tree) -> bool:
    """Whether a value is a number with a fraction or an exponent."""
    return isinstance(text, str) and _FLOAT.fullmatch(text) is not None


def _find_places(
    tree: Tree,
    prefix: str,
    steps: list[int],
    places: dict[str, list[int]],
    names: dict[int, list[str]],
) -> None:
    if isinstance(tree, str):
        return
    children = [child for _, child in tree["map"]] if "map" in tree else tree["list"]
    for number, child in enumerate(children):
        name = prefix + (names[id(tree)][number] if "map" in tree else str(number))
        places.setdefault(name, [*steps, number])
        _find_places(child, name + ".", [*steps, number], places, names)


class _Parser:
    def __init__(self, file: str) -> None:
        self._file = file
        self._count = 0
        self._open: set[int] = set()
        self._resolver = YAML(typ="safe", pure=True).resolver
        # Mapping of the tree, by identity → its keys as the program reads them.
        self.names: dict[int, list[str]] = {}

    def _wrong(self, message: str, hint: str = "", node: Node | None = None) -> InputError:
        mark = node.start_mark if node is not None else None
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return InputError([Problem(message, hint, self._file, line, column)])

    # -- JSON

    def parse_json(self, text: str) -> Tree:
        """The tree of a JSON file, with numbers as they are written there. Raises InputError with the line."""
        try:
            value = json.loads(
                text,
                object_pairs_hook=_Pairs,
                parse_int=_Text,
                parse_float=_Text,
                parse_constant=_Text,
            )
        except json.JSONDecodeError as error:
            message = f"not valid JSON: {error.msg}"
            raise InputError(
                [Problem(message, "", self._file, error.lineno, error.colno)]
            ) from None
        if not isinstance(value, _Pairs):
            raise self._wrong("a configuration file is a mapping of keys to values", '{"lr": 0.1}')
        return self._json_tree(value)

    def _json_tree(self, value: Any) -> Tree:
        self._add_one(None)
        if isinstance(value, _Pairs):
            keys = [key for key, _ in value]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise self._wrong(
                    f"the key {twice!r} stands twice in one mapping", "keep one of the two"
                )
            tree: Tree = {"map": [[json.dumps(key), self._json_tree(item)] for key, item in value]}
            self.names[id(tree)] = keys
            return tree
        if isinstance(value, list):
            return {"list": [self._json_tree(item) for item in value]}
        return str(value) if isinstance(value, _Text) else json.dumps(value)

    # -- YAML

    def parse_yaml(self, text: str) -> Tree:
        document, _ = parse_document(text, self._file)
        if not isinstance(document.root, MappingNode):
            raise self._wrong(
                "a configuration file is a mapping of keys to values", "lr: 0.1", document.root
            )
        return self._yaml_tree(document.root)

    def _add_one(self, node: Node | None) -> None:
        self._count += 1
        if self._count > _MOST_VALUES:
            raise self._wrong(
                f"this file has more than {_MOST_VALUES} values",
                "leave out what no trial needs",
                node,
            )

    def _yaml_tree(self, node: Node) -> Tree:
        self._add_one(node)
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise self._wrong("this value contains itself", "", node)
        self._open.add(id(node))
        if isinstance(node, SequenceNode):
            tree: Tree = {"list": [self._yaml_tree(item) for item in node.value]}
        else:
            pairs = self._pairs(node)
            tree = {
                "map": [
                    [self._scalar(key), self._yaml_tree(value)] for key, value in pairs.values()
                ]
            }
            self.names[id(tree)] = list(pairs)
        self._open.discard(id(node))
        if str(node.tag) not in (_TAG + "map", _TAG + "seq"):
            tree["tag"] = f"!<{node.tag}>"
        return tree

    def _pairs(self, node: Node) -> dict[str, tuple[ScalarNode, Node]]:
        """The keys and values of a mapping, with those that are merged into it by ``<<``."""
        merged: dict[str, tuple[ScalarNode, Node]] = {}
        own: dict[str, tuple[ScalarNode, Node]] = {}
        for key, value in node.value:
            if str(key.tag) == _TAG + "merge":
                sources = value.value if isinstance(value, SequenceNode) else [value]
                for source in sources:
                    if not isinstance(source, MappingNode):
                        raise self._wrong("<< takes a mapping, or a list of mappings", "", source)
                    merged = {**self._pairs(source), **merged}
                continue
            if not isinstance(key, ScalarNode):
                raise self._wrong(
                    "a key that is a mapping or a list cannot be copied",
                    "use a text as the key",
                    key,
                )
            if key.value in own:
                raise self._wrong(
                    f"the key {key.value!r} stands twice in one mapping", "keep one of the two", key
                )
            own[str(key.value)] = (key, value)
        return {**merged, **own}

    def _scalar(self, node: ScalarNode) -> str:
        """The text that stands for a scalar: as it was written, or in quotes where that took several lines."""
        text, tag = str(node.value), str(node.tag)
        plain = node.style is None
        usual = (
            str(self._resolver.resolve(ScalarNode, text, (True, False))) if plain else _TAG + "str"
        )
        written = text if plain and "\n" not in text else quote(text, is_json=False)
        return written if tag == usual else f"!<{tag}> {written}"


class _Pairs(list[tuple[str, Any]]):
    """An object of a JSON file."""


class _Text(str):
    """A number of a JSON file, as it was written."""
