"""W&B's named distributions: which numbers each takes, and what those must satisfy."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from windlass.model import Distribution
from windlass.search.sampling import draw_number
from windlass.spec.document import Path, Problems

_RANGE = ("min", "max")
# Distribution → the numbers it takes, and those that have a default.
DISTRIBUTIONS: Mapping[str, tuple[tuple[str, ...], Mapping[str, float]]] = {
    "constant": ((), {}),
    "categorical": ((), {}),
    "categorical_w_probabilities": ((), {}),
    "int_uniform": (_RANGE, {}),
    "uniform": (_RANGE, {}),
    "q_uniform": (_RANGE, {"q": 1}),
    "log_uniform": (_RANGE, {}),
    "log_uniform_values": (_RANGE, {}),
    "q_log_uniform": (_RANGE, {"q": 1}),
    "q_log_uniform_values": (_RANGE, {"q": 1}),
    "inv_log_uniform": (_RANGE, {}),
    "inv_log_uniform_values": (_RANGE, {}),
    "normal": ((), {"mu": 0.0, "sigma": 1.0}),
    "q_normal": ((), {"mu": 0.0, "sigma": 1.0, "q": 1}),
    "log_normal": ((), {"mu": 0.0, "sigma": 1.0}),
    "q_log_normal": ((), {"mu": 0.0, "sigma": 1.0, "q": 1}),
    "beta": ((), {"a": 1.0, "b": 1.0}),
    "q_beta": ((), {"a": 1.0, "b": 1.0, "q": 1}),
}
NUMBER_KEYS = frozenset({"min", "max", "mu", "sigma", "q", "a", "b"})
# Those a grid can list.
LISTABLE = frozenset({"constant", "categorical", "int_uniform", "q_uniform"})
# Above this, exp() of a bound leaves the range of a float: the bounds were meant as values, not as exponents.
_LARGEST_EXPONENT = 709.0


def default_kind(value: Mapping[str, Any]) -> str:
    """The distribution that is meant when none is named."""
    if "values" in value:
        return "categorical_w_probabilities" if "probabilities" in value else "categorical"
    if "value" in value:
        return "constant"
    bounds = [value.get("min"), value.get("max")]
    whole = all(isinstance(bound, int) and not isinstance(bound, bool) for bound in bounds)
    return "int_uniform" if whole else "uniform"


def parse_numbers(
    name: str, kind: str, value: Mapping[str, Any], path: Path, problems: Problems
) -> dict[str, float] | None:
    """The numbers of a distribution with its defaults, or None and a problem."""
    required, defaults = DISTRIBUTIONS[kind]
    numbers: dict[str, float] = dict(defaults)
    for key in (*required, *defaults):
        given = value.get(key, numbers.get(key))
        if given is None:
            hint = f"{name}: {{{', '.join(f'{bound}: …' for bound in required)}}}"
            problems.add(path, f"{name} needs {' and '.join(required)}", hint, key=True)
            return None
        if (
            isinstance(given, bool)
            or not isinstance(given, (int, float))
            or not math.isfinite(given)
        ):
            problems.add((*path, key), f"{key} of {name} must be a number, not {given!r}")
            return None
        numbers[key] = given
    message, key, hint = _wrong_number(name, kind, numbers)
    if message:
        problems.add((*path, key), message, hint)
        return None
    if not _can_be_drawn(Distribution(kind, numbers)):
        given = ", ".join(f"{key}: {number:g}" for key, number in numbers.items())
        message = (
            f"{kind} with {given} leads to numbers that are too large or too small to compute with"
        )
        problems.add(path, message, "use numbers nearer to 1", key=True)
        return None
    return numbers


class _Fixed(random.Random):
    """Gives one number again and again: what is drawn at the ends of a distribution."""

    def __init__(self, number: float) -> None:
        super().__init__(0)
        self._number = number

    def random(self) -> float:
        return self._number


def _can_be_drawn(distribution: Distribution) -> bool:
    """Whether the least, the middle and the largest draw are numbers."""
    streams: list[random.Random] = [random.Random(0)]
    if not distribution.kind.endswith("beta"):  # which draws until it likes what it gets
        streams += [_Fixed(number) for number in (0.0, 0.5, 1.0 - 2.0**-53)]
    try:
        return all(math.isfinite(draw_number(distribution, stream)) for stream in streams)
    except (ArithmeticError, ValueError):
        return False


def _wrong_number(name: str, kind: str, numbers: Mapping[str, float]) -> tuple[str, str, str]:
    """What the numbers break: message, the key to blame, hint; all empty when they are fine."""
    low, high = numbers.get("min", 0), numbers.get("max", 1)
    if low >= high and not (kind == "int_uniform" and low == high):
        return (
            f"min of {name} must be less than max, not {low} and {high}",
            "min",
            f"min: {high}, max: {low}",
        )
    if kind == "int_uniform" and not (isinstance(low, int) and isinstance(high, int)):
        return f"min and max of {name} must be whole numbers", "min", "distribution: uniform"
    if kind.endswith("log_uniform_values") and low <= 0:
        return f"min of {name} must be more than 0 for {kind}", "min", "min: 1e-6"
    if kind.endswith("log_uniform") and max(abs(low), abs(high)) > _LARGEST_EXPONENT:
        hint = f"distribution: {kind}_values"
        return (
            f"min and max of {kind} are exponents of e; these of {name} are too large",
            "max",
            hint,
        )
    if numbers.get("q", 1) <= 0:
        return f"q of {name} must be more than 0", "q", "q: 1"
    if numbers.get("sigma", 0) < 0:
        return f"sigma of {name} must not be negative", "sigma", "sigma: 1"
    for key in ("a", "b"):
        if numbers.get(key, 1) <= 0:
            return f"{key} of {name} must be more than 0", key, f"{key}: 1"
    return "", "", ""
