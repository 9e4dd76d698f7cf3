"""Durations and sizes as people write them → seconds, megabytes, bytes."""

from __future__ import annotations

import math
import re

DURATION_FORMS = "90s, 30m, 2h, 1h30m, 1d, HH:MM:SS or D-HH:MM:SS"
SIZE_FORMS = "512MB, 4GB, 1.5GiB or 10G"
HEADROOM_FORMS = "next (the next whole GB), 20% or 1GB"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_UNIT_WORDS = {
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hr": "h",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_DAYS_AND_HOURS = re.compile(r"(\d+)-(\d+)")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B)?", re.IGNORECASE)
LONGEST_S = 100 * 365 * 86400.0
_LARGEST_BYTES = 1 << 60
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_duration_s(text: str) -> float:
    """Seconds. Takes parts with units, and clock times: HH:MM:SS, D-HH:MM:SS, D-HH:MM, D-HH. Raises ValueError."""
    cleaned = text.strip()
    if not cleaned.isascii():
        raise ValueError(f"{text!r} is not a duration")
    clock = _CLOCK.fullmatch(cleaned)
    if clock:
        return _limited_s(text, _clock_s(text, *clock.groups()))
    days_and_hours = _DAYS_AND_HOURS.fullmatch(cleaned)
    if days_and_hours:
        return _limited_s(text, _clock_s(text, days_and_hours[1], days_and_hours[2], "0", None))
    total, end = 0.0, 0
    for part in _PART.finditer(cleaned):
        unit = part[2].lower()
        unit = _UNIT_WORDS.get(unit.removesuffix("s"), unit)
        if part.start() != end or unit not in _SECONDS:
            break
        total += float(part[1]) * _SECONDS[unit]
        end = part.end()
    if not cleaned or end != len(cleaned):
        raise ValueError(f"{text!r} is not a duration")
    return _limited_s(text, total)


def _limited_s(text: str, seconds: float) -> float:
    """Raise ValueError for a time that no scheduler and no clock can deal with."""
    if seconds > LONGEST_S:
        raise ValueError(f"{text!r} is longer than 100 years")
    return seconds


def parse_slurm_time_s(text: str) -> float:
    """Seconds, in all of sbatch's forms as well: a plain number is minutes there, M:SS minutes and seconds."""
    cleaned = text.strip()
    minutes, colon, seconds = cleaned.partition(":")
    is_plain = cleaned.isascii() and minutes.isdigit()
    if is_plain and (not colon or (seconds.isdigit() and float(seconds) < 60)):
        return _limited_s(text, float(minutes) * 60.0 + float(seconds or 0))
    return parse_duration_s(text)


def _clock_s(text: str, days: str | None, first: str, second: str, third: str | None) -> float:
    if third is None and days is None:
        raise ValueError(f"{text!r} can be read as minutes or as hours")
    hours, minutes, seconds = float(first), float(second), float(third or 0)
    if minutes >= 60 or seconds >= 60 or (days is not None and hours >= 24):
        raise ValueError(f"{text!r} is not a time")
    return float(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def parse_size_bytes(text: str) -> int:
    """Bytes. All units are powers of 1024, as in Slurm. A number without a unit raises ValueError."""
    match = _SIZE.fullmatch(text.strip()) if text.isascii() else None
    if not match or not (match[2] or match[3]):
        raise ValueError(f"{text!r} is not a size")
    size = float(match[1]) * 1024.0 ** _POWERS[match[2].upper()]
    if size > _LARGEST_BYTES:
        raise ValueError(f"{text!r} is more than 1024 PB")
    return math.ceil(size)


def parse_memory_mb(text: str) -> int:
    """Megabytes (of 1024 × 1024 bytes), rounded up. A number without a unit raises ValueError."""
    return math.ceil(parse_size_bytes(text) / 1024**2)


def check_gpus(gpus: float) -> float:
    """The GPUs of one trial: whole ones, or a part of one. Raises ValueError: nobody can use half of a second GPU."""
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"a trial has whole GPUs, or a part of one GPU: {gpus:g} is {int(gpus)} and a part of another")
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
