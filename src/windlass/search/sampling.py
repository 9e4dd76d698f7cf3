"""Random settings: each is drawn from a stream of its own, so asking for more trials keeps the first ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from statistics import NormalDist
from typing import Any

from windlass.core.errors import input_error
from windlass.model import Distribution, Parameter, Space
from windlass.search.grid import Axis, compile_condition, holds, iterate_grid
from windlass.search.values import canonical_json

# Draws that repeat an earlier setting or meet an exclude rule are drawn again this often.
REDRAWS = 200

Numbers = Mapping[str, float]


def iterate_random(space: Space, axes: list[Axis]) -> Iterator[dict[str, Any]]:
    """`space.trials` different settings; the first n are the same for any number of trials above n."""
    rules = [compile_condition(rule) for rule in space.exclude]
    never_repeats = not can_repeat(space)
    unused = iterate_grid(space, axes) if is_countable(space) else iter(())
    seen: set[str] = set()
    for number in range(space.trials or 0):
        settings = _draw_new(space, axes, number, rules, seen)
        if settings is None:
            # Nearly all of a small space is used up: take the rest in order.
            settings = next((rest for rest in unused if canonical_json(rest) not in seen), None)
        if settings is None:
            raise input_error(
                f"only {number} different settings could be drawn of the {space.trials} asked for",
                hint=f"trials: {number}, or fewer exclude rules",
            )
        if not never_repeats:
            seen.add(canonical_json(settings))
        yield settings


def is_countable(space: Space) -> bool:
    """Whether the settings that can be drawn are exactly those a grid would list."""
    kinds = [
        parameter.distribution.kind for parameter in space.parameters if parameter.distribution
    ]
    return all(kind == "int_uniform" for kind in kinds)


def can_repeat(space: Space) -> bool:
    """Whether two draws can be equal: not when a continuous parameter is there in every trial."""
    return not any(
        parameter.distribution and not parameter.when and not _is_stepped(parameter.distribution)
        for parameter in space.parameters
    )


def _is_stepped(distribution: Distribution) -> bool:
    return distribution.kind == "int_uniform" or distribution.kind.startswith("q_")


def _draw_new(
    space: Space, axes: list[Axis], number: int, rules: list[Any], seen: set[str]
) -> dict[str, Any] | None:
    for redraw in range(REDRAWS):
        name = f"{space.search_seed}:{number}" + (f":{redraw}" if redraw else "")
        stream = random.Random(name)
        settings = _draw(axes, stream)
        if any(holds(rule, settings) for rule in rules):
            continue
        if not seen or canonical_json(settings) not in seen:
            return settings
    return None


def _draw(axes: list[Axis], stream: random.Random) -> dict[str, Any]:
    """One setting. Absent parameters draw too, so that they do not shift what the others get."""
    settings: dict[str, Any] = {}
    for axis in axes:
        if len(axis.names) > 1:
            values = axis.values[int(stream.random() * len(axis.values))]
        else:
            values = (draw_value(axis.parameters[0], stream),)
        if holds(axis.when, settings):
            settings.update(zip(axis.names, values, strict=True))
    return settings


def draw_value(parameter: Parameter, stream: random.Random) -> Any:
    """One value of a parameter. Uses `random()` where it can: its numbers are the same in every Python."""
    if parameter.distribution is not None:
        return draw_number(parameter.distribution, stream)
    if not parameter.weights:
        return parameter.values[int(stream.random() * len(parameter.values))]
    point = stream.random() * math.fsum(parameter.weights)
    chosen = None
    for value, weight in zip(parameter.values, parameter.weights, strict=True):
        if weight > 0:
            chosen = value
            point -= weight
        if point < 0:
            break
    return chosen


def draw_number(distribution: Distribution, stream: random.Random) -> float:
    """One number of a distribution; those whose name starts with ``q_`` are rounded to multiples of q."""
    kind, numbers = distribution.kind, distribution.numbers
    if kind == "int_uniform":
        low, high = int(numbers["min"]), int(numbers["max"])
        return low + min(int(stream.random() * (high - low + 1)), high - low)
    if kind.startswith("q_"):
        return _quantize(_DRAW[kind.removeprefix("q_")](numbers, stream), numbers["q"])
    # Twelve digits: the last ones differ between mathematical libraries, and ids are made of these numbers.
    return float(f"{_DRAW[kind](numbers, stream):.12g}")


def _quantize(value: float, step: float) -> float:
    multiple = Decimal(str(step)) * round(value / step)
    return int(multiple) if isinstance(step, int) else float(multiple)


def _between(low: float, high: float, stream: random.Random) -> float:
    return float(low + (high - low) * stream.random())


def _uniform(numbers: Numbers, stream: random.Random) -> float:
    return _between(numbers["min"], numbers["max"], stream)


def _log_uniform(numbers: Numbers, stream: random.Random) -> float:
    return math.exp(_between(numbers["min"], numbers["max"], stream))


def _log_uniform_values(numbers: Numbers, stream: random.Random) -> float:
    low, high = numbers["min"], numbers["max"]
    drawn = math.exp(_between(math.log(low), math.log(high), stream))
    return float(min(max(drawn, low), high))


def _inv_log_uniform(numbers: Numbers, stream: random.Random) -> float:
    return math.exp(-_between(numbers["min"], numbers["max"], stream))


def _inv_log_uniform_values(numbers: Numbers, stream: random.Random) -> float:
    low, high = numbers["min"], numbers["max"]
    drawn = math.exp(-_between(math.log(1 / high), math.log(1 / low), stream))
    return float(min(max(drawn, low), high))


def _normal(numbers: Numbers, stream: random.Random) -> float:
    if numbers["sigma"] == 0:
        return float(numbers["mu"])
    return NormalDist(numbers["mu"], numbers["sigma"]).inv_cdf(max(stream.random(), 2.0**-53))


def _log_normal(numbers: Numbers, stream: random.Random) -> float:
    return math.exp(_normal(numbers, stream))


def _beta(numbers: Numbers, stream: random.Random) -> float:
    return stream.betavariate(numbers["a"], numbers["b"])


_DRAW: dict[str, Callable[[Numbers, random.Random], float]] = {
    "uniform": _uniform,
    "log_uniform": _log_uniform,
    "log_uniform_values": _log_uniform_values,
    "inv_log_uniform": _inv_log_uniform,
    "inv_log_uniform_values": _inv_log_uniform_values,
    "normal": _normal,
    "log_normal": _log_normal,
    "beta": _beta,
}
