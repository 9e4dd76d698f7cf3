"""Code and data on real nodes: brought there once, whole or not at all, and as they were at submission."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.slurm import Cluster

from tests.bundle.test_code import git
from tests.bundle.test_data import flip_a_byte
from tests.conftest import Project, wait_for
from tests.real.conftest import on_cluster
from tests.real.study import run_to_the_end, wait_until_idle, wrap
from tests.real.test_survival import agents_of

pytestmark = pytest.mark.slow

CHECK = """
import hashlib, os, socket, sys, time
folder = os.path.join(os.environ["SLURM_TMPDIR"], "datasets/one")
names = sorted(os.listdir(folder))
text = "".join(open(os.path.join(folder, name)).read() for name in names if not os.path.isdir(os.path.join(folder, name)))
print("sum", hashlib.sha256(text.encode()).hexdigest()[:12], len(names))
time.sleep(float(sys.argv[2]))
"""
TERMS = "slots: 1\nneeds: {time: 10m}\nslurm: {agents: 1}\n"


def make_study(
    project: Project, trials: int = 2, seconds: float = 0, more: str = TERMS, name: str = "study"
) -> None:
    """Trials that read a dataset of the project's from $SLURM_TMPDIR and sum it up."""
    folder = project.folder / "datasets/one"
    if not folder.exists():
        folder.mkdir(parents=True)
        for number in range(300):
            (folder / f"file {number}").write_text(f"{number}\n" * 100)
        (folder / ".hidden").write_text("hidden")
    project.write("check.py", CHECK)
    project.write("pyproject.toml", "")
    project.write("config/windlass/site.toml", 'lease = "15s"\n')
    project.write(
        f"{name}.yaml",
        f"name: {name}\ncommand: python check.py {{n}} {seconds}\nparameters:\n  n: {list(range(trials))}\n"
        f"data: [datasets/one]\n{more}",
    )


def events(project: Project, study: str = "study") -> list[tuple[str, dict[str, Any]]]:
    """All that agents wrote down, with the host they were on."""
    found = []
    for path in (project.studies / study / "journal").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if lines and lines[0]["e"] == "agent":
            found += [(lines[0]["host"], event) for event in lines]
    return found


def notes(project: Project, text: str, study: str = "study") -> list[str]:
    """The hosts on which an agent said so."""
    return [
        host
        for host, event in events(project, study)
        if event["e"] == "note" and text in event["text"]
    ]


def begun(project: Project) -> int:
    return sum(event["e"] == "start" for _, event in events(project))


def sums(project: Project, trials: int) -> set[str]:
    return {project.run("logs", str(number)).stdout for number in range(trials)}


