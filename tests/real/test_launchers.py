"""Trials of several processes on nodes that have hostnames, addresses and processes of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import REAL_PARTS, on_cluster
from tests.real.study import wait_until_idle

pytestmark = pytest.mark.slow
PYTHON = sys.executable
# Ranks meet at the address and port that they were given, by sockets alone: what a real rendezvous needs.
RANK = """\
import json, os, socket, sys, time
import windlass
mode, shared = sys.argv[1:3]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", where[1]))
    server.listen(world)
    peers = [server.accept()[0] for _ in range(world - 1)]
    total = sum(int(peer.recv(16)) for peer in peers)
    [peer.sendall(str(total).encode()) for peer in peers]
else:
    for _ in range(300):
        try:
            peer = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(str(rank).encode())
    total = int(peer.recv(16))
told = dict(rank=rank, local=os.environ["LOCAL_RANK"], node=os.uname().nodename, total=total, port=where[1],
            gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""), threads=os.environ["OMP_NUM_THREADS"])
print(json.dumps(told), flush=True)
windlass.log({f"of_{rank}": rank})
mine = rank == world - 1
open(os.path.join(shared, f"begun-{mode}-{rank}"), "w").write(str(time.time()))
if mode == "exit" and mine:
    print("a rank broke", file=sys.stderr)
    sys.exit(5)
if mode == "signal" and mine:
    os.kill(os.getpid(), 11)
if mode in ("exit", "signal", "wait") or (mode == "hang" and mine):
    time.sleep(100)
if mode == "save":
    saved = os.path.join(os.environ["WINDLASS_CHECKPOINT_DIR"], "step-1.pt")
    if not os.path.exists(saved):
        if rank == 0:
            open(saved, "w").write("saved")
        time.sleep(100)
