"""Numbers with their noun, in the singular or in the plural."""

from __future__ import annotations


def counted(number: float, one: str, many: str = "") -> str:
    """`1 trial`, `3 trials`, `0.5 cores`; `many` is the plural where it is not `one` with an s (`trials were`)."""
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {one if number == 1 else many or one + 's'}"
