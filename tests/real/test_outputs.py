"""On a real cluster: what trials leave is kept on every way out, and local disks are swept of dead jobs only."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.agent.test_outputs import WRITER, kept
from tests.agent.test_trial_folder import kept_files, ordinary_study
from tests.conftest import Project, wait_for
from tests.real.conftest import cancel_all, needs_local_disk, on_cluster
from tests.real.study import wait_until_idle
from tests.real.test_survival import agents_of

pytestmark = pytest.mark.slow
BESIDE = ["beside.txt", "helper.txt"]
BARE = {"TaskProlog": "", "Epilog": "", "Prolog": ""}  # a site that makes no $SLURM_TMPDIR


@pytest.fixture
def bare(
    project: Project, tmp_path: Path, make_cluster: Callable[..., Cluster]
) -> Iterator[tuple[Project, Cluster, Path]]:
    """A cluster without local scratch of its own, and the folder that stands in for it."""
    cluster = make_cluster(database=False, settings=BARE)
    disk = tmp_path / "disk of the node"
    disk.mkdir()
    project.write("config/windlass/site.toml", 'lease = "15s"\n')
    project.write("config/windlass/sites/generic.toml", f'local_scratch = "{disk}"\n')
    with on_cluster(project, cluster):
        yield project, cluster, disk


def write_study(project: Project, how: str, numbers: list[int], more: str = "") -> None:
    project.write("trial.py", WRITER)
    project.write(
        "study.yaml",
        f"command: {sys.executable} trial.py {{n}} {how}\nparameters:\n  n: {numbers}\noutputs: ['out/{{n}}']\n"
        f"needs: {{time: 10m, memory: 50MB}}\nslurm: {{agents: 1}}\n{more}",
    )


def jobs_folders(disk: Path) -> list[Path]:
    return [path.parent for path in disk.glob("*/.windlass-job")]


def running(project: Project, disk: Path) -> bool:
    """Whether the trial has written all that it writes."""
    return any(list(folder.rglob("out/1/done")) for folder in jobs_folders(disk))


def test_all_is_kept_and_nothing_is_left(bare: tuple[Project, Cluster, Path]) -> None:
    project, cluster, disk = bare
    write_study(project, "well", [1, 2, 3])
    project.run("run", "--wait")
    assert len(kept(project)) == 6
    assert not (project.folder / "out").exists(), "trials are executed in a copy"
    wait_for(lambda: not jobs_folders(disk))
    logs = project.study_folder().parent / "hpc_outputs"
    wait_until_idle(cluster)
    (log,) = logs.glob("*.out")
    assert "stays on" not in log.read_text() and "clean-up:" in log.read_text()
    log.write_text("")  # as that of a job that never got as far as its agent
    wait_for(lambda: "empty log of a job that is over" in project.run("clean").stdout, 30)
    project.run("clean", "--yes")
    assert not [path for path in logs.glob("*.out") if not path.stat().st_size]


def test_trials_packed_in_a_job_keep_their_own_files(bare: tuple[Project, Cluster, Path]) -> None:
    """All four save to the same name where they stand, at the same time; a second wave follows in the same slots."""
    project, _, _ = bare
    shared = ordinary_study(
        project, "frozen", 8, 4, "needs: {time: 5m, memory: 50MB}\nslurm: {agents: 1}\n"
    )
    project.run("run", "--quiet", "--wait")
    for n, files in kept_files(project).items():
        assert (
            files["model.txt"] == files["beside.txt"] == n and files["notes.txt"] == f"notes: {n}"
        )
        assert sorted(files) == sorted(
            ["model.txt", "notes.txt", f"results/{n}.json", "results/inside.txt", *BESIDE]
        )
    assert len({path.read_text() for path in shared.iterdir()}) == 1, (
        "each found the project as it was"
    )


def test_the_checklist_on_a_cluster(bare: tuple[Project, Cluster, Path]) -> None:
    project, cluster, _ = bare
    write_study(project, "well", [1])
    said = project.json("check", "--json", code=1)
    verdicts = {item["name"]: item["verdict"] for item in said["items"]}
    assert verdicts.pop("code") == "fail", "there is no repository"
    assert set(verdicts.values()) == {"pass"}, said
    assert not cluster.run("squeue", "--noheader").strip(), "nothing is submitted"


@pytest.mark.parametrize(
    "words", [["scancel"], ["scancel", "--signal=KILL", "--full"], ["scontrol", "requeue"]]
)
def test_the_job_is_ended(bare: tuple[Project, Cluster, Path], words: list[str]) -> None:
    """Told to end, killed with all its processes at once, or put back: what was complete is there in the end."""
    project, cluster, disk = bare
    write_study(project, "wait", [1])
    project.run("run")
    wait_for(lambda: running(project, disk))
    (task,) = cluster.run("squeue", "--noheader", "--array", "--format=%i").split()
    (folder,) = jobs_folders(disk)
    cluster.run(*words, task)
    if words[0] == "scontrol":
        wait_for(lambda: not folder.exists() or kept_by(project))
        cluster.run("scancel", "--signal=KILL", "--full", task.split("_")[0])
    wait_until_idle(cluster)
    # Whatever a kill has left is swept by the next agent on that node.
    write_study(project, "well", [7])
    project.run("run", "--wait", "--name", "next", code=None)
    assert not folder.exists()
    project.run("outputs", "--study", folder_name(project), "--to", "all")
    assert [path.read_text() for path in (project.folder / "all").rglob("out/1/result.txt")] == [
        "result 1"
    ]


def kept_by(project: Project) -> list[str]:
    files = project.json("outputs", "--study", folder_name(project), "--json")
    return [file["path"] for file in files]


def folder_name(project: Project) -> str:
    """The study's name by its folder: the first that was made."""
    names = [path.parent for path in project.studies.glob("*/plan.json")]
    return min(names, key=lambda path: (path / "trials.jsonl").stat().st_mtime).name


