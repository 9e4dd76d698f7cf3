"""Amounts that a study file gives beside durations and sizes: GPUs, and memory beyond a peak."""

from __future__ import annotations

import math
import re

from windlass.core.units import parse_memory_mb

HEADROOM_FORMS = "next (the next whole GB), 20% or 1GB"


def check_gpus(gpus: float) -> float:
    """The GPUs of one trial: whole ones, or a part of one. Raises ValueError: nobody can use half of a second GPU."""
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(
            f"a trial has whole GPUs, or a part of one GPU: {gpus:g} is {int(gpus)} and a part of another"
        )
    return gpus


def parse_headroom(text: str) -> str:
    """Memory beyond the peak, as ``next``, ``1024MB`` or ``20%``; see `add_headroom`. Raises ValueError."""
    cleaned = text.strip().lower()
    if cleaned == "next":
        return cleaned
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", cleaned)
    if percent:
        return f"{float(percent[1]):g}%"
    try:
        return f"{parse_memory_mb(text)}MB"
    except ValueError:
        raise ValueError(f"{text!r} is not an amount beyond the peak") from None


_LEAST_HEADROOM = 1.05  # else a peak of 2047 MB would get one MB


def add_headroom(peak_mb: float, headroom: str) -> int:
    """What to plan with for such a peak. ``next``: the next whole GB above it and a twentieth: 2 GB become 3."""
    if headroom == "next":
        return (math.floor(peak_mb * _LEAST_HEADROOM / 1024) + 1) * 1024
    if headroom.endswith("%"):
        return math.ceil(round(peak_mb * (100 + float(headroom[:-1])) / 100, 6))
    return math.ceil(peak_mb + parse_memory_mb(headroom))
