"""The `parameters` of a study → Parameters: lists, constants, W&B's form, nested groups, conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.core.meant import did_you_mean
from windlass.model import Distribution, Parameter
from windlass.search.template import AGENT_WORDS, ARGS_WORDS
from windlass.search.values import canonical_json, render_value
from windlass.spec.distributions import DISTRIBUTIONS, NUMBER_KEYS, default_kind, parse_numbers
from windlass.spec.document import Path, Problems

# Any of these makes a mapping W&B's form of one parameter instead of a group of parameters.
KEYWORDS = frozenset(
    {"value", "values", "min", "max", "distribution", "probabilities", "parameters"}
)
_ALLOWED = KEYWORDS | NUMBER_KEYS | {"when"}
_REPLACED_ON_NODE = re.compile(r"\{(envvar:\w+|args_json_file|checkpoint|checkpoint_dir|resume)\}")
_BAD_NAME = re.compile(r"[\s={}\x00-\x1f'\"]|^-")

When = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Placed:
    """A parameter and where it stands in the document. One that has a problem is there without values."""

    parameter: Parameter
    path: Path


def parse_parameters(
    value: Mapping[str, Any], path: Path, problems: Problems, zipped: frozenset[str] = frozenset()
) -> list[Placed]:
    """All parameters of a mapping, in order, nested ones with dotted names.

    A value that stands in a list twice is a problem, except for the `zipped` names, where it may make sense.
    """
    found = _Reader(problems, zipped).group(value, path, "", {})
    names: set[str] = set()
    for placed in found:
        name = placed.parameter.name
        if name in names:
            problems.add(
                placed.path,
                f"the parameter {name} stands here twice",
                "keep one of the two",
                key=True,
            )
        names.add(name)
        _check_reserved(placed, problems)
    return found


def _check_reserved(placed: Placed, problems: Problems) -> None:
    """Texts that are replaced on the node would not reach the program as they were written."""
    for value in placed.parameter.values:
        match = (
            _REPLACED_ON_NODE.search(canonical_json(value))
            if not isinstance(value, (int, float))
            else None
        )
        if match:
            message = f"a value of {placed.parameter.name} holds {match[0]}, which has a meaning of its own"
            problems.add(placed.path, message, "use it in the command instead")


def check_name(name: str, path: Path, problems: Problems) -> bool:
    """Whether `name` can be a parameter's name; a problem if not."""
    wrong = name_problem(name)
    if wrong is None:
        return True
    problems.add(path, *wrong, key=True)
    return False


def name_problem(name: str) -> tuple[str, str] | None:
    """Why `name` cannot be a parameter's name, and a hint; None where it can."""
    if name in ARGS_WORDS or name in AGENT_WORDS:
        return f"{name} cannot be a parameter: {{{name}}} has a meaning of its own", "rename it"
    if not name or _BAD_NAME.search(name):
        return f"{name!r} cannot be the name of a parameter", "use letters, digits, _, - and ."
    return None


