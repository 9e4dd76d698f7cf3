"""Studies of earlier versions keep loading: their folders are in tests/data, as they were left."""

from __future__ import annotations

import os
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
    assert {state: count for state, count in status["counts"].items() if count} == {
        "done": 4,
        "failed": 2,
    }
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


@pytest.fixture
def version_0_1(project: Project) -> Project:
    """Three studies of version 0.1, as kill -9, `scancel` and `windlass measure` left them, and their project."""
    shutil.copytree(DATA / "studies-0.1" / "project", project.folder, dirs_exist_ok=True)
    for name in ("interrupted", "cluster", "measured"):
        shutil.copytree(DATA / "studies-0.1" / name, project.folder / ".windlass" / name)
    # A checkout gives all files the time of the checkout, and the agents seem to have written just now.
    for path in project.folder.rglob("*"):
        os.utime(path, (1_794_000_000, 1_794_000_000))
    return project


def test_a_study_of_version_0_1_that_was_killed_goes_on(version_0_1: Project) -> None:
    status = version_0_1.json("status", "interrupted", "--json")
    counts = {state: count for state, count in status["counts"].items() if count}
    assert (
        counts == {"done": 6, "failed": 2, "interrupted": 2, "waiting": 2}
        and status["damaged_lines"] == 0
    )
    rows = {row["number"]: row for row in version_0_1.json("results", "interrupted", "--json")}
    assert rows[0]["loss"] == 1.2 and rows[7]["loss"] == 2.8 and rows[4]["exit_code"] == 4
    done = version_0_1.run("run", "study.yaml", code=None)
    assert "12 trials, 6 to do" in done.stderr, done.stderr
    rows = {row["number"]: row for row in version_0_1.json("results", "interrupted", "--json")}
    assert [rows[number]["state"] for number in range(12)] == ["done"] * 4 + ["failed"] * 2 + [
        "done"
    ] * 6
    assert rows[0]["attempts"] == 1 and rows[11]["loss"] == 3.2
    assert version_0_1.run("logs", "0", "--study", "interrupted").stdout == "out 1 1\n"
    version_0_1.run("outputs", "--study", "interrupted", "--to", "got")
    texts = {path.read_text() for path in (version_0_1.folder / "got").rglob("model.txt")}
    assert {"model 1 1", "model 4 2", "model 6 2"} <= texts


def test_a_study_of_version_0_1_on_slurm_goes_on_here_from_its_checkpoints(
    version_0_1: Project,
) -> None:
    counts = version_0_1.json("status", "cluster", "--json")["counts"]
    assert (counts["interrupted"], counts["waiting"]) == (2, 2)
    program = version_0_1.folder / "resume.py"
    program.write_text(program.read_text().replace("time.sleep(0.25)", "time.sleep(0.01)"))
    version_0_1.run("run", "cluster.yaml", "--on", "local")
    rows = version_0_1.json("results", "cluster", "--json")
    assert [row["state"] for row in rows] == ["done"] * 4
    # Trials 0 and 1 had got to step 16 or beyond, where the loss is n / step; the others begin with step 1.
    assert [row["loss.max"] < 0.1 * row["n"] for row in rows] == [True, True, False, False]


def test_a_measurement_of_version_0_1_counts(version_0_1: Project) -> None:
    assert "measured" in version_0_1.run("plan", "measured.yaml").stdout
    assert [row["state"] for row in version_0_1.json("results", "measured", "--json")] == [
        "done"
    ] * 2