time.sleep(1.5 if mode == "side" else 0)
"""


def write_study(project: Project, modes: str, more: str, launch: str = "srun") -> None:
    project.write("rank.py", RANK)
    words = json.dumps([PYTHON, "rank.py", "{mode}", str(project.folder), "{seed}"])
    project.write(
        "study.yaml",
        f"command: {words}\nparameters: {{mode: [{modes}]}}\n"
        f"launch: {launch}\ngrace: 5s\n{more}{'' if 'seeds' in more else 'seeds: [1]'}",
    )


def read_ranks(project: Project, trial: int) -> list[dict[str, object]]:
    lines = project.run("logs", str(trial)).stdout.splitlines()
    return [json.loads(line.partition(": ")[2]) for line in lines if '{"rank"' in line]


def left_behind(cluster: Cluster) -> str:
    return cluster.run("squeue", "--steps", "--noheader")


def test_two_nodes_with_two_processes_each(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        write_study(project, "fine", "needs: {cpus: 4, gpus: 2, nodes: 2, time: 5m}\n")
        plan = project.run("plan").stdout
        assert "srun: 2 processes on each of 2 nodes, 2 cores and 1 GPU each" in plan
        assert "#SBATCH --ntasks-per-node=2" in plan and "#SBATCH --cpus-per-task=2" in plan
        project.run("run", "--wait")
        ranks = sorted(read_ranks(project, 0), key=lambda told: str(told["rank"]))
        assert [told["rank"] for told in ranks] == [0, 1, 2, 3]
        assert [told["local"] for told in ranks] == ["0", "1", "0", "1"]
        assert {told["total"] for told in ranks} == {6} and {told["threads"] for told in ranks} == {
            "2"
        }
        assert ranks[0]["node"] == ranks[1]["node"] != ranks[2]["node"] == ranks[3]["node"]
        (row,) = project.json("results", "--json")
        assert [row[f"of_{rank}"] for rank in range(4)] == [0, 1, 2, 3]
        assert len(project.run("logs", "0", "--rank", "2").stdout.splitlines()) == 1


def test_trials_beside_each_other(project: Project, slurm_apart: Cluster) -> None:
    """Two on each of two pairs of nodes: all at once, each with devices and a port of its own."""
    with on_cluster(project, slurm_apart):
        write_study(
            project,
            "side",
            "seeds: [1, 2, 3, 4]\nneeds: {cpus: 2, gpus: 2, nodes: 2, time: 5m}\n"
            "slurm: {nodes: 4, gpus_per_job: 4, agents: 1}\n",
        )
        project.run("run", "--wait")
        trials = [read_ranks(project, number) for number in range(4)]
        assert all(len(ranks) == 4 and {told["total"] for told in ranks} == {6} for ranks in trials)
        places = {(told["node"], told["gpus"]) for ranks in trials for told in ranks}
        assert len(places) == 8, "two ranks share the two devices of their trial, nobody else does"
        assert len({ranks[0]["port"] for ranks in trials}) == 4
        began = [float(path.read_text()) for path in project.folder.glob("begun-side-*")]
        assert max(began) - min(began) < 15


@pytest.mark.parametrize(
    ("mode", "said"), [("exit", "exited with 5"), ("signal", "was ended by signal 11")]
)
def test_a_rank_that_fails_ends_all(
    project: Project, slurm_apart: Cluster, mode: str, said: str
) -> None:
    with on_cluster(project, slurm_apart):
        write_study(project, mode, "needs: {cpus: 2, nodes: 2, time: 5m}\n")
        project.run("run", "--wait", code=None)
        (row,) = project.json("results", "--json")
        assert row["state"] == "failed" and row["duration_s"] < 15
        assert (row["exit_code"] == 5) == (mode == "exit")
        told = project.run("explain", "0").stdout
        assert f"rank 3 on node2 {said} before the others" in told, told
        assert mode != "exit" or "a rank broke" in told
        assert not left_behind(slurm_apart)


def test_a_rank_that_hangs(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        project.env["WINDLASS_LAST_RANKS_S"] = "3"
        write_study(project, "hang", "needs: {cpus: 2, nodes: 2, time: 5m}\n")
        project.run("run", "--wait", code=None)
        told = project.run("explain", "0").stdout
        assert "rank 3 on node2 had not ended 3 s after others" in told, told


def test_a_trial_that_was_cut_off_goes_on_elsewhere(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        write_study(
            project,
            "save",
            "needs: {cpus: 2, nodes: 2, time: 5m}\ncheckpoint: {pattern: 'step-*.pt'}\n",
        )
        project.run("run")
        wait_for(lambda: len(list(project.folder.glob("begun-save-*"))) == 4)
        time.sleep(1)
        job = slurm_apart.run("squeue", "--noheader", "--format=%A").split()[0]
        slurm_apart.run("scancel", job)
        wait_until_idle(slurm_apart)
        assert not left_behind(slurm_apart)
        project.run("run", "--wait")
        assert project.counts() == {"done": 1}


def test_a_port_that_a_stranger_has_taken(project: Project, slurm_apart: Cluster) -> None:
    """The trial fails with the error of its port, and is started again with another one."""
    with on_cluster(project, slurm_apart):
        project.write(
            "taken.py",
            "import os, sys\nmark = os.path.join(sys.argv[1], 'tried')\n"
            "if os.environ['RANK'] == '0' and not os.path.exists(mark):\n    open(mark, 'w').close()\n"
            "    sys.exit(f\"port {os.environ['MASTER_PORT']}: Address already in use\")\n",
        )
        project.write(
            "study.yaml",
            f"command: {json.dumps([PYTHON, 'taken.py', str(project.folder)])}\nlaunch: srun\n"
            "needs: {cpus: 1, processes: 1, nodes: 2, time: 5m}\n",
        )
        project.run("run", "--wait")
        assert project.counts() == {"done": 1}
        assert "its port was taken" in project.run("explain", "0").stdout


@pytest.mark.skipif(not REAL_PARTS, reason="WINDLASS_TEST_TORCH names no Python with torch")
@pytest.mark.parametrize("launch", ["torchrun", "torch-launch", "srun", "accelerate", "lightning"])
def test_real_torch(project: Project, slurm_apart: Cluster, launch: str) -> None:
    with on_cluster(project, slurm_apart):
        project.write(
            "train.py",
            "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
            "x = torch.ones(1) * (dist.get_rank() + 1)\ndist.all_reduce(x)\nprint('sum', x.item())\n"
            "dist.destroy_process_group()\n",
        )
        project.write(
            "study.yaml",
            f"command: {REAL_PARTS} train.py\nlaunch: {launch}\n"
            "needs: {cpus: 2, nodes: 2, time: 5m}\n",
        )
        project.run("run", "--wait", timeout=120)
        lines = project.run("logs", "0").stdout.splitlines()
        assert [f"[rank{rank}]: sum 10.0" in lines for rank in range(4)] == [True] * 4


# Each adds up the ranks of four processes with its own collective.
PROGRAMS = {
    "jax": (
        "srun",
        "import jax, numpy\njax.config.update('jax_cpu_collectives_implementation', 'gloo')\n"
        "jax.distributed.initialize()\nfrom jax.experimental import multihost_utils as many\n"
        "got = many.process_allgather(numpy.ones(1) * jax.process_index())\n"
        "print('sum', float(got.sum()) + 4)\njax.distributed.shutdown()\n",
    ),
    "lightning": (
        "lightning",
        "import lightning, torch\nfrom lightning.fabric import Fabric\n"
        "from lightning.fabric.plugins.environments import SLURMEnvironment\n"
        "assert SLURMEnvironment.detect()\n"
        "fabric = Fabric(accelerator='cpu', devices=2, num_nodes=2, strategy='ddp')\nfabric.launch()\n"
        "print('sum', fabric.all_reduce(torch.ones(1) * (fabric.global_rank + 1), reduce_op='sum').item())\n"
        "torch.distributed.destroy_process_group()\n",  # its threads abort at exit otherwise, now and then
    ),
    "accelerate": (
        "accelerate",
        "import torch\nfrom accelerate import Accelerator\nhere = Accelerator(cpu=True)\n"
        "got = here.reduce(torch.ones(1) * (here.process_index + 1), 'sum')\nprint('sum', got.item())\n"
        "here.end_training()\n",
    ),
    "mpi4py": (
        "mpi",
        "from mpi4py import MPI\nhere = MPI.COMM_WORLD\n"
        "print('sum', float(here.allreduce(here.rank + 1)))\n",
    ),
}


def require_part(module: str) -> None:
    """Skip, by name, where a real part is not installed."""
    if not REAL_PARTS:
        pytest.skip("WINDLASS_TEST_TORCH names no Python with torch")
    words = [REAL_PARTS, "-c", f"import {module}"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip(f"{module} is not installed beside {REAL_PARTS}")
    if module == "mpi4py" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")


@pytest.mark.parametrize("module", PROGRAMS)
def test_real_part(project: Project, slurm_apart: Cluster, module: str) -> None:
    require_part(module)
    launch, program = PROGRAMS[module]
    with on_cluster(project, slurm_apart):
        project.write("train.py", program)
        project.write(
            "study.yaml",
            f"command: {REAL_PARTS} train.py\nlaunch: {launch}\n"
            "needs: {cpus: 2, nodes: 2, time: 5m}\n"
            # Tests may run as root, which mpirun refuses otherwise.
            "env: {OMPI_ALLOW_RUN_AS_ROOT: 1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: 1}\n",
        )
        project.run("run", "--wait", timeout=120, code=None)
        lines = project.run("logs", "0").stdout.splitlines()
        assert [f"[rank{rank}]: sum 10.0" in lines for rank in range(4)] == [True] * 4, project.run(
            "explain", "0"
        ).stdout
        assert project.counts() == {"done": 1}, project.run("explain", "0").stdout


def test_memory_of_all_nodes_counts(project: Project, slurm_apart: Cluster) -> None:
    """Companions measure the other nodes: the figure of a trial is the sum, with the largest node and rank beside it."""
    with on_cluster(project, slurm_apart):
        project.write(
            "rank.py",
            "import os, time, windlass\n"
            "rank = int(os.environ['RANK'])\n"
            "held = b'x' * ((40 + 30 * rank) << 20)\n"
            "until = time.monotonic() + 3\n"
            "while time.monotonic() < until:\n"
            "    pass\n",
        )
        project.write(
            "study.yaml",
            f"command: {json.dumps([PYTHON, 'rank.py', '{a}'])}\nparameters: {{a: [1]}}\nlaunch: srun\n"
            "needs: {cpus: 2, nodes: 2, time: 5m}\n",
        )
        project.run("run", "--wait")
        journals = (path.read_text() for path in project.study_folder().glob("journal/*.jsonl"))
        events = [json.loads(line) for text in journals for line in text.splitlines()]
        (end,) = (event for event in events if event["e"] == "end")
        use = end["use"]
        assert use["ranks"] == 4
        assert 40 + 70 + 100 + 130 < use["mem_mb"] < 2 * 340, use
        assert 100 + 130 < use["node_mb"] < use["mem_mb"] - 40 - 70, use
        assert 130 < use["rank_mb"] < use["node_mb"] - 90, use
        assert use["node_cores"] < use["cores"] and use["rank_cores"] < use["cores"]
        assert "in 4 ranks" in project.run("explain", "0").stdout
