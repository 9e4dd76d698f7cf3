"""Durations as a user writes them."""

from __future__ import annotations


def spell_duration(seconds: float) -> str:
    """As a user would write it: 7d, 1h30m, 1m30s, 0.5s."""
    if seconds < 1:
        return f"{seconds:.1g}s"
    left, parts = int(seconds), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts)
