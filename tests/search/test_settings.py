"""Grids, random draws and lists of rows."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from windlass.core.errors import InputError
from windlass.model import Distribution, Parameter, Space
from windlass.search.sampling import draw_number, draw_value
from windlass.search.settings import count_distinct, count_settings, iterate_settings
from windlass.search.values import canonical_json

A = Parameter("a", (1, 2))
B = Parameter("b", ("x", "y", "z"))


def listed(space: Space) -> list[dict[str, Any]]:
    found = [dict(settings) for settings in iterate_settings(space)]
    assert count_settings(space) == len(found)
    return found


def test_the_last_parameter_changes_fastest_and_the_seed_before_it() -> None:
    found = listed(Space(parameters=(A, B), seeds=(1, 2)))
    assert found == [
        {"a": a, "b": b, "seed": seed}
        for a, b, seed in itertools.product((1, 2), ("x", "y", "z"), (1, 2))
    ]
    assert list(found[0]) == ["a", "b", "seed"]


def test_nothing_to_vary_is_one_setting() -> None:
    assert listed(Space()) == [{}]


def test_zipped_parameters_move_together() -> None:
    space = Space(parameters=(A, B, Parameter("c", (10, 20))), zips=(("a", "c"),))
    assert listed(space) == [
        {"a": a, "c": c, "b": b} for (a, c) in ((1, 10), (2, 20)) for b in ("x", "y", "z")
    ]


def test_conditional_parameters_are_absent_elsewhere_also_when_declared_first() -> None:
    child = Parameter("momentum", (0.0, 0.9), when={"opt": ("sgd",)})
    grandchild = Parameter("nesterov", (True, False), when={"momentum": (0.9,)})
    space = Space(parameters=(child, Parameter("opt", ("adam", "sgd")), grandchild))
    assert listed(space) == [
        {"opt": "adam"},
        {"opt": "sgd", "momentum": 0.0},
        {"opt": "sgd", "momentum": 0.9, "nesterov": True},
        {"opt": "sgd", "momentum": 0.9, "nesterov": False},
    ]


def test_exclude_needs_all_values_of_a_rule() -> None:
    space = Space(parameters=(A, B), exclude=({"a": (1,), "b": ("x", "y")}, {"b": ("z",)}))
    assert listed(space) == [{"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    seeded = Space(parameters=(A,), seeds=(1, 2), exclude=({"a": (1,), "seed": (2,)},))
    assert len(listed(seeded)) == 3
    assert len(listed(replace(seeded, trials=1))) == 1


def test_a_capped_grid_takes_the_first_settings_with_all_seeds() -> None:
    assert listed(Space(parameters=(A, B), trials=2)) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]
    assert len(listed(Space(parameters=(A, B), trials=2, seeds=(1, 2, 3)))) == 6
    assert len(listed(Space(parameters=(A,), trials=50))) == 2


def test_rows_are_taken_as_they_are() -> None:
    space = Space(
        method="list", rows=({"a": 1}, {"b": 2}), seeds=(5, 6), exclude=({"b": (2,), "seed": (6,)},)
    )
    assert listed(space) == [{"a": 1, "seed": 5}, {"a": 1, "seed": 6}, {"b": 2, "seed": 5}]
    assert listed(Space(method="list", rows=({"a": 1}, {"a": 2}), exclude=({"a": (1,)},))) == [
        {"a": 2}
    ]


def test_listable_distributions() -> None:
    whole = Parameter("n", distribution=Distribution("int_uniform", {"min": -1, "max": 1}))
    stepped = Parameter(
        "q", distribution=Distribution("q_uniform", {"min": 0, "max": 0.4, "q": 0.1})
    )
    assert [row["n"] for row in listed(Space(parameters=(whole,)))] == [-1, 0, 1]
    assert [row["q"] for row in listed(Space(parameters=(stepped,)))] == [0.0, 0.1, 0.2, 0.3]


def test_a_wide_range_is_neither_copied_nor_counted_one_by_one() -> None:
    wide = Parameter("n", distribution=Distribution("int_uniform", {"min": 0, "max": 10**15}))
    space = Space(parameters=(wide, A))
    assert count_settings(space) == 2 * (10**15 + 1)
    assert list(itertools.islice(iterate_settings(space), 2)) == [
        {"n": 0, "a": 1},
        {"n": 0, "a": 2},
    ]


# -- random

RATE = Parameter("lr", distribution=Distribution("log_uniform_values", {"min": 1e-5, "max": 1e-1}))


def test_more_trials_keep_the_first_ones() -> None:
    space = Space(method="random", parameters=(A, B, RATE), trials=10, search_seed=3)
    assert listed(replace(space, trials=50))[:10] == listed(space)
    assert listed(replace(space, search_seed=4)) != listed(space)
    small = Space(method="random", parameters=(A, B), trials=2)
    assert listed(replace(small, trials=6))[:2] == listed(small)


def test_draws_do_not_change_between_releases() -> None:
    space = Space(method="random", parameters=(A, B, RATE), trials=2, search_seed=1)
    assert listed(space) == [
        {"a": 2, "b": "y", "lr": 0.000303654437985},
        {"a": 2, "b": "z", "lr": 1.04606108406e-05},
    ]


def test_a_small_space_is_drawn_to_the_last_setting_without_repeats() -> None:
    many = Parameter("n", distribution=Distribution("int_uniform", {"min": 1, "max": 400}))
    found = listed(Space(method="random", parameters=(many, A), trials=800))
    assert len({canonical_json(row) for row in found}) == 800
    assert count_distinct(Space(parameters=(many, A))) == 800
    assert count_distinct(Space(parameters=(RATE,))) is None


def test_drawing_more_than_there_is_fails_with_the_number_there_is() -> None:
    stepped = Parameter("q", distribution=Distribution("q_uniform", {"min": 0, "max": 2, "q": 1}))
    with pytest.raises(InputError, match="only 3 different settings"):
        list(iterate_settings(Space(method="random", parameters=(stepped,), trials=10)))


def test_random_respects_conditions_rules_zips_and_seeds() -> None:
    momentum = Parameter("momentum", (0.5, 0.9), when={"opt": ("sgd",)})
    space = Space(
        method="random",
        parameters=(Parameter("opt", ("adam", "sgd")), momentum, RATE, A, Parameter("c", (10, 20))),
        zips=(("a", "c"),),
        exclude=({"opt": ("sgd",), "a": (1,)},),
        trials=100,
        seeds=(1, 2),
    )
    found = listed(space)
    assert len(found) == 200
    for row in found:
        assert ("momentum" in row) == (row["opt"] == "sgd")
        assert row["c"] == row["a"] * 10
        assert not (row["opt"] == "sgd" and row["a"] == 1)


NUMBERS = {"min": 1.0, "max": 3.0, "mu": 1.0, "sigma": 0.5, "q": 0.25, "a": 2.0, "b": 3.0}


def drawn(kind: str, count: int = 4000, **numbers: float) -> list[float]:
    distribution = Distribution(kind, {**NUMBERS, **numbers})
    stream = random.Random(kind)
    return [draw_number(distribution, stream) for _ in range(count)]


@pytest.mark.parametrize(
    ("kind", "low", "high", "median"),
    [
        ("uniform", 1, 3, 2),
        ("log_uniform", math.exp(1), math.exp(3), math.exp(2)),
        ("log_uniform_values", 1, 3, math.sqrt(3)),
        ("inv_log_uniform", math.exp(-3), math.exp(-1), math.exp(-2)),
        ("inv_log_uniform_values", 1, 3, math.sqrt(3)),
        ("normal", -math.inf, math.inf, 1),
        ("log_normal", 0, math.inf, math.exp(1)),
        ("beta", 0, 1, 0.386),
    ],
)
def test_distributions_and_their_stepped_forms(
    kind: str, low: float, high: float, median: float
) -> None:
    values = drawn(kind)
    assert all(low <= value <= high for value in values)
    assert statistics.median(values) == pytest.approx(median, rel=0.06)
    if kind.startswith("inv"):
        return
    stepped = drawn("q_" + kind)
    assert all((value / 0.25).is_integer() for value in stepped)
    assert all(isinstance(value, int) for value in drawn("q_" + kind, 10, q=1))


def test_weights() -> None:
    parameter = Parameter("a", ("x", "y", "never"), weights=(0.2, 0.8, 0.0))
    stream = random.Random(1)
    counts = Counter(draw_value(parameter, stream) for _ in range(5000))
    assert counts["x"] / 5000 == pytest.approx(0.2, abs=0.03)
    assert counts["never"] == 0


# -- properties

VALUES = st.lists(
    st.one_of(
        st.integers(-5, 5),
        st.booleans(),
        st.none(),
        st.text(max_size=3),
        st.floats(allow_nan=False),
    ),
    min_size=1,
    max_size=4,
    unique_by=canonical_json,
)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    parameters: list[Parameter] = []
    for name in names:
        when: dict[str, tuple[Any, ...]] = {}
        if parameters and draw(st.booleans()):
            parent = draw(st.sampled_from(parameters))
            when = {
                parent.name: tuple(
                    draw(st.lists(st.sampled_from(parent.values), min_size=1, max_size=2))
                )
            }
        parameters.append(Parameter(name, tuple(draw(VALUES)), when=when))
    seeds = tuple(range(draw(st.integers(0, 2))))
    excluded = draw(st.sampled_from(parameters))
    exclude = (
        ({excluded.name: (draw(st.sampled_from(excluded.values)),)},) if draw(st.booleans()) else ()
    )
    return Space(parameters=tuple(parameters), seeds=seeds, exclude=exclude)


@given(spaces())
@hypothesis_settings(max_examples=150, deadline=None)
def test_settings_are_deterministic_distinct_and_counted(space: Space) -> None:
    found = listed(space)
    assert found == listed(space)
    assert len({canonical_json(row) for row in found}) == len(found)
