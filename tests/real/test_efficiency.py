"""What jobs used, by real accounting: one core of four is a quarter, with the line to change."""

from __future__ import annotations

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for

# Busy on one core; prints how much of it the machine gave.
_BURN = """
import time
kept = bytearray(100 << 20)
began = time.monotonic()
while time.monotonic() - began < 11: pass
print(time.process_time() / (time.monotonic() - began), flush=True)
"""
_SCRIPT = """#!/bin/bash
#SBATCH --cpus-per-task=4
#SBATCH --mem=1G
#SBATCH --time=5
#SBATCH --output=got.txt
exec python3 burn.py
"""
_STEPS = """#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --time=5
srun --ntasks=2 python3 -c 'import time; kept = bytearray(100 << 20); time.sleep(11)'
"""


def test_a_job_of_others_and_a_study_at_once(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write("burn.py", _BURN)
    script = project.write("job.sh", _SCRIPT)
    project.write(
        "study.yaml",
        "name: waste\ncommand: python3 burn.py {x}\nparameters: {x: [1]}\nneeds:\n  cpus: 4\n  memory: 1GB\n",
    )
    project.run("run", "study.yaml", "--on", "slurm", "--agents", "1", "--slots", "1", "--quiet")
    job = slurm.run("sbatch", "--parsable", f"--chdir={project.folder}", str(script)).strip()
    wait_for(lambda: "COMPLETED" in slurm.run("sacct", "-nXP", "-j", job, "-o", "State"))
    core = float((project.folder / "got.txt").read_text())
    assert core <= 1.05
    said = project.json("efficiency", job, "--json")
    assert said["study"] is None
    (group,) = said["groups"]
    assert group["cores"]["share"] == pytest.approx(core / 4, abs=0.04)
    assert 100 < group["memory_mb"]["most"] < 200
    places = {advice["change"]: (advice["file"], advice["line"]) for advice in said["advice"]}
    assert places["#SBATCH --mem=200M"] == ("job.sh", 3)
    assert places["#SBATCH --cpus-per-task=1"] == ("job.sh", 2)

    wait_for(lambda: project.counts() == {"done": 1})
    wait_for(lambda: project.json("efficiency", "--json")["groups"][0]["running"] == 0)
    ours = project.json("efficiency", "--json")
    assert ours["accounting"] is True
    (group,) = ours["groups"]
    assert group["cores"]["asked"] == 4 and group["cores"]["share"] < 0.28
    changes = {advice["change"]: advice["line"] for advice in ours["advice"]}
    assert changes["needs: {memory: 200MB}"] == 6 and changes["needs: {cpus: 1}"] == 5
    number = ours["groups"][0]["name"]
    assert project.json("efficiency", number, "--json")["study"] == "waste"


def test_tasks_side_by_side_are_one_jobs_memory(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    script = project.write("steps.sh", _STEPS)
    jobs = [
        slurm.run("sbatch", "--parsable", f"--chdir={project.folder}", words, str(script)).strip()
        for words in ("--mem=1G", "--mem-per-cpu=500M")
    ]
    wait_for(
        lambda: (
            slurm.run("sacct", "-nXP", "-j", ",".join(jobs), "-o", "State").split()
            == ["COMPLETED"] * 2
        )
    )
    said, by_cores = (project.json("efficiency", job, "--json") for job in jobs)
    assert (
        said["groups"][0]["memory_at_most"] and 200 < said["groups"][0]["memory_mb"]["most"] < 333
    )
    lines = {str(advice["change"]).partition("=")[0]: advice["line"] for advice in said["advice"]}
    assert lines == {"#SBATCH --mem": None, "None": None, "#SBATCH --time": 3}, (
        "each task has one core"
    )
    assert not any("--mem" in str(advice["change"]) for advice in by_cores["advice"]), (
        "said by cores"
    )


def test_where_nobody_keeps_accounts(cluster_project: Project) -> None:
    done = cluster_project.run("efficiency", "987654", code=2)
    assert "accounting does not know job 987654" in done.stderr
