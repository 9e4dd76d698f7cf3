"""Studies of earlier versions keep loading: their folders are in tests/data, as they were left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Project

DATA = Path(__file__).parent / "data"


@pytest.fixture
def old_study(project: Project) -> Project:
    shutil.copytree(DATA / "study-v1", project.folder / ".windlass" / "v1")
    return project


def test_version_1_is_read(old_study: Project) -> None:
    status = old_study.json("status", "--json")
    assert {state: count for state, count in status["counts"].items() if count} == {"done": 4, "failed": 2}
    assert status["damaged_lines"] == 0 and status["causes"] == {"failed": 2}
    rows = old_study.json("results", "--json")
    assert [(row["n"], row["seed"], row["attempts"], row["exit_code"]) for row in rows] == [
        (1, 1, 1, 0), (1, 2, 1, 0), (2, 1, 1, 0), (2, 2, 1, 0), (3, 1, 2, 4), (3, 2, 2, 4),
    ]  # fmt: skip
    assert rows[0]["id"] == (DATA / "study-v1" / "trials.jsonl").read_text().split('"')[3]
    assert rows[0]["loss"] == 1.0 and rows[2]["loss"] is None and rows[2]["loss.min"] == 2.0
    assert old_study.run("logs", "1").stdout == "out 1\n"


def test_version_1_goes_on(old_study: Project) -> None:
    """The same study file names the same trials: only those that failed are executed."""
    shutil.copy(DATA / "study-v1" / "study.yaml", old_study.folder / "study.yaml")
    old_study.write("trial.py", "")
    done = old_study.run("run", code=None)
    assert "6 trials, 2 to do" in done.stderr
