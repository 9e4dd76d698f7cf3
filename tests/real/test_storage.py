"""A test cluster's network file system is what it says: a mount of its own on every node, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.slurm import FILE_SYSTEMS, Cluster, ClusterError
from scripts.slurm.storage import find_clients, find_obstacle, is_mounted

from tests.conftest import wait_for

from .conftest import ROOT, SCRATCH, USUAL_SCRATCH, refuse_storage, require_slurm
from .test_cluster import processes_of, submit

KIND = SCRATCH or USUAL_SCRATCH
MakeCluster = Callable[..., Cluster]


def on_node(cluster: Cluster, node: str, script: str) -> str:
    return cluster.run("srun", "--nodelist", node, "sh", "-c", script)


def start_on_node(cluster: Cluster, node: str, script: str) -> subprocess.Popen[bytes]:
    words = ["srun", "--quiet", "--nodelist", node, "sh", "-c", script]
    return subprocess.Popen(words, env={**os.environ, **cluster.env}, stderr=subprocess.DEVNULL)


def test_every_node_has_a_mount_of_the_same_files(slurm_scratch: Cluster) -> None:
    scratch = slurm_scratch.scratch
    (scratch / "of-login").write_text("login\n")
    names = ["login", *slurm_scratch.node_names]
    paths = " ".join(f"{scratch}/of-{name}" for name in names)  # by name: a listing may be old
    for node in slurm_scratch.node_names:
        on_node(slurm_scratch, node, f"hostname > {scratch}/of-{node}")
    for node in slurm_scratch.node_names:
        assert on_node(slurm_scratch, node, f"cat {paths}").split() == names
        kept = on_node(slurm_scratch, node, f"ls {slurm_scratch.home}/storage | wc -l")
        assert kept.strip() == "0", "the servers' own files are seen by no node"
    assert "fuse" in on_node(slurm_scratch, "node1", f"grep {scratch} /proc/self/mounts")


def test_one_node_s_mount_stalls_and_goes_on(slurm_scratch: Cluster, tmp_path: Path) -> None:
    scratch, answered = slurm_scratch.scratch, tmp_path / "answered"
    slurm_scratch.stall("node2")
    try:
        waiting = start_on_node(
            slurm_scratch,
            "node2",
            f"touch {tmp_path}/begun; touch {scratch}/late; touch {answered}",
        )
        wait_for((tmp_path / "begun").exists)
        on_node(slurm_scratch, "node1", f"touch {scratch}/meanwhile")
        (scratch / "login").touch()
        assert waiting.poll() is None and not answered.exists()
    finally:
        slurm_scratch.go_on("node2")
    assert waiting.wait(60) == 0 and answered.exists()


def test_the_server_is_away_and_back(slurm_scratch: Cluster, tmp_path: Path) -> None:
    """Calls fail or hang meanwhile, which depends on the file system. Afterwards all is there, on every node."""
    scratch, answered = slurm_scratch.scratch, tmp_path / "answered"
    (scratch / "before").write_text("kept")
    slurm_scratch.stop_scratch()
    try:
        script = f"touch {tmp_path}/begun; touch {scratch}/new 2> /dev/null && touch {answered}"
        waiting = start_on_node(slurm_scratch, "node3", script)
        wait_for((tmp_path / "begun").exists)
        assert not answered.exists()
    finally:
        slurm_scratch.start_scratch()
    waiting.wait(120)
    again = f"until touch {scratch}/again && cat {scratch}/before; do sleep 0.2; done 2> /dev/null"
    for node in ("node1", "node3"):
        assert on_node(slurm_scratch, node, again) == "kept"


def test_a_node_comes_back_with_its_mount(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(database=False, nodes_apart=True, scratch=KIND)
    (cluster.scratch / "file").write_text("there")
    cluster.crash_node("node4")
    cluster.start_node("node4")
    assert on_node(cluster, "node4", f"cat {cluster.scratch}/file") == "there"
    assert len(find_clients(cluster.processes["node4"])) == 1


@pytest.mark.parametrize("stalled", [(), ("node1", "login")])
def test_stopping_leaves_nothing(
    make_cluster: MakeCluster, tmp_path: Path, stalled: tuple[str, ...]
) -> None:
    """Also with mounts that hang, and processes that hang on them."""
    cluster = make_cluster(tmp_path / "c", database=False, nodes_apart=True, scratch=KIND)
    home, mount = cluster.home, cluster.scratch
    submit(
        cluster,
        f"cd {mount}; touch {tmp_path}/begun; while sleep 0.1; do touch {mount}/x; done",
        "--nodelist=node1",
    )
    wait_for((tmp_path / "begun").exists)
    for name in stalled:
        cluster.stall(name)
    hanging = subprocess.Popen(["touch", str(mount / "y")], stderr=subprocess.DEVNULL)
    Cluster(
        tmp_path / "c"
    ).stop()  # as `python3 -m scripts.slurm stop`, which knows only the folder
    hanging.wait(60)
    assert not home.exists() and not is_mounted(mount) and processes_of(home) == []


def test_a_start_that_fails_leaves_nothing(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with pytest.raises(ClusterError, match=r"node1 ended:(.|\n)*/proc/nowhere"):
        make_cluster(
            folder,
            nodes_apart=True,
            database=False,
            scratch=KIND,
            settings={"SlurmdSpoolDir": "/proc/nowhere"},
        )
    assert not folder.exists() and not is_mounted(folder / "scratch") and processes_of(folder) == []


def test_tests_that_are_killed_leave_no_mount(tmp_path: Path) -> None:
    require_slurm()
    if obstacle := find_obstacle(KIND):
        refuse_storage(KIND, obstacle)
    script = (
        "import sys, pathlib; from scripts.slurm import Cluster; from tests.real.conftest import started\n"
        "options = dict(database=False, nodes_apart=True, scratch=sys.argv[2])\n"
        "with started(Cluster(pathlib.Path(sys.argv[1]), **options)): print('up', flush=True); sys.stdin.read()"
    )
    folder = tmp_path / "c"
    words = [sys.executable, "-c", script, str(folder), KIND]
    tests = subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None and tests.stdout.readline() == "up\n"
    cluster = Cluster(folder)
    processes, mount = cluster.processes, cluster.scratch
    assert is_mounted(mount)
    tests.send_signal(signal.SIGKILL)
    tests.communicate()
    wait_for(lambda: not folder.exists())
    assert not is_mounted(mount) and not any(process.alive for process in processes.values())


def test_nodes_that_are_not_apart_have_no_mounts_of_their_own(tmp_path: Path) -> None:
    require_slurm()
    with pytest.raises(ClusterError, match="only nodes apart"):
        Cluster(tmp_path / "c", database=False, scratch=KIND).start()


def test_the_packages_are_those_that_the_setup_installs() -> None:
    text = (ROOT / "scripts/setup.sh").read_text()
    for system in FILE_SYSTEMS.values():
        assert " ".join(system.packages) in text
