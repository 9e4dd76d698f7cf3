"""A trial that spans nodes: each of them has the code, the data and a local folder under the same paths."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import on_cluster
from tests.real.study import wait_until_idle

pytestmark = pytest.mark.slow
# Every rank looks at what its node has and says so.
RANK = """\
import os, socket
local = os.environ["SLURM_TMPDIR"]
names = sorted(os.listdir(os.path.join(local, "datasets", "small")))
open(os.path.join(local, "mine"), "w").write("x")
print(socket.gethostname(), names, os.path.exists("rank.py"), os.environ["source_dir"] == os.getcwd(), flush=True)
"""


# Jobs' own folders, and those in which agents and companions meet trials.
LEFT = (
    "find {} -maxdepth 2 -name '*_0_*' 2>/dev/null; find /tmp -maxdepth 1 -name 'windlass-????????'"
)


def write_study(project: Project) -> None:
    project.write("rank.py", RANK)
    for name in ("a", ".hidden", "b c"):
        project.write(f"datasets/small/{name}", name)
    project.write(
        "study.yaml",
        "command: srun --ntasks-per-node=1 python3 rank.py {n}\nparameters: {n: [1, 2]}\ndata: [datasets/small]\n"
        "needs: {time: 10m}\nslurm: {nodes: 3, agents: 1}\nslots: 1\n",
    )


def test_each_node_has_what_the_first_has(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        write_study(project)
        project.run("run", "--wait")
        assert project.counts() == {"done": 2}
        lines = project.run("logs", "0").stdout.splitlines()
        assert len({line.split()[0] for line in lines}) == 3, lines
        assert all("['.hidden', 'a', 'b c'] True True" in line for line in lines), lines
        notes = project.json("status", "--json")["notes"]
        assert sum("datasets/small" in note for note in notes) == 3, "unpacked once on each node"


# Every rank logs faster than anybody would, short lines and long ones, and then works until it is asked to stop.
CHATTY = """\
import os, socket, sys, time, windlass
node = socket.gethostname()
for step in range(1, 1001):
    many = {f"{node}_{'long' * 4}_{number}": number for number in range(60)} if step % 100 == 0 else {}
    windlass.log({f"of_{node}": step, **many}, step=step)
if int(sys.argv[1]):
    open(os.path.join(sys.argv[2], "waiting-" + node), "w").close()
    while not windlass.should_stop():
        time.sleep(0.05)
    left = windlass.remaining_s()
    time.sleep(0.5)  # it takes a moment to save
    open(os.path.join(sys.argv[2], "stopped-" + node), "w").write(str(left))
    sys.exit(42)
"""


def test_ranks_on_every_node_report_and_are_notified(
    project: Project, slurm_apart: Cluster
) -> None:
    """Nothing that a rank logged is lost, and no rank is killed by the signal that asks it to save."""
    with on_cluster(project, slurm_apart):
        project.write("chatty.py", CHATTY)
        project.write(
            "study.yaml",
            "command: srun --ntasks-per-node=1 python3 chatty.py {stops} {where}\ncheckpoint: {dir: saved}\n"
            f"parameters: {{stops: [0, 1], where: [{json.dumps(str(project.folder))}]}}\n"
            "needs: {time: 10m}\nslurm: {nodes: 3, agents: 1}\nslots: 1\n",
        )
        project.run("run")
        nodes = [path.name[8:] for path in wait_for(lambda: three(project, "waiting-*"))]
        job = slurm_apart.run("squeue", "--noheader", "--format=%A").split()[0]
        slurm_apart.run("scancel", "--signal=USR1", "--batch", job)
        left = [float(path.read_text()) for path in wait_for(lambda: three(project, "stopped-*"))]
        assert all(0 < seconds < 600 for seconds in left)
        wait_until_idle(slurm_apart)
        assert project.counts() == {"done": 1, "interrupted": 1}
        (journal,) = (project.study_folder() / "journal").glob("2*.jsonl")
        ends = [
            event
            for line in journal.read_text().splitlines()
            if (event := json.loads(line))["e"] == "end"
        ]
        for end in ends:
            assert {name: end["m"][name] for name in end["m"] if name.startswith("of_")} == {
                f"of_{node}": [1000, 1, 1000, 1000] for node in nodes
            }
            long = [values for name, values in end["m"].items() if "long" in name]
            assert len(long) == 3 * 60 and {values[3] for values in long} == {10}


def test_trials_are_interrupted_when_the_processes_on_other_nodes_end(
    project: Project, slurm_apart: Cluster
) -> None:
    """Without them nothing is known of ranks elsewhere: a result would be without their metrics and outputs."""
    with on_cluster(project, slurm_apart):
        waits = "touch here-$SLURM_PROCID; while [ ! -e go ]; do sleep 0.1; done"
        script = json.dumps(f"cd {shlex.quote(str(project.folder))}; {waits}")
        project.write(
            "study.yaml",
            f"command: [srun, --ntasks-per-node=1, sh, -c, {script}, '{{n}}']\nparameters: {{n: [1, 2]}}\n"
            "needs: {time: 10m}\nslurm: {nodes: 2, agents: 1}\nslots: 1\ngrace: 2s\n",
        )
        (job,) = project.json("run", "--json")["jobs"]
        wait_for(lambda: len(list(project.folder.glob("here-*"))) == 2)
        slurm_apart.run("scancel", f"{job}_0.0")  # the step of the agent's own processes
        wait_until_idle(slurm_apart)
        assert project.counts() == {"interrupted": 1, "waiting": 1}
        assert project.json("status", "--json")["causes"] == {"node failed": 1}
        assert "ExitCode=3:0" in slurm_apart.run("scontrol", "show", "job", f"{job}_0")
        project.write("go", "")
        project.run("run", "--wait")
        assert project.counts() == {"done": 2}


# Every rank writes files of its own name and one of a common name, on its node's disk and on the shared one.
WRITING = """\
import os, socket, sys
node, number, shared = socket.gethostname(), *sys.argv[1:]
rank = os.environ["SLURM_PROCID"]
local = os.environ["SLURM_TMPDIR"]
os.makedirs("out", exist_ok=True)
for path in (f"out/{rank}.txt", "common.txt", f"left-{rank}.txt", f"{local}/local-{rank}.txt", f"{shared}/{number}-{rank}.txt"):
    with open(path, "w") as file:
        file.write(f"{number} {node}")
