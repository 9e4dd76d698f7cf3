"""One study on a real cluster: what is asked for, what comes back, and that nothing is submitted twice."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.study import (
    calls_made,
    check_witnesses,
    queue_states,
    wait_until_idle,
    witness_study,
    wrap,
)


def clients_in(folder: Path) -> list[str]:
    """Processes of the command line that work in this folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (
                (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
            )
            if b"windlass" in words and os.readlink(process / "cwd") == str(folder):
                found.append(process.name)
        except OSError:
            continue
    return found


def submit(project: Project, *words: str) -> dict[str, object]:
    found: dict[str, object] = project.json("run", "--json", *words)
    return found


def test_a_study_from_run_to_results(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write(
        "study.yaml",
        "command: sh -c 'echo loss=0.{n}; echo $CUDA_VISIBLE_DEVICES $SLURM_TMPDIR $SLURM_JOB_ID; test {n} != 5'\n"
        "parameters: {n: [1, 2, 3, 4, 5, 6, 7, 8]}\nmetric: loss\nmetrics: [loss]\n"
        "needs: {gpu_type: p100, gpu_memory: 3GB, time: 10m}\nshell: false\nslurm: {agents: 1}\n",
    )
    done = project.run("run")
    assert "Slurm answers" in done.stderr and "submitted 1 agent" in done.stderr
    assert clients_in(project.folder) == [], "nothing of ours stays alive here"
    wait_until_idle(slurm)
    assert project.counts() == {"done": 7, "failed": 1}
    job = project.json("status", "--json")["jobs"]["jobs"][0]
    state = slurm.run("scontrol", "show", "job", str(job["id"]).split("_")[0])
    assert "JobState=FAILED" in state and "ExitCode=1:0" in state, (
        "a job with a failed trial tells so"
    )
    assert "gres/gpu:p100=1" in state.replace("gres:gpu", "gres/gpu") or "gpu:p100:1" in state
    best = project.run("results", "--best").stdout
    assert "0.1" in best
    seen = project.run("logs", "0").stdout.splitlines()[-1].split()
    assert seen[0] in {"0", "1", "2", "3"} and os.path.isabs(seen[1])
    logs = list((project.study_folder().parent / "hpc_outputs").glob("*.out"))
    assert len(logs) == 1


def test_the_request_is_exact(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    witness_study(project, 9, 30, "slurm: {options: {nice: 7}}\n")
    words = [
        "-c",
        "2",
        "-t",
        "00-00:20:00",
        "-m",
        "3G",
        "-G",
        "a100",
        "-g",
        "2",
        "-a",
        "rrg-lab",
        "-e",
        "my exp",
        "-W",
        "plain",
    ]
    words += ["-p", "short", "--max-jobs", "3", "--throttle", "2", "--mail-user", "me@example.org"]
    job = submit(project, *words)["jobs"][0]  # type: ignore[index]
    shown = slurm.run("scontrol", "show", "job", str(job))
    for fact in ("Account=rrg-lab", "Partition=short", "TimeLimit=01:05:00", "NumCPUs=2", "Nice=7"):
        assert fact in shown, f"{fact}\n{shown}"
    assert re.search(r"MinMemoryNode=6(G|144M)", shown), "3G for each of 2 GPUs"
    assert "gpu:a100:2" in shown and "my-exp" in shown and "ArrayTaskThrottle=2" in shown
    assert "ArrayTaskId=0-2" in shown or len(re.findall("ArrayTaskId=", shown)) == 3


def test_running_again_submits_nothing_while_agents_are_there(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    witness_study(project, 4, 60, "needs: {time: 20m}\nslots: 1\n")
    assert submit(project)["agents"] == 4
    again = submit(project)
    assert (again["agents"], again["present"]) == (0, 4)
    project.run("run", "--max-jobs", "2")
    assert len(queue_states(slurm)) == 4


def test_arrays_beyond_the_limit_are_several(make_cluster: object, project: Project) -> None:
    cluster: Cluster = make_cluster(database=False, settings={"MaxArraySize": "4"})  # type: ignore[operator]
    project.env.update(cluster.env)
    records = witness_study(project, 10, 0.1, "needs: {time: 20m}\nslots: 1\n")
    calls = wrap(project, "sbatch", 'exec "$REAL" "$@"')
    done = submit(project)
    assert len(done["jobs"]) == 3 and done["agents"] == 10  # type: ignore[arg-type]
    assert calls_made(calls) == 4, "one look before, and one for each array"
    wait_until_idle(cluster)
    check_witnesses(project, records, 10)
    assert "core-hours" not in project.run("run").stderr, "what is not submitted costs nothing"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_client_killed_while_it_submits(
    cluster_project: Project, slurm: Cluster, moment: str
) -> None:
    """The next run finds out what became of it, and submits exactly what is missing."""
    project = cluster_project
    records = witness_study(project, 4, 0.2, "slots: 2\nneeds: {time: 20m}\n")
    kill = "kill -9 $PPID; sleep 0.2"
    body = {"before": f"{kill}; exit 1", "after": f'"$REAL" "$@" >/dev/null; {kill}'}[moment]
    wrap(project, "sbatch", f'case "$*" in *test-only*) exec "$REAL" "$@";; esac\n{body}')
    done = project.run("run", code=None)
    assert done.returncode == -signal.SIGKILL
    (project.folder / "wrappers" / "sbatch").unlink()
    again = project.run("run")
    expected = "was taken as job" if moment == "after" else "never reached the scheduler"
    assert expected in again.stderr, again.stderr
    wait_until_idle(slurm)
    if moment == "after":
        assert "submitted" not in again.stderr.replace("was submitted", "")
    check_witnesses(project, records, 4)
    events = [
        json.loads(line)
        for path in _client_journals(project)
        for line in path.read_text().splitlines()
    ]
    taken = [event for event in events if event["e"] == "submitted"]
    assert len(taken) == 1


def _client_journals(project: Project) -> list[Path]:
    return sorted((project.study_folder() / "journal").glob("client-*.jsonl"))


def test_sbatch_that_does_not_answer(cluster_project: Project, slurm: Cluster) -> None:
    """It took the job but its answer never came: found in the queue all the same."""
    project = cluster_project
    records = witness_study(project, 4, 0.2, "slots: 2\nneeds: {time: 20m}\n")
    with open(project.folder / "config/windlass/site.toml", "a") as file:
        file.write('patience = "6s"\n')
    wrap(
        project,
        "sbatch",
        'case "$*" in *test-only*) exec "$REAL" "$@";; esac\n"$REAL" "$@" >/dev/null; sleep 60',
    )
    assert "submitted 2 agents" in project.run("run").stderr
    wait_until_idle(slurm)
    check_witnesses(project, records, 4)


def test_sbatch_that_never_reaches_the_controller(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    records = witness_study(project, 4, 0.2, "slots: 2\nneeds: {time: 20m}\n")
    with open(project.folder / "config/windlass/site.toml", "a") as file:
        file.write('patience = "2s"\n')
    wrap(project, "sbatch", 'case "$*" in *test-only*) exec "$REAL" "$@";; esac\nsleep 60')
    done = project.run("run", code=1)
    assert "did not say whether it took the job" in done.stderr and "windlass run" in done.stderr
    (project.folder / "wrappers" / "sbatch").unlink()
    project.run("run", "--wait")
    check_witnesses(project, records, 4)


def test_sbatch_that_refuses(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    records = witness_study(project, 4, 0.2, "slots: 2\nneeds: {time: 20m}\n")
    refusal = 'echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy" >&2; exit 1'
    wrap(project, "sbatch", f'case "$*" in *test-only*) exec "$REAL" "$@";; esac\n{refusal}')
    done = project.run("run", code=1)
    assert "Job violates accounting/QOS policy" in done.stderr and "Batch job" not in done.stderr
    (project.folder / "wrappers" / "sbatch").unlink()
    project.run("run", "--wait")
    check_witnesses(project, records, 4)


def test_what_slurm_would_refuse_is_refused_before_anything_is_written(
    cluster_project: Project,
) -> None:
    project = cluster_project
    witness_study(
        project,
        4,
        0.2,
        "needs: {gpus: 1, gpu_type: h100, time: 400h}\nslurm: {account: nobody, qos: none}\n",
    )
    done = project.run("run", code=2)
    for word in ("h100", "p100", "nobody", "rrg-lab", "none", "16 d 16 h"):
        assert word in done.stderr, f"{word}\n{done.stderr}"
    assert done.stderr.count("error:") >= 4, "all at once"
    assert not (project.folder / ".windlass").exists(), "nothing half done"


def test_two_clients_at_once_submit_once(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    records = witness_study(project, 6, 1, "slots: 1\nneeds: {time: 20m}\n")
    clients = [project.start("run") for _ in range(3)]
    for client in clients:
        client.communicate(timeout=180)
        assert client.returncode == 0
    assert len(queue_states(slurm)) <= 6
    wait_until_idle(slurm)
    check_witnesses(project, records, 6)
    headers = [
        path
        for path in (project.study_folder() / "journal").iterdir()
        if not path.name.startswith("client")
    ]
    assert len(headers) == 6


def test_wait_follows_to_the_end_and_ctrl_c_leaves_the_jobs(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    records = witness_study(project, 4, 2, "slots: 2\nneeds: {time: 20m}\n")
    client = project.start("run", "--wait")
    wait_for(lambda: clients_in(project.folder))
    wait_for(lambda: any(path.suffix == ".lock" for path in records.iterdir()))
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=180)
    assert client.returncode == 130 and "the jobs go on" in said
    assert queue_states(slurm)
    project.run("run", "--wait")
    check_witnesses(project, records, 4)


def test_retry_submits_on_the_same_terms(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write(
        "study.yaml",
        "command: sh -c 'test -e now{n}'\nparameters: {n: [1, 2]}\nneeds: {time: 20m}\nslots: 1\ncode: live\n",
    )
    project.run("run", "--wait", code=1)
    assert project.counts() == {"failed": 2}
    project.write("now1", "")
    assert project.json("plan", "--json")["submits"] == 2
    again = project.run("run", "--wait", code=1).stderr
    assert (
        "2 jobs of" in again
        and "submitted 2 agents" in again
        and project.counts() == {"done": 1, "failed": 1}
    )
    planned = project.json("plan", "--json")
    assert (planned["trials"], planned["missing"], planned["submits"]) == (2, 1, 1), (
        "of what is missing"
    )
    project.write("now2", "")
    assert "submitted 1 agent " in project.run("retry").stderr
    wait_until_idle(slurm)
    assert project.counts() == {"done": 2} and project.json("plan", "--json")["submits"] == 0
