"""What a profile knows of a cluster is checked anywhere, also where no scheduler can be asked."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.plan.test_refuse import CLUSTER, make
from windlass.places.slurm.idle import Idleness
from windlass.places.slurm.interactive import find_interactive_problems, make_interactive
from windlass.site.cluster import Cluster, Partition
from windlass.site.here import fetch_here

STUDY = "command: python train.py --lr {lr}\nparameters: {lr: [1, 2]}\n"


@pytest.fixture
def laptop(project: Project) -> Project:
    """A project on a machine without a scheduler."""
    project.env["SLURM_CONF"] = str(project.folder / "none.conf")
    project.write("study.yaml", STUDY)
    return project


@pytest.mark.parametrize(
    "words,expected",
    [
        ("--site beluga -a def-prof -t 8-00:00:00", ["jobs of 8 d 5 min never start: beluga allows 7 d", "`--time 6d23h55m`"]),
        ("--site beluga -a def-prof -G h100", ["no GPUs of type 'h100'", "v100 (16 GB), according to profile beluga (2025)"]),
        ("--site beluga -a def-prof -g 9 -G v100", ["9 v100 GPUs", "no node of beluga has more than 4"]),
        ("--site beluga", ["beluga wants an account"]),
        ("--site beluga -a def-someuser", ["def-someuser is a placeholder"]),
        ("--site beluga -a def-PROFESSOR", ["def-PROFESSOR is a placeholder"]),
        ("--site mlp -p Nosuch", ["there is no partition 'Nosuch'", "[partition.Nosuch]", "sites/mlp.toml"]),
        ("--site ilcc -g 1 --gpu-memory 500GB", ["no GPU of ilcc has more than 11264 MB, according to profile ilcc"]),
        ("--site mlp -p Teach-Interactive -t 3h", ["partition Teach-Interactive allows 2 h"]),
    ],
)  # fmt: skip
def test_a_plan_is_checked_against_the_profile(
    laptop: Project, words: str, expected: list[str]
) -> None:
    done = laptop.run("plan", *words.split(), code=2)
    assert done.stdout == ""
    for text in expected:
        assert text in done.stderr


def test_a_hint_names_no_partition_that_is_too_short(laptop: Project) -> None:
    """The limit of the cluster holds for a partition of which its profile has none."""
    said = laptop.run("plan", "--site", "ilcc", "-t", "40d", code=2).stderr
    assert "allows 10 d" in said and "--partition" not in said


def test_sizes_that_the_profile_cannot_judge(laptop: Project) -> None:
    shown = laptop.run(
        "plan", "--site", "fir", "-a", "def-prof", "-g", "99", "-c", "5000", "-W", "plain"
    )
    assert (
        "jobs ask for 5,000 cores and 99 h100 GPUs on a node; whether fir has such"
        in shown.stdout + shown.stderr
    )
    shown = laptop.run("plan", "--site", "fir", "-a", "def-prof", "-g", "2", "-W", "plain")
    assert "not checked" not in shown.stdout + shown.stderr


def test_what_the_profile_allows_is_planned_and_not_submitted(laptop: Project) -> None:
    shown = laptop.run(
        "plan", "--site", "beluga", "-a", "def-prof", "-t", "2h", "-G", "v100"
    ).stdout
    assert (
        "site       beluga, account def-prof  (as its profile knows it; no scheduler was asked)"
        in shown
    )
    for verb in ("run", "measure", "shell"):
        done = laptop.run(verb, "--site", "beluga", "-a", "def-prof", code=2)
        assert "there is no Slurm here" in done.stderr and "log in to beluga" in done.stderr
        assert "Slurm answers" not in done.stderr
    assert not (laptop.folder / ".windlass").exists()


def test_a_limit_of_the_whole_cluster_holds_for_partitions_without_one(tmp_path: Path) -> None:
    """In a profile a partition without a limit is one of which nothing is known; the scheduler says when there is none."""
    partition = Partition("gpu", is_default=True)
    asked = Cluster("toy", partitions=(partition,), max_time_s=3600.0, live=True)
    assert asked.longest_time_s("gpu") is None
    assert dataclasses.replace(asked, live=False).longest_time_s("gpu") == 3600.0


def test_an_interactive_job_is_checked_as_well(laptop: Project) -> None:
    for words, text in (
        (("-t", "8d"), "beluga allows 7 d"),
        (("-G", "h100"), "no GPUs of type 'h100'"),
        (("-a", "def-someuser"), "is a placeholder"),
    ):
        done = laptop.run(
            "shell", "--site", "beluga", "-a", "def-prof", *words, "--dry-run", code=2
        )
        assert text in done.stderr and "checkpoint" not in done.stderr


def test_no_program_of_slurm_is_started_for_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that only this host has, such as a Python below /tmp, raise a question that a live cluster alone answers."""
    witness = tmp_path / "sinfo"
    witness.write_text(
        f"#!/bin/sh\necho asked >> {shlex.quote(str(tmp_path / 'asked'))}\nhostname\n"
    )
    witness.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cluster = Cluster("toy", live=True)
    assert fetch_here(cluster, {}, ["/tmp"]).nodes_are_here
    (tmp_path / "asked").unlink()
    assert not fetch_here(dataclasses.replace(cluster, live=False), {}, ["/tmp"]).nodes_are_here
    assert not (tmp_path / "asked").exists()


def test_where_users_get_help(laptop: Project) -> None:
    assert "https://www.inf.ed.ac.uk/systems/support/form/" in laptop.run("site", "ilcc").stdout
    assert "https://slurm.schedmd.com/sbatch.html" in laptop.run("run", "--help").stdout


def test_the_partition_of_interactive_jobs(tmp_path: Path) -> None:
    cluster = dataclasses.replace(CLUSTER, shell_partition="short", shell_time_s=4 * 3600.0)

    def ask(cluster: Cluster, **flags: str) -> tuple[str | None, float]:
        plan = make_interactive(
            make(tmp_path, "slurm: {partition: long}\n", cluster=cluster, **flags), cluster
        )
        assert plan.request is not None
        assert find_interactive_problems(plan, cluster) == []
        return plan.request.partition, plan.request.time_s

    assert ask(cluster) == ("short", 3600)
    assert ask(cluster, time="2h") == ("short", 7200)
    assert ask(cluster, time="4h") == (
        "long",
        4 * 3600,
    )  # which the one for interactive jobs does not take
    assert ask(cluster, partition="debug") == ("debug", 1800)
    assert ask(dataclasses.replace(cluster, shell_partition="gone")) == ("long", 3600)


def test_an_interactive_job_is_idle_when_nothing_runs_and_nothing_is_typed() -> None:
    idleness = Idleness(0.0, {1: 5.0})
    assert idleness.look(60.0, {1: 5.1}, typed=1e9) == 60.0
    assert idleness.look(120.0, {1: 5.2}, typed=10.0) == 10.0
    assert idleness.look(180.0, {1: 5.2}, typed=70.0) == 70.0
    assert (
        idleness.look(240.0, {1: 5.2, 2: 50.0}, typed=130.0) == 0.0
    )  # a process began and computed
    assert idleness.look(300.0, {1: 5.2}, typed=190.0) == 60.0