if rank == "1":
    with open("large.bin", "wb") as file:
        file.write(bytes(5 << 20))
"""


def test_outputs_of_every_node_are_kept(project: Project, slurm_apart: Cluster) -> None:
    """Those that a pattern names and those that are left behind; of one name on several nodes: all of them, named."""
    with on_cluster(project, slurm_apart):
        project.write("writing.py", WRITING)
        shared = project.folder / "shared"
        shared.mkdir()
        project.write(
            "study.yaml",
            "command: srun --ntasks-per-node=1 python3 writing.py {n} {shared}\n"
            f"parameters: {{n: [1, 2], shared: [{json.dumps(str(shared))}]}}\n"
            f"outputs: [out, common.txt, large.bin, $SLURM_TMPDIR/local-*.txt, {json.dumps(f'{shared}/*.txt')}]\n"
            "needs: {time: 10m}\nslurm: {nodes: 3, agents: 1}\nslots: 1\n",
        )
        project.run("run", "--wait")
        assert project.counts() == {"done": 2}
        rows = project.json("results", "--json")
        assert not [row for row in rows if row.get("note")], rows
        project.run("outputs", "--to", "kept")
        project.run("outputs", "left-behind", "--to", "kept")
        for row in rows:
            folder, number = project.folder / "kept" / row["id"], row["n"]
            files = {
                str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()
            }
            assert files.pop("large.bin").stat().st_size == 5 << 20
            texts = {name: path.read_text() for name, path in files.items()}
            outside = {name: texts.pop(name) for name in list(texts) if "shared" in name}
            nodes = [texts[f"out/{rank}.txt"].split()[1] for rank in range(3)]
            assert sorted(outside.values()) == sorted(f"{number} {node}" for node in nodes), (
                "kept once"
            )
            expected = {
                f"{name}{rank}.txt": nodes[rank] for name in ("out/", "local-") for rank in range(3)
            }
            expected |= {
                "common.txt": nodes[0],
                f"{nodes[1]}/common.txt": nodes[1],
                f"{nodes[2]}/common.txt": nodes[2],
            }
            assert texts == {name: f"{number} {node}" for name, node in expected.items()}
            left = project.folder / "kept" / "left-behind" / row["id"]
            found = {path.name: path.read_text() for path in left.rglob("*") if path.is_file()}
            assert found == {
                f"left-{rank}.txt": f"{number} {node}" for rank, node in enumerate(nodes)
            }


def three(project: Project, pattern: str) -> list[Path]:
    found = [
        path
        for path in sorted(project.folder.glob(pattern))
        if path.name[:7] == "waiting" or path.read_text()
    ]
    return found if len(found) == 3 else []


def test_what_was_made_on_other_nodes_is_gone_afterwards(
    project: Project, make_cluster: object
) -> None:
    """Also after a cancel. The site has no local folder of its own here: ours is made on every node."""
    cluster: Cluster = make_cluster(  # type: ignore[operator]
        database=False, nodes_apart=True, settings={"Prolog": "", "TaskProlog": "", "Epilog": ""}
    )
    with on_cluster(project, cluster):
        local = cluster.home / "local"
        project.write("config/windlass/sites/generic.toml", f'local_scratch = "{local}/$USER"\n')
        write_study(project)
        project.run("run", "--wait")
        assert project.counts() == {"done": 2}
        wait_until_idle(cluster)
        assert cluster.run("srun", "-N4", "--quiet", "sh", "-c", LEFT.format(local)).strip() == ""
        project.run("retry", "--done", "--yes", "--no-run")
        project.write("rank.py", "import time\ntime.sleep(600)\n")
        project.run("run")
        wait_for(lambda: project.counts().get("running"))
        project.run("cancel", "--yes")
        wait_until_idle(cluster)
        assert cluster.run("srun", "-N4", "--quiet", "sh", "-c", LEFT.format(local)).strip() == ""
