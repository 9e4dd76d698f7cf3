"""What a new user types a little wrong is refused with what was meant, and with nothing that is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.cli import _SYNONYMS, VERBS, main
from windlass.cli import plan as plan_verb
from windlass.cli import results as results_verb
from windlass.cli.results import _kind_of_file
from windlass.core.errors import InputError
from windlass.places.local import LocalPlace
from windlass.planning import make_plan
from windlass.search.trials import iterate_trials
from windlass.site.local import Site
from windlass.spec.build import Overrides, study_from_command
from windlass.spec.load import load_study
from windlass.view.results import FORMATS


def problems(folder: Path, text: str) -> list[str]:
    (folder / "study.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_study(str(folder / "study.yaml"))
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize("value", ["0.1,0.01", "0.1, 0.01", "adam,sgd"])
def test_a_list_without_brackets_is_asked_about(value: str) -> None:
    with pytest.raises(InputError) as caught:
        study_from_command(["x", "{lr}"], Overrides(params=(f"lr={value}",)))
    (problem,) = caught.value.problems
    assert f"--param 'lr=[{value}]'; for the one text --param 'lr=[\"{value}\"]'" in problem.hint
    several = study_from_command(["x", "{lr}"], Overrides(params=(f"lr=[{value}]",)))
    single = study_from_command(["x", "{lr}"], Overrides(params=(f'lr=["{value}"]',)))
    assert [len(list(iterate_trials(study))) for study in (several, single)] == [2, 1]


def test_what_is_given_twice_on_a_command_line_is_an_error(tmp_path: Path) -> None:
    twice = Overrides(params=("lr=0.1", "x=1", "lr=[0.2, 0.3]"))
    with pytest.raises(InputError) as caught:
        study_from_command(["x", "{lr}", "{x}"], twice)
    (problem,) = caught.value.problems
    assert problem.message == "lr is given twice: --param lr=0.1 --param 'lr=[0.2, 0.3]'"
    assert problem.hint.endswith("--param 'lr=[0.1, 0.2, 0.3]'")
    (tmp_path / "study.yaml").write_text("command: x {lr} {x}\nparameters: {lr: [1, 2, 3], x: 0}\n")
    with pytest.raises(InputError, match="lr is given twice"):
        load_study(str(tmp_path / "study.yaml"), twice)
    once = load_study(str(tmp_path / "study.yaml"), Overrides(params=("lr=0.1", "lr=0.1")))
    assert len(list(iterate_trials(once))) == 1, "the command line replaces the values of the file"


def test_only_one_metric_can_be_given() -> None:
    for verb in (results_verb.command, plan_verb.command):
        with pytest.raises(InputError, match="2 are given: --metric loss --metric 'val acc'"):
            verb.make_context("x", ["--metric", "loss", "--metric", "val acc", "--metric", "loss"])
        context = verb.make_context("x", ["--metric", "loss", "--metric", "loss"])
        assert "loss" in context.params.values()
        assert None in verb.make_context("x", []).params.values()


def test_what_has_commas_and_is_no_list_is_left_alone() -> None:
    for value in ("f(a, b)", "'a,b'", "{a: 1, b: 2}", "a,", "1"):
        study_from_command(["x", "{args}"], Overrides(params=(f"lr={value}",)))
    with pytest.raises(InputError) as caught:
        study_from_command(["x", "{lr}"], Overrides(params=("lr=[0.1",)))
    assert len(caught.value.problems) == 1, "and not that lr is no parameter"


def test_a_list_without_brackets_in_a_file_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "command: x {lr} {layers} {name}\nparameters: {lr: '0.1, 0.01', layers: ['64,64'], name: 'a,b'}\n"
    )
    (warning,) = load_study(str(file)).warnings
    assert warning == "lr is the one text '0.1, 0.01'; for several values write lr: [0.1, 0.01]"


def test_a_method_that_is_not_there_is_one_problem(tmp_path: Path) -> None:
    text = "command: x {lr}\nmethod: %s\nparameters:\n  lr: {min: 0.1, max: 1.0}\nrun_cap: 3\n"
    assert problems(tmp_path, text % "bayes") == ["method bayes is not available"]
    assert len(problems(tmp_path, text % "gird")) == 1
    assert problems(tmp_path, text % "grid") == ["a grid cannot list the values of lr (uniform)"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("statu", "did you mean windlass status?"),
        ("ls", "did you mean windlass status or windlass history?"),
        ("submit", "did you mean windlass run?"),
        ("kil", "did you mean windlass cancel?"),
        ("Plan", "did you mean windlass plan?"),
        ("study.yaml", "windlass plan study.yaml shows what it would do"),
        ("xyzzy", "the verbs are init, plan,"),
    ],
)
def test_a_verb_that_is_not_there(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--folder", "x"])
    assert caught.value.code == 2 and hint in capsys.readouterr().err


def test_synonyms_lead_to_verbs() -> None:
    assert {verb.split()[0] for verbs in _SYNONYMS.values() for verb in verbs} - {"--help"} <= set(
        VERBS
    )
    assert not set(_SYNONYMS) & set(VERBS)


def test_the_ending_of_a_file_names_its_format() -> None:
    assert [_kind_of_file(name) for name in ("x.csv", "a.b/x.JSON", "x.parquet")] == [
        "csv",
        "json",
        "parquet",
    ]
    assert [_kind_of_file(name) for name in (None, "x", "x.txt", "x.v2")] == ["table"] * 4
    assert {_kind_of_file(f"x.{kind}") for kind in FORMATS if kind != "table"} == {*FORMATS} - {
        "table"
    }
    with pytest.raises(InputError, match=r"there is no format for \.xlsx"):
        _kind_of_file("x.xlsx")


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("--output-dir runs", "all trials write to runs (--output-dir) and replace each other's files; use runs/{trial_id}"),
        ("--output-dir=runs/{lr}", "trials that differ in seed alone write to runs/{lr} (--output-dir)"),
        ("trainer.save_path=model.pt", "use model-{trial_id}.pt"),
        ("--output-dir runs/{lr}-{seed}", ""),
        ("--output-dir runs/{trial_id}", ""),
        ("--output-dir {checkpoint_dir}", ""),
        ("--data-dir data --log-interval 5 --output-size 3", ""),
        ("--output-dir", ""),
    ],
)  # fmt: skip
def test_a_place_that_all_trials_write_to_is_warned_of(
    words: str, warning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = f"x {{lr}} {{seed}} {words}".split()
    study = study_from_command(command, Overrides(params=("lr=[1, 2]",), seeds="5"))
    found = [
        one
        for one in make_plan(LocalPlace(Site(cpus=2, memory_mb=1000)), study, {}).warnings
        if "each other's files" in one
    ]
    assert len(found) == bool(warning) and warning in "".join(found)
    alone = study_from_command(
        ["x", *words.replace("{lr}", "1").replace("{seed}", "1").split()], Overrides()
    )
    assert not [
        one
        for one in make_plan(LocalPlace(Site(cpus=2, memory_mb=1000)), alone, {}).warnings
        if "each other's files" in one
    ]
