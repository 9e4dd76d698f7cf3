"""Interruptions on a real cluster: notice, cancel, requeue, deaf trials, damaged checkpoints. None is lost, none twice."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.study import run_to_the_end, study_jobs, wait_until_idle
from tests.real.test_survival import task_ids

pytestmark = pytest.mark.slow
PYTHON = shlex.quote(sys.executable)
# Counts on from its checkpoint, and writes down every number it reaches: none may be missing, none twice.
COUNTER = """
import fcntl, os, sys, time, windlass
folder, number, records = sys.argv[1:4]
lock = open(f"{records}/{number}.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
count = int(open(sys.argv[sys.argv.index("--load") + 1]).read()) if "--load" in sys.argv else 0
while count < 40:
    count += 1
    open(f"{records}/{number}", "a").write(f"{count}\\n")
    path = os.path.join(folder, f"{count:04d}.state")
    open(path + ".tmp", "w").write(str(count))
    os.replace(path + ".tmp", path)
    if windlass.should_stop():
        sys.exit(42)
    time.sleep(0.1)
"""


def counter_study(project: Project, **more: Any) -> Path:
    records = project.folder / "records"
    records.mkdir()
    project.write("config/windlass/site.toml", 'lease = "15s"\n')
    project.write("count.py", COUNTER)
    keys = {
        "command": f"{PYTHON} count.py {{checkpoint_dir}} {{n}} {shlex.quote(str(records))}",
        "parameters": {"n": [1, 2, 3, 4]},
        "slots": 2,
        "code": "live",
        "needs": {"time": "20m"},
        "slurm": {"agents": 2},
        "checkpoint": {"resume": "--load {checkpoint}", "keep": 0},
        **more,
    }
    project.write("study.yaml", json.dumps(keys))
    return records


def reached(records: Path) -> list[int]:
    files = [path for path in records.iterdir() if path.suffix != ".lock"]
    return [len(path.read_text().splitlines()) for path in files]


def under_way(records: Path) -> bool:
    counts = reached(records)
    return len(counts) == 4 and min(counts) >= 5


def check_counts(project: Project, records: Path) -> None:
    assert project.counts() == {"done": 4}
    for number in (1, 2, 3, 4):
        assert (records / str(number)).read_text().split() == [str(count) for count in range(1, 41)]


def causes_of(project: Project) -> dict[str, int]:
    """How many attempts ended with which cause, by the journals of all agents."""
    found: Counter[str] = Counter()
    for path in project.study_folder().glob("journal/2*.jsonl"):
        found.update(re.findall(r'"e":"end".*?"cause":"([^"]*)"', path.read_text()))
    return dict(found)


def test_the_end_is_near(cluster_project: Project, slurm: Cluster) -> None:
    """The very signal that `--signal=B:USR1@…` makes Slurm send, only earlier."""
    records = counter_study(cluster_project)
    cluster_project.run("run")
    wait_for(lambda: under_way(records))
    for task in task_ids(slurm):
        slurm.run("scancel", "--batch", "--signal=USR1", task)
    wait_until_idle(slurm)
    assert cluster_project.counts() == {"interrupted": 4}
    # The last job says that trials are left. The scheduler's last answer may be ten seconds old.
    over = [{"failed"}, {"done", "failed"}]
    wait_for(lambda: {job["state"] for job in study_jobs(cluster_project)} in over)
    run_to_the_end(cluster_project, slurm)
    check_counts(cluster_project, records)


def test_cancelled(cluster_project: Project, slurm: Cluster) -> None:
    records = counter_study(cluster_project)
    cluster_project.run("run")
    wait_for(lambda: under_way(records))
    slurm.run("scancel", *task_ids(slurm))
    wait_until_idle(slurm)
    assert cluster_project.counts() == {"interrupted": 4}
    run_to_the_end(cluster_project, slurm)
    check_counts(cluster_project, records)


def test_requeued(cluster_project: Project, slurm: Cluster) -> None:
    """Slurm starts the same task again: it goes on by itself, and drags no other task along."""
    records = counter_study(cluster_project)
    cluster_project.run("run")
    wait_for(lambda: under_way(records))
    slurm.run("scontrol", "requeue", task_ids(slurm)[0])
    run_to_the_end(cluster_project, slurm)
    check_counts(cluster_project, records)
    rows = cluster_project.json("results", "--json")
    assert sorted(row["attempts"] for row in rows) == [1, 1, 2, 2]
    assert causes_of(cluster_project) == {"preempted": 2, "done": 4}
    twice = next(row["number"] for row in rows if row["attempts"] == 2)
    assert "preempted" in cluster_project.run("explain", str(twice)).stdout


def test_a_node_goes_down(cluster_project: Project, slurm: Cluster) -> None:
    """Slurm puts its job back; the trials are taken by the agent on the other node, or by the job once it starts again."""
    records = counter_study(cluster_project)
    cluster_project.run("run")
    wait_for(lambda: under_way(records))
    node = slurm.run("squeue", "-h", "-j", task_ids(slurm)[0], "-o", "%N").strip()
    slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        # Its slurmd brings the node back by itself; where that is sooner than the agent's question, all that is left
        # to see is that the job was put back.
        wait_for(
            lambda: (
                sum(
                    causes_of(cluster_project).get(cause, 0)
                    for cause in ("node failed", "preempted")
                )
                >= 2  # Both jobs may have been on that node.
            )
        )
    finally:
        if "down" in slurm.run(
            "sinfo", "-h", "-n", node, "-o", "%T"
        ):  # its slurmd may have brought it back
            slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    run_to_the_end(cluster_project, slurm)
    check_counts(cluster_project, records)


def test_a_deaf_trial(cluster_project: Project, slurm: Cluster) -> None:
    """It ignores every signal: it is killed before Slurm kills the agent, and what the others did is safe."""
    records = counter_study(cluster_project, grace="60s")
    deaf = "import signal\nfor number in (1, 2, 10, 12, 15):\n    signal.signal(number, signal.SIG_IGN)\n"
    cluster_project.write("count.py", deaf + COUNTER.replace("windlass.should_stop()", "False"))
    warned = cluster_project.run("run").stderr
    assert (
        "`grace` is 1 min, but windlass kills a job 5 s after it tells it to end (KillWait)"
        in warned
    )
    wait_for(lambda: under_way(records))
    slurm.run("scancel", *task_ids(slurm))
    wait_until_idle(slurm)
    assert cluster_project.counts() == {"interrupted": 4}
    journals = [
        path.read_text() for path in cluster_project.study_folder().glob("journal/2*.jsonl")
    ]
    assert ['"e":"bye"' in text for text in journals] == [True] * 2, "every agent ended in order"
    run_to_the_end(cluster_project, slurm)
    assert cluster_project.counts() == {"done": 4}
    for number in (1, 2, 3, 4):
        lines = [int(line) for line in (records / str(number)).read_text().split()]
        assert sorted(set(lines)) == list(range(1, 41)) and len(lines) <= 41, (
            "at most the last number again"
        )


def test_a_checkpoint_cut_short(cluster_project: Project, slurm: Cluster) -> None:
    records = counter_study(cluster_project)
    cluster_project.run("run")
    wait_for(lambda: under_way(records))
    slurm.run("scancel", *task_ids(slurm))
    wait_until_idle(slurm)
    for folder in (cluster_project.study_folder() / "checkpoints").iterdir():
        max(folder.glob("*.state")).write_bytes(b"")
    run_to_the_end(cluster_project, slurm)
    assert cluster_project.counts() == {"done": 4}
    for number in (1, 2, 3, 4):
        lines = [int(line) for line in (records / str(number)).read_text().split()]
        assert sorted(set(lines)) == list(range(1, 41)) and len(lines) == 41, (
            "the last number once again"
        )
