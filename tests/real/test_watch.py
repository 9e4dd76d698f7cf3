"""One look inside running jobs, ours and others'; and a look at what a job sees of its GPU."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket

from scripts.slurm import Cluster

from tests.conftest import Project, wait_for

_STEPS = """
import time, windlass
for step in range(2000):
    windlass.log(step=step)
    time.sleep(0.2)
"""


def test_a_look_inside_a_study_and_inside_a_job_of_others(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    project.write("steps.py", _STEPS)
    project.write("config/windlass/site.toml", 'lease = "15s"\n')  # agents tell every second
    project.write(
        "study.yaml",
        "name: steps\ncommand: python3 steps.py {x}\nparameters: {x: [1]}\ncode: live\nprogress: {steps: 2000}\n",
    )
    project.run("run", "study.yaml", "--on", "slurm", "--quiet")
    (job,) = project.json("status", "--json")["jobs"]["submissions"]
    said = wait_for(
        lambda: [one for one in project.json("watch", "--json")["running"] if one["eta_s"]]
    )[0]
    assert said["steps"] == 2000 and 0 < said["step"] < 2000
    assert (
        0.5 * 400 < said["eta_s"] + said["for_s"] < 4 * 400
    )  # 2000 steps of 0.2 s, or longer on a busy machine
    status = project.json("status", "--json")
    assert status["running"][0]["steps"] == 2000 and status["time_left"]["seconds"] > 100
    text = project.run("watch", str(job["job"]), "--deep").stdout
    assert "host " in text and "no nvidia-smi here" in text and "steps" in text
    project.run("cancel", "steps", "--yes")

    other = slurm.run("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 60").strip()
    wait_for(lambda: slurm.run("squeue", "-h", "-j", other, "-o", "%T").strip() == "RUNNING")
    assert f"host {socket.gethostname()}" in project.run("watch", other).stdout
    slurm.run("scancel", other)
    wait_for(lambda: slurm.run("squeue", "-h", "-j", other, "-o", "%T").strip() != "RUNNING")
    assert f"job {other} does not run" in project.run("watch", other, code=2).stderr


def test_doctor_asks_in_a_job_what_its_gpu_is(cluster_project: Project) -> None:
    project = cluster_project
    project.write(
        "fake/torch.py",
        "__version__ = '9.9'\nclass version: cuda = '12.1'; hip = None\nclass cuda:\n"
        "    is_available = staticmethod(lambda: False)\n    device_count = staticmethod(lambda: 0)\n"
        "    init = staticmethod(lambda: None)\n",
    )
    project.write(
        "study.yaml",
        f"command: python3 x.py\nenv: {{PYTHONPATH: {json.dumps(str(project.folder / 'fake'))}}}\n",
    )
    done = project.run("doctor", "--gpu", "study.yaml", code=1)
    assert "allocation  CUDA_VISIBLE_DEVICES=0" in done.stdout
    assert "problem: torch 9.9 sees 0 devices" in done.stdout
    assert not [
        name for name in os.listdir(project.folder / ".windlass") if name.startswith("doctor")
    ]


def test_doctor_does_not_compute_on_a_login_host(cluster_project: Project) -> None:
    project = cluster_project
    project.write("config/windlass/sites/toy.toml", f'login_hosts = ["{socket.gethostname()}"]\n')
    done = project.run("doctor", "--gpu", "--on", "local", code=2)
    assert "is a login host" in done.stderr and "--here" in done.stderr


def test_what_was_typed_in_an_interactive_job_becomes_lines_of_a_study_and_idling_is_warned_about(
    cluster_project: Project,
) -> None:
    project = cluster_project
    words = project.words("shell", "--record", "--time", "5m", "--idle-warning", "2s")
    process, ours = pty.fork()  # salloc wants a terminal of its own
    if process == 0:
        os.chdir(project.folder)
        os.execvpe(words[0], words, project.env)
    shown = b""
    while b"nothing has run here for" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b"export FOUND_OUT=$SLURM_JOB_ID\ntrue\nexit\n")
    while b"kept in" not in shown:
        shown += os.read(ours, 4096)
    with contextlib.suppress(OSError):  # which is how a terminal says that nobody is left
        while os.read(ours, 4096):
            pass
    assert os.waitpid(process, 0)[1] == 0
    os.close(ours)
    (kept,) = (project.folder / ".windlass" / "recorded").glob("*.yaml")
    assert "export FOUND_OUT=$SLURM_JOB_ID" in kept.read_text() and "#   true" in kept.read_text()
