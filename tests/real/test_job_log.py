"""What a job tells of itself: its own log, its exit code, and what `explain` and `results` say of its trials."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from scripts.slurm import Cluster

from tests.bundle.test_code import git
from tests.conftest import Project, wait_for
from tests.real.study import wait_until_idle

pytestmark = pytest.mark.slow


def test_the_log_and_the_exit_code_of_a_job_with_one_trial(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    git(project.folder, "init", "-q", "-b", "main")
    project.write(".gitignore", "config\ncache\ndatasets\n")
    project.write("datasets/one/a.txt", "data")
    project.write(
        "study.yaml",
        "name: single\nstages:\n  prepare: sh -c 'echo prepared'\n  train: sh -c 'echo kept > kept-{n}.txt; exit {n}'\n"
        "  after: 'true'\nparameters: {n: [7]}\ndata: [datasets/one]\noutputs: ['kept-*.txt']\n"
        "needs: {time: 10m, memory: 200MB}\n",
    )
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "first")
    commit = git(project.folder, "rev-parse", "HEAD")
    (job,) = project.json("run", "--json")["jobs"]
    wait_until_idle(slurm)
    assert "ExitCode=7:0" in slurm.run("scontrol", "show", "job", str(job))
    log = (project.studies / f"hpc_outputs/single_{job}_0.out").read_text()
    expected = ["study single in ", f"job {job}_0", "`windlass logs single TRIAL`", f"code: commit {commit[:10]}",
                "stage-in: code", "data", "trial 0 (", "failed (exit code 7): prepare", "train", "stage-out",
                "attempts: 1 failed; the agent ends: nothing left", "clean-up: "]  # fmt: skip
    assert re.search(".*".join(map(re.escape, expected)), log, re.DOTALL), log
    assert "after" not in log and "prepared" not in log
    (attempt,) = project.json("explain", "0", "--json")["attempts"]
    names = [name for name, _ in attempt["times"]]
    assert names == [
        "stage-in of code",
        "stage-in of data",
        "prepare",
        "train",
        "stage-out",
        "clean-up",
    ]
    text = project.run("explain", "0").stdout
    assert (
        f", job {job}_0  failed (exit code 7) in stage train" in text
        and "times: stage-in of code " in text
    )
    assert f"code: commit {commit[:10]}\n" in project.run("explain", "--ticket", "0").stdout
    (row,) = project.json("results", "--json", "--failed")
    assert (row["code.commit"], row["code.uncommitted"]) == (commit, False)
    assert row["ran.job"] == f"{job}_0" and row["ran.node"].startswith("node")
    assert row["ran.job_log"].endswith(f"single_{job}_0.out")
    text = project.run("results", "--failed").stdout
    for piece in (
        "n=7",
        "failed (exit code 7) in stage train",
        f"job {job}_0 on node",
        "windlass logs 0",
        row["ran.output"],
    ):
        assert piece in text


def test_a_job_whose_only_trial_is_killed(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write("study.yaml", "command: sh -c 'kill -9 $$'\nneeds: {time: 10m, memory: 200MB}\n")
    (job,) = project.json("run", "--json")["jobs"]
    wait_until_idle(slurm)
    assert "ExitCode=137:0" in slurm.run("scontrol", "show", "job", str(job))
    (submission,) = project.json("history", "--json")["submissions"]
    assert submission["jobs"][0]["exit_code"] == 137  # sacct shows 9


def test_a_python_that_nodes_do_not_see(cluster_project: Project, slurm: Cluster) -> None:
    """The job ends before its agent begins: the reason is only in what the job itself printed."""
    project = cluster_project
    project.write("study.yaml", "name: s\ncommand: echo\nneeds: {time: 10m, memory: 200MB}\n")
    environment = project.folder.parent / "environment"
    environment.symlink_to(sys.prefix)
    words = [
        str(environment / "bin" / "python3"),
        "-m",
        "windlass",
        "run",
        "--json",
        "--sbatch",
        "--hold",
    ]
    done = subprocess.run(
        words, cwd=project.folder, env=project.env, check=True, capture_output=True
    )
    (job,) = json.loads(done.stdout)["jobs"]
    environment.unlink()
    slurm.run("scontrol", "release", str(job))
    wait_until_idle(slurm)
    log = project.studies / f"hpc_outputs/s_{job}_0.out"
    wait_for(
        lambda: f"job {job}_0 ended with exit code 127" in project.run("status").stdout
    )  # as accounting has it
    first = project.run("status").stdout.splitlines()[0]
    for text in (
        f"{environment}/bin/python3: No such file or directory",
        str(log),
        "install Windlass in a folder",
    ):
        assert text in first
    assert project.run("explain").stdout.splitlines()[0] == first
    assert "ended before its agent began" in project.run("history").stdout.replace("\n", " ")
    project.run("run", "--wait")
    assert project.counts() == {"done": 1}