def test_each_node_unpacks_once(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        make_study(
            project,
            16,
            1,
            "slots: 1\nneeds: {time: 10m, cpus: 4, memory: 200MB}\nslurm: {agents: 8}\n",
        )
        project.run("run")
        wait_until_idle(slurm_apart)
        assert project.counts() == {"done": 16}
        hosts = {host for host, _ in events(project)}
        assert len(hosts) > 1
        for what in ("data datasets/one", "code"):
            assert Counter(unpacked(project, what)) == dict.fromkeys(hosts, 1)
        assert len(notes(project, "data datasets/one: found on this node")) == 8 - len(hosts)
        assert len(sums(project, 16)) == 1
        # Another study with the same data finds them there.
        make_study(
            project,
            8,
            1,
            "slots: 1\nneeds: {time: 10m, cpus: 4, memory: 200MB}\nslurm: {agents: 8}\n",
            "other",
        )
        project.run("run", "other.yaml", "--wait")
        assert set(unpacked(project, "data datasets/one", "other")).isdisjoint(hosts)
        assert set(unpacked(project, "code", "other")) >= {
            host for host, _ in events(project, "other")
        }


def unpacked(project: Project, what: str, study: str = "study") -> list[str]:
    """The hosts on which an agent unpacked it."""
    return [
        host
        for host, event in events(project, study)
        if event["e"] == "note"
        and event["text"].startswith(what)
        and " unpacked in " in event["text"]
    ]


def test_editing_after_run_changes_nothing(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    git(project.folder, "init", "-q")
    project.write(".gitignore", "config\ncache\n")
    project.write("model.py", "VALUE = 'as submitted'\n")
    project.write("train.py", "import model, os\nprint(model.VALUE, os.environ['project_name'])\n")
    project.write("study.yaml", f"name: study\ncommand: python train.py\n{TERMS}")
    project.run("run", "--sbatch", "--hold")
    project.write("model.py", "VALUE = 'edited'\n")
    project.write("new.py", "")
    assert project.run("diff").stdout.splitlines() == ["M model.py", "A new.py"]
    release(slurm)
    wait_until_idle(slurm)
    assert project.run("logs", "0").stdout == f"as submitted {project.folder.name}\n"


def release(cluster: Cluster) -> None:
    for number in cluster.run("squeue", "--noheader", "--format=%A").split():
        cluster.run("scontrol", "release", number)


def make_gate(project: Project) -> Path:
    """A file that tar waits for before it unpacks data; `waiting` says that it does."""
    path, waiting = project.folder / "gate", project.folder / "waiting"
    script = (
        f'case "$*" in *--extract*data-*) touch "{quoted(waiting)}"; '
        f'while [ ! -e "{quoted(path)}" ]; do sleep 0.05; done;; esac\nexec $REAL "$@"'
    )
    wrap(project, "tar", script)
    return path


def quoted(path: Path) -> str:
    return str(path).replace('"', '\\"')


@pytest.mark.parametrize("end", ["kill", "cancel"])
def test_an_agent_ends_while_it_unpacks(cluster_project: Project, slurm: Cluster, end: str) -> None:
    project = cluster_project
    gate = make_gate(project)
    make_study(project)
    project.run("run")
    wait_for((project.folder / "waiting").exists)
    if end == "kill":
        os.kill(agents_of(project.studies)[0], signal.SIGKILL)
    else:
        slurm.run("scancel", *slurm.run("squeue", "--noheader", "--format=%A").split())
    wait_until_idle(slurm)
    assert begun(project) == 0
    gate.touch()
    run_to_the_end(project, slurm)
    assert project.counts() == {"done": 2} and len(sums(project, 2)) == 1
    assert len(unpacked(project, "data datasets/one")) == 1


def test_a_node_dies_while_data_are_unpacked(
    project: Project, make_cluster: Callable[..., Cluster]
) -> None:
    cluster = make_cluster(database=False, nodes_apart=True)
    with on_cluster(project, cluster):
        gate = make_gate(project)
        make_study(project)
        project.run("run")
        wait_for((project.folder / "waiting").exists)
        (node,) = cluster.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()
        cluster.crash_node(node)
        wait_for(
            lambda: "down" in cluster.run("sinfo", "--noheader", "--nodes", node, "--format=%T")
        )
        assert begun(project) == 0
        gate.touch()
        cluster.start_node(node)
        run_to_the_end(project, cluster)
        assert project.counts() == {"done": 2} and len(sums(project, 2)) == 1


MEDDLE = """
import os
folder = os.path.join(os.environ["SLURM_TMPDIR"], "datasets/one")
for name in ("file 7", "cache.pt"):
    with open(os.path.join(folder, name), "a") as file:
        file.write("meddled")
"""


def test_what_a_trial_writes_to_data_is_read_by_nobody_else(
    cluster_project: Project, slurm: Cluster
) -> None:
    """Permissions stop a user, and tell him what to do; root writes, which is found before the next use."""
    project = cluster_project
    project.write("meddle.py", MEDDLE)
    make_study(project, 1)
    project.run("run", "--wait")
    first = sums(project, 1)

    def meddle(name: str, item: str) -> dict[str, int]:
        lines = f"name: {name}\ncommand: python meddle.py\ndata: [{item}]\n{TERMS}"
        project.write(f"{name}.yaml", lines)
        project.run("run", f"{name}.yaml", "--wait", code=None)
        return project.counts()

    def read_again(name: str) -> list[str]:
        make_study(project, 1, name=name)
        project.run("run", f"{name}.yaml", "--wait")
        assert {project.run("logs", "0", "--study", name).stdout} == first
        return [event["text"] for _, event in events(project, name) if event["e"] == "note"]

    if os.getuid() == 0:
        assert meddle("meddle", "datasets/one") == {"done": 1}
        (note,) = [note for note in read_again("second") if "was changed on" in note]
        assert "(one/cache.pt was added, one/file 7 has changed); it is unpacked anew" in note
    else:
        assert meddle("meddle", "datasets/one") == {"failed": 1}
        assert "writable: true" in project.run("explain", "0", "--study", "meddle").stdout
    assert meddle("own", "{path: datasets/one, writable: true}") == {"done": 1}
    assert "data datasets/one: found on this node" in read_again("third")


def test_an_archive_that_was_damaged_after_submission(
    cluster_project: Project, slurm: Cluster
) -> None:
    """No trial begins, the job fails, and everybody is told why; with a good archive it goes on."""
    project = cluster_project
    make_study(project)
    project.run("run", "--sbatch", "--hold")
    (archive,) = project.folder.glob("datasets/.windlass-data/*.tar")
    size = archive.stat().st_size
    os.truncate(archive, size - 100_000)
    for store in local_stores(slurm):
        subprocess.run(["rm", "-rf", str(store)], check=True)
    release(slurm)
    wait_until_idle(slurm)
    assert begun(project) == 0 and project.counts() == {"waiting": 2}
    reasons = [event["reason"] for _, event in events(project) if event["e"] == "bye"]
    assert len(reasons) == 1 and "is cut short" in reasons[0] and archive.name in reasons[0]
    assert [job["state"] for job in project.json("status", "--json")["jobs"]["jobs"]] == ["failed"]
    assert "is cut short" in "".join(
        path.read_text() for path in (project.studies / "hpc_outputs").glob("*.out")
    )
    assert not [
        name
        for store in local_stores(slurm)
        for name in os.listdir(store)
        if name.startswith("data-")
    ]
    run_to_the_end(project, slurm)
    assert project.counts() == {"done": 2} and archive.stat().st_size == size


SHOW = """
import os, sys
folder = sys.argv[1].partition("=")[2]
print(sorted(os.listdir(folder)), sorted(os.listdir(os.path.join(os.environ["SLURM_TMPDIR"], "datasets"))))
print(os.environ.get("DATA"))
"""


def test_command_lines_as_in_scripts_that_people_come_from(
    cluster_project: Project, slurm: Cluster
) -> None:
    """Several paths after one option, the job's folder in a file of commands and after `--`, and no small files."""
    project = cluster_project
    project.write("pyproject.toml", "")
    project.write("show.py", SHOW)
    for number in (1, 2, 3):
        project.write(f"datasets/dataset{number}/file{number}", "")
    project.write(
        "experiment_configurations.txt",
        "python show.py --data_dir=${SLURM_TMPDIR}/datasets/dataset1\n",
    )
    project.run("run", "--data", "datasets/dataset1", "datasets/dataset2", "-t", "10m", "--wait")
    assert project.run("logs", "0").stdout == "['file1'] ['dataset1', 'dataset2']\nNone\n"
    words = ["python", "show.py", "--data_dir=$SLURM_TMPDIR/datasets/dataset3"]
    project.run(
        "run", "-d", "datasets/dataset3", "-t", "10m", "-e", "words", "--wait", "--", *words
    )
    assert project.run("logs", "0", "--study", "words").stdout == "['file3'] ['dataset3']\nNone\n"
    project.write(
        "study.yaml",
        "name: own\ncommand: python show.py --d={where}\nparameters: {where: ['${SLURM_TMPDIR}/datasets/dataset2']}\n"
        f"data: [datasets/dataset2]\nenv: {{DATA: '{{where}}/x'}}\n{TERMS}",
    )
    project.run("run", "study.yaml", "--wait")
    shown = project.run("logs", "0", "--study", "own").stdout
    assert (
        shown.startswith("['file2'] ['dataset2']\n/")
        and shown.endswith("/datasets/dataset2/x\n")
        and "$" not in shown
    )
    for number in range(1001):
        (project.folder / f"datasets/dataset1/{number}").touch()
    refused = project.run(
        "run", "-e", "many", "--", "python", "show.py", "--data_dir=datasets/dataset1", code=2
    ).stderr
    assert (
        "a folder of more than 1,000 files" in refused
        and "add `--data datasets/dataset1`" in refused
    )
    project.run(
        "plan", "--small-files", "allow", "--", "python", "show.py", "--data_dir=datasets/dataset1"
    )


def test_damaged_archives_are_packed_anew(cluster_project: Project, slurm: Cluster) -> None:
    """Of data and of code, with a byte that is another and a time that is the same: a node has to find it."""
    project = cluster_project
    make_study(project, 1)

    def damage(folder: Path, pattern: str) -> str:
        project.run("run", "--sbatch", "--hold")
        (archive,) = folder.glob(pattern)
        flip_a_byte(str(archive), is_time_kept=True)
        release(slurm)
        wait_until_idle(slurm)
        reasons = [event["reason"] for _, event in events(project) if event["e"] == "bye"]
        (reason,) = [reason for reason in reasons if archive.name in reason]
        assert "`windlass run` packs it anew" in reason
        return project.run("run", "--wait").stderr

    assert "is damaged: it is packed anew" in damage(
        project.folder, "datasets/.windlass-data/*.tar"
    )
    assert project.counts() == {"done": 1}
    project.write("new.py", "")  # other code, which no node has yet
    make_study(project, 2)
    for old in project.studies.glob("study/code-*.tar.gz"):
        old.unlink()
    assert "is damaged: the code is packed anew" in damage(project.studies, "study/code-*.tar.gz")
    assert project.counts() == {"done": 2} and len(sums(project, 2)) == 1


def local_stores(cluster: Cluster) -> list[Path]:
    return list((cluster.home / "local").glob("windlass-*"))


@pytest.fixture(params=["2m"])  # room for the agent, which takes 1 MB, and none for 1.2 MB of data
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("only root may mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "none", str(disk)], check=True
    )
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("small_disk", ["300k"], indirect=True)
def test_a_local_disk_without_room_for_the_agent(
    project: Project, make_cluster: Callable[..., Cluster], small_disk: Path
) -> None:
    cluster = make_cluster(database=False, settings={"TaskProlog": ""})
    with on_cluster(project, cluster):
        make_study(project)
        project.write("config/windlass/sites/generic.toml", f'local_scratch = "{small_disk}"\n')
        project.run("run")
        wait_until_idle(cluster)
        assert begun(project) == 0 and project.counts() == {"waiting": 2}
        (reason,) = [event["reason"] for _, event in events(project) if event["e"] == "bye"]
        assert "NODE_SCRATCH_FULL node" in reason and "the agent cannot be copied" in reason


def test_a_local_disk_that_is_full(
    project: Project, make_cluster: Callable[..., Cluster], small_disk: Path
) -> None:
    cluster = make_cluster(database=False, settings={"TaskProlog": ""})
    with on_cluster(project, cluster):
        make_study(project)
        project.write("config/windlass/sites/generic.toml", f'local_scratch = "{small_disk}"\n')
        project.run("run")
        wait_until_idle(cluster)
        assert begun(project) == 0 and project.counts() == {"waiting": 2}
        (reason,) = [event["reason"] for _, event in events(project) if event["e"] == "bye"]
        assert (
            "the local disk of node" in reason
            and "is full" in reason
            and "data datasets/one needs 1.1" in reason
        )
        node = reason.split("NODE_SCRATCH_FULL ")[1].split(":")[0]
        assert f"NODE_SCRATCH_FULL {node}" in project.run("explain", "0").stdout
        again = project.run("run").stderr
        assert f"left out, because the local disk was full: {node} (at " in again
        assert f"#SBATCH --exclude={node}\n" in (project.study_folder() / "job.sh").read_text()
        wait_until_idle(cluster)
        left = [
            name
            for name in os.listdir(small_disk / f"windlass-{os.getuid()}")
            if name.startswith("data-")
        ]
        assert not left
        assert [name for name in os.listdir(small_disk) if not name.startswith("windlass-")] == []
