"""The test cluster is what it says: nodes, GPUs, accounts and limits are real to Slurm, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripts.slurm import Cluster, ClusterError
from scripts.slurm.processes import Process, make_process, read_boot, write_processes

from tests.conftest import wait_for

from .conftest import ROOT, cancel_all, require_slurm

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def clean(slurm: Cluster) -> Iterator[Cluster]:
    yield slurm
    cancel_all(slurm)


def submit(cluster: Cluster, script: str, *options: str) -> str:
    return cluster.run(
        "sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}"
    ).strip()


def job_state(cluster: Cluster, job: str) -> str:
    found = re.search(r"JobState=(\w+)", cluster.run("scontrol", "show", "job", job))
    assert found
    return found[1]


def processes_of(folder: Path) -> list[str]:
    """Processes that mention a folder on their command line or have it open, in /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                links = [
                    os.readlink(entry / "cwd"),
                    *(os.readlink(link) for link in (entry / "fd").iterdir()),
                ]
            except OSError:
                continue
            if f"{folder}/" in text.decode(errors="replace") or any(
                link.startswith(f"{folder}/") for link in links
            ):
                found.append(f"{entry.name} {text[:80]!r}")
    return found


# What it has


@pytest.mark.parametrize(
    ("node", "gres", "devices"),
    [
        ("node1", "gpu:p100:4", "0,1,2,3"),
        ("node2", "gpu:v100l:2", "0,1"),
        ("node3", "gpu:a100:1", "0"),
        ("node4", "gpu:a100:2", "2,3"),
    ],
)
def test_a_job_sees_its_gpus(slurm: Cluster, node: str, gres: str, devices: str) -> None:
    script = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    assert slurm.run("srun", "-w", node, f"--gres={gres}", "sh", "-c", script).split() == [
        node,
        devices,
    ]


def test_a_job_has_local_scratch(slurm: Cluster) -> None:
    script = 'touch "$SLURM_TMPDIR/x" && echo "$SLURM_TMPDIR"'
    scratch = Path(slurm.run("srun", "sh", "-c", script).strip())
    assert scratch.parent == slurm.home / "local"
    wait_for(lambda: not scratch.exists())


def test_an_array_keeps_to_its_throttle(clean: Cluster, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    submit(clean, f"echo 1 >> {trace}; sleep 0.5; echo -1 >> {trace}", "--array=0-5%2")
    wait_for(lambda: trace.exists() and len(trace.read_text().split()) == 12)
    running = highest = 0
    for change in trace.read_text().split():
        running += int(change)
        highest = max(highest, running)
    assert highest == 2


def test_accounting_answers(clean: Cluster) -> None:
    job = submit(clean, "exit 3", "--account=rrg-lab")
    words = ("sacct", "-nXP", "-j", job, "-o", "State,ExitCode,Account")
    wait_for(lambda: clean.run(*words).strip() == "FAILED|3:0|rrg-lab")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--account=nosuch"], "Invalid account"),
        (["--qos=onegpu", "--gres=gpu:2"], "QOSMaxGRESPerJob"),
        (["--gres=gpu:h100:1"], "node configuration is not available"),
        (["--mem=9000"], "Memory specification can not be satisfied"),
    ],
)
def test_limits_hold(clean: Cluster, options: list[str], complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        submit(clean, "true", *options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--partition=debug", "--time=1:00:00"], "PartitionTimeLimit"),
        (
            ["--partition=a100", "--account=rrg-lab"],
            "Job's account not permitted to use this partition",
        ),
        (["--partition=a100", "--nodes=2"], "PartitionNodeLimit"),
        (["--partition=down"], "PartitionDown"),
        (["--partition=short", "--qos=short", "--time=2:00:00"], "QOSMaxWallDurationPerJobLimit"),
    ],
)
def test_other_limits_let_a_job_pend(clean: Cluster, options: list[str], reason: str) -> None:
    job = submit(clean, "true", *options)
    wait_for(lambda: reason in clean.run("squeue", "-h", "-j", job, "-o", "%r"))


