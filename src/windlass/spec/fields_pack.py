"""Values of the keys about sharing and progress → what they mean. See fields.py."""

from __future__ import annotations

import re
from typing import Any

from windlass.launchers.base import launcher_names
from windlass.model import ProgressSpec
from windlass.search.template import placeholder_names
from windlass.spec.fields import WrongValue, check_amount, check_text, compile_pattern, kind_of
from windlass.spec.units import HEADROOM_FORMS, parse_headroom

_PATTERN = r"progress: 'step (?P<step>\d+)/(?P<total>\d+)'"
_STEPS = "steps: 2000, or steps: '{epochs}' for the parameter epochs"


def check_headroom(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongValue(f"this must be {HEADROOM_FORMS}, not {kind_of(value)}", "headroom: 1GB")
    try:
        return parse_headroom(value)
    except ValueError as error:
        raise WrongValue(f"{error}; accepted are {HEADROOM_FORMS}", "headroom: 1GB") from None


def check_safety(value: Any) -> float:
    if check_amount(value) < 1:
        raise WrongValue(
            f"this must be 1 or more, not {value}: jobs would end before their trials",
            "safety: 1.3",
        )
    return float(value)


def check_variants(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise WrongValue("variants must be a list of names of parameters", "variants: [algo]")
    return tuple(dict.fromkeys(names))


def check_config(value: Any) -> dict[str, Any]:
    """The path of a configuration file, or a mapping with `file` and `new_keys`."""
    example = "config: {file: conf.yaml, new_keys: true}"
    given = {"file": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        raise WrongValue(
            f"config must be the path of a file, not {kind_of(value)}", "config: conf.yaml"
        )
    unknown = next((name for name in given if name not in ("file", "new_keys")), None)
    if unknown is not None:
        raise WrongValue(
            f"config has no key {unknown!r}", "the keys are file, new_keys", (unknown,)
        )
    if not isinstance(given.get("file"), str) or not given["file"]:
        raise WrongValue("config must name a file", example)
    if not isinstance(given.get("new_keys", False), bool):
        raise WrongValue("new_keys must be true or false", example, ("new_keys",))
    return {"file": given["file"], "new_keys": given.get("new_keys", False)}


def check_progress(value: Any) -> ProgressSpec:
    """A pattern, or a mapping with `pattern` and `steps`."""
    if isinstance(value, str):
        return ProgressSpec(_pattern(value, ()))
    if not isinstance(value, dict) or not value:
        raise WrongValue(
            f"progress must be a pattern or a mapping with pattern and steps, not {kind_of(value)}",
            _PATTERN,
        )
    unknown = next((name for name in value if name not in ("pattern", "steps")), None)
    if unknown is not None:
        raise WrongValue(
            f"progress has no key {unknown!r}", "the keys are pattern, steps", (unknown,)
        )
    pattern = _pattern(value["pattern"], ("pattern",)) if "pattern" in value else None
    return ProgressSpec(pattern, _steps(value["steps"]) if "steps" in value else None)


def _pattern(value: Any, at: tuple[str, ...]) -> str:
    text = check_text(value)
    try:
        groups = compile_pattern(text).groupindex
    except ValueError as error:
        raise WrongValue(f"this is not a regular expression: {error}", _PATTERN, at) from None
    if "step" not in groups:
        raise WrongValue(
            "the pattern has no group `step`, so that nobody knows which number to read",
            _PATTERN,
            at,
        )
    return text


def _steps(value: Any) -> float | str:
    if isinstance(value, str):
        if placeholder_names(value) and re.fullmatch(r"\{[^{}]+\}", value.strip()):
            return value.strip()
        raise WrongValue(
            f"{value!r} is neither a number nor the name of a parameter in braces",
            _STEPS,
            ("steps",),
        )
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 < value < float("inf")
    ):
        raise WrongValue("the number of steps must be more than 0", _STEPS, ("steps",))
    return value


def launchers() -> tuple[str, ...]:
    """The names of all launchers: the usual ones in this order, then any others."""
    usual = ("plain", "torchrun", "srun", "lightning", "torch-launch", "accelerate", "mpi")
    names = [name.replace("_", "-") for name in launcher_names()]
    return tuple(sorted(names, key=lambda name: (*usual, name).index(name)))


def check_launch(value: Any) -> Any:
    """`script` is the name that launch scripts of clusters have for torchrun."""
    return "torchrun" if value == "script" else str(value).replace("_", "-")
