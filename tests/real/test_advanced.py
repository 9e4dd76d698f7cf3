"""The advanced example on a real cluster whose nodes have disks of their own, whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project
from tests.real.conftest import on_cluster

pytestmark = pytest.mark.slow
ADVANCED = Path(__file__).parent.parent.parent / "examples/advanced"


def test_setup_train_predict(project: Project, slurm_apart: Cluster) -> None:
    shutil.copytree(
        ADVANCED,
        project.folder,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("datasets", ".windlass"),
    )
    subprocess.run(
        [sys.executable, "make_data.py"], cwd=project.folder, check=True, stdout=subprocess.DEVNULL
    )
    project.env["PATH"] = f"{Path(sys.executable).parent}:{project.env['PATH']}"
    with on_cluster(project, slurm_apart):
        project.run("run", "--agents", "3", "--wait")
        assert project.counts() == {"done": 30}
        nodes = {job["node"] for job in project.json("status", "--json")["jobs"]["jobs"]}
        assert len(nodes) > 1, nodes
    best, second, worst = sorted(
        project.json("results", "--by", "order", "--json"), key=lambda row: row["mean"]
    )
    assert [row["order"] for row in (best, second, worst)] == [2, 3, 1]
    files = project.json("outputs", "--json")
    assert len(files) == 60 and {file["offset"] is not None for file in files} == {True}
    shared = [path for path in (project.study_folder() / "outputs").rglob("*") if path.is_file()]
    assert len(shared) <= 2 * 3
    assert not (project.folder / "models").exists() and not (project.folder / "results").exists()
    checkpoints = list((project.study_folder() / "checkpoints").glob("*/[!.]*.json"))
    assert len(checkpoints) == 30, "one of each trial stays"
    project.run("outputs", "--best", "--to", "best")
    (model,) = (project.folder / "best").rglob("models/*.json")
    assert '"order": 2' in model.read_text()
