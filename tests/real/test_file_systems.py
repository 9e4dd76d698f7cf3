"""Studies on a real network file system with a mount of its own on every node: nothing is lost, nothing runs twice.

Trials write their records to another disk, so that they go on and are seen while the scratch is not there.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from scripts.slurm import Cluster
from scripts.slurm.machine import ClusterError

from tests.conftest import Project, wait_for
from tests.real.conftest import SCRATCH, on_cluster
from tests.real.study import (
    begun,
    check_witnesses,
    ends,
    queue_states,
    run_to_the_end,
    wait_until_idle,
    witness_study,
)
from tests.real.test_survival import agents_of, task_ids

pytestmark = pytest.mark.slow
KILLS = 20 if SCRATCH else 6
ONE_A_NODE = "slots: 2\nneeds: {time: 20m, cpus: 4}\nslurm: {agents: 2}\n"


def test_agents_and_jobs_are_killed_at_random(project: Project, slurm_scratch: Cluster) -> None:
    cluster, chance = slurm_scratch, random.Random(7)
    with on_cluster(project, cluster):
        terms = "slots: 2\nneeds: {time: 20m, cpus: 4}\nslurm: {agents: 4}\n"
        trials = 8 * KILLS
        records = witness_study(project, trials, 0.5, terms)
        for _ in range(KILLS):
            if not queue_states(cluster):
                project.run("run", code=None)
            wait_for(lambda: agents_of(project.studies) or not queue_states(cluster))
            time.sleep(chance.uniform(0, 1.5))  # the moment of the kill
            agents, tasks = agents_of(project.studies), task_ids(cluster)
            if agents and chance.random() < 0.5:
                os.kill(chance.choice(agents), signal.SIGKILL)
            elif tasks:
                with contextlib.suppress(ClusterError):  # The job may have ended by itself.
                    cluster.run(
                        "scancel", "--quiet", "--full", "--signal=KILL", chance.choice(tasks)
                    )
        run_to_the_end(project, cluster, 6)
        check_witnesses(project, records, trials)


def hold_nodes(project: Project, cluster: Cluster) -> dict[str, Path]:
    """Trials on a node wait until its file is removed."""
    return {node: project.write(f"hold-{node}", "") for node in cluster.node_names}


def start_on_two_nodes(project: Project, cluster: Cluster, records: Path) -> str:
    """Start two agents with two trials each, and name one of their nodes."""
    project.run("run")
    wait_for(lambda: begun(records) == 4)
    return cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()[0]


def test_a_node_that_is_cut_off(project: Project, slurm_scratch: Cluster) -> None:
    """Neither scheduler nor scratch reach the node for longer than the lease, and its trials would go on for ever."""
    cluster = slurm_scratch
    with on_cluster(project, cluster):
        records, holds = witness_study(project, 12, 0.1, ONE_A_NODE), hold_nodes(project, cluster)
        node = start_on_two_nodes(project, cluster, records)
        cluster.kill_node(node)
        cluster.stall(node)
        try:
            for name in {*holds} - {node}:
                holds[name].unlink()
            # Others execute all that the node had: by themselves, or with the jobs that the user submits.
            wait_for(lambda: not queue_states(cluster) or sum(ends(records)) >= 12)
            if sum(ends(records)) < 12:
                project.run("run", "--wait", code=None)
        finally:
            cluster.go_on(node)
        holds[node].unlink()
        cluster.start_node(node)
        run_to_the_end(project, cluster)
        check_witnesses(project, records, 12)
        assert ends(records) == [1] * 12


def test_code_data_outputs_and_results(project: Project, slurm_scratch: Cluster) -> None:
    """All of them lie on the network file system, and are written on one node and read on others."""
    with on_cluster(project, slurm_scratch):
        for number in range(20):
            folder = project.studies / "datasets/one"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.txt").write_text(f"{number}\n" * 1000)
        project.write("pyproject.toml", "")
        project.write(
            "train.py",
            "import os, pathlib, sys, windlass\n"
            "data = pathlib.Path(os.environ['SLURM_TMPDIR'], 'datasets/one')\n"
            "total = sum(int(line) for path in data.iterdir() for line in path.open())\n"
            "windlass.log(total=total * int(sys.argv[1]))\n"
            "pathlib.Path('model.bin').write_bytes(bytes([int(sys.argv[1])]) * 100_000)\n",
        )
        project.write(
            "study.yaml",
            f"command: {sys.executable} train.py {{n}}\nparameters: {{n: {list(range(12))}}}\ndata: [datasets/one]\n"
            "outputs: [model.bin]\nslots: 1\nneeds: {time: 10m, cpus: 8}\nslurm: {agents: 4}\n",
        )
        project.run("run", "--wait")
        assert project.counts() == {"done": 12}
        rows = project.json("results", "--json")
        assert {row["n"]: row["total"] for row in rows} == {n: 190_000 * n for n in range(12)}
        project.run("outputs", "--to", "kept")
        models = [path.read_bytes() for path in (project.folder / "kept").rglob("model.bin")]
        assert sorted(models) == [bytes([n]) * 100_000 for n in range(12)]


def test_a_short_study_is_seen_at_once(project: Project, slurm_scratch: Cluster) -> None:
    """Its agent begins and ends while the login node still has a listing without the agent's journal."""
    with on_cluster(project, slurm_scratch):
        words = [
            "--param",
            "n=[1,2]",
            "-t",
            "5m",
            "--slots",
            "1",
            "--agents",
            "1",
            "--",
            "echo",
            "value={n}",
        ]
        done = project.run("run", "--wait", *words)
        assert "no record tells" not in done.stderr and project.counts() == {"done": 2}


