"""The value of `ladder` → rungs with known keys of the right kinds. See fields.py."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, cast

from windlass.model import Expectation
from windlass.spec.fields import WrongValue, check_command, check_duration, check_text, kind_of

_KEYS = ("name", "args", "parameters", "command", "expect", "timeout")
_EXAMPLE = "ladder: [{name: one example, args: --limit 1, expect: loss<=0.01}]"
_EXPECT = "expect: loss<=0.01"
_EXPECTATION = re.compile(r"\s*([^<>=\s](?:[^<>=]*[^<>=\s])?)\s*(<=|>=|<|>)\s*(\S+)\s*")


def check_ladder(value: Any) -> list[dict[str, Any]]:
    """The rungs as mappings with known keys of the right kinds; what they mean to the study is looked at later."""
    if not isinstance(value, list) or not value:
        raise WrongValue(f"ladder must be a list of rungs, not {kind_of(value)}", _EXAMPLE)
    rungs = [_check_rung(rung, number) for number, rung in enumerate(value)]
    for number, rung in enumerate(rungs):
        if any(rung["name"] == other["name"] for other in rungs[:number]):
            raise WrongValue(
                f"two rungs have the name {rung['name']!r}", "rename one of them", (number, "name")
            )
    return rungs


def _check_rung(value: Any, number: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValue(f"a rung is a mapping, not {kind_of(value)}", _EXAMPLE, (number,))
    unknown = next((key for key in value if key not in _KEYS), None)
    if unknown is not None:
        raise WrongValue(
            f"a rung has no key {unknown!r}", f"the keys are {', '.join(_KEYS)}", (number, unknown)
        )
    if value.get("expect") is None:
        raise WrongValue("a rung without `expect` shows nothing", _EXPECT, (number,))
    rung = dict(value, name=check_text(value.get("name", f"rung {number + 1}")))
    rung["expect"] = check_expect(value["expect"], (number, "expect"))
    checks: dict[str, Callable[[Any], Any]] = {
        "args": check_command,
        "command": check_command,
        "timeout": check_duration,
    }
    for key, check in checks.items():
        if value.get(key) is not None:
            rung[key] = _checked(check, value[key], (number, key))
    parameters = value.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise WrongValue(
            f"parameters must be a mapping, not {kind_of(parameters)}",
            "{limit: 1}",
            (number, "parameters"),
        )
    for name, item in parameters.items():
        if isinstance(item, (list, dict)):
            message = f"a rung has one value for each parameter, and {name} has {kind_of(item)}"
            raise WrongValue(message, f"{name}: 1", (number, "parameters", name))
    return {**rung, "parameters": parameters}


def _checked(check: Callable[[Any], Any], value: Any, at: tuple[str | int, ...]) -> Any:
    """What the check of a key makes of its value; a problem with it is placed where it stands in the ladder."""
    try:
        return check(value)
    except WrongValue as error:
        raise WrongValue(error.message, error.hint, (*at, *error.at)) from None


def check_expect(value: Any, at: tuple[str | int, ...] = ()) -> tuple[Expectation, ...]:
    """``loss<=0.01``, or a list of such."""
    texts = value if isinstance(value, list) else [value]
    found = []
    for text in texts:
        match = _EXPECTATION.fullmatch(text) if isinstance(text, str) else None
        try:
            limit = float(match[3]) if match is not None else math.nan
        except ValueError:
            limit = math.nan
        if match is None or math.isnan(limit):
            raise WrongValue(
                f"{text!r} is not a metric, one of <=, <, >=, >, and a number", _EXPECT, at
            )
        found.append(Expectation(match[1], cast(Any, match[2]), limit))
    if not found:
        raise WrongValue("there is no expectation in this", _EXPECT, at)
    return tuple(found)