def test_settings_and_the_site_s_own_check(make_cluster: MakeCluster) -> None:
    lua = """
function slurm_job_submit(job, partitions, uid)
  if job.min_mem_per_node then
    slurm.log_user("give --mem-per-cpu instead of --mem")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job, old, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
    settings = {"MaxArraySize": "11", "EnforcePartLimits": "ALL"}
    cluster = make_cluster(database=False, settings=settings, job_submit_lua=lua)
    with pytest.raises(ClusterError, match="Invalid job array"):
        submit(cluster, "true", "--array=0-11")
    with pytest.raises(ClusterError, match="Requested time limit is invalid"):
        submit(cluster, "true", "--time=1:00:00")
    with pytest.raises(ClusterError, match="give --mem-per-cpu"):
        submit(cluster, "true", "--mem=100")
    assert submit(cluster, "true", "--array=0-10", "--mem-per-cpu=100")


def test_nodes_apart_have_names_processes_and_disks_of_their_own(slurm_apart: Cluster) -> None:
    script = 'hostname; echo $(ls /proc | grep -c "^[0-9]"); touch $SLURM_TMPDIR/$(hostname); ls $SLURM_TMPDIR'
    seen = [
        slurm_apart.run("srun", "-w", node, "sh", "-c", script).split()
        for node in slurm_apart.node_names
    ]
    assert [(words[0], words[2:]) for words in seen] == [
        (node, [node]) for node in slurm_apart.node_names
    ]
    everything = sum(name.isdigit() for name in os.listdir("/proc"))
    assert all(int(words[1]) < everything / 2 for words in seen)
    assert socket.gethostname() not in slurm_apart.node_names


def test_nodes_apart_share_the_shared_folder_alone(slurm_apart: Cluster, tmp_path: Path) -> None:
    places = ["/tmp", "/var/tmp", "/dev/shm", str(tmp_path)]
    script = (
        'for place in "$@"; do echo "$place" $(find "$place" -maxdepth 1 -name "of-node?"); done'
    )
    for node in slurm_apart.node_names:
        touch = "; ".join(f'touch "{place}/of-{node}"' for place in places)
        slurm_apart.run("srun", "-w", node, "sh", "-c", touch)
    for node in slurm_apart.node_names:
        lines = slurm_apart.run("srun", "-w", node, "sh", "-c", script, "sh", *places).splitlines()
        seen = {place: sorted(names) for place, *names in (line.split() for line in lines)}
        own = {place: [f"{place}/of-{node}"] for place in places[:3]}
        assert seen == own | {
            str(tmp_path): [f"{tmp_path}/of-{name}" for name in slurm_apart.node_names]
        }
    assert not list(Path("/tmp").glob("of-node?"))


# What can break


def test_a_node_killed_and_back(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(database=False)
    alive = tmp_path / "alive"
    job = submit(
        cluster, f"while :; do date +%N > {alive}; sleep 0.1; done", "-w", "node2", "--no-requeue"
    )
    wait_for(alive.exists)
    cluster.kill_node("node2")
    before = alive.read_text()
    wait_for(lambda: alive.read_text() not in ("", before))
    wait_for(lambda: job_state(cluster, job) == "NODE_FAIL")
    cluster.start_node("node2")
    assert cluster.run("srun", "-w", "node2", "echo", "back").strip() == "back"


@pytest.mark.parametrize("apart", [False, True])
def test_a_node_crashed_and_back(make_cluster: MakeCluster, tmp_path: Path, apart: bool) -> None:
    cluster = make_cluster(database=False, nodes_apart=apart)
    marker = tmp_path / "detached"
    submit(
        cluster,
        f"setsid tail -f /dev/null {marker} & touch {marker}; sleep 600",
        "-w",
        "node3",
        "--no-requeue",
    )
    other = submit(cluster, "sleep 600", "-w", "node1")
    wait_for(
        lambda: (
            marker.exists()
            and job_state(cluster, other) == "RUNNING"
            and processes_with_word(str(marker))
        )
    )
    cluster.crash_node("node3")
    assert processes_with_word(str(marker)) == []
    cluster.start_node("node3")
    assert cluster.run("srun", "-w", "node3", "echo", "back").strip() == "back"
    assert job_state(cluster, other) == "RUNNING"


def processes_with_word(word: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = (
                    Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
                )
            except OSError:
                continue
            if word in words:
                found.append(int(name))
    return found


def test_a_controller_stopped_killed_and_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(database=False)
    for kill in (False, True):
        cluster.stop_controller(kill=kill)
        with pytest.raises(ClusterError, match="DOWN"):
            cluster.run("scontrol", "ping")
        cluster.start_controller()
        assert "UP" in cluster.run("scontrol", "ping")
    assert cluster.is_up


def test_accounting_down_and_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.stop_database()
    with pytest.raises(ClusterError, match="Connection refused"):
        cluster.run("sacct")
    job = submit(cluster, "true")
    cluster.start_database()
    wait_for(lambda: cluster.run("sacct", "-nXP", "-j", job, "-o", "State").strip() == "COMPLETED")


# What it leaves behind: nothing


def test_two_side_by_side_and_one_stopped(make_cluster: MakeCluster, tmp_path: Path) -> None:
    first, second = make_cluster(database=False), make_cluster(database=False)
    detach = f"setsid sleep 600 & touch {tmp_path}/running; sleep 600"
    submit(first, detach, "--nodes=2", "--exclusive")
    other = submit(second, "sleep 600")
    wait_for(lambda: (tmp_path / "running").exists() and job_state(second, other) == "RUNNING")
    home = first.home
    assert len(processes_of(home)) >= 10
    first.stop()
    assert processes_of(home) == [] and not home.exists()
    assert second.is_up and job_state(second, other) == "RUNNING"


def test_a_start_that_fails_says_why(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with pytest.raises(ClusterError, match=r"node1 ended:(.|\n)*/proc/nowhere"):
        make_cluster(folder, database=False, settings={"SlurmdSpoolDir": "/proc/nowhere"})
    assert not folder.exists() and processes_of(folder) == []


def test_a_second_start_in_the_same_folder(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(database=False)
    with pytest.raises(ClusterError, match="there is a cluster"):
        Cluster(cluster.folder).start()
    assert cluster.is_up
    cluster.stop()
    cluster.start()
    assert cluster.run("srun", "echo", "again").strip() == "again"


def test_a_folder_with_an_awkward_name(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "cluster", né' / ("long" * 20)
    cluster = make_cluster(folder, database=False)
    home = cluster.home
    assert cluster.run("srun", "echo", "yes").strip() == "yes"
    Cluster(folder).stop()
    assert not home.exists() and not folder.exists() and processes_of(home) == []


def test_tests_that_are_killed_leave_no_cluster(tmp_path: Path) -> None:
    require_slurm()
    folder = tmp_path / "c"
    script = (
        "import sys, pathlib; from scripts.slurm import Cluster; from tests.real.conftest import started\n"
        "with started(Cluster(pathlib.Path(sys.argv[1]), database=False)): print('up', flush=True); sys.stdin.read()"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tests.stdout is not None and tests.stdout.readline() == "up\n"
    processes = Cluster(folder).processes
    assert all(process.alive for process in processes.values())
    tests.kill()
    tests.communicate()
    wait_for(lambda: not folder.exists())
    assert not any(process.alive for process in processes.values())


def test_a_number_used_again_is_not_killed(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        real = make_process("munged", bystander.pid)
        assert real is not None and real.alive
        folder = tmp_path / "cluster"
        folder.mkdir()
        earlier = Process("munged", bystander.pid, real.start_ticks - 1, read_boot())
        last_boot = Process("slurmctld", bystander.pid, real.start_ticks, "another boot")
        write_processes(folder / "processes.json", [earlier, last_boot])
        Cluster(folder).stop()
        assert not folder.exists() and real.alive
    finally:
        bystander.kill()
        bystander.wait()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    require_slurm()
    (tmp_path / "thesis.tex").write_text("all of it")
    cluster = Cluster(tmp_path, database=False)
    with pytest.raises(ClusterError, match="not empty"):
        cluster.start()
    cluster.stop()
    assert (tmp_path / "thesis.tex").read_text() == "all of it"


def test_the_command_line(tmp_path: Path) -> None:
    require_slurm()
    folder = tmp_path / "c"

    def call(*words: str) -> str:
        command = [sys.executable, "-m", "scripts.slurm", *words, "--folder", str(folder)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    try:
        text = call("start", "--no-database", "--set", "MaxArraySize=77")
        found = re.search(r"export SLURM_CONF=(\S+)", text)
        assert found and "MaxArraySize=77\n" in Path(found[1]).read_text()
        assert (
            f"`python3 -m scripts.slurm stop --folder {folder}` ends it" in text
            and "make" not in text
        )
        processes = Cluster(folder).processes
        assert call("start") == text and Cluster(folder).processes == processes
    finally:
        assert call("stop") == "stopped\n"
    assert not folder.exists() and not any(process.alive for process in processes.values())
    assert call("stop") == "there was none\n"
