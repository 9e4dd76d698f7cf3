"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.units import parse_duration_s, parse_memory_mb, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (" 1 h 30 min ", 5400),
        ("2 days", 172800),
        ("1d12h", 129600),
        ("1-12:00:00", 129600),
        ("1-12:00", 129600),
        ("00:30:00", 1800),
        ("100:00:00", 360000),
        ("00:00:01.5", 1.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        "30",
        "30 parsecs",
        "1:30",
        "00:61:00",
        "00:00:60",
        "1-25:00:00",
        "1h 30",
        "-5m",
        "1h,2m",
        "5mm",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        ("4GB", 4096),
        ("512MB", 512),
        ("10G", 10240),
        ("1.5GiB", 1536),
        ("1 tb", 1048576),
        ("1B", 1),
        ("1025K", 2),
    ],
)
def test_memory_is_in_powers_of_1024_and_rounded_up(text: str, megabytes: int) -> None:
    assert parse_memory_mb(text) == megabytes


@pytest.mark.parametrize("text", ["", "4", "4.5", "GB", "4 GG", "-4GB", "4GBps"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_memory_mb(text)


def test_bytes() -> None:
    assert parse_size_bytes("10MB") == 10 * 1024**2
    assert parse_size_bytes("100B") == 100


@given(st.integers(0, 40), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_clock_and_units_agree(days: int, hours: int, minutes: int, seconds: int) -> None:
    clock = f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    assert parse_duration_s(clock) == parse_duration_s(f"{days}d{hours}h{minutes}m{seconds}s")
