"""Trials and their ids."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from windlass.model import Parameter, Space, Stage, Study, Written
from windlass.search import canonical_command, count_trials, iterate_trials

STUDY = Study(
    name="golden",
    stages=(
        Stage("train", ("python", "train.py", "--lr", "{lr}", "--opt={opt}", "{args}")),
        Stage("report", ("python report.py {seed}",), shell=True, args_format="--k=v"),
    ),
    space=Space(
        parameters=(
            Parameter("lr", (Written(1e-3, "1e-3"), 0.01)),
            Parameter("opt", ("adam", "sgd ü")),
            Parameter("momentum", (0.9,), when={"opt": ("sgd ü",)}),
        ),
        seeds=(1, 2),
    ),
    workdir="/",
    project_dir="/",
)
TASKS = Study(
    name="tasks",
    stages=(),
    space=Space(method="list", seeds=(1, 2)),
    workdir="/",
    project_dir="/",
    tasks=(("python", "a b.py"), ("python", "a b.py"), ("python", "c.py", "--seed={seed}", "{lr}")),
)

GOLDEN = [
    "tqemqtklldwa5",
    "tfy63rcjmfp52",
    "txq2h34kouzhh",
    "tsxqxs5f2asqj",
    "tdiu32jnqmz35",
    "tox4fp6pnl6hp",
    "tfi7gfb3o72t4",
    "tehscb5tmr3lf",
]
GOLDEN_TASKS = [
    "tlp3hbslja7gm",
    "tbw5xwksexh77",
    "tdoqvxfwsqcsl",
    "tnesu7wjh43tv",
]


def test_ids_of_yesterday() -> None:
    """These ids stand in finished studies. If this test fails, their trials would run again: do not change it."""
    assert [trial.id for trial in iterate_trials(STUDY)] == GOLDEN
    assert [trial.id for trial in iterate_trials(TASKS)] == GOLDEN_TASKS


def test_the_way_a_number_is_written_does_not_change_its_trial() -> None:
    rewritten = Study(
        **{
            **vars(STUDY),
            "space": Space(parameters=(Parameter("lr", (0.001,)),)),
            "stages": STUDY.stages[:1],
        }
    )
    written = Study(
        **{
            **vars(rewritten),
            "space": Space(parameters=(Parameter("lr", (Written(1e-3, "1e-3"),)),)),
        }
    )
    assert next(iterate_trials(rewritten)).id == next(iterate_trials(written)).id


def test_ids_change_with_the_command_and_not_with_the_name_or_the_rest_of_the_grid() -> None:
    first = next(iterate_trials(STUDY)).id
    renamed = Study(**{**vars(STUDY), "name": "other"})
    longer = Study(
        **{**vars(STUDY), "space": Space(parameters=STUDY.space.parameters, seeds=(1, 2, 3))}
    )
    other = Study(**{**vars(STUDY), "stages": STUDY.stages[:1]})
    assert next(iterate_trials(renamed)).id == first
    assert {trial.id for trial in iterate_trials(STUDY)} < {
        trial.id for trial in iterate_trials(longer)
    }
    assert next(iterate_trials(other)).id != first
    assert canonical_command(STUDY.stages) != canonical_command(other.stages)


def test_commands_are_filled_in() -> None:
    trials = list(iterate_trials(STUDY))
    assert trials[0].stages == (
        (
            "train",
            (
                "python",
                "train.py",
                "--lr",
                "1e-3",
                "--opt=adam",
                "--lr",
                "1e-3",
                "--opt",
                "adam",
                "--seed",
                "1",
            ),
        ),
        ("report", ("/bin/sh", "-c", "python report.py 1")),
    )
    assert dict(trials[2].settings) == {"lr": 0.001, "opt": "sgd ü", "momentum": 0.9, "seed": 1}
    assert count_trials(STUDY) == len(trials) == 8


def test_tasks_keep_their_words_and_repeat_for_seeds_only_where_they_use_them() -> None:
    trials = list(iterate_trials(TASKS))
    assert count_trials(TASKS) == len(trials) == 4
    assert [trial.stages[0][1] for trial in trials] == [
        ("python", "a b.py"),
        ("python", "a b.py"),
        ("python", "c.py", "--seed=1", "{lr}"),
        ("python", "c.py", "--seed=2", "{lr}"),
    ]
    assert [dict(trial.settings) for trial in trials[:3]] == [
        {"task": "python 'a b.py'"},
        {"task": "python 'a b.py'", "repeat": 2},
        {"task": "python c.py '--seed={seed}' '{lr}'", "seed": 1},
    ]


def test_trials_are_made_one_at_a_time() -> None:
    values = tuple(range(1000))
    space = Space(parameters=tuple(Parameter(name, values) for name in "abcd"))
    study = Study("huge", (Stage("main", ("x", "{args}")),), space, "/", "/")
    assert count_trials(study) == 1000**4
    assert [trial.settings["d"] for trial in itertools.islice(iterate_trials(study), 3)] == [
        0,
        1,
        2,
    ]


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.lists(st.text(), min_size=1, max_size=3, unique=True), min_size=1
    )
)
def test_ids_are_unique_and_stable(values: dict[str, list[str]]) -> None:
    space = Space(parameters=tuple(Parameter(name, tuple(items)) for name, items in values.items()))
    study = Study("s", (Stage("main", ("x", "{args}")),), space, "/", "/")
    ids = [trial.id for trial in iterate_trials(study)]
    assert len(set(ids)) == len(ids)
    assert ids == [trial.id for trial in iterate_trials(study)]