# For `make test-file-systems`: every kind of outage, shorter than the lease and longer.


def check_after_outage(
    project: Project, cluster: Cluster, records: Path, trials: int, is_short: bool
) -> None:
    run_to_the_end(project, cluster)
    check_witnesses(project, records, trials)
    assert ends(records) == [1] * trials
    if is_short:
        assert [row["attempts"] for row in project.json("results", "--json")] == [1] * trials


@pytest.mark.file_systems
@pytest.mark.parametrize(("seconds", "lease"), [(30, "5m"), (40, "15s")])
def test_a_node_s_mount_stalls(
    project: Project, slurm_scratch: Cluster, seconds: int, lease: str
) -> None:
    """For less than the lease: nobody notices. For longer: none runs twice at the same time."""
    cluster = slurm_scratch
    with on_cluster(project, cluster):
        records = witness_study(project, 24, 3, ONE_A_NODE, lease)
        node = start_on_two_nodes(project, cluster, records)
        cluster.stall(node)
        time.sleep(seconds)
        cluster.go_on(node)
        check_after_outage(project, cluster, records, 24, lease == "5m")


@pytest.mark.file_systems
@pytest.mark.parametrize(("seconds", "lease"), [(20, "5m"), (40, "15s")])
def test_the_server_is_away(
    project: Project, slurm_scratch: Cluster, seconds: int, lease: str
) -> None:
    """For all nodes and for the commands that are started meanwhile: patience or a clear end, never a traceback."""
    cluster = slurm_scratch
    with on_cluster(project, cluster):
        records = witness_study(project, 24, 3, ONE_A_NODE, lease)
        start_on_two_nodes(project, cluster, records)
        cluster.stop_scratch()
        commands = [
            project.start(*words) for words in (["status"], ["run", "--quiet"], ["results"])
        ]
        time.sleep(seconds)
        cluster.start_scratch()
        for command in commands:
            output, errors = command.communicate(timeout=180)
            assert "Traceback" not in errors and command.returncode in (0, 2), errors
            assert "there is no study" not in output + errors
        check_after_outage(project, cluster, records, 24, lease == "5m")


@pytest.mark.file_systems
def test_a_node_dies(project: Project, slurm_scratch: Cluster) -> None:
    """With everything on it; the same trials are executed elsewhere, and the node comes back."""
    cluster = slurm_scratch
    with on_cluster(project, cluster):
        records, holds = witness_study(project, 12, 0.1, ONE_A_NODE), hold_nodes(project, cluster)
        node = start_on_two_nodes(project, cluster, records)
        cluster.crash_node(node)
        for path in holds.values():
            path.unlink()
        wait_for(
            lambda: "down" in cluster.run("sinfo", "--noheader", "--nodes", node, "--format=%T")
        )
        cluster.start_node(node)
        run_to_the_end(project, cluster)
        check_witnesses(project, records, 12)


@pytest.mark.file_systems
def test_cancel(project: Project, slurm_scratch: Cluster) -> None:
    """What runs is ended and what waits does not begin; afterwards it can be taken up again."""
    cluster = slurm_scratch
    with on_cluster(project, cluster):
        records, holds = (
            witness_study(project, 12, 0.1, ONE_A_NODE, "5m"),
            hold_nodes(project, cluster),
        )
        start_on_two_nodes(project, cluster, records)
        project.run("cancel", "--yes")
        wait_until_idle(cluster)
        assert project.counts() == {"cancelled": 12}
        assert begun(records) == 4
        for path in holds.values():
            path.unlink()
        project.run("retry", "--cancelled")
        run_to_the_end(project, cluster)
        check_witnesses(project, records, 12)
