"""Measuring on a real cluster: one short job, the document's example from what it found, memory, and the time left."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.measuring import Machine
from tests.real.study import calls_made, wait_until_idle, wrap

# Levels out at 150 MB; tells its steps.
LEVEL = r"""
import time, windlass
kept = b"x" * (150 << 20)
for step in range(1, 20_001):
    time.sleep(0.02)
    windlass.log(step=step, of=20_000)
"""


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def accounts(cluster: Cluster, job: str, field: str) -> str:
    return cluster.run("sacct", "-nXP", "-j", job, "-o", field).strip()


def measured_files(project: Project) -> list[Path]:
    return list((project.folder / ".windlass").rglob("measured.json"))


def test_the_documents_example_from_a_measurement(
    cluster_project: Project, slurm: Cluster, machine: Machine
) -> None:
    """A peak of 2 GB: a budget of 3, four on a GPU of 12, and 25 agents for 100 trials of 3 hours."""
    project = cluster_project
    machine.give(project, cores=8, gpu=None, total_mb=12288, count=4, sliced=-1)
    machine.give_nvml(project)
    project.write(
        "study.yaml",
        "command: python3 crowd.py 540000 0.02 8 8 2048 {seed}\nseeds: 100\n"
        "needs: {gpu_type: p100}\nslurm: {partition: long}\n",
    )
    cancels = wrap(project, "scancel", 'exec "$REAL" "$@"')
    stranger = slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600"
    ).strip()
    measured = project.json("measure", "--json")
    assert calls_made(cancels) == 0 and accounts(slurm, stranger, "State") == "RUNNING"
    slurm.run("scancel", stranger)
    wait_until_idle(slurm)
    assert measured["device"] == {
        "name": "NVIDIA Fake",
        "memory_mb": 12288,
        "kind": "gpu",
        "type": "p100",
    }
    assert measured["probes"][0]["gpu_mb"] == 2048
    assert [one["k"] for one in measured["rounds"]] == [1, 2, 4]
    assert not list(measured_files(project)[0].parents[1].glob(".measuring*"))

    numbers = [
        int(line.split("_")[0]) for line in slurm.run("sacct", "-nXP", "-o", "JobID").split()
    ]
    (job,) = [number for number in numbers if number > int(stranger)]
    asked = accounts(slurm, str(job), "ReqTRES,TimelimitRaw,State,Partition")
    assert "gres/gpu:p100=1" in asked and "node=1" in asked and asked.endswith("|COMPLETED|long")
    assert int(asked.split("|")[1]) <= 15

    plan = project.json("plan", "--json")
    assert plan["pack"]["budget"]["gpu_mb"] == 3 * 1024 and plan["pack"]["a_gpu"] == 4
    assert (plan["slots"], plan["agents"], plan["request"]["gpus"]) == (4, 25, 1)
    assert plan["settings"]["gpu_memory_mb"]["source"].startswith("measured (")
    assert 3 * 3600 <= plan["request"]["time_s"] <= 1.5 * 3 * 3600 and plan["request"]["cpus"] == 4
    text = project.run("plan").stdout
    assert "#SBATCH --array=0-24" in text and "#SBATCH --gres=gpu:p100:1" in text


def test_on_a_login_host_it_goes_to_a_job_and_memory_gets_some_headroom(
    cluster_project: Project,
) -> None:
    project = cluster_project
    project.write(
        "config/windlass/sites/windlass.toml", f'login_hosts = ["{socket.gethostname()}"]\n'
    )
    project.write("level.py", LEVEL)
    project.write("study.yaml", "command: python3 level.py {x}\nparameters: {x: [1]}\n")
    done = project.run("measure", "--on", "local", code=2)
    assert "is a login host" in done.stderr and "--here" in done.stderr
    done = project.run("measure", "--no-curve", "--json")
    assert "in job " in done.stderr
    (probe,) = json.loads(done.stdout)["probes"]
    assert probe["levelled"] and 150 <= probe["memory_mb"] <= 165
    request = project.json("plan", "--json")["request"]
    assert probe["memory_mb"] < request["memory_mb"] <= 2 * probe["memory_mb"]
    done = project.run("measure", "--on", "local", "--here", "--no-curve", "--trial-limit", "1s")
    assert "on this machine" in done.stderr


def test_a_trial_that_fails_in_the_job_is_shown(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write("bad.py", "import sys\nsys.exit('no such dataset: cifar')\n")
    project.write("study.yaml", "command: python3 bad.py {x}\nparameters: {x: [1, 2]}\n")
    done = project.run("measure", "--on", "slurm", code=1)
    assert (
        "(x=2) ended with exit code 1" in done.stderr
        and "    no such dataset: cifar\n" in done.stderr
    )
    assert measured_files(project) == []
    wait_until_idle(slurm)


def test_ctrl_c_cancels_the_job_and_no_other(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write("study.yaml", "name: cut\ncommand: sleep {x}\nparameters: {x: [500, 600]}\n")
    stranger = slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600"
    ).strip()
    measuring = project.start("measure")
    (job,) = wait_for(
        lambda: [one for one in slurm.run("squeue", "-h", "-o", "%A").split() if one != stranger]
    )
    wait_for(lambda: accounts(slurm, job, "State") == "RUNNING")
    measuring.send_signal(signal.SIGINT)
    _, errors = measuring.communicate(timeout=180)
    assert measuring.returncode == 130 and "Traceback" not in errors
    wait_for(lambda: accounts(slurm, job, "State").startswith("CANCELLED"))
    assert accounts(slurm, stranger, "State") == "RUNNING"
    assert measured_files(project) == []
    done = project.run(
        "measure", "--no-curve", "--trial-limit", "1s"
    )  # at once: the former one is not in the way
    assert "in job " in done.stderr


def test_a_measurement_survives_whoever_asked_for_it(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    project.write("level.py", LEVEL)
    project.write("study.yaml", "name: left\ncommand: python3 level.py {x}\nparameters: {x: [1]}\n")
    measuring = project.start("measure", "--no-curve", "--trial-limit", "6s")
    (job,) = wait_for(lambda: slurm.run("squeue", "-h", "-o", "%A").split())
    wait_for(lambda: accounts(slurm, job, "State") == "RUNNING")
    measuring.kill()
    measuring.communicate()
    assert "another measurement of this study is under way" in project.run("measure", code=2).stderr
    wait_for(lambda: measured_files(project))
    wait_for(lambda: accounts(slurm, job, "State") == "COMPLETED")
    assert "measured (" in project.run("plan").stdout


def test_more_time_than_a_job_may_last(cluster_project: Project) -> None:
    cluster_project.write("study.yaml", "command: sleep {x}\nparameters: {x: [0.1]}\n")
    done = cluster_project.run("measure", "--on", "slurm", "--no-curve", "--limit", "40m")
    assert (
        "a job lasts 30 min at most there: the measurement gets 25 min, not --limit 40 min"
        in done.stderr
    )


def test_the_limit_ends_a_trial_that_would_go_on_for_ever(
    cluster_project: Project, slurm: Cluster
) -> None:
    """Also where a trial takes longer than the job that measures it: nothing else would end it but its memory."""
    project = cluster_project
    project.write(
        "grow.py",
        "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 100_000)\n    time.sleep(0.1)\n",
    )
    project.write(
        "study.yaml", "command: python3 grow.py {x}\nparameters: {x: [1, 2]}\nneeds: {time: 12m}\n"
    )
    (first, *_) = project.json("measure", "--on", "slurm", "--limit", "1m", "--json")["probes"]
    assert not first["ended"] and first["cause"] == ""
    wait_until_idle(slurm)
    assert (
        accounts(slurm, slurm.run("sacct", "-nXP", "-o", "JobID").split()[-1], "State")
        == "COMPLETED"
    )


def test_what_would_wait_for_ever_is_refused(cluster_project: Project, slurm: Cluster) -> None:
    cluster_project.write(
        "study.yaml", "command: sleep {x}\nparameters: {x: [1]}\nneeds: {gpus: 1, gpu_type: h900}\n"
    )
    assert "h900" in cluster_project.run("measure", code=2).stderr
    assert slurm.run("squeue", "-h").strip() == ""


def test_the_time_left_of_a_program_of_200_steps(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write("config/windlass/site.toml", 'lease = "15s"\n')  # a beat every second
    project.write(
        "steps.py",
        "import time, windlass\nbegan = time.time()\nfor step in range(1, 201):\n"
        "    time.sleep(max(0, began + 0.15 * step - time.time()))\n    windlass.log(step=step, of=200)\n",
    )
    project.write("study.yaml", "command: python3 steps.py {x}\nparameters: {x: [1]}\n")
    project.run("run", "--on", "slurm", "--quiet")

    def look() -> dict[str, Any] | None:
        before = time.time()
        status = project.json("status", "--json")
        step = next((one["step"] for one in status["running"] if one.get("step")), 0)
        return (
            {**status, "when": (before, time.time())}
            if step >= 40 and status["eta_s"] is not None
            else None
        )

    seen = wait_for(look)
    assert seen["running"][0]["step"] <= 120, "it was seen early on its way"
    wait_for(lambda: project.counts() == {"done": 1})
    ended = json.loads(find_end(project))
    most_s, least_s = (ended["t"] - when for when in seen["when"])
    assert 0.8 * least_s < seen["eta_s"] < 1.2 * most_s


def find_end(project: Project) -> str:
    lines = [
        line
        for path in project.study_folder().glob("journal/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return next(line for line in lines if '"e":"end"' in line)
