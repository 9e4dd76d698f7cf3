"""Student's t distribution, as far as a confidence interval needs it."""

from __future__ import annotations

import functools
import math

_SMALLEST = 1e-300


@functools.lru_cache(maxsize=1024)
def student_t_quantile(probability: float, degrees: int) -> float:
    """The value that a t-distributed number stays below with `probability`, right to about 12 digits."""
    if not 0.0 < probability < 1.0 or degrees < 1:
        raise ValueError(
            f"no quantile for probability {probability} and {degrees} degrees of freedom"
        )
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -student_t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while _student_t_below(high, degrees) < probability:
        low, high = high, high * 2.0
    while high - low > 1e-13 * high:
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if _student_t_below(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def ci95_half_width(std: float, count: int) -> float:
    """Half the width of the 95 % confidence interval of a mean; `count` is at least 2."""
    return student_t_quantile(0.975, count - 1) * std / math.sqrt(count)


def _student_t_below(value: float, degrees: int) -> float:
    """The probability of a number below `value`, which is positive."""
    # The beta function is asked about the smaller of the two complements, where it keeps its digits.
    square = value * value
    tail = 0.5 * _incomplete_beta(degrees / (degrees + square), degrees / 2.0, 0.5)
    return 1.0 - tail


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    logarithm = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(logarithm) * _beta_fraction(x, a, b) / a
    return 1.0 - math.exp(logarithm) * _beta_fraction(1.0 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Its continued fraction, by Lentz's method."""
    c, d = 1.0, 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    result = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / _nonzero(1.0 + even * d)
        c = _nonzero(1.0 + even / c)
        result *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / _nonzero(1.0 + odd * d)
        c = _nonzero(1.0 + odd / c)
        result *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return result


def _nonzero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST
