"""Numbers as people read them: those of a column alike, a mean with its interval, and amounts."""

from __future__ import annotations

import math
from collections.abc import Sequence

_MOST_DECIMALS = 6
_MOST_WHOLE_DIGITS = 7
_MOST_SIGNIFICANT = 6  # digits of a number that was not rounded before; more are noise
_SIGNIFICANT = 4  # digits of the greatest number of a column
_LEAST_SIGNIFICANT = 3  # of the least


def render_numbers(values: Sequence[float | None]) -> list[str]:
    """Numbers of one column in one format: equally many decimals, or all with an exponent. None becomes "".

    Different numbers stay different where six digits tell them apart.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if all(isinstance(value, int) for value in finite):
        return [_render(value, "d") for value in values]
    form = _column_format(finite)
    return [_render(value, form) for value in values]


def _render(value: float | None, form: str) -> str:
    if value is None:
        return ""
    return format(value, form) if math.isfinite(value) else format(float(value), "g")


def _column_format(values: Sequence[float]) -> str:
    """The format for all numbers of a column.

    It has as many decimals as keep different numbers different, within six digits; with very large or very small
    numbers it has an exponent.
    """
    exponents = [_exponent(value) for value in values if value] or [0]
    greatest, least = max(exponents), min(exponents)
    needed = max(_needed_decimals(value) for value in values)
    decimals = max(_SIGNIFICANT - 1 - greatest, _LEAST_SIGNIFICANT - 1 - least, 0)
    distinct = len({f"{value:.{_MOST_SIGNIFICANT}g}" for value in values})
    while decimals < needed and len({f"{value:.{decimals}f}" for value in values}) < distinct:
        decimals += 1
    decimals = min(decimals, needed)
    if decimals <= _MOST_DECIMALS and greatest < _MOST_WHOLE_DIGITS:
        return f".{decimals}f"
    mantissa = min(_SIGNIFICANT - 1, max(_significant(value) - 1 for value in values))
    return f".{mantissa}e"


def _significant(value: float) -> int:
    """The digits that a number has, without zeros at its end; more than six are not looked at."""
    digits = (
        f"{abs(value):.{_MOST_SIGNIFICANT - 1}e}".partition("e")[0].replace(".", "").rstrip("0")
    )
    return max(1, len(digits))


def _exponent(value: float) -> int:
    return int(f"{value:.{_MOST_SIGNIFICANT - 1}e}".partition("e")[2])


def _needed_decimals(value: float) -> int:
    return max(0, _significant(value) - 1 - _exponent(value))


def render_means(means: Sequence[tuple[float | None, float | None]]) -> list[str]:
    """Means with half their intervals, such as ``0.849 ± 0.006``, rounded together.

    The least interval of a column has one digit, or two where the first is a 1 and the others are not much greater. All
    means and intervals end at that digit, but the greatest mean keeps three digits and every other one two, or
    all that it has: the interval of two seeds is often wider than the mean. Without an interval the mean stands alone.
    """
    halves = [half for _, half in means if half and math.isfinite(half)]
    known = [mean for mean, _ in means if mean is not None and math.isfinite(mean)]
    if not halves or not known:
        return render_numbers([mean for mean, _ in means])
    greatest = max((_exponent(mean) for mean in known if mean), default=0)
    shift = greatest if greatest < -_MOST_DECIMALS + 2 or greatest >= _MOST_WHOLE_DIGITS else 0
    least = _exponent(float(f"{min(halves):.0e}"))
    if f"{min(halves):.0e}".startswith("1") and _exponent(max(halves)) <= least:
        least -= 1  # 0.014 rounded to 0.01 would be wrong by a third
    decimals = max(shift - least, shift + max(_least_decimals(mean, greatest) for mean in known), 0)
    decimals = min(decimals, max(0, shift - greatest + _MOST_SIGNIFICANT - 1))
    return [_render_mean(mean, half, decimals, shift) for mean, half in means]


def _least_decimals(mean: float, greatest: int) -> int:
    """The decimals that a mean has at least, whatever its interval is; `greatest` is the exponent of the greatest."""
    if not mean:
        return 0
    exponent = _exponent(mean)
    digits = _LEAST_SIGNIFICANT if exponent == greatest else _LEAST_SIGNIFICANT - 1
    return min(digits - 1 - exponent, _needed_decimals(mean))


def _render_mean(mean: float | None, half: float | None, decimals: int, shift: int) -> str:
    """A mean with half its interval. With a `shift`, both are divided by that power of ten, which stands after them."""
    if mean is None or not math.isfinite(mean):
        return _render(mean, "g")
    text = f"{mean / 10.0**shift:.{decimals}f}"
    if half is not None and not math.isfinite(half):
        text += f" ± {half:g}"
    elif half is not None:
        rounded = f"{half / 10.0**shift:.{decimals}f}"
        # An interval that rounds to nothing is still one.
        text += f" ± {half / 10.0**shift:.0e}" if half and not float(rounded) else f" ± {rounded}"
    if not shift:
        return text
    return f"({text})e{shift:+03d}" if half is not None else f"{text}e{shift:+03d}"


def render_number(value: float) -> str:
    """One number that stands in a sentence, with the digits that the greatest number of a column has: ``0.8491``."""
    return f"{value:.{_SIGNIFICANT}g}"


def render_percent(percent: float) -> str:
    """A share of 100 without decimals: ``47 %``."""
    return f"{percent:.0f} %"


def render_with_unit(amount: float, unit: str) -> str:
    """An amount with its unit, which is given in the plural: ``1 GPU-hour``, ``12.5 GPU-hours``."""
    text = render_amount(amount)
    return f"{text} {unit.removesuffix('s') if text == '1' else unit}"


def render_amount(amount: float) -> str:
    """GPU-hours, core-hours and the like: ``1,234``, ``12.5``, ``0.03``, ``less than 0.01``."""
    if amount >= 100:
        return f"{amount:,.0f}"
    if 0 < amount < 0.01:
        return "less than 0.01"
    return f"{amount:.3g}" if amount >= 1 or not amount else f"{amount:.2f}"
