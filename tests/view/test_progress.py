"""The progress line fits, tells the truth when it has to leave things out, and never moves the cursor."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.units import render_duration
from windlass.view.escapes import show
from windlass.view.progress import (
    Progress,
    RateMeter,
    render_line,
    render_plain,
    render_rate,
)

MIDWAY = Progress(
    total=75,
    done=40,
    failed=2,
    running=3,
    interrupted=1,
    cancelled=0,
    elapsed_s=14.0,
    rate_per_s=3.0,
    eta_s=11.0,
    best=("error", 0.25731),
)
HUGE = Progress(
    total=10**12,
    done=10**12 - 7,
    failed=5,
    running=4096,
    interrupted=10**6,
    cancelled=1,
    elapsed_s=1e8,
    rate_per_s=1e17,
    eta_s=1e12,
    best=("validation/名前", -1.5e300),
)
ESCAPES = re.compile(r"\x1b<\w+>\d+m")


def cells(line: str) -> int:
    """How wide a terminal shows it."""
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in ESCAPES.sub("", line)
    )


def test_a_wide_line_says_everything() -> None:
    assert render_line(MIDWAY, 200, color=False) == (
        "━━━━━━━━━━━━━─────────── "
        "42/75 · 2 failed · 3 running · 1 interrupted · 3.0/s · 11 s left · after 14 s · best error 0.2573"
    )


def test_a_narrow_line_keeps_what_matters_most() -> None:
    assert render_line(MIDWAY, 30, color=False) == "42/75 · 2 failed · 11 s left"
    assert render_line(MIDWAY, 20, color=False) == "42/75 · 2 failed"
    assert render_line(MIDWAY, 20, color=False).startswith("42/75")


def test_counts_that_do_not_fit_become_a_share_instead_of_a_wrong_number() -> None:
    assert render_line(HUGE, 20, color=False) == "99%"
    assert render_line(HUGE, 2, color=False) == ""


@pytest.mark.parametrize("progress", [MIDWAY, HUGE, replace(MIDWAY, total=0, done=0, failed=0)])
@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_width_is_exceeded(progress: Progress, color: bool, ascii_only: bool) -> None:
    for width in range(201):
        line = render_line(progress, width, color, ascii_only)
        assert cells(line) <= width
        assert "\n" not in line
        assert line.isascii() or not ascii_only
        assert "\x1b" not in line or color


@given(
    counts=st.tuples(*[st.integers(0, 10**15)] * 5),
    seconds=st.floats(0, 1e12),
    rate=st.none() | st.floats(0, 1e18),
    eta=st.none() | st.floats(0),
    name=st.text(max_size=30),
    value=st.floats(),
    width=st.integers(20, 200),
    color=st.booleans(),
)
def test_any_progress_fits(
    *,
    counts: tuple[int, ...],
    seconds: float,
    rate: float | None,
    eta: float | None,
    name: str,
    value: float,
    width: int,
    color: bool,
) -> None:
    progress = Progress(sum(counts), *counts, seconds, rate, eta, (name, value))
    line = render_line(progress, width, color)
    assert 0 < cells(line) <= width
    assert ESCAPES.sub("", line).isprintable()
    assert render_plain(progress).isprintable()


def test_color_changes_nothing_but_the_color() -> None:
    for width in range(20, 201):
        colored = render_line(MIDWAY, width, color=True)
        assert ESCAPES.sub("", colored) == render_line(MIDWAY, width, color=False)
    assert "\x1b[31m2 failed\x1b[0m" in show(render_line(MIDWAY, 200, color=True))


def test_ascii_fallback() -> None:
    line = render_line(replace(MIDWAY, eta_s=None), 60, color=False, ascii_only=True)
    assert line == "#######------- 42/75 | 2 failed | 3 running | 3.0/s | - left"


def test_the_bar_is_full_only_at_the_end_and_never_empty_after_the_first() -> None:
    first = Progress(10**6, 1, 0, 1, 0, 0, 1.0, None, None)
    assert render_line(first, 80, color=False).startswith("━─")
    almost = replace(first, done=10**6 - 1)
    assert "━─ 999,999/1,000,000" in render_line(almost, 80, color=False)
    finished = replace(first, done=10**6, running=0)
    assert render_line(finished, 80, color=False) == "━" * 24 + " 1,000,000/1,000,000 · took 1 s"
    assert render_line(replace(first, done=0), 80, color=False).startswith("─")


def test_interrupted_trials_have_not_ended() -> None:
    assert replace(MIDWAY, cancelled=4).ended == 40 + 2 + 4


def test_plain_line() -> None:
    assert render_plain(MIDWAY) == (
        "42/75, 2 failed, 3 running, 1 interrupted, 3.0/s, 11 s left, after 14 s, best error 0.2573"
    )
    assert render_plain(replace(MIDWAY, best=("a\x1b[2Jb\n", 1.0))).endswith("best a?[2Jb? 1")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
        (-3, "0 s"),
        (0, "0 s"),
        (0.004, "4 ms"),
        (0.4, "0.4 s"),
        (3.24, "3.2 s"),
        (45, "45 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (86399.9, "1 d"),
        (3 * 86400 + 4 * 3600 + 59 * 60, "3 d 5 h"),
        (1e10, "115740 d 18 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert render_duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "–/s"),
        (0.0, "0.0/s"),
        (1.0, "1.0/s"),
        (9.96, "10/s"),
        (2304.2, "2,304/s"),
        (0.5, "30/min"),
        (1 / 60, "1.0/min"),
        (1 / 3600, "1.0/h"),
        (1 / 36000, "0.1/h"),
    ],
)
def test_rates(rate: float | None, text: str) -> None:
    assert render_rate(rate) == text


class TestRateMeter:
    def test_nothing_is_known_at_the_start(self) -> None:
        meter = RateMeter()
        assert meter.add(100.0, 0) is None
        assert meter.add(100.01, 2) is None, "two trials in 10 ms are no rate of 200/s"
        assert meter.add(101.0, 5) == pytest.approx(5.0)

    def test_what_was_done_before_does_not_count(self) -> None:
        meter = RateMeter()
        assert meter.add(0.0, 1000) is None
        assert meter.add(10.0, 1000) is None
        assert meter.add(20.0, 1010) == pytest.approx(0.5)

    def test_the_recent_past_decides(self) -> None:
        meter = RateMeter(window_s=10)
        for second in range(100):
            meter.add(float(second), second)
        rates = [meter.add(100.0 + second, 100 + 50 * second) for second in range(30)]
        assert rates[-1] == pytest.approx(50, rel=0.05)

    def test_a_stall_shows(self) -> None:
        meter = RateMeter(window_s=10)
        for second in range(60):
            meter.add(float(second), 10 * second)
        soon, later = meter.add(60.0, 590), meter.add(600.0, 590)
        assert soon is not None
        assert later is not None
        assert later < soon / 10

    def test_long_trials_have_a_rate(self) -> None:
        meter = RateMeter(window_s=30)
        for hour in range(50):
            meter.add(hour * 3600.0, hour)
            rate = meter.add(hour * 3600.0 + 1800, hour)
        assert rate == pytest.approx(1 / 3600, rel=0.1)

    def test_memory_does_not_grow(self) -> None:
        meter = RateMeter(window_s=10)
        for tick in range(20_000):
            meter.add(tick * 0.01, tick * 100)
        assert len(meter._samples) <= 110

    def test_a_falling_count_starts_afresh(self) -> None:
        meter = RateMeter()
        meter.add(0.0, 0)
        assert meter.add(10.0, 50) == pytest.approx(5.0)
        assert meter.add(11.0, 10) is None
        assert meter.add(21.0, 20) == pytest.approx(1.0)
