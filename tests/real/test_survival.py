"""What must survive on a real cluster: no trial lost, none twice at the same time, and the states say what happened."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import needs_local_disk, on_cluster
from tests.real.study import (
    begun,
    check_witnesses,
    hold,
    queue_states,
    run_to_the_end,
    study_jobs,
    wait_until_idle,
    witness_study,
)

pytestmark = pytest.mark.slow
TERMS = "slots: 2\nneeds: {time: 20m}\nslurm: {agents: 3}\n"


def agents_of(folder: Path) -> list[int]:
    """Agents' processes: the guard is a fork that looks the same, but leads a session of its own."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
                above = Path(f"/proc/{parent}/cmdline").read_bytes()
            except OSError:
                continue
            ours = b"agent.pyz" in words and b"--job" in words and str(folder).encode() in words
            if ours and b"agent.pyz" not in above:
                found.append(int(name))
    return found


def task_ids(cluster: Cluster, state: str = "RUNNING") -> list[str]:
    return cluster.run(
        "squeue", "--noheader", "--array", f"--states={state}", "--format=%i"
    ).split()


def test_an_agent_is_killed(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    records, held = witness_study(project, 18, 0.1, TERMS), hold(project)
    project.run("run")
    wait_for(lambda: begun(records) >= 8)
    os.kill(agents_of(project.studies)[0], signal.SIGKILL)
    held.unlink()
    run_to_the_end(project, slurm)
    check_witnesses(project, records, 18)
    wait_for(lambda: "failed" in {job["state"] for job in study_jobs(project)})


def test_one_task_is_cancelled(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    records, held = witness_study(project, 18, 0.1, TERMS), hold(project)
    project.run("run")
    wait_for(lambda: begun(records) >= 12)
    slurm.run("scancel", task_ids(slurm)[1])
    held.unlink()
    wait_until_idle(slurm)
    assert set(project.counts()) <= {"done", "interrupted"}, "who is told to end is no failure"
    run_to_the_end(project, slurm)
    check_witnesses(project, records, 18)


def test_a_job_is_requeued(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    records, held = witness_study(project, 18, 0.1, TERMS), hold(project)
    project.run("run")
    wait_for(lambda: begun(records) >= 12)
    slurm.run("scontrol", "requeue", task_ids(slurm)[0])
    folder = project.study_folder() / "journal"
    wait_for(
        lambda: any('"restart":1' in path.read_text() for path in folder.glob("2*.jsonl")), 400
    )
    held.unlink()
    run_to_the_end(project, slurm)
    check_witnesses(project, records, 18)


def test_a_node_dies_with_all_that_is_on_it(
    project: Project, make_cluster: Callable[..., Cluster]
) -> None:
    """NODE_FAIL: the job is put back by Slurm; the trials it held are taken again once it is certain to be dead."""
    cluster = make_cluster(database=False, nodes_apart=True)
    with on_cluster(project, cluster):
        terms = "slots: 2\nneeds: {time: 20m, cpus: 4}\nslurm: {agents: 3}\n"
        records, held = witness_study(project, 18, 0.1, terms), hold(project)
        project.run("run")
        wait_for(lambda: begun(records) >= 12)
        node = cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()[0]
        cluster.crash_node(node)
        wait_for(
            lambda: "down" in cluster.run("sinfo", "--noheader", "--nodes", node, "--format=%T")
        )
        cluster.start_node(node)
        held.unlink()
        run_to_the_end(project, cluster)
        check_witnesses(project, records, 18)


def test_a_slurmd_dies_and_its_jobs_live_on(
    project: Project, make_cluster: Callable[..., Cluster]
) -> None:
    """The scheduler gives the job up, but its agent is still there: nobody may take its trials."""
    cluster = make_cluster(database=False, nodes_apart=True)
    with on_cluster(project, cluster):
        terms = "slots: 2\nneeds: {time: 20m, cpus: 4}\nslurm: {agents: 2}\n"
        records, held = witness_study(project, 14, 0.1, terms), hold(project)
        project.run("run")
        wait_for(lambda: begun(records) >= 10)
        node = cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()[0]
        cluster.kill_node(node)
        wait_for(
            lambda: "down" in cluster.run("sinfo", "--noheader", "--nodes", node, "--format=%T")
        )
        held.unlink()
        run_to_the_end(project, cluster)
        wait_for(lambda: project.counts() == {"done": 14})
        check_witnesses(project, records, 14)


def test_a_node_is_drained(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    records, held = witness_study(project, 18, 0.1, TERMS), hold(project)
    project.run("run")
    wait_for(lambda: begun(records) >= 12)
    node = slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()[0]
    slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    held.unlink()
    try:
        wait_until_idle(slurm)
        check_witnesses(project, records, 18)
    finally:
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")


def test_the_controller_is_restarted_and_away(
    project: Project, make_cluster: Callable[..., Cluster]
) -> None:
    """While it is away nothing is lost, and every verb says what is so."""
    cluster = make_cluster(database=False)
    with on_cluster(project, cluster):
        records = witness_study(project, 24, 2, TERMS)
        project.run("run")
        wait_for(lambda: begun(records) >= 4)
        cluster.stop_controller()
        done = project.run("status")
        assert "does not answer" in done.stdout + done.stderr
        done = project.run("run", code=1)
        assert "does not answer" in done.stderr and "Traceback" not in done.stderr
        done = project.run("cancel", "0", "--yes", code=None)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr
        done = project.run("cancel", "--yes", "--pending", code=None)
        assert "Traceback" not in done.stderr
        cluster.start_controller()
        project.run("retry", "--cancelled", "--no-run")
        run_to_the_end(project, cluster)
        check_witnesses(project, records, 24)


def test_the_time_limit(project: Project, make_cluster: Callable[..., Cluster]) -> None:
    """Trials that were cut off by the job's time limit are interrupted, not failed, and taken again."""
    cluster = make_cluster(database=False)
    with on_cluster(project, cluster):
        records = witness_study(
            project, 2, 600, "slots: 2\nslurm: {agents: 1}\nneeds: {time: 1m}\n"
        )
        project.run("run")
        wait_for(lambda: begun(records) == 2)
        slurm_job = task_ids(cluster)[0]
        cluster.run(
            "scontrol", "update", f"JobId={slurm_job}", "TimeLimit=1"
        )  # the agent's own clock does not hear of it
        wait_until_idle(cluster, 300)
        assert project.counts() == {"interrupted": 2}
        wait_for(lambda: {job["state"] for job in study_jobs(project)} <= {"failed", "timed out"})
        project.run("cancel", "--yes")
        project.write(
            "witness.sh",
            (project.folder / "witness.sh").read_text().replace('sleep "$2"', "sleep 0.1"),
        )
        project.run("retry", "--cancelled", "--interrupted")
        wait_until_idle(cluster)
        check_witnesses(project, records, 2)


@needs_local_disk
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small disk: only root may")
def test_the_shared_folder_is_full(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    disk = project.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "windlass", str(disk)], check=True)
    try:
        records = witness_study(project, 30, 0.3, TERMS)
        project.run("run", "--folder", "disk")
        wait_for(lambda: begun(records) >= 3)
        filler = disk / "filler"
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError):
            while True:
                os.write(descriptor, b"x" * 4096)
        os.close(descriptor)
        wait_until_idle(slurm)
        filler.unlink()
        counts = project.json("status", "--folder", "disk", "--json")["counts"]
        assert counts["failed"] == 0
        for _ in range(3):
            project.run("run", "--folder", "disk", "--wait", code=None)
        counts = project.json("status", "--folder", "disk", "--json")["counts"]
        assert counts["done"] == 30
        for number in range(30):
            assert "overlap" not in (records / str(number)).read_text()
    finally:
        wait_for(lambda: not queue_states(slurm))
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
