"""windlass check --ladder: small versions of a training first, each must reach something before the next begins."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.conftest import Project
from windlass.core.errors import InputError
from windlass.spec.load import load_study

EXAMPLES = ROOT / "examples"
# A training whose loss after so many steps is 1 / steps, and larger the more examples there are.
TRAIN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--limit", type=int, default=100)
parser.add_argument("--name", default="")
arguments = parser.parse_args()
for step in range(1, 11):
    print(f"step {step} loss={arguments.limit / step / 10 * arguments.lr}")
"""
STUDY = """command: python3 train.py --lr {lr}
parameters: {lr: [1, 10]}
ladder:
  - {name: one example, args: --limit 1 --name 'a b', expect: loss<=0.01}
  - {name: one batch, parameters: {lr: 2}, args: --limit 8, expect: 'loss <= 0.1'}
  - {name: all, expect: [loss<=0.9, loss>0.1]}
"""


@pytest.fixture
def toy(project: Project) -> Project:
    project.write("train.py", TRAIN)
    project.write("study.yaml", STUDY)
    return project


def climb(project: Project, code: int, *words: str) -> dict[str, Any]:
    return dict(project.json("check", "--ladder", "--on", "local", "--json", *words, code=code))


def verdicts(said: dict[str, Any]) -> list[str]:
    return [rung["verdict"] for rung in said["rungs"]]


def test_a_rung_that_does_not_hold_is_the_last(toy: Project) -> None:
    said = climb(toy, 1)
    assert verdicts(said) == ["held", "not held", "not begun"] and not said["held"]
    assert said["rungs"][1]["why"] == "loss=0.16" and said["rungs"][1]["expect"] == "loss<=0.1"
    # Recorded like any trial, and found again by name: results, logs, explain.
    name = Path(said["folder"]).name
    rows = toy.json("results", name, "--json")
    assert [(row["rung"], row["lr"], row["state"], row["loss"]) for row in rows] == [
        ("one example", 1, "done", 0.01),
        ("one batch", 2, "done", 0.16),
    ]
    assert "step 10 loss=0.16" in toy.run("logs", name, "1").stdout
    story = toy.run("explain", name, "1").stdout
    assert "rung 'one batch': not held: loss=0.16 (expected loss<=0.1)" in story
    assert "--limit 1 --name 'a b'" in toy.run("explain", name, "0").stdout
    # A changed expectation needs no new training where it holds; what does not hold is executed again.
    toy.write(
        "study.yaml",
        STUDY.replace("'loss <= 0.1'", "loss<=0.2").replace("[loss<=0.9, loss>0.1]", "loss<=1"),
    )
    said = climb(toy, 0)
    assert verdicts(said) == ["held before", "held before", "held"] and said["held"]
    toy.write("study.yaml", STUDY)
    assert verdicts(climb(toy, 1)) == ["held before", "not held", "not begun"]
    assert [row["attempts"] for row in toy.json("results", name, "--json")] == [1, 2]
    # Changed code is another program.
    toy.write("train.py", TRAIN.replace("/ 10 *", "/ 20 *"))
    assert verdicts(climb(toy, 0)) == ["held", "held", "held"]
    # The study file stands for the study itself, not for its ladder.
    toy.run("run", "--on", "local")
    assert len(toy.json("results", "study.yaml", "--json")) == 2
    assert "PASS  one example" in toy.run("check", "--ladder", "--on", "local").stdout


def test_what_else_keeps_a_rung_from_holding(toy: Project) -> None:
    study = "command: python3 train.py --lr {lr}\nparameters: {lr: 1}\nladder:\n"
    toy.write("study.yaml", study + "  - {args: --limit 1, expect: return>=195}\n")
    assert "no return was reported" in climb(toy, 1)["rungs"][0]["why"]
    toy.write("study.yaml", study + "  - {args: --nonsense, expect: loss<=1}\n")
    assert climb(toy, 1)["rungs"][0]["why"] == "failed (exit code 2)"
    toy.write("study.yaml", study + "  - {parameters: {lr: .nan}, expect: loss<=1}\n")
    assert "loss became nan at step 1" in climb(toy, 1)["rungs"][0]["why"]
    toy.write("study.yaml", study + "  - {command: sleep 1000, timeout: 1s, expect: loss<=1}\n")
    assert climb(toy, 1)["rungs"][0]["why"] == "time limit"


WRONG = {
    "ladder: 3": (1, "ladder must be a list of rungs, not a number"),
    "ladder: [one]": (1, "a rung is a mapping, not text"),
    "ladder:\n  - {name: a, args: x}": (2, "a rung without `expect` shows nothing"),
    "ladder:\n  - name: a\n    expct: loss<=1\n    expect: loss<=1": (
        3,
        "a rung has no key 'expct'",
    ),
    "ladder:\n  - name: a\n    expect: loss=1": (
        3,
        "'loss=1' is not a metric, one of <=, <, >=, >, and a number",
    ),
    "ladder:\n  - name: a\n    expect: loss<=low": (3, "'loss<=low' is not a metric"),
    "ladder:\n  - {name: a, expect: x<1}\n  - {name: a, expect: x<1}": (
        3,
        "two rungs have the name 'a'",
    ),
    "ladder:\n  - expect: x<1\n    parameters: {lr: [1, 2]}": (
        3,
        "a rung has one value for each parameter",
    ),
    "ladder:\n  - expect: x<1\n    parameters: {limit: 1}": (
        3,
        "no command uses the parameter limit",
    ),
    "ladder:\n  - expect: x<1\n    args: --n {number}": (3, "{number} stands for no parameter"),
    "ladder:\n  - expect: x<1\n    command: python toy.py {nothing}": (
        3,
        "{nothing} stands for no parameter",
    ),
    'ladder:\n  - expect: x<1\n    args: "\'"': (3, "a quote is opened and never closed"),
    "ladder:\n  - expect: x<1\n    timeout: soon": (3, "accepted are"),
}


@pytest.mark.parametrize("text", WRONG)
def test_bad_input_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    line, message = WRONG[text]
    file = tmp_path / "study.yaml"
    file.write_text(text + "\ncommand: python train.py --lr {lr}\nparameters: {lr: [1, 2]}\n")
    with pytest.raises(InputError) as caught:
        load_study(str(file))
    (problem,) = caught.value.problems
    assert message in problem.message and problem.hint
    assert problem.line == line


def test_a_study_without_a_ladder(toy: Project) -> None:
    toy.write("study.yaml", "command: python3 train.py\n")
    ended = toy.run("check", "--ladder", "--on", "local", code=2)
    assert (
        "study.yaml: the study has no ladder" in ended.stderr
        and "expect: loss<=0.01" in ended.stderr
    )


@pytest.mark.parametrize(
    ("example", "file"), [("ladder", "study.yaml"), ("quickstart", "cartpole.yaml")]
)
def test_the_examples_hold(project: Project, example: str, file: str) -> None:
    pytest.importorskip("numpy")
    shutil.copytree(EXAMPLES / example, project.folder, dirs_exist_ok=True)
    said = climb(project, 0, file)
    assert set(verdicts(said)) == {"held"} and len(said["rungs"]) > 1
