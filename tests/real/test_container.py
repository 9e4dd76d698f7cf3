"""Trials in real containers on a real cluster whose nodes have disks of their own."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.slurm import Cluster

from tests.conftest import Project
from tests.environments.test_environment import notes
from tests.real.conftest import on_cluster
from tests.real.study import wait_until_idle

SHOW = """
import os, sys, time
from pathlib import Path

import windlass
data = Path(os.environ["SLURM_TMPDIR"], "data/words.txt").read_text().strip()
windlass.log(loss=float(sys.argv[1]))
Path(os.environ["WINDLASS_CHECKPOINT_DIR"]).mkdir(parents=True, exist_ok=True)
Path(os.environ["WINDLASS_CHECKPOINT_DIR"], "last.pt").write_text("saved")
Path("out").mkdir(exist_ok=True)
Path("out/model.txt").write_text(sys.argv[1])
print(os.path.exists("/etc/inside"), data, os.environ["SLURMD_NODENAME"], flush=True)
time.sleep(0.5)
"""


def boxed_study(project: Project, more: str = "") -> None:
    project.write("show.py", SHOW)
    project.write("data/words.txt", "some data\n")
    project.write(
        "study.yaml",
        "name: boxed\ncommand: python3 show.py {n}\nparameters: {n: [1, 2, 3, 4, 5, 6]}\nmetric: loss\n"
        "needs: {cpus: 1, time: 2m}\nslurm: {agents: 2}\nslots: 1\ndata: [data]\noutputs: [out]\n"
        f"environment: {{container: image.sif}}\n{more}",
    )


def test_every_node_has_a_copy_of_the_image_and_trials_have_all_their_folders(
    container_project: Project, slurm_apart: Cluster
) -> None:
    with on_cluster(container_project, slurm_apart) as project:
        boxed_study(project, "warm: auto\n")
        project.run("run", "--on", "slurm", "--wait")
        assert project.counts() == {"done": 6}
        said = [project.run("logs", str(number)).stdout.strip() for number in range(6)]
        assert all(line.startswith("True some data") for line in said)
        assert sorted(row["loss"] for row in project.json("results", "--json")) == [
            1,
            2,
            3,
            4,
            5,
            6,
        ]
        record = json.loads((project.study_folder() / "environment.json").read_text())
        assert record["prefix"] == "/usr"


def test_an_image_that_is_cut_short_later_costs_no_trial(
    container_project: Project, slurm_apart: Cluster
) -> None:
    with on_cluster(container_project, slurm_apart) as project:
        boxed_study(project)
        job = project.json("run", "--on", "slurm", "--json", "--sbatch", "--hold")["jobs"][0]
        image = Path(project.folder / "image.sif")
        text = image.read_bytes()
        image.unlink()
        image.write_bytes(text[: len(text) // 2])
        slurm_apart.run("scontrol", "release", str(job))
        wait_until_idle(slurm_apart)
        assert "is cut short" in " ".join(notes(project))
        assert project.counts() == {"waiting": 6}


RENDEZVOUS = """
import os, socket, sys, time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(("", address[1]))
    names = [os.environ["SLURMD_NODENAME"]]
    for _ in range(world - 1):
        connection, _ = server.accept()
        names.append(connection.recv(100).decode())
    print("met", world, len(set(names)), os.path.exists("/etc/inside"), flush=True)
else:
    for _ in range(100):
        try:
            connection = socket.create_connection(address, timeout=5)
            break
        except OSError:
            time.sleep(0.1)
    connection.send(os.environ["SLURMD_NODENAME"].encode())
"""


def test_processes_in_containers_of_two_nodes_meet(
    container_project: Project, slurm_apart: Cluster
) -> None:
    with on_cluster(container_project, slurm_apart) as project:
        project.write("meet.py", RENDEZVOUS)
        project.write(
            "study.yaml",
            "name: meet\ncommand: python3 meet.py\nlaunch: srun\n"
            "needs: {cpus: 2, nodes: 2, time: 2m}\nenvironment: {container: image.sif}\n",
        )
        project.run("run", "--on", "slurm", "--wait", code=None)
        assert "met 4 2 True" in project.run("logs", "0").stdout
