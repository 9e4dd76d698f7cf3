"""Parameter values as text: what the program sees on its command line, in each of the argument formats."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.model import ArgsFormat, Written, WrittenInt

_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_HYDRA_BARE = re.compile(r"[A-Za-z_/][\w./+@%-]*", re.ASCII)
_HYDRA_WORDS = frozenset({"true", "false", "null", "nan", "inf"})


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical_json(value: Any) -> str:
    """One text for one value: equal values have equal texts, however they were written."""
    return _encode(value)


def value_key(value: Any) -> Hashable:
    """What `when` and `exclude` compare by: numbers by size (1 is 1.0), and ``true`` is not 1."""
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, (int, float)):
        return ("number", value)
    if isinstance(value, str):
        return value
    return ("other", canonical_json(value))


@dataclass(frozen=True)
class _Notation:
    """How a language writes the values that are not plain text."""

    true: str
    false: str
    none: str
    string: Callable[[str], str]
    key: Callable[[str], str]
    comma: str
    colon: str


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _hydra_string(text: str) -> str:
    """Bare where hydra reads the same text back, else in single quotes with hydra's own escapes."""
    if _HYDRA_BARE.fullmatch(text) and text.lower() not in _HYDRA_WORDS:
        return text
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[-1] * trailing if trailing else ''}'"


def _hydra_key(text: str) -> str:
    """Hydra takes no quotes around keys, only backslashes in them."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", text)


_JSON = _Notation("true", "false", "null", _json_string, _json_string, ", ", ": ")
_HYDRA = _Notation("true", "false", "null", _hydra_string, _hydra_key, ",", ":")
_PYTHON = _Notation("True", "False", "None", repr, repr, ",", ":")


def _render_in(value: Any, notation: _Notation) -> str:
    if isinstance(value, bool):
        return notation.true if value else notation.false
    if value is None:
        return notation.none
    if isinstance(value, str):
        return notation.string(value)
    if isinstance(value, Mapping):
        keys = (notation.key(str(key)) for key in value)
        items = (_render_in(item, notation) for item in value.values())
        return (
            "{" + notation.comma.join(map(notation.colon.join, zip(keys, items, strict=True))) + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + notation.comma.join(_render_in(item, notation) for item in value) + "]"
    if isinstance(value, Written) and _JSON_NUMBER.fullmatch(value.text):
        return value.text
    return repr(float(value)) if isinstance(value, float) else repr(value)


def _written(value: Written | WrittenInt) -> str:
    return value.text


def _plain_bool(value: bool) -> str:
    return "True" if value else "False"


def _unchanged(value: str) -> str:
    return value


# By exact type: this runs once for each placeholder of each trial.
_PLAIN: dict[type, Callable[[Any], str]] = {
    str: _unchanged,
    int: repr,
    float: repr,
    Written: _written,
    WrittenInt: _written,
    bool: _plain_bool,
    type(None): repr,
}


def render_value(value: Any) -> str:
    """A value as a program's argument: text unchanged, numbers as written, lists and mappings as JSON."""
    render = _PLAIN.get(type(value))
    return render(value) if render else _render_in(value, _JSON)


def render_json(value: Any) -> str:
    """A value as JSON text, numbers as written where JSON allows it."""
    return _render_in(value, _JSON)


def render_hydra(value: Any) -> str:
    """A value as hydra reads it behind ``key=``."""
    if isinstance(value, (Written, WrittenInt)):
        return value.text
    return _render_in(value, _HYDRA)


def render_fire(value: Any) -> str:
    """A value as Google's fire reads it behind ``--key=``: text that fire would misread is quoted."""
    if isinstance(value, str):
        return repr(value) if _fire_misreads(value) else value
    if isinstance(value, (Written, WrittenInt)):
        return value.text
    return _render_in(value, _PYTHON)


def _fire_misreads(text: str) -> bool:
    """Fire evaluates whatever parses as a Python expression, except a lone name; the rest stays text."""
    if text.isidentifier():
        return text in {"True", "False", "None"}
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def renderer_of(args_format: ArgsFormat) -> Callable[[Any], str]:
    """How `args_format` writes a value."""
    return {"k=v": render_hydra, "fire": render_fire}.get(args_format, render_value)
