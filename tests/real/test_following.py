"""Following a study on a real cluster: what the verbs say and do, and that they spare the scheduler."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import on_cluster
from windlass.collect.look import read_register
from windlass.core.paths import StudyPaths
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import read_queue
from windlass.core.queue.states import JobState

SLOW = "name: slow\ncommand: sh -c 'echo trial {x}; sleep 600'\nparameters: {x: [0, 1, 2, 3]}\n"
MIXED = "name: mixed\ncommand: python3 work.py {x}\nparameters: {x: [0, 1, 2, 3]}\n"
WORK = "import sys\nx = int(sys.argv[1])\nprint('trial', x)\nif x == 2:\n    raise ValueError('two is too many')\n"


def forget_queue(project: Project) -> None:
    """Make the next look ask anew, as it would some seconds later."""
    for path in project.studies.glob("hpc_outputs/squeue.json*"):
        path.unlink(missing_ok=True)


def jobs(project: Project, *words: str) -> dict[str, dict[str, Any]]:
    forget_queue(project)
    return {
        job["job"].partition("_")[2]: job
        for job in project.json("status", *words, "--json")["jobs"]["jobs"]
    }


def states(project: Project) -> list[str]:
    return [job["state"] for _, job in sorted(jobs(project).items())]


def submit_slow(project: Project, *words: str) -> int:
    project.write("study.yaml", SLOW)
    project.run("run", "--on", "slurm", "--agents", "4", "-j", "1", "--time", "20m", *words)
    (submission,) = project.json("history", "--json")["submissions"]
    return int(submission["job"])


def test_waiting_running_throttled_and_cancelled(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    other = slurm.run(
        "sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true"
    ).strip()
    job = submit_slow(project, "--throttle", "1")
    wait_for(lambda: states(project) == ["running", "waiting", "waiting", "waiting"])
    text = project.run("status").stdout
    assert "4 jobs: 1 running, 3 waiting (throttle 1)" in text
    assert f"{job}_[1-3]  waiting: waits for the study's own throttle" in text
    wait_for(lambda: jobs(project)["0"]["agent"])
    first = jobs(project)["0"]
    assert first["node"] and 0 < first["time_left_s"] <= 1800
    # The task's own number leads to the study too.
    for name in (str(job), f"{job}_0", str(first["id"])):
        assert f"{job}_0  running" in project.run("status", name).stdout

    project.run("throttle", "2")
    wait_for(lambda: states(project) == ["running", "running", "waiting", "waiting"])
    # A job that has begun has not claimed a trial yet.
    wait_for(lambda: project.counts() == {"running": 2, "waiting": 2})
    said = project.json("cancel", "--pending", "--yes", "--json")
    assert (said["jobs"], said["problem"]) == ([str(job)], None)
    wait_for(lambda: states(project) == ["running", "running", "cancelled", "cancelled"])
    assert project.counts() == {"running": 2, "cancelled": 2}

    project.run("cancel", "slow", "--yes")
    wait_for(lambda: not set(states(project)) & {"running", "waiting", "ending"})
    assert project.counts() == {"cancelled": 4}
    assert slurm.run("squeue", "-h", "-o", "%A").split() == [other]


def test_a_failed_trial_in_history_and_ticket(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write("work.py", WORK)
    project.write("study.yaml", MIXED)
    project.write(
        "config/windlass/sites/toy.toml",
        'clusters = ["windlass"]\nsupport = ["help@example.org"]\n',
    )
    project.run("run", "--on", "slurm", "--wait", code=1)

    def recorded() -> Any:
        (submission,) = project.json("history", "--json")["submissions"]
        (job,) = submission["jobs"]
        return job if job["exit_code"] is not None else forget_queue(project)

    job = wait_for(recorded)
    assert (job["state"], job["exit_code"]) == ("failed", 1)
    assert job["node"].startswith("node") and job["elapsed_s"] is not None
    text = project.run("explain", "--ticket", "2").stdout
    for piece in ("ValueError: two is too many", f"job number: {job['job']}", "exit code 1", "python3 work.py 2",
                  job["node"], "#SBATCH --", "slurm-wlm", "Traceback", "help@example.org"):  # fmt: skip
        assert piece in text
    assert "trial 2 (" in project.run("explain", "--ticket", job["job"]).stdout
    assert "mixed" in project.run("history", "--all").stdout


def test_ending_one_task(cluster_project: Project) -> None:
    project = cluster_project
    job = submit_slow(project, "--throttle", "1")
    wait_for(lambda: states(project)[0] == "running")
    project.run("cancel", "--job", f"{job}_0")
    wait_for(lambda: states(project)[:2] == ["cancelled", "running"])
    # Slurm complains of the task that has ended, and changes the others.
    assert project.run("throttle", "2").stdout.endswith(": at most 2 jobs at a time\n")
    wait_for(lambda: states(project) == ["cancelled", "running", "running", "waiting"])
    assert read_register(StudyPaths(str(project.study_folder()))).throttle == 2
    project.run("throttle", "0")
    wait_for(lambda: states(project) == ["cancelled", "running", "running", "running"])
    assert read_register(StudyPaths(str(project.study_folder()))).throttle is None


def test_why_a_trial_has_not_started(cluster_project: Project) -> None:
    project = cluster_project
    project.write("study.yaml", SLOW)
    project.run("run", "--on", "slurm", "--agents", "1", "-j", "1", "--sbatch", "--begin=now+1hour")

    def waits() -> bool:
        forget_queue(project)
        return "may not start before a set time" in project.run("explain", "3").stdout

    wait_for(waits)
    text = project.run("explain", "3").stdout
    assert "3 trials before it; no agent is at work yet: 1 job waits in the queue" in text
    assert "expected to start" in text
    (job,) = jobs(project).values()
    assert job["start"] is not None and job["reason"] == "BeginTime"


def counting(project: Project, tmp_path: Path) -> Path:
    """Put a squeue before the real one that writes down every call."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    script = folder / "squeue"
    script.write_text(f"#!/bin/sh\necho >> '{calls}'\nexec /usr/bin/squeue \"$@\"\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    project.env["PATH"] = f"{folder}:{project.env['PATH']}"
    return calls


def test_many_looks_ask_once(cluster_project: Project, tmp_path: Path) -> None:
    project = cluster_project
    submit_slow(project)
    calls = counting(project, tmp_path)
    forget_queue(project)
    looks = [
        project.start(*words)
        for words in (["status"], ["status", "--json"], ["explain", "0"], ["history"])
    ]
    for look in looks:
        look.communicate()
        assert look.returncode == 0
    assert len(calls.read_text()) == 1


def test_the_controller_is_down(project: Project, make_cluster: Callable[..., Cluster]) -> None:
    """Status works and says so, trials are cancelled in the folder, and the same again ends the jobs."""
    cluster = make_cluster(database=False)
    with on_cluster(project, cluster):
        job = submit_slow(project, "--throttle", "1")
        wait_for(lambda: states(project) == ["running", "waiting", "waiting", "waiting"])
        cluster.stop_controller()
        cache = project.studies / "hpc_outputs" / "squeue.json"
        said = json.loads(cache.read_text())
        old = said["asked"] - 70
        cache.write_text(json.dumps({**said, "asked": old, "good": [old, said["text"]]}))
        text = project.run("status").stdout
        assert (
            "the scheduler does not answer" in text
            and "as of " in text
            and f"{job}_0  running" in text
        )
        done = project.run("cancel", "--yes", code=1)
        assert "jobs could not be ended" in done.stderr and "4 trials are cancelled" in done.stdout
        assert "does not answer" in project.run("throttle", "2", code=1).stderr
        wait_for(lambda: project.counts() == {"cancelled": 4})

        cluster.start_controller()
        forget_queue(project)
        project.run("cancel", "--yes")
        wait_for(lambda: not set(states(project)) & {"running", "waiting", "ending"})
        # Without accounting, history is what the queue and the agents tell.
        text = project.run("history").stdout
        assert "accounting does not answer" in text and f"{job}_3" in text


def test_a_job_started_again_is_seen_as_such(
    cluster_project: Project, slurm: Cluster, tmp_path: Path, monkeypatch: Any
) -> None:
    """Its number stays; where and when it starts does not."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    number = int(
        slurm.run(
            "sbatch", "--parsable", "--array=0-0", "--output=/dev/null", "--wrap", "sleep 600"
        )
    )

    def look(state: JobState) -> Any:
        (tmp_path / "squeue.json").unlink(missing_ok=True)
        queue = read_queue(str(tmp_path / "squeue.json"), ask)
        row = queue.row_of(number, 0) if queue is not None else None
        return row if row is not None and row.state is state else None

    first = wait_for(lambda: look(JobState.RUNNING))
    slurm.run("scontrol", "requeue", f"{number}_0")
    wait_for(lambda: look(JobState.WAITING))
    second = wait_for(lambda: look(JobState.RUNNING))
    assert second.array == first.array and second.start > first.start


def test_an_interactive_job(cluster_project: Project) -> None:
    """One at a time; without a terminal it runs a command all the same."""
    project = cluster_project
    project.write("study.yaml", SLOW)
    line = project.run("shell", "--dry-run", "--", "hostname").stdout
    assert line.startswith("salloc --job-name=windlass-shell ") and line.endswith(
        " --pty hostname\n"
    )
    assert "--time=0-00:30:00" in line or "--time=0-01:00:00" in line
    assert "--time=0-00:07:00" in project.run("shell", "--time", "7m", "--dry-run").stdout
    refused = project.run("shell", "--time", "1h", "--", "true", code=2).stderr
    assert (
        "jobs of 1 h never start: partition debug allows 30 min" in refused
        and "`--partition short`" in refused
    )
    assert (
        "no GPUs of type 'h100'; there are: p100"
        in project.run("shell", "-G", "h100", "--", "true", code=2).stderr
    )
    project.write(
        "config/windlass/sites/toy.toml", 'clusters = ["windlass"]\nshell_partition = "short"\n'
    )
    moved = project.run("shell", "--time", "1h", "--", "printenv", "SLURM_JOB_PARTITION")
    assert moved.stdout.strip() == "short" and "in partition short" in moved.stderr
    going = project.start(
        "shell",
        "--time",
        "5m",
        "--",
        "sh",
        "-c",
        "echo $SLURM_JOB_ID on $SLURMD_NODENAME; sleep 600",
    )
    try:
        assert going.stdout is not None
        number, _, node = going.stdout.readline().split()
        second = project.run("shell", "--", "true", code=2)
        assert f"you have an interactive job already: {number}, on {node}" in second.stderr
        assert project.run("shell", "--force", "--", "echo", "both").stdout.strip() == "both"
    finally:
        going.terminate()
        going.communicate()
