"""On a real cluster: `--wait` sees jobs to their end, and each end has the cause that it had."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import on_cluster
from tests.real.study import wait_until_idle


def test_wait_returns_when_the_jobs_are_over(
    project: Project, make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The node cleans up for some seconds after each job, and leaves a mark when it is through."""
    marks = tmp_path / "marks"
    marks.mkdir()
    epilog = tmp_path / "epilog"
    epilog.write_text(f"#!/bin/sh\nsleep 4\ntouch {marks}/$SLURM_JOB_ID\n")
    epilog.chmod(0o755)
    cluster = make_cluster(database=False, settings={"Epilog": str(epilog)})
    with on_cluster(project, cluster):
        words = ["--param", "x=[0,3]", "-t", "2m", "--", "sh", "-c", "exit $0", "{x}"]
        refused = project.run("run", "--joblog", "log", *words, code=2).stderr
        assert (
            "--joblog: nobody is there to write it" in refused
            and "windlass logs --joblog log" in refused
        )
        assert not project.counts(), "nothing was submitted"
        ended = project.run("run", "--wait", "--joblog", "log", *words, code=1).stderr
        assert len(list(marks.iterdir())) == 1
        assert "`windlass results` shows" in ended and "found on this node" not in ended
        assert len((project.folder / "log").read_text().splitlines()) == 3
        again = project.run("retry", "--wait", code=1).stderr
        assert len(list(marks.iterdir())) == 2
        assert (
            again.endswith("`windlass results` shows what came out\n")
            and "done 1   failed 1 of 2" in again
        )
        assert "1 of its trials failed" in project.run("history").stdout
        assert "unpacked in" not in project.run("status").stdout


def test_a_unit_that_was_cancelled_is_not_out_of_time(
    cluster_project: Project, slurm: Cluster
) -> None:
    """A job of a chain lasts a minute: all of it is near its end."""
    project = cluster_project
    project.write("hold", "")
    project.write(
        "study.yaml",
        "command: sh -c 'while [ -e hold ]; do sleep 0.1; done'\ncode: live\ncheckpoint: {pattern: '*.pt'}\n"
        "interrupt: {unit: 1m, lead: 5s}\nneeds: {time: 3m}\n",
    )
    project.run("run")
    wait_for(lambda: project.counts() == {"running": 1})
    job = project.json("history", "--json")["submissions"][0]["job"]
    subprocess.run(["scancel", str(job)], env=project.env, check=True)
    wait_until_idle(slurm)
    assert project.json("status", "--json")["causes"] == {"stopped": 1}
    assert "interrupted" in project.run("history").stdout
