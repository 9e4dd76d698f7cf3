"""Those who come from job_submitter.sh find its defaults, its variables and its folders."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.plan.test_refuse import CLUSTER, make
from windlass.agent.config import read_config, trial_environment
from windlass.plan.refuse import find_problems
from windlass.site.here import Folder, Here

HELP = """import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.1)
p.parse_args()
"""
COMMANDS = "python train.py --lr 1\npython train.py --lr 2\n"


@pytest.fixture
def laptop(project: Project) -> Project:
    project.env["SLURM_CONF"] = str(project.folder / "none.conf")
    project.write("train.py", HELP)
    project.write("hpc_files/experiment_configurations.txt", COMMANDS)
    project.write("tasks.txt", COMMANDS)
    return project


def test_its_defaults_hold_for_its_files(laptop: Project) -> None:
    def ask(*words: str) -> tuple[int, int, int]:
        plan = laptop.json("plan", "--site", "cedar", "-a", "def-prof", "--json", *words)["request"]
        assert plan["gpus"] == 0 or plan["gpu_type"] == "v100l"
        return plan["gpus"], plan["cpus"], plan["memory_mb"]

    assert ask() == ask("-C", "tasks.txt") == (1, 2, 10240)
    assert ask("-g", "2", "-c", "4", "-W", "plain") == (2, 4, 20480)
    words = ("plan", "--site", "cedar", "-a", "def-prof", "-g", "2")
    assert "`launch: torchrun` (or srun" in laptop.run(*words, code=2).stderr
    assert ask("-g", "0")[:2] == (0, 4)  # two slots of two cores
    assert ask("--memory", "3000M") == (1, 2, 3000)
    assert ask("tasks.txt")[0] == 0  # nothing asks for a GPU
    shown = laptop.run("plan", "--site", "cedar", "-a", "def-prof", "tasks.txt").stdout
    assert re.search(r"0 GPUs +nothing asks for one \(--gpus 1\)", shown)
    shown = laptop.run("plan", "--site", "cedar", "-a", "def-prof").stdout
    assert re.search(r"1 GPU +default of job_submitter.sh", shown)


def test_the_shares_of_a_site_that_does_not_tell_types_apart(laptop: Project) -> None:
    """Its profile says what goes with a GPU; no more was asked for than one core and 2000 MB."""
    for words in (("-g", "1"), ("-G", "v100")):
        asked = laptop.json("plan", "--site", "plai", "tasks.txt", *words, "--json")["request"]
        assert (asked["gpus"], asked["gpu_type"], asked["cpus"], asked["memory_mb"]) == (
            1,
            "",
            2,
            10240,
        )


def test_init_makes_the_folder_on_the_scratch(laptop: Project) -> None:
    assert (
        "put data" not in laptop.run("init", "train.py", "-o", "first.yaml").stdout
    )  # there is no scratch here
    laptop.env["SCRATCH"] = str(laptop.folder / "scratch")
    (made,) = [
        line
        for line in laptop.run("init", "train.py").stdout.splitlines()
        if line.startswith("put data")
    ]
    (folder,) = (laptop.folder / "scratch").iterdir()
    assert f"into {folder}, e.g. datasets/mnist" in made
    plan = laptop.json("plan", "study.yaml", "--json")
    assert Path(plan["folder"]).parent == folder


def test_local_storage_by_its_other_name(laptop: Project) -> None:
    laptop.write("show.sh", "echo local=$path_to_local_node_storage=$SLURM_TMPDIR")
    laptop.env["SLURM_TMPDIR"] = str(laptop.folder / "here")
    (laptop.folder / "here").mkdir()
    laptop.run(
        "run", "--on", "local", "--quiet", "-e", "show", "--", "sh", str(laptop.folder / "show.sh")
    )
    config = read_config(str(laptop.study_folder() / "plan.json"))
    made = trial_environment(config, {"SLURM_TMPDIR": "/local/7"}, "f", "z", "a", "m")
    assert made["path_to_local_node_storage"] == "/local/7"
    assert "path_to_local_node_storage" not in trial_environment(config, {}, "f", "z", "a", "m")


def test_nothing_tells_where_the_scratch_is(tmp_path: Path) -> None:
    plan = make(tmp_path)
    new = Folder(plan.folder, os.path.realpath(plan.folder), exists=False)
    here = Here(scratch_line="export SCRATCH=/scratch/me", folders=(new,))
    (problem,) = find_problems(plan, CLUSTER, here)
    assert (
        "$SCRATCH is not set" in problem.message
        and "`export SCRATCH=/scratch/me` to ~/.bashrc" in problem.hint
    )
    old = Folder(plan.folder, os.path.realpath(plan.folder))
    assert not find_problems(
        plan, CLUSTER, Here(scratch_line="export SCRATCH=/scratch/me", folders=(old,))
    )
    assert not find_problems(make(tmp_path, folder=str(tmp_path)), CLUSTER, here)
