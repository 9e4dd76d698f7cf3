"""The keys that say which trials a study has: parameters, zip, exclude, seeds, repeat and the search method."""

from __future__ import annotations

import re
from typing import Any

from windlass.search.methods.base import searcher_names
from windlass.spec.fields import WrongValue, kind_of

# A range of seeds is written `1..5`. The digits are bounded, because int() raises its own error for very long texts.
_RANGE = re.compile(r"(-?\d{1,300})\s*\.\.\s*(-?\d{1,300})")
_MOST_SEEDS = 1_000_000  # All seeds of a study are kept in memory.


def check_parameters(value: Any) -> Any:
    if not isinstance(value, (dict, list)):
        raise WrongValue(
            f"parameters must be a mapping of names to values, not {kind_of(value)}",
            "parameters: {lr: [0.1, 0.01]}",
        )
    return value


def check_zip_groups(value: Any) -> tuple[tuple[str, ...], ...]:
    """The groups of parameters that vary together. Raises WrongValue where a group has fewer than two names."""
    groups = (
        value
        if isinstance(value, list) and value and all(isinstance(item, list) for item in value)
        else [value]
    )
    for group in groups:
        if (
            not isinstance(group, list)
            or len(group) < 2
            or not all(isinstance(name, str) for name in group)
        ):
            raise WrongValue(
                "zip takes a list of two or more parameter names, or a list of such lists",
                "zip: [model, batch_size]",
            )
    return tuple(tuple(group) for group in groups)


def check_exclude(value: Any) -> list[dict[str, Any]]:
    """The rules of `exclude`, one mapping each. Raises WrongValue where one is not a mapping."""
    rules = [value] if isinstance(value, dict) else value
    if not isinstance(rules, list):
        raise WrongValue(
            f"exclude takes a list of rules, not {kind_of(value)}",
            "exclude: [{optimizer: sgd, lr: 0.1}]",
        )
    for number, rule in enumerate(rules):
        if not isinstance(rule, dict) or not rule:
            at = (number,) if isinstance(value, list) else ()
            raise WrongValue(
                "a rule is a mapping of parameter names to values",
                "exclude: [{optimizer: sgd, lr: 0.1}]",
                at,
            )
    return rules


def check_seeds(value: Any) -> tuple[int, ...]:
    """A number n for 1 to n, a range, a list."""
    found = _seed_numbers(value)
    if not found:
        raise WrongValue("there is no seed in this", "seeds: 5")
    _check_seed_count(len(found))
    met: set[int] = set()
    for seed in found:
        if seed in met:
            raise WrongValue(f"the seed {seed} stands here twice", "keep one of the two")
        met.add(seed)
    return found


def _check_seed_count(count: int) -> None:
    if count > _MOST_SEEDS:
        raise WrongValue(f"these are more than {_MOST_SEEDS:,} seeds", "seeds: 5")


def check_repeat(value: Any) -> int:
    count = (
        int(value) if isinstance(value, str) and re.fullmatch(r"\s*\d{1,300}\s*", value) else value
    )
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_SEEDS:
        raise WrongValue(
            f"repeat takes a whole number from 1 to {_MOST_SEEDS:,}, not {value!r}", "repeat: 30"
        )
    return count


def _seed_numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        _check_seed_count(value)
        return tuple(range(1, value + 1))
    if isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        if match:
            _check_seed_count(int(match[2]) - int(match[1]) + 1)
            return tuple(range(int(match[1]), int(match[2]) + 1))
        pieces = [piece.strip() for piece in value.split(",")]
        if all(re.fullmatch(r"-?\d{1,300}", piece) for piece in pieces):
            return (
                tuple(int(piece) for piece in pieces)
                if len(pieces) > 1
                else _seed_numbers(int(pieces[0]))
            )
    if isinstance(value, list) and all(
        isinstance(seed, int) and not isinstance(seed, bool) for seed in value
    ):
        return tuple(value)
    raise WrongValue(
        "seeds must be a number, a range or a list of whole numbers",
        "seeds: 5, seeds: 1..5 or seeds: [1, 2, 3]",
    )


def search_methods() -> tuple[str, ...]:
    """The names of all searchers: the usual ones in this order, then any others."""
    usual = ("grid", "random", "list")
    return (*usual, *(name for name in searcher_names() if name not in usual))


def check_method(value: Any) -> Any:
    if value in ("bayes", "bayesian", "tpe") and value not in search_methods():
        raise WrongValue(f"method {value} is not available", "method: random, with trials: 50")
    return value
