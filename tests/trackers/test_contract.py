"""What every tracker has to keep to. A new module in trackers/ is tested here without being mentioned."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.members import add_member, install_with
from windlass import trackers
from windlass.core.journal.records import TrialRecord
from windlass.core.states import State
from windlass.trackers.base import (
    TrackedPoint,
    TrackedTrial,
    Tracker,
    file_trackers,
    tracker_names,
    tracker_type,
)

SIMPLE = '''
from windlass.trackers.base import Tracker


class Simple(Tracker):
    """A line for each call."""

    ending = ".simple"

    def __init__(self, target):
        super().__init__(target)
        self._file = open(target, "w")

    def begin(self, trial):
        self._file.write(f"begin {trial.number} {trial.settings}\\\\n")

    def point(self, trial, point):
        self._file.write(f"{trial.number} {point.step:g} {dict(point.values)}\\\\n")

    def end(self, trial, record):
        self._file.write(f"end {trial.number} {record.state.value}\\\\n")

    def close(self):
        self._file.close()


MEMBER = Simple
'''.replace("\\\\n", "\\n")
PROGRAM = "import windlass\nfor step in (1, 2):\n    windlass.log(step=step, loss=1 / step)\n"
TRIALS = [TrackedTrial(number, f"t{number}", {"lr": 0.1 * number}) for number in range(3)]


@pytest.mark.parametrize("name", tracker_names())
class TestContract:
    def test_takes_trials_side_by_side_odd_numbers_and_any_names(
        self, name: str, tmp_path: Path
    ) -> None:
        kind = tracker_type(name)
        assert issubclass(kind, Tracker)
        assert kind.__doc__
        tracker = kind(str(tmp_path / f"target{kind.ending}"))
        for trial in TRIALS:
            tracker.begin(trial)
        for step in (None, 0.0, 1.0, 1.0, 2.5):
            for trial in TRIALS:
                values = {"loss": math.nan, "a name, with a comma": math.inf, 'né "quoted"': -1e300}
                tracker.point(trial, TrackedPoint("agent/0", 1000.5, step, values))
        tracker.end(TRIALS[0], TrialRecord(0, State.DONE))
        tracker.end(TRIALS[1], TrialRecord(1, State.FAILED, "killed"))
        tracker.end(TRIALS[2], None)
        tracker.close()

    def test_takes_nothing_at_all(self, name: str, tmp_path: Path) -> None:
        kind = tracker_type(name)
        kind(str(tmp_path / f"target{kind.ending}")).close()


def test_one_file_is_a_tracker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_member(monkeypatch, trackers, tmp_path / "more", "simple", SIMPLE)
    assert "simple" in tracker_names()
    assert file_trackers()[".simple"].__name__ == "Simple"


@pytest.fixture
def study(project: Project) -> Project:
    project.write("train.py", PROGRAM)
    project.run(
        "run", "--on", "local", "--param", "lr=[0.5,0.1]", "--", sys.executable, "train.py", "{lr}"
    )
    return project


def test_results_write_curves(study: Project) -> None:
    assert "curves of 2 trials" in study.run("results", "--curves", "curves.csv").stderr
    with open(study.folder / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["trial"], row["step"], row["metric"], row["value"]) for row in rows) == [
        ("0", "1", "loss", "1.0"),
        ("0", "2", "loss", "0.5"),
        ("1", "1", "loss", "1.0"),
        ("1", "2", "loss", "0.5"),
    ]
    study.run("results", "--where", "lr=0.1", "--curves", "curves.jsonl")
    lines = [json.loads(line) for line in (study.folder / "curves.jsonl").read_text().splitlines()]
    assert [(line["trial"], line["step"], line["values"]) for line in lines] == [
        (1, 1.0, {"loss": 1.0}),
        (1, 2.0, {"loss": 0.5}),
    ]
    wrong = study.run("results", "--curves", "curves.xlsx", code=2)
    assert "end it in .csv, .jsonl" in wrong.stderr


def test_results_use_a_tracker_that_is_one_new_file(study: Project) -> None:
    install_with(study, "trackers/simple.py", SIMPLE)
    study.run("results", "--where", "lr=0.5", "--curves", "x.simple")
    text = (study.folder / "x.simple").read_text().splitlines()
    assert text == ["begin 0 {'lr': 0.5}", "0 1 {'loss': 1.0}", "0 2 {'loss': 0.5}", "end 0 done"]