def test_the_agent_is_killed(bare: tuple[Project, Cluster, Path]) -> None:
    project, cluster, disk = bare
    write_study(project, "wait", [1])
    project.run("run")
    wait_for(lambda: running(project, disk))
    (folder,) = jobs_folders(disk)
    os.kill(agents_of(project.studies)[0], signal.SIGKILL)
    wait_until_idle(cluster)
    project.run("clean", "--nodes", "all", "--yes")
    assert not folder.exists()
    assert kept(project)["out/1/result.txt"] == "result 1"


def test_the_node_dies_during_stage_out(bare: tuple[Project, Cluster, Path]) -> None:
    """Half a copy is never taken for a whole one, and the whole one is fetched when the node is back."""
    project, cluster, disk = bare
    size = 400 << 20
    project.write(
        "trial.py",
        "import os\nos.makedirs('out/1')\nfile = open('out/1/big', 'wb')\n"
        f"for _ in range({size >> 20}):\n    file.write(bytes(1 << 20))\n",
    )
    project.write(
        "study.yaml",
        f"command: {sys.executable} trial.py {{n}}\nparameters:\n  n: [1]\noutputs: ['out/{{n}}']\n"
        "needs: {time: 10m, memory: 50MB}\nslurm: {agents: 1}\n",
    )
    project.run("run", "--sbatch", "--nodelist=node1")
    outputs = project.study_folder() / "outputs"
    wait_for(lambda: list(outputs.rglob("*.part-*")))
    cluster.crash_node("node1")
    assert project.json("outputs", "--json") == []
    (folder,) = jobs_folders(disk)
    cluster.start_node("node1")
    cancel_all(cluster)
    project.run("clean", "--nodes", "node1", "--yes")
    assert not folder.exists()
    # Where the file system caches listings, what the job has fetched is seen later.
    wait_for(lambda: project.json("outputs", "--json"))
    assert [(file["path"], file["bytes"]) for file in project.json("outputs", "--json")] == [
        ("out/1/big", size)
    ]
    # While the queue's last answer still knows the job, the study is not touched.
    wait_for(lambda: project.run("clean", "--yes") and not list(outputs.rglob("*.part-*")))


def test_the_time_limit(bare: tuple[Project, Cluster, Path]) -> None:
    """Slurm's own: the trial ignores everything, and the job's minute is over."""
    project, cluster, disk = bare
    write_study(project, "wait", [1])
    project.run("run")
    wait_for(lambda: running(project, disk))
    (task,) = cluster.run("squeue", "--noheader", "--array", "--format=%i").split()
    cluster.run("scontrol", "update", f"JobId={task}", "TimeLimit=1")
    wait_until_idle(cluster, 240)
    project.run("clean", "--nodes", "all", "--yes")
    assert kept(project)["out/1/result.txt"] == "result 1"
    assert not jobs_folders(disk)


