"""Which trials are measured: the corners, one of each variant, and no more than tell something."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.measure.spread import Spread, choose_spread
from windlass.model import Distribution, Parameter, Space, Stage, Study, Trial
from windlass.search import count_trials, iterate_trials


def study_of(*parameters: Parameter, **space: Any) -> Study:
    words = ("train", *(f"--{one.name}={{{one.name}}}" for one in parameters))
    if space.get("seeds"):
        words = (*words, "--seed={seed}")
    return Study(
        "sweep", (Stage("main", words),), Space(parameters=parameters, **space), "/p", "/p"
    )


def choice(name: str, *values: Any, **more: Any) -> Parameter:
    return Parameter(name, values=values, **more)


def alone(spread: Spread) -> list[dict[str, Any]]:
    return [dict(trial.settings) for trial in spread.trials[: spread.alone]]


WIDTH = choice("width", 64, 1024, 256)
DEPTH = choice("depth", 2, 8, 4)
ALGO = choice("algo", "ppo", "dqn", "sac")


class TestWhoIsLookedAtAlone:
    def test_the_largest_and_the_smallest_corner(self) -> None:
        assert alone(choose_spread(study_of(WIDTH, DEPTH), ())) == [
            {"width": 1024, "depth": 8},
            {"width": 64, "depth": 2},
        ]

    def test_the_largest_of_each_variant_and_the_smallest_of_all(self) -> None:
        found = alone(choose_spread(study_of(ALGO, WIDTH), ["algo"]))
        assert sorted(one["algo"] for one in found if one["width"] == 1024) == ["dqn", "ppo", "sac"]
        assert [one for one in found if one["width"] != 1024] == [{"algo": "ppo", "width": 64}]

    def test_variants_of_two_settings_are_their_combinations(self) -> None:
        found = alone(choose_spread(study_of(ALGO, WIDTH), ["algo", "width"]))
        assert {(one["algo"], one["width"]) for one in found} == set(
            itertools.product(("ppo", "dqn", "sac"), (64, 256, 1024))
        )

    def test_of_many_variants_the_largest_and_the_others_are_counted(self) -> None:
        found = choose_spread(study_of(choice("size", *range(1, 31))), ["size"])
        assert [one["size"] for one in alone(found)] == [*range(30, 18, -1), 1]
        assert found.left_out == 18

    def test_seeds_are_no_size(self) -> None:
        assert len(alone(choose_spread(study_of(seeds=(1, 2, 3)), ()))) == 1
        assert len(alone(choose_spread(study_of(WIDTH, seeds=(1, 2, 3)), ()))) == 2

    def test_words_have_no_size_but_differ(self) -> None:
        assert [one["algo"] for one in alone(choose_spread(study_of(ALGO), ()))] == ["sac", "ppo"]

    def test_a_switch_is_not_a_number(self) -> None:
        found = alone(choose_spread(study_of(choice("amp", True, False), WIDTH), ()))
        assert [one["width"] for one in found] == [1024, 64]

    def test_one_trial(self) -> None:
        found = choose_spread(study_of(choice("x", 1)), ())
        assert (len(found.trials), found.alone) == (1, 1)
        found = choose_spread(study_of(choice("x", 1)), ["x"])
        assert (len(found.trials), found.alone) == (1, 1)

    def test_a_variant_that_some_trials_do_not_have(self) -> None:
        layers = choice("layers", 1, 2, when={"algo": ("ppo",)})
        found = alone(choose_spread(study_of(ALGO, layers), ["layers"]))
        assert {one.get("layers") for one in found} == {None, 1, 2}

    def test_task_files(self) -> None:
        tasks = tuple(("train", "--config", f"{number}.json") for number in range(5))
        found = choose_spread(replace(study_of(), stages=(), tasks=tasks), ())
        assert [one["task"] for one in alone(found)] == [
            "train --config 4.json",
            "train --config 0.json",
        ]
        assert len({trial.id for trial in found.trials}) == 5

    def test_random_search(self) -> None:
        study = study_of(
            Parameter("lr", distribution=Distribution("uniform", {"min": 0, "max": 1})), trials=50
        )
        found = choose_spread(replace(study, space=replace(study.space, method="random")), ())
        values = [trial.settings["lr"] for trial in found.trials]
        assert [one["lr"] for one in alone(found)] == [max(values), min(values)]


class TestCompany:
    def test_comes_from_all_over_the_study_each_once(self) -> None:
        study = study_of(choice("x", *range(1000)))
        found = choose_spread(study, ())
        assert len({trial.id for trial in found.trials}) == len(found.trials) <= 100
        others = sorted(trial.settings["x"] for trial in found.trials[found.alone :])
        assert others[0] < 50 and others[-1] > 900
        assert max(b - a for a, b in itertools.pairwise(others)) <= 25

    def test_those_that_come_first_are_alike_and_of_middling_size(self) -> None:
        """k = 1, 2, 4, … begin with the same ones: what differs between rounds is k."""
        study = study_of(
            choice("algo", "a", "b", "c"), choice("width", 64, 128, 256), seeds=tuple(range(10))
        )
        found = choose_spread(study, ["algo"])
        first = [trial.settings for trial in found.trials[found.alone :][:8]]
        assert {(one["algo"], one["width"]) for one in first} in (
            {("b", 128)},
            {("b", 128), ("b", 256)},
        )

    def test_a_small_study_is_there_whole(self) -> None:
        study = study_of(WIDTH, DEPTH)
        assert {trial.id for trial in choose_spread(study, ()).trials} == {
            trial.id for trial in iterate_trials(study)
        }


def million(*more: Parameter, **space: Any) -> Study:
    lr = Parameter("lr", distribution=Distribution("int_uniform", {"min": 1, "max": 1000}))
    return study_of(WIDTH, choice("algo", *"abcde"), *more, lr, seeds=tuple(range(70)), **space)


class TestManyTrials:
    def test_all_corners_and_variants_of_a_million(self) -> None:
        study = million()
        assert count_trials(study) > 1_000_000
        found = alone(choose_spread(study, ["algo"]))
        assert {(one["algo"], one["width"], one["lr"]) for one in found[:5]} == {
            (a, 1024, 1000) for a in "abcde"
        }
        assert (found[5]["width"], found[5]["lr"]) == (64, 1)

    def test_what_is_measured_are_trials_of_the_study(self) -> None:
        study = million()
        study = replace(
            study,
            space=replace(study.space, seeds=(7, 9), exclude=({"lr": (1000,), "width": (1024,)},)),
        )
        wanted = {trial.id: trial for trial in choose_spread(study, ["algo"]).trials}
        known = {trial.id: trial for trial in iterate_trials(study) if trial.id in wanted}
        assert known == wanted

    def test_only_few_of_them_are_looked_at(self, monkeypatch: Any) -> None:
        looked_at = 0

        def count(study: Study) -> Any:
            nonlocal looked_at
            for trial in iterate_trials(study):
                looked_at += 1
                yield trial

        monkeypatch.setattr("windlass.measure.spread.iterate_trials", count)
        choose_spread(million(*(choice(f"p{number}", *range(10)) for number in range(8))), ["algo"])
        assert 0 < looked_at <= 20_000

    def test_many_seeds_of_few_settings_leave_enough_for_company(self) -> None:
        found = choose_spread(study_of(WIDTH, seeds=tuple(range(100_000))), ())
        assert found.alone == 2 and len(found.trials) >= 90

    def test_values_that_go_together_stay_together(self) -> None:
        pairs = (choice("a", *range(200)), choice("b", *range(200, 0, -1)))
        study = study_of(*pairs, choice("c", *range(1000)), zips=(("a", "b"),))
        assert count_trials(study) == 200_000
        for trial in choose_spread(study, ()).trials:
            assert trial.settings["a"] + trial.settings["b"] == 200

    def test_where_the_rules_leave_nothing_of_the_corners(self) -> None:
        all_but_one = (0, *range(2, 200))
        study = study_of(
            choice("a", *range(200)), choice("b", *range(200)), exclude=({"a": all_but_one},)
        )
        study = replace(study, space=replace(study.space, seeds=tuple(range(1000))))
        found = choose_spread(study, ())
        assert {trial.settings["a"] for trial in found.trials} == {1}


@given(
    st.lists(
        st.lists(
            st.one_of(st.integers(0, 9), st.sampled_from("xyz")),
            min_size=1,
            max_size=4,
            unique=True,
        ),
        max_size=3,
    ),
    st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_each_variant_once_and_nobody_twice(values: list[list[Any]], seeds: int) -> None:
    parameters = [choice(f"p{number}", *one) for number, one in enumerate(values)]
    study = study_of(*parameters, seeds=tuple(range(seeds)))
    variants = [one.name for one in parameters[:1]]
    found = choose_spread(study, variants)
    trials: list[Trial] = list(found.trials)
    assert len({trial.id for trial in trials}) == len(trials)
    wanted = {repr(trial.settings.get("p0")) for trial in iterate_trials(study)}
    assert {repr(trial.settings.get("p0")) for trial in trials[: found.alone]} == wanted
    assert found.alone <= len(wanted) + 1
