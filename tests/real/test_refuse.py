"""What is refused before the queue would really have failed or waited for ever; what is not refused is taken."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from scripts.slurm import Cluster as RealCluster

from tests.conftest import Project, wait_for
from windlass.model import Plan
from windlass.places.slurm.script import render_script
from windlass.plan.refuse import find_problems, find_warnings
from windlass.plan.settings import resolve_settings
from windlass.plan.slurm import plan_slurm
from windlass.site.cluster import Cluster
from windlass.site.discover import fetch_cluster
from windlass.site.here import Here, fetch_here
from windlass.spec import load_study

_PASSING = ("None", "Priority", "Resources")  # for these any job may wait a while
STUDY = "command: python train.py --lr {lr}\nparameters: {lr: [1, 2, 3, 4]}\n"


@pytest.fixture
def cluster(slurm: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    for folder in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(folder, str(tmp_path / folder))
    return fetch_cluster()


def make(tmp_path: Path, extra: str, cluster: Cluster) -> Plan:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY + extra)
    study = load_study(str(file))
    settings = resolve_settings({}, study.given, cluster.defaults, "")
    return plan_slurm(study, 4, settings, cluster, str(tmp_path / "out"))


def send(slurm: RealCluster, plan: Plan, folder: Path, *words: str) -> tuple[bool, str]:
    """Whether sbatch, with further `words`, takes the plan; and why the job then waits, should it not begin soon."""
    assert plan.request is not None
    text = render_script(
        plan.request, agents=plan.agents, output=f"{folder}/%A_%a.out", comment="windlass:s", python="/bin/true",
        agent="x", digest="", folder=str(folder), submission="s", chdir=str(folder),
    )  # fmt: skip
    done = subprocess.run(
        ["sbatch", "--parsable", *words],
        input=text, env={**os.environ, **slurm.env}, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        return False, done.stderr
    number = done.stdout.strip()

    def reason() -> str:
        said = slurm.run("squeue", "-h", "-o", "%r", "-j", number).strip()
        return "" if said in _PASSING else said

    why = wait_for(reason)
    slurm.run("scancel", number)
    return True, why


@pytest.mark.parametrize(
    "extra",
    [
        "needs: {gpus: 1, gpu_type: h100}\n",
        "needs: {gpus: 5, gpu_type: a100}\n",
        "needs: {gpus: 1, gpu_type: p100}\nslurm: {partition: a100}\n",
        "needs: {cpus: 9}\nslots: 1\n",
        "needs: {memory: 9000M, cpus: 1}\nslots: 1\n",
        "slurm: {partition: nosuch}\n",
        "slurm: {partition: down}\n",
        "slurm: {account: nosuch}\n",
        "slurm: {partition: a100, account: rrg-lab}\n",
        "slurm: {qos: nosuch}\n",
        "slurm: {qos: onegpu}\nneeds: {gpus: 2, gpu_type: a100}\n",
        "slurm: {qos: short, partition: long}\nneeds: {time: 2h}\n",
        "slurm: {nodes: 5, agents: 1}\n",
        "slurm: {options: {contraint: x}}\n",
        "needs: {time: 2h}\n",
    ],
)
def test_refused_and_rightly_so(
    slurm: RealCluster, cluster: Cluster, tmp_path: Path, extra: str
) -> None:
    plan = make(tmp_path, extra, cluster)
    assert find_problems(plan, cluster, Here())
    taken, why = send(slurm, plan, tmp_path)  # if it could, it would begin: then there is no reason
    assert not taken or why


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "launch: plain\nneeds: {gpus: 4, gpu_type: a100, cpus: 8, memory: 8000M, time: 30m}\n",
        "launch: plain\nneeds: {gpus: 2, gpu_type: p100, time: 3h}\nslurm: {partition: short}\n",
        "slurm: {partition: a100, account: def-prof, qos: normal}\nneeds: {gpus: 1, time: 1d}\n",
        "slurm: {qos: onegpu}\nneeds: {gpus: 1, gpu_type: v100l}\n",
        "slurm: {nodes: 3, agents: 1, partition: long}\nneeds: {time: 7d}\n",
        "slurm: {partition: 'debug,short', account: rrg-lab}\nneeds: {time: 2h}\n",
    ],
)
def test_not_refused_and_taken(
    slurm: RealCluster, cluster: Cluster, tmp_path: Path, extra: str
) -> None:
    plan = make(tmp_path, extra, cluster)
    assert [problem.render() for problem in find_problems(plan, cluster, Here())] == []
    taken, why = send(slurm, plan, tmp_path, "--begin=now+1hour")
    assert taken, why
    assert why == "BeginTime"


def test_nodes_that_are_this_very_host(cluster: Cluster, tmp_path: Path) -> None:
    plan = make(tmp_path, "", cluster)
    here = fetch_here(cluster, os.environ, ("/dev/shm/x", "/tmp/x"))
    assert here.nodes_are_here
    assert find_problems(plan, cluster, here) == []
    assert find_warnings(plan, cluster, here) == []


@pytest.mark.parametrize(
    "extra",
    [
        "needs: {gpus: 1, gpu_type: v100l}\n",
        "needs: {gpus: 1, gpu_type: p100}\nslurm: {nodes: 2, agents: 1}\n",
    ],
)
def test_nodes_that_are_drained_are_waited_for(
    slurm: RealCluster, cluster_project: Project, extra: str
) -> None:
    """`sbatch --test-only` refuses what sbatch itself takes."""
    cluster_project.write("study.yaml", STUDY + extra)
    cluster_project.write("train.py", "")
    slurm.run("scontrol", "update", "nodename=node1,node2", "state=drain", "reason=fan")
    try:
        done = cluster_project.run("run", "--on", "slurm")
        waiting = slurm.run("squeue", "-h", "-o", "%T").split()
    finally:
        slurm.run("scontrol", "update", "nodename=node1,node2", "state=resume")
    assert "out of service now (node" in done.stderr and ": fan" in done.stderr
    assert set(waiting) == {"PENDING"}
