"""How many share a device: the search for it and the choice, along curves recorded on a real GPU.

tests/data/curves.json has steps a second of 1 to 16 processes of three programs on one H200, plain and with MPS.
Between recorded numbers a curve is a straight line.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import HERE
from windlass.core.knee import MPS, PLAIN, Point, choose, find_disturbed, next_k

RECORDED = json.loads((HERE / "data" / "curves.json").read_text())
MOST = 16
FIRST = {PLAIN: 1, MPS: 2}


class Curve:
    """What k at a time bring in one mode; `noise` is the share by which each look is off, at most."""

    def __init__(
        self, program: str, mode: str, noise: float = 0.0, seed: int = 0, fails_at: int = 99
    ) -> None:
        self.mode = mode
        self._known = {one["k"]: float(one["steps_per_s"]) for one in RECORDED[program][mode]}
        self._noise = noise
        self._chance = random.Random(f"{program}-{mode}-{seed}")
        self._fails_at = fails_at

    def true(self, k: int) -> float:
        below = max(one for one in self._known if one <= k)
        above = min(one for one in self._known if one >= k)
        share = (k - below) / (above - below) if above > below else 0.0
        return self._known[below] + share * (self._known[above] - self._known[below])

    def look(self, k: int) -> Point:
        if k >= self._fails_at:
            return Point(self.mode, k, 0.0)
        value = self.true(k) * (1 + self._chance.uniform(-self._noise, self._noise))
        return Point(self.mode, k, value, k / value)


def explore(curve: Curve, most: int = MOST) -> list[Point]:
    """Look where the search wants to look until it has seen enough, as a measurement does."""
    points: list[Point] = []
    while (k := next_k(points, FIRST[curve.mode], most)) is not None:
        points.append(curve.look(k))
        assert len(points) <= 7, "it does not come to an end"
        if not points[-1].value:
            break
    return points


def tried(program: str, mode: str, most: int = MOST) -> list[int]:
    return [point.k for point in explore(Curve(program, mode), most)]


def pick(program: str, prefer: str = "throughput", most: int = MOST) -> tuple[str, int]:
    points = [point for mode in (PLAIN, MPS) for point in explore(Curve(program, mode), most)]
    best = choose(points, prefer)
    assert best is not None
    return best.mode, best.k


class TestRecordedCurves:
    def test_it_doubles_while_that_pays_and_looks_once_between_the_last_two(self) -> None:
        assert tried("mlp", PLAIN) == [1, 2, 4, 8, 16]
        assert tried("mlp", MPS) == [2, 4, 8, 16]
        assert tried("cnn", PLAIN) == [1, 2, 4, 8, 6]
        assert tried("cnn", MPS) == [2, 4, 8, 16, 12]
        assert tried("transformer", PLAIN) == [1, 2, 4, 8, 6]
        assert tried("transformer", MPS) == [2, 4, 8, 6]

    def test_the_choice(self) -> None:
        assert pick("mlp") == (MPS, 16)
        assert pick("cnn") == (MPS, 8)
        assert pick("transformer") == (MPS, 4)

    def test_without_mps(self) -> None:
        for program, k in (("mlp", 16), ("cnn", 4), ("transformer", 4)):
            best = choose(explore(Curve(program, PLAIN)))
            assert best is not None and best.k == k, program

    def test_latency_keeps_each_trial_as_fast_as_alone(self) -> None:
        # Alone 339 steps a second; two at a time 344 each, and with MPS 348: nobody notices.
        assert pick("cnn", "latency") == (MPS, 4)  # 325 each
        # Alone 97, two at a time 75 with or without MPS: everybody would. With MPS four have 86.
        assert pick("transformer", "latency") == (PLAIN, 1)
        assert pick("mlp", "latency") == (PLAIN, 1)

    @pytest.mark.parametrize("program", list(RECORDED))
    @pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 13, 16])
    def test_a_cap_is_never_passed_and_the_best_below_it_is_found(
        self, program: str, most: int
    ) -> None:
        points = [point for mode in (PLAIN, MPS) for point in explore(Curve(program, mode), most)]
        assert max(point.k for point in points) <= most
        best = choose(points)
        assert best is not None
        reachable = [
            Curve(program, mode).true(k)
            for mode in (PLAIN, MPS)
            for k in range(FIRST[mode], most + 1)
        ]
        assert best.value >= 0.9 * max(reachable)

    @given(st.sampled_from(list(RECORDED)), st.integers(0, 10_000), st.integers(1, MOST))
    @settings(max_examples=300, deadline=None)
    def test_with_noise_of_three_percent_the_choice_is_still_within_a_tenth_of_the_best(
        self, program: str, seed: int, most: int
    ) -> None:
        curves = [Curve(program, mode, 0.03, seed) for mode in (PLAIN, MPS)]
        best = choose([point for curve in curves for point in explore(curve, most)])
        assert best is not None
        chosen = next(curve for curve in curves if curve.mode == best.mode).true(best.k)
        reachable = max(
            curve.true(k) for curve in curves for k in range(FIRST[curve.mode], most + 1)
        )
        assert chosen >= 0.9 * reachable


class TestRoundsThatDoNotWork:
    def test_one_that_failed_ends_the_search_and_is_not_chosen(self) -> None:
        points = explore(Curve("mlp", PLAIN, fails_at=8))
        assert [point.k for point in points] == [1, 2, 4, 8]
        best = choose(points)
        assert best is not None and best.k == 4

    def test_after_a_failure_the_middle_is_worth_a_look(self) -> None:
        points = [
            Point(PLAIN, 1, 10.0),
            Point(PLAIN, 2, 20.0),
            Point(PLAIN, 4, 40.0),
            Point(PLAIN, 8, 0.0),
        ]
        assert next_k(points, 1, 16) == 6
        assert next_k([*points, Point(PLAIN, 6, 0.0)], 1, 16) is None
        assert choose([*points, Point(PLAIN, 6, 0.0)]) == points[2]

    def test_nothing_worked(self) -> None:
        assert choose([]) is None
        assert choose([Point(PLAIN, 1, 0.0)]) is None
        assert next_k([Point(PLAIN, 1, 0.0)], 1, 16) is None

    def test_there_is_no_room_for_the_first(self) -> None:
        assert next_k([], 2, 1) is None

    def test_alone_failed_but_others_worked(self) -> None:
        best = choose([Point(PLAIN, 1, 0.0), Point(MPS, 2, 5.0, 0.4)], "latency")
        assert best == Point(MPS, 2, 5.0, 0.4)


class TestChoice:
    def test_of_equals_the_fewest(self) -> None:
        points = [Point(PLAIN, 1, 50.0), Point(PLAIN, 4, 98.0), Point(PLAIN, 8, 100.0)]
        assert choose(points) == points[1]

    def test_of_equals_the_one_without_mps(self) -> None:
        points = [Point(MPS, 4, 100.0), Point(PLAIN, 4, 98.0)]
        assert choose(points) == points[1]

    def test_latency_without_times_is_one_at_a_time(self) -> None:
        points = [Point(PLAIN, 1, 50.0), Point(PLAIN, 2, 99.0)]
        assert choose(points, "latency") == points[0]


@given(
    st.integers(1, 64),
    st.lists(st.floats(0, 1000), min_size=64, max_size=64),
    st.sampled_from([1, 2]),
)
@settings(max_examples=300, deadline=None)
def test_any_curve_is_explored_in_a_few_looks_within_its_bounds(
    most: int, values: list[float], first: int
) -> None:
    points: list[Point] = []
    while (k := next_k(points, first, most)) is not None:
        assert first <= k <= most
        assert k not in [point.k for point in points], "the same again tells nothing"
        points.append(Point(PLAIN, k, values[k - 1]))
    assert len(points) <= 8


def test_more_than_k_times_one_cannot_be() -> None:
    strange = Point(PLAIN, 2, 1076.0)
    assert find_disturbed([Point(PLAIN, 1, 120.0), strange]) == strange
    assert (
        find_disturbed([Point(PLAIN, 1, 120.0), Point(MPS, 2, 250.0), Point(PLAIN, 4, 0.0)]) is None
    )
    assert find_disturbed([Point(PLAIN, 1, 0.0), Point(PLAIN, 2, 5.0)]) is None, (
        "one alone did not work"
    )
