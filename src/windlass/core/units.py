"""Durations and sizes: read from what people and Slurm write, and rendered for people and for files. Python 3.9.

For people a duration is `1 h 30 min` and a size is `1.5 GB`, everywhere. What is to be pasted into a study file or a
command line is `1h30m` and `1.5GB`. All units of sizes are powers of 1024, as in Slurm.
"""

from __future__ import annotations

import math
import re
from typing import Optional

DURATION_FORMS = "90s, 30m, 2h, 1h30m, 1d, HH:MM:SS or D-HH:MM:SS"
SIZE_FORMS = "512MB, 4GB, 1.5GiB or 10G"
UNKNOWN = "–"

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
_CLOCK_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B)?", re.IGNORECASE)
_SLURM_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?(\.\d+)?")
_SLURM_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)c?n?", re.IGNORECASE)
LONGEST_S = 100 * 365 * 86400.0
_LARGEST_BYTES = 1 << 60
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_duration_s(text: str) -> float:
    """Seconds. Takes parts with units, and clock times: HH:MM:SS, D-HH:MM:SS, D-HH:MM, D-HH. Raises ValueError."""
    cleaned = text.strip()
    if not cleaned.isascii():
        raise ValueError(f"{text!r} is not a duration")
    clock = _CLOCK_TIME.fullmatch(cleaned)
    if clock:
        return _limited_s(text, _add_up(text, *clock.groups()))
    days_and_hours = _DAYS_AND_HOURS.fullmatch(cleaned)
    if days_and_hours:
        return _limited_s(text, _add_up(text, days_and_hours[1], days_and_hours[2], "0", None))
    total, end = 0.0, 0
    for part in _PART.finditer(cleaned):
        unit = part[2].lower()
        unit = _UNIT_WORDS.get(unit[:-1] if unit.endswith("s") else unit, unit)
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


def _add_up(text: str, days: Optional[str], first: str, second: str, third: Optional[str]) -> float:
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


# -- what Slurm prints


def parse_clock_s(text: str) -> Optional[float]:
    """Seconds of a time as Slurm prints and takes it: M, M:S, H:M:S and D-[H[:M[:S]]]; None for anything else."""
    match = _SLURM_CLOCK.fullmatch(re.sub("-$", "-0", text.strip()))
    if match is None:
        return None
    days, first, second, third, fraction = match.groups()
    numbers = [int(number) for number in (first, second, third) if number is not None]
    if days is None and len(numbers) < 3:
        numbers.insert(0, 0)  # without days the first of two numbers is minutes
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds + float(fraction or 0)


def parse_slurm_mb(text: str, plain: str = "M") -> Optional[float]:
    """Megabytes of a size as Slurm prints it: `8000M`, `7.5G`, `4Gn`; None for anything else.

    `plain` is the unit of a number without one: megabytes in requests, bytes ("") in accounting.
    """
    match = _SLURM_SIZE.fullmatch(text.strip())
    if match is None:
        return None
    return float(match[1]) * 1024.0 ** (_POWERS[match[2].upper() or plain] - _POWERS["M"])


# -- for people


def render_duration(seconds: Optional[float]) -> str:
    """A duration for people: `12 ms`, `3.2 s`, `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`; `–` where it is not known.

    Two units are enough for what is only looked at; see `render_limit` for durations that are compared.
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if 0 < seconds < 9.95 and seconds != int(seconds):
        return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds:.2g} s"
    whole = max(0, round(seconds))
    if whole >= 86400:
        whole = round(whole / 3600) * 3600
    elif whole >= 3600:
        whole = round(whole / 60) * 60
    return render_limit(whole)


def render_limit(seconds: float) -> str:
    """A limit for people, down to the second: `7 d`, `1 d 12 h`, `1 h 30 min 15 s`. A part of a second is cut off."""
    if seconds < 1:
        return f"{seconds:.1g} s"
    whole = int(seconds)
    amounts = [
        (whole // 86400, "d"),
        (whole // 3600 % 24, "h"),
        (whole // 60 % 60, "min"),
        (whole % 60, "s"),
    ]
    return " ".join(f"{amount} {unit}" for amount, unit in amounts if amount)


def render_about(seconds: float) -> str:
    """As much of a duration as an estimate deserves: `40 min`, `3 h 10 min`, `2 d 12 h`."""
    steps_s = ((90.0, 1), (100 * 60.0, 60), (10 * 3600.0, 600), (math.inf, 3600))
    step_s = next(step_s for limit_s, step_s in steps_s if seconds < limit_s)
    return render_duration(max(1, round(seconds / step_s) * step_s))


def render_bytes(count: float) -> str:
    """A size for people: `120 bytes`, `1.5 kB`, `850 MB`, `1.21 GB`."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1024 or unit == "TB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "bytes" else f"{count:.3g} {unit}"


def render_mb(megabytes: float) -> str:
    """Memory for people: `850 MB`, `1.21 GB`."""
    return render_bytes(megabytes * 1024**2)


def render_mb_limit(megabytes: float) -> str:
    """Requested memory for people, exact: `8 GB` where it is a whole number of gigabytes, else `8000 MB`."""
    if megabytes >= 1024 and megabytes % 1024 == 0:
        return f"{megabytes / 1024:g} GB"
    return f"{megabytes:g} MB" if megabytes < 100_000 else f"{megabytes:.0f} MB"


# -- for study files and command lines


def spell_duration(seconds: float) -> str:
    """A duration as a study file has it: 7d, 1h30m, 1m30s, 0.5s."""
    return render_limit(seconds).replace(" ", "").replace("min", "m")


def spell_memory(megabytes: float) -> str:
    """Memory as a study file has it, never less than given: 900MB, 1.2GB."""
    return (
        f"{math.ceil(megabytes)}MB"
        if megabytes < 1000
        else f"{math.ceil(megabytes / 1024 * 10) / 10:g}GB"
    )
