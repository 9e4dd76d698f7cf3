"""The `parameters` of a study → Parameters: lists, constants, W&B's form, nested groups, conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.model import Distribution, Parameter
from windlass.search.template import AGENT_WORDS, ARGS_WORDS
from windlass.search.values import canonical_json, render_value
from windlass.spec.distributions import DISTRIBUTIONS, NUMBER_KEYS, default_kind, parse_numbers
from windlass.spec.document import Path, Problems
from windlass.spec.structure import did_you_mean

# Any of these makes a mapping W&B's form of one parameter instead of a group of parameters.
KEYWORDS = frozenset({"value", "values", "min", "max", "distribution", "probabilities", "parameters"})
_ALLOWED = KEYWORDS | NUMBER_KEYS | {"when"}
_BAD_NAME = re.compile(r"[\s={}\x00-\x1f'\"]|^-")

When = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Placed:
    """A parameter and where it stands in the document."""

    parameter: Parameter
    path: Path


def parse_parameters(value: Mapping[str, Any], path: Path, problems: Problems) -> list[Placed]:
    """All parameters of a mapping, in order, nested ones with dotted names."""
    found = _Reader(problems).group(value, path, "", {})
    names: set[str] = set()
    for placed in found:
        name = placed.parameter.name
        if name in names:
            problems.add(
                placed.path, f"the parameter {name} stands here twice", "keep one of the two", key=True
            )
        names.add(name)
    return found


def check_name(name: str, path: Path, problems: Problems) -> bool:
    """Whether `name` can be a parameter's name; a problem if not."""
    if name in ARGS_WORDS or name in AGENT_WORDS:
        problems.add(
            path, f"{name} cannot be a parameter: {{{name}}} has a meaning of its own", "rename it", key=True
        )
    elif not name or _BAD_NAME.search(name):
        hint = "use letters, digits, _, - and ."
        problems.add(path, f"{name!r} cannot be the name of a parameter", hint, key=True)
    else:
        return True
    return False


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def group(self, value: Mapping[str, Any], path: Path, prefix: str, when: When) -> list[Placed]:
        found = []
        for name, item in value.items():
            if check_name(name, (*path, name), self._problems):
                found += self.one(f"{prefix}{name}", item, (*path, name), when)
        return found

    def one(self, name: str, value: Any, path: Path, when: When) -> list[Placed]:
        """A parameter, or those of a nested group; nothing where there is a problem."""
        if isinstance(value, list):
            return self._choice(name, value, path, when)
        if not isinstance(value, dict):
            if value is None:
                self._problems.add(
                    path, f"the parameter {name} has no value", f"{name}: [null] for a null", key=True
                )
                return []
            return [Placed(Parameter(name, values=(value,), when=when), path)]
        own = self._when(name, value, path)
        when = {**when, **own}
        if isinstance(value.get("parameters"), dict):
            return self.group(value["parameters"], (*path, "parameters"), f"{name}.", when)
        if not KEYWORDS.intersection(value):
            return self._nested(name, value, path, when)
        return self._wandb(name, value, path, when)

    def _nested(self, name: str, value: dict[str, Any], path: Path, when: When) -> list[Placed]:
        members = {key: item for key, item in value.items() if key != "when"}
        if not members:
            self._problems.add(
                path, f"the parameter {name} has no values", f"{name}: {{values: [1, 2]}}", key=True
            )
        unclear = [key for key in members if key in NUMBER_KEYS]
        if unclear and len(unclear) == len(members):
            hint = f"{name}: {{distribution: normal, …}}"
            message = f"{name} has {' and '.join(unclear)}, but no distribution"
            self._problems.add(path, message, hint, key=True)
            return []
        return self.group(members, path, f"{name}.", when)

    def _choice(
        self, name: str, values: list[Any], path: Path, when: When, weights: tuple[float, ...] = ()
    ) -> list[Placed]:
        if not values:
            self._problems.add(
                path, f"the parameter {name} has no values: the grid is empty", f"{name}: [1, 2]"
            )
            return []
        seen: set[str] = set()
        for number, value in enumerate(values):
            text = canonical_json(value)
            if text in seen:
                message = f"the value {render_value(value)} of {name} stands here twice"
                self._problems.add((*path, number), message, "keep one of the two")
                return []
            seen.add(text)
        return [Placed(Parameter(name, values=tuple(values), weights=weights, when=when), path)]

    def _when(self, name: str, value: dict[str, Any], path: Path) -> When:
        condition = value.get("when", {})
        if not isinstance(condition, dict):
            hint = f"{name}: {{values: [0, 0.9], when: {{optimizer: sgd}}}}"
            self._problems.add((*path, "when"), f"when of {name} must be a mapping of names to values", hint)
            return {}
        return {key: tuple(item) if isinstance(item, list) else (item,) for key, item in condition.items()}

    def _wandb(self, name: str, value: dict[str, Any], path: Path, when: When) -> list[Placed]:
        for key in value:
            if key not in _ALLOWED:
                hint = did_you_mean(key, _ALLOWED)
                self._problems.add((*path, key), f"the parameter {name} has no key {key!r}", hint, key=True)
                return []
        kind = value.get("distribution") or default_kind(value)
        if kind not in DISTRIBUTIONS:
            hint = did_you_mean(str(kind), DISTRIBUTIONS) or f"there are {', '.join(DISTRIBUTIONS)}"
            self._problems.add((*path, "distribution"), f"there is no distribution {kind!r}", hint)
            return []
        if kind == "constant":
            if "value" not in value:
                self._problems.add(
                    path, f"the constant {name} has no value", f"{name}: {{value: 1}}", key=True
                )
                return []
            return [Placed(Parameter(name, values=(value["value"],), when=when), path)]
        if kind.startswith("categorical"):
            return self._categorical(name, value, path, when)
        numbers = parse_numbers(name, kind, value, path, self._problems)
        if numbers is None:
            return []
        return [Placed(Parameter(name, distribution=Distribution(kind, numbers), when=when), path)]

    def _categorical(self, name: str, value: dict[str, Any], path: Path, when: When) -> list[Placed]:
        values = value.get("values")
        if not isinstance(values, list):
            self._problems.add(
                (*path, "values"), f"values of {name} must be a list", f"{name}: {{values: [1, 2]}}"
            )
            return []
        weights = value.get("probabilities")
        if weights is None:
            return self._choice(name, values, (*path, "values"), when)
        wrong = not isinstance(weights, list) or not all(
            isinstance(weight, (int, float)) and not isinstance(weight, bool) and weight >= 0
            for weight in weights
        )
        if wrong or len(weights) != len(values) or abs(sum(weights) - 1) > 1e-6:
            message = f"probabilities of {name} must be {len(values)} numbers that add up to 1"
            self._problems.add((*path, "probabilities"), message, "one number for each of the values")
            return []
        return self._choice(name, values, (*path, "values"), when, tuple(weights))
