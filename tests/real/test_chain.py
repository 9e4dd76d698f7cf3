"""A chain on a real cluster: a training longer than its jobs, through real time limits, to the very same end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.study import study_jobs, wait_until_idle

pytestmark = pytest.mark.slow
TRAINING = ("--steps", "2200", "--every", "20")
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "chain"


def test_a_training_of_three_units(cluster_project: Project, slurm: Cluster) -> None:
    """Jobs of one minute, two minutes of work, four units: three work, and the last one is cancelled."""
    project = cluster_project
    shutil.copy(EXAMPLE / "train.py", project.folder)
    text = (EXAMPLE / "study.yaml").read_text()
    words = [
        sys.executable,
        "train.py",
        *TRAINING,
        "--save-every",
        "100",
        "--pause",
        "1",
        "--lr",
        "{lr}",
        "--seed",
        "{seed}",
    ]
    for old, new in (
        ("command: python train.py --lr {lr} --seed {seed}", f"command: {json.dumps(words)}"),
        ("seeds: 4", "seeds: [1]"),
        ("lr: [0.03, 0.1]", "lr: [0.1]"),
        ("time: 3m", "time: 2m"),
    ):
        assert old in text
        text = text.replace(old, new)
    project.write("study.yaml", text)
    assert "--array=0-3%1" in project.run("plan").stdout
    project.run("run")
    wait_until_idle(slurm, 400)
    assert project.counts() == {"done": 1}
    (row,) = project.json("results", "--json")
    assert row["attempts"] == 3, "three units had work"
    # The scheduler's last answer may be ten seconds old.
    wait_for(
        lambda: sorted(job["state"] for job in study_jobs(project)) == ["cancelled", *["done"] * 3]
    )
    printed = project.run("logs", "0").stdout
    assert "going on from step" in printed and "step   2200" in printed
    # The same training in one piece ends with the same numbers.
    env = {**os.environ, "PYTHONPATH": str(EXAMPLE.parent.parent / "src")}
    alone = subprocess.run(
        [sys.executable, "train.py", *TRAINING, "--lr", "0.1", "--seed", "1"],
        cwd=EXAMPLE,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert alone.stdout.splitlines()[-1] == printed.splitlines()[-1]


def test_a_trial_without_progress_stops_its_chain(cluster_project: Project, slurm: Cluster) -> None:
    """It asks for another turn and has nothing to show: the units that are left end at once."""
    project = cluster_project
    project.write(
        "study.yaml",
        "command: sh -c 'sleep 1; exit 42' {n}\nparameters: {n: [1]}\nneeds: {time: 5m}\ncheckpoint: {}\n"
        "interrupt: {unit: 1m}\n",
    )
    assert "--array=0-9%1" in project.run("plan").stdout
    project.run("run")
    wait_until_idle(slurm)
    assert project.counts() == {"failed": 1}
    assert project.json("results", "--json")[0]["cause"] == "no progress"
    assert "no progress" in project.run("explain", "0").stdout
    assert project.json("results", "--json")[0]["attempts"] == 2