def test_clean_nodes_touches_no_running_job(bare: tuple[Project, Cluster, Path]) -> None:
    """Also where the site names the user's folder and neither the client nor its jobs have $USER."""
    project, _, disk = bare
    project.write("config/windlass/sites/generic.toml", f'local_scratch = "{disk}/$USER"\n')
    disk = disk / getpass.getuser()
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        project.env.pop(name, None)
    write_study(project, "wait", [1])
    project.run("run")
    wait_for(lambda: running(project, disk))
    (living,) = jobs_folders(disk)
    name = living.name.replace(living.name.split("_")[1], "999999")
    dead = disk / name
    dead.mkdir()
    said = json.loads((living / ".windlass-job").read_text())
    (dead / ".windlass-job").write_text(json.dumps({**said, "pid": 999_999, "began": "1"}))
    (dead / "big").write_bytes(bytes(1 << 20))
    dry = project.run("clean", "--nodes", "node1").stdout
    assert "--yes submits" in dry and dead.exists()
    done = project.json("clean", "--nodes", "node1", "--yes", "--json")
    # Other tests run on this machine too, and what theirs have in /tmp is seen and left alone.
    found = {
        (folder["path"], folder["what"])
        for folder in done["folders"]
        if folder["path"].startswith(str(disk))
    }
    assert found == {(str(dead), "removed"), (str(living), "in use")}
    assert not dead.exists() and running(project, disk)
    done_again = project.run("clean", "--nodes", "nowhere", code=2)
    assert "no node 'nowhere'" in done_again.stderr


@needs_local_disk
@pytest.mark.skipif(os.getuid() != 0, reason="a small disk can only be mounted by root")
def test_a_full_shared_folder(bare: tuple[Project, Cluster, Path]) -> None:
    """Outputs that find no room stay on the node, are told of, and are fetched when there is room."""
    project, _, disk = bare
    shared = project.folder / "shared"
    shared.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "small", str(shared)], check=True)
    try:
        project.write(
            "trial.py",
            "import os\nos.makedirs('out/1')\nopen('out/1/big', 'wb').write(bytes(12 << 20))\n",
        )
        project.write(
            "study.yaml",
            f"command: {sys.executable} trial.py {{n}}\nparameters:\n  n: [1]\noutputs: ['out/{{n}}']\n"
            "needs: {time: 10m, memory: 50MB}\nslurm: {agents: 1}\n",
        )
        project.run("run", "--wait", "--folder", str(shared), code=None)
        (folder,) = jobs_folders(disk)
        assert (next(folder.rglob("out/1/big"))).stat().st_size == 12 << 20
        (row,) = project.json("results", "--json", "--folder", str(shared))
        told = project.run("explain", "0", "--folder", str(shared)).stdout
        assert row["state"] == "done" and "could not be kept" in told
        subprocess.run(["mount", "-o", "remount,size=64m", str(shared)], check=True)
        project.run("clean", "--nodes", "all", "--yes", "--folder", str(shared))
        assert not folder.exists()
        files = project.json("outputs", "--folder", str(shared), "--json")
        assert [(file["path"], file["bytes"]) for file in files] == [("out/1/big", 12 << 20)]
    finally:
        subprocess.run(["umount", "-l", str(shared)], check=False)


@needs_local_disk
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small disk: only root may")
def test_no_room_and_a_local_folder_that_goes_with_the_job(
    cluster_project: Project, slurm: Cluster
) -> None:
    """The site's own folder is removed at the end: whose outputs were not kept is not done, and is executed again."""
    project = cluster_project
    shared = project.folder / "shared"
    shared.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "windlass", str(shared)], check=True)
    try:
        project.write(
            "make.py",
            "import sys, time\ntime.sleep(0.5)\nopen(f'r-{sys.argv[1]}', 'wb').write(b'x' * 900000)\n",
        )
        project.write(
            "study.yaml",
            f"command: {sys.executable} make.py {{n}}\nparameters: {{n: {list(range(8))}}}\noutputs: ['r-{{n}}']\n"
            "slots: 2\nneeds: {time: 10m}\nslurm: {agents: 1}\nfolder: shared\n",
        )
        project.run("run", "--wait", code=1)
        counts = project.counts()
        kept = len(project.json("outputs", "--json"))
        assert counts["done"] == kept < 8 and counts.get("failed", 0) == 0, (counts, kept)
        subprocess.run(["mount", "-o", "remount,size=40m", str(shared)], check=True)
        project.run("run", "--wait")
        assert project.counts() == {"done": 8}
        assert {file["path"] for file in project.json("outputs", "--json")} == {
            f"r-{number}" for number in range(8)
        }
    finally:
        wait_for(lambda: not slurm.run("squeue", "-h").strip())
        subprocess.run(["umount", "--lazy", str(shared)], check=True)
