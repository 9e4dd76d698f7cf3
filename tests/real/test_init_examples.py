"""On a real cluster: the examples of `windlass init --example`, whole, and a checkout with hpc_files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project


@pytest.fixture
def user(cluster_project: Project) -> Project:
    project = cluster_project
    project.env["PATH"] = f"{Path(sys.executable).parent}:{project.env['PATH']}"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        project.env.pop(name, None)
    return project


@pytest.mark.parametrize(
    ("name", "trials", "error"), [("simple", 75, 0.26), ("array", 3, 0.22), ("advanced", 30, 0.2)]
)
def test_the_examples_of_init(user: Project, name: str, trials: int, error: float) -> None:
    said = user.json("init", "--example", name, "--json")
    inside = Project(user.folder / name)
    inside.env = user.env
    for command in said["next"]:
        words = command.split()
        if words[0] == "python":
            subprocess.run(
                [sys.executable, *words[1:]],
                cwd=inside.folder,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        elif words[:2] == ["windlass", "run"]:
            done = inside.run(*words[1:], "--wait")
            assert "submitted" in done.stderr
    assert inside.counts() == {"done": trials}
    errors = [row["error"] for row in inside.json("results", "--json")]
    assert min(errors) == pytest.approx(error, abs=0.05)


def test_a_checkout_with_hpc_files(user: Project) -> None:
    user.write("train.py", "import sys\nprint('trained', *sys.argv[1:])\n")
    user.write(
        "hpc_files/experiment_configurations.txt",
        "python train.py --lr 1\npython train.py --lr 2\n",
    )
    user.write("requirements.txt", "\n")
    hint = "warning: requirements.txt is there: environment: {build: requirements.txt}"
    assert hint in user.run("plan").stderr.splitlines()
    assert hint in user.run("run", "--wait").stderr.splitlines()
    assert user.counts() == {"done": 2}
    assert [user.run("logs", str(number)).stdout for number in range(2)] == [
        "trained --lr 1\n",
        "trained --lr 2\n",
    ]
    user.env["VIRTUAL_ENV"] = "/somewhere"
    assert hint not in user.run("plan").stderr
