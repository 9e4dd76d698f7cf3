"""windlass clean: shows before it removes, and touches nothing that somebody may need."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import Project, wait_for


def make_leftovers(project: Project) -> dict[str, Path]:
    """A finished study with one leftover of each kind, and one thing of each kind that is none."""
    project.write("study.yaml", "command: 'true {n}'\nparameters:\n  n: [1, 2]\ncode: frozen\n")
    project.run("run")
    folder = project.study_folder()
    ids = [row["id"] for row in project.json("results", "--json")]
    made = {
        "code": folder / "code-aaaaaaaaaaaa.tar.gz",
        "reserve": folder / "journal/20200101-000000-aaaaaa.reserve",
        "part": folder / "outputs/tx/model.pt.part-node1-17",
        "checkpoint": folder / f"checkpoints/{ids[0]}/last.pt",
        "checkpoint of a stranger": folder / "checkpoints/tstranger/last.pt",
        "data": project.folder / "datasets/.windlass-data/set-0123.tar",
        "environment": folder.parent / ".windlass-environments/0123/bin/python",
        "outputs": folder / "outputs/tx/model.pt",
    }
    for path in made.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1000))
    return made


def gone(made: dict[str, Path]) -> set[str]:
    return {name for name, path in made.items() if not path.exists()}


def test_a_dry_run_first(project: Project) -> None:
    made = make_leftovers(project)
    text = project.run("clean").stdout
    assert all(str(made[name]) in text for name in ("code", "reserve", "part"))
    assert "--yes does it" in text and "3 files, 2.93 kB" in text
    assert gone(made) == set()
    project.run("clean", "--yes")
    assert gone(made) == {"code", "reserve", "part"}
    assert "nothing to remove" in project.run("clean").stdout
    assert list(project.study_folder().glob("code-*.tar.gz")), "the code that the plan names stays"
    assert project.counts() == {"done": 2}
    project.run("run")


def test_what_has_to_be_asked_for(project: Project) -> None:
    made = make_leftovers(project)
    project.run("clean", "--checkpoints", "--yes")
    assert gone(made) == {"code", "reserve", "part", "checkpoint"}
    project.run("clean", "--data", "--environments", "--yes")
    assert gone(made) == {"code", "reserve", "part", "checkpoint", "data", "environment"}


def test_data_that_a_study_names_stay(project: Project) -> None:
    project.write("datasets/small/a.txt", "a")
    project.write(
        "study.yaml", "command: 'true {n}'\nparameters:\n  n: [1]\ndata: [datasets/small]\n"
    )
    project.run("run")
    packed = [path for path in project.folder.rglob(".windlass-data/*") if path.is_file()]
    assert packed
    project.run("clean", "--data", "--yes")
    assert all(path.exists() for path in packed)


def test_a_study_at_work_is_not_touched(project: Project) -> None:
    made = make_leftovers(project)
    project.write(
        "study.yaml",
        f"command: {sys.executable} -c 'import time; time.sleep(100)' {{n}}\nparameters:\n  n: [3]\n",
    )
    name = project.study_folder().name
    run = project.start("run", "--quiet", "--name", name)
    wait_for(lambda: project.counts().get("running"))
    text = project.run("clean", "--yes", "--environments", "--checkpoints").stdout
    assert f"{name} is not touched: an agent is at work" in text
    assert gone(made) == set()
    run.terminate()
    run.communicate(timeout=180)
