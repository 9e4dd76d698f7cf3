"""Which study a verb means: the one that is named first, or the one that was submitted last."""

from __future__ import annotations

import os
import time

import pytest

from tests.conftest import Project

ONE = "command: sh -c 'echo out of {study}; exit {code}'\nparameters: {code: [0, 3]}\nslots: 1\n"


@pytest.fixture
def two(project: Project) -> Project:
    """The studies `first` and `second`, submitted in this order."""
    for name in ("first", "second"):
        project.write(f"{name}.yaml", ONE.replace("{study}", name))
        project.run("run", f"{name}.yaml", "--on", "local", code=1)
        time.sleep(0.02)
    return project


def test_verbs_take_the_study_first_and_else_the_newest(two: Project) -> None:
    assert "out of first" in two.run("logs", "first", "1").stdout
    assert "out of second" in two.run("logs", "1").stdout
    assert "out of first" in two.run("logs", "--study", "first", "1").stdout
    assert "out of first" in two.run("explain", "first", "1").stdout
    assert two.json("outputs", "first", "--json") == []
    assert "second: 1 trial is put back" in two.run("retry", "1", "--no-run").stderr
    assert "first: 1 trial is put back" in two.run("retry", "first", "1", "--no-run").stderr
    assert "first: 1 trial is cancelled" in two.run("cancel", "first", "1").stdout
    assert "second: 1 trial is cancelled" in two.run("cancel", "second", "--yes").stdout


def test_a_word_that_is_neither_study_nor_trial_is_named(two: Project) -> None:
    assert "did you mean second?" in two.run("logs", "secnd", "1", code=2).stderr
    assert "there is no trial '7'" in two.run("logs", "second", "7", code=2).stderr
    assert "this takes one trial" in two.run("logs", "second", "0", "1", code=2).stderr
    assert "a study and a number are wanted" in two.run("throttle", "5", "second", code=2).stderr


def test_the_newest_is_the_one_submitted_last_not_the_one_last_active(two: Project) -> None:
    later = time.time() + 60
    first = two.folder / ".windlass" / "first"
    for place in (first / "journal", first / "claims", first / "plan.json"):
        os.utime(place, (later, later))
    assert two.json("status", "--json")["study"] == "second"
    two.run(
        "run", "first.yaml", "--on", "local", code=1
    )  # nothing has changed: it is submitted all the same
    assert two.json("status", "--json")["study"] == "first"