class _Reader:
    def __init__(self, problems: Problems, zipped: frozenset[str]) -> None:
        self._problems = problems
        self._zipped = zipped

    def group(self, value: Mapping[str, Any], path: Path, prefix: str, when: When) -> list[Placed]:
        found = []
        for name, item in value.items():
            if check_name(name, (*path, name), self._problems):
                found += self.one(f"{prefix}{name}", item, (*path, name), when)
        return found

    def one(self, name: str, value: Any, path: Path, when: When) -> list[Placed]:
        """A parameter, or those of a nested group."""
        if value is None:
            self._problems.add(
                path, f"the parameter {name} has no value", f"{name}: [null] for a null", key=True
            )
            return [Placed(Parameter(name), path)]
        if isinstance(value, list):
            return [Placed(self._choice(name, value, path, when), path)]
        if not isinstance(value, dict):
            return [Placed(Parameter(name, values=(value,), when=when), path)]
        when = {**when, **self._when(name, value, path)}
        if isinstance(value.get("parameters"), dict):
            return self.group(value["parameters"], (*path, "parameters"), f"{name}.", when)
        if not KEYWORDS.intersection(value):
            return self._nested(name, value, path, when)
        return [Placed(self._wandb(name, value, path, when), path)]

    def _nested(self, name: str, value: dict[str, Any], path: Path, when: When) -> list[Placed]:
        members = {key: item for key, item in value.items() if key != "when"}
        if not members:
            self._problems.add(
                path, f"the parameter {name} has no values", f"{name}: {{values: [1, 2]}}", key=True
            )
            return [Placed(Parameter(name), path)]
        if NUMBER_KEYS.issuperset(members) and ("mu" in members or "sigma" in members):
            message = f"{name} has {' and '.join(members)}, but no distribution"
            self._problems.add(path, message, f"{name}: {{distribution: normal, …}}", key=True)
            return [Placed(Parameter(name), path)]
        return self.group(members, path, f"{name}.", when)

    def _choice(
        self, name: str, values: list[Any], path: Path, when: When, weights: tuple[float, ...] = ()
    ) -> Parameter:
        if not values:
            self._problems.add(
                path, f"the parameter {name} has no values: the grid is empty", f"{name}: [1, 2]"
            )
        seen: set[str] = set()
        for number, value in enumerate(values):
            text = canonical_json(value)
            if text in seen and name not in self._zipped:
                message = f"the value {render_value(value)} of {name} stands here twice"
                self._problems.add((*path, number), message, "keep one of the two")
            seen.add(text)
        return Parameter(name, values=tuple(values), weights=weights, when=when)

    def _when(self, name: str, value: dict[str, Any], path: Path) -> When:
        condition = value.get("when", {})
        if not isinstance(condition, dict):
            hint = f"{name}: {{values: [0, 0.9], when: {{optimizer: sgd}}}}"
            self._problems.add(
                (*path, "when"), f"when of {name} must be a mapping of names to values", hint
            )
            return {}
        return {
            key: tuple(item) if isinstance(item, list) else (item,)
            for key, item in condition.items()
        }

    def _wandb(self, name: str, value: dict[str, Any], path: Path, when: When) -> Parameter:
        for key in value:
            if key not in _ALLOWED:
                hint = did_you_mean(key, _ALLOWED)
                self._problems.add(
                    (*path, key), f"the parameter {name} has no key {key!r}", hint, key=True
                )
                return Parameter(name)
        kind = value.get("distribution") or default_kind(value)
        if not isinstance(kind, str) or kind not in DISTRIBUTIONS:
            hint = did_you_mean(str(kind), DISTRIBUTIONS) or f"there are {', '.join(DISTRIBUTIONS)}"
            self._problems.add((*path, "distribution"), f"there is no distribution {kind!r}", hint)
            return Parameter(name)
        if kind == "constant":
            if "value" not in value:
                self._problems.add(
                    path, f"the constant {name} has no value", f"{name}: {{value: 1}}", key=True
                )
                return Parameter(name)
            return Parameter(name, values=(value["value"],), when=when)
        if kind.startswith("categorical"):
            return self._categorical(name, value, path, when)
        numbers = parse_numbers(name, kind, value, path, self._problems)
        return (
            Parameter(name, distribution=Distribution(kind, numbers), when=when)
            if numbers
            else Parameter(name)
        )

    def _categorical(self, name: str, value: dict[str, Any], path: Path, when: When) -> Parameter:
        values = value.get("values")
        if not isinstance(values, list):
            self._problems.add(
                (*path, "values"), f"values of {name} must be a list", f"{name}: {{values: [1, 2]}}"
            )
            return Parameter(name)
        weights = value.get("probabilities")
        if weights is None:
            return self._choice(name, values, (*path, "values"), when)
        if not _are_weights(weights) or len(weights) != len(values) or abs(sum(weights) - 1) > 1e-6:
            message = f"probabilities of {name} must be {len(values)} numbers that add up to 1"
            self._problems.add(
                (*path, "probabilities"), message, "one number for each of the values"
            )
            return Parameter(name)
        return self._choice(name, values, (*path, "values"), when, tuple(weights))


def _are_weights(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, (int, float)) and not isinstance(item, bool) and item >= 0
        for item in value
    )
