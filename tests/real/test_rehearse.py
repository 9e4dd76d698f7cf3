"""`run --rehearse` on a real cluster: one job first, and the others only if it fits."""

from __future__ import annotations

import json
import signal
import subprocess

from scripts.slurm import Cluster

from tests.cli.test_rehearse_usage import GROW
from tests.conftest import Project, wait_for
from tests.real.study import queue_states, study_jobs, wait_until_idle

TRIALS = 6


def study(project: Project, most: int, rate: float, memory: str) -> None:
    """Two trials a job, three jobs; each trial lasts longer than any test."""
    project.write("grow.py", GROW)
    project.write(
        "study.yaml",
        f"command: python3 grow.py {most} {rate} 100000 silent {{n}}\nparameters: {{n: [1, 2, 3, 4, 5, 6]}}\n"
        f"code: live\nslots: 2\nneeds: {{memory: {memory}, time: 10m}}\n",
    )


def rehearse(project: Project, limit: str, code: int) -> subprocess.CompletedProcess[str]:
    return project.run(
        "run", "--rehearse", "--rehearse-limit", limit, "--agents", "3", "--json", code=code
    )


def assert_all_came_back(project: Project) -> None:
    """A trial may die of the signal before the agent has heard it, and its slot be filled once more."""
    counts = project.counts()
    assert set(counts) == {"interrupted", "waiting"} and counts["interrupted"] >= 2, counts
    assert sum(counts.values()) == TRIALS


def test_the_rest_is_released_once_it_has_levelled_out(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    study(project, most=130, rate=5, memory="200MB")  # and the interpreter: about 150 MB
    done = rehearse(project, "12s", 0)
    assert (
        "rehearsing in job" in done.stderr and "rehearsal passed: 2 trials at a time" in done.stderr
    )
    said = json.loads(done.stdout)
    assert (said["agents"], said["present"]) == (2, 1), "the one that rehearsed is one of three"
    assert len(queue_states(slurm)) == 3
    wait_for(lambda: project.counts() == {"running": TRIALS})
    journals = [path.read_text() for path in (project.study_folder() / "journal").glob("2*.jsonl")]
    assert sorted('"e":"level"' in text for text in journals) == [False, False, True], (
        "the others do not rehearse"
    )
    again = rehearse(project, "12s", 2)
    assert "3 agents of this study wait or run already" in again.stderr


def test_what_grows_for_ever_is_refused_and_nothing_else_submitted(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    study(project, most=10**6, rate=1, memory="1GB")
    done = rehearse(project, "6s", 1)
    assert (
        "the rehearsal was refused: memory: " in done.stderr and "still growing at" in done.stderr
    )
    assert "needs: {memory: " in done.stderr
    assert_all_came_back(project)
    wait_until_idle(slurm)
    assert len(study_jobs(project)) == 1
    project.run("run", "--agents", "3", "--quiet")
    wait_for(lambda: project.counts() == {"running": TRIALS})  # the trials had come back


def test_ctrl_c_cancels_the_rehearsal(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    study(project, most=30, rate=1, memory="200MB")
    process = project.start("run", "--rehearse", "--agents", "3")
    wait_for(lambda: project.counts().get("running") == 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 130, errors
    wait_until_idle(slurm)
    assert_all_came_back(project)
    assert len(study_jobs(project)) == 1


def test_a_chain_rehearses_as_one(cluster_project: Project, slurm: Cluster) -> None:
    """Its later units wait as they always do; the other chains are submitted when it has passed."""
    project = cluster_project
    study(project, most=30, rate=5, memory="200MB")
    with open(project.folder / "study.yaml", "a") as file:
        file.write("checkpoint: {}\ninterrupt: {unit: 5m}\n")
    done = rehearse(project, "8s", 0)
    assert (
        "3 chains of 4 jobs of 5 min, one after another" in done.stderr
        and "rehearsal passed" in done.stderr
    )
    said = json.loads(done.stdout)
    assert (said["agents"], said["present"]) == (2, 1)
    wait_for(lambda: project.counts() == {"running": TRIALS})
    assert queue_states(slurm) == ["PENDING"] * 9 + ["RUNNING"] * 3
    wait_for(lambda: "waiting: follows the job before it" in project.run("status").stdout)
