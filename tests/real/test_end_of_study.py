"""How studies end on a real cluster: nothing undone while somebody is there, nobody starts for nothing, and it is told."""

from __future__ import annotations

import json

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.study import study_jobs, wait_until_idle
from tests.real.test_survival import task_ids
from windlass.collect.look import read_register
from windlass.core.paths import StudyPaths

pytestmark = pytest.mark.slow
# The last trial waits for a file the first time; after that it ends at once.
TRIAL = 'if [ "$1" = 29 ] && ! [ -e begun ]; then touch begun; while [ -e hold ]; do sleep 0.1; done; fi'


def thirty_trials(project: Project, **slurm: int) -> None:
    project.write("trial.sh", TRIAL)
    project.write("hold", "")
    keys = {
        "command": "sh trial.sh {n}",
        "parameters": {"n": list(range(30))},
        "slots": 1,
        "code": "live",
        "grace": "1s",
        "interrupt": {"lead": "4s"},
        "needs": {"time": "60s", "cpus": 1},
        "slurm": slurm,
    }
    project.write("study.yaml", json.dumps(keys))


def holder_of_the_last(project: Project) -> str:
    """The job in which the last trial waits."""
    running = project.json("status", "--json")
    agent = next(record["agent"] for record in running["running"] if record["number"] == 29)
    return next(job["job"] for job in running["jobs"]["jobs"] if job["agent"] == agent)


def ends_of_jobs(project: Project) -> dict[str, tuple[str, int | None]]:
    submissions = project.json("history", "--json")["submissions"]
    jobs = (job for submission in submissions for job in submission["jobs"])
    return {job["job"]: (job["state"], job["exit_code"]) for job in jobs}


def test_what_comes_back_is_taken_and_nobody_starts_for_nothing(
    cluster_project: Project, slurm: Cluster
) -> None:
    """Two agents run and a third waits; the one with the last trial is told to end, and the other has nothing to do."""
    project = cluster_project
    other = slurm.run(
        "sbatch", "--parsable", "--hold", "--comment=windlass:another", "--wrap=true"
    ).strip()
    thirty_trials(project, agents=3, throttle=2)
    project.run("run", "study.yaml")
    wait_for(lambda: project.counts() == {"done": 29, "running": 1})
    (third,) = (task for task in task_ids(slurm, "PENDING") if task != other)
    slurm.run("scontrol", "hold", third)  # it must not come to help
    cut = holder_of_the_last(project)
    slurm.run("scancel", "--batch", "--signal=USR1", cut)
    wait_for(lambda: project.counts() == {"done": 30})
    wait_for(lambda: slurm.run("squeue", "--noheader", "--format=%A").split() == [other])
    slurm.run("scancel", other)
    wait_until_idle(slurm)
    wait_for(lambda: "ending" not in [state for state, _ in ends_of_jobs(project).values()])
    jobs = ends_of_jobs(project)
    assert jobs.pop(cut) == ("failed", 4), "a job whose time cut off a trial does not look well"
    assert sorted(state for state, _ in jobs.values()) == ["cancelled", "done"]
    notes = "\n".join(project.json("status", "--json")["notes"])
    assert "1 job that waited was cancelled" in notes and "must begin anew" in notes


def test_a_study_that_ends_incomplete_says_so(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    thirty_trials(project, agents=1)
    project.run("run", "study.yaml")
    wait_for(lambda: project.counts() == {"done": 29, "running": 1})
    slurm.run("scancel", "--batch", "--signal=USR1", task_ids(slurm)[0])
    wait_until_idle(slurm)
    assert project.counts() == {"done": 29, "interrupted": 1}
    wait_for(lambda: [job["state"] for job in study_jobs(project)] == ["failed"])
    first = project.run("status").stdout.splitlines()[0]
    assert (
        "1 trial is not done: the job's time of " in first
        and "1 had begun: ask for more time" in first
    )
    output = next((project.study_folder().parent / "hpc_outputs").glob("*.out")).read_text()
    assert "the study is not complete: 1 trial" in output


def test_fewer_jobs_at_a_time_on_a_running_study(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    thirty_trials(project, agents=3)
    text = (project.folder / "study.yaml").read_text()
    project.write(
        "study.yaml", text.replace(json.dumps(list(range(30))), json.dumps(list(range(8))))
    )
    project.write("trial.sh", "touch begun-$1; while [ -e hold ]; do sleep 0.1; done")
    project.run("run", "study.yaml")
    wait_for(lambda: len(list(project.folder.glob("begun-*"))) == 3)
    assert (
        "2 of the 3 that run end after the trials they have begun"
        in project.run("throttle", "1").stdout
    )
    (project.folder / "hold").unlink()
    wait_for(lambda: project.counts() == {"done": 8})
    wait_until_idle(slurm)
    begun = [
        [
            json.loads(line)["i"]
            for line in path.read_text().splitlines()
            if json.loads(line)["e"] == "start"
        ]
        for path in (project.study_folder() / "journal").glob("2*.jsonl")
    ]
    assert sorted(map(len, begun)) == [1, 1, 6], "two agents had begun one each, and took no more"


def test_a_limit_of_jobs_outlasts_a_change_of_the_study(
    cluster_project: Project, slurm: Cluster
) -> None:
    """The agent with the former settings still works on its trial when the new ones come: they go on all the same."""
    project = cluster_project
    thirty_trials(project, agents=2)
    project.write("trial.sh", "touch begun-$1; while [ -e hold ]; do sleep 0.1; done")
    project.run("run", "study.yaml")
    wait_for(lambda: len(list(project.folder.glob("begun-*"))) == 2)
    project.run("throttle", "1")
    keys = json.loads((project.folder / "study.yaml").read_text())
    project.write("study.yaml", json.dumps({**keys, "env": {"A": "1"}}))
    (job,) = project.json("run", "study.yaml", "--json")["jobs"]
    assert read_register(StudyPaths(str(project.study_folder()))).throttle == 1
    assert "ArrayTaskThrottle=1" in slurm.run("scontrol", "show", "job", str(job))
    wait_for(lambda: len(list(project.folder.glob("begun-*"))) == 3)
    (project.folder / "hold").unlink()
    wait_for(lambda: project.counts() == {"done": 30})
    wait_until_idle(slurm)


def test_no_trial_is_begun_that_takes_longer_than_the_job_has_left(
    cluster_project: Project, slurm: Cluster
) -> None:
    """Trials of half the job's time, of which the study says that they take a second: the second one would be cut off."""
    project = cluster_project
    keys = {
        "command": "sh -c 'sleep 30; echo {n}'",
        "parameters": {"n": [0, 1, 2]},
        "slots": 1,
        "code": "live",
        "interrupt": {"lead": "10s"},
        "needs": {"time": "1s", "cpus": 1},
        "slurm": {"agents": 1},
    }
    project.write("study.yaml", json.dumps(keys))
    nodes = slurm.run("sinfo", "--noheader", "--format=%N").split()[0]
    slurm.run(
        "scontrol", "create", "PartitionName=minute", f"Nodes={nodes}", "MaxTime=1", "State=UP"
    )
    project.run("run", "study.yaml", "--partition", "minute")
    wait_for(lambda: project.counts().get("done") == 1)
    wait_until_idle(slurm)
    assert project.counts() == {"done": 1, "waiting": 2}
    (agent,) = project.json("history", "--json")["agents"]
    assert agent["reason"] == "the job's time is too short for another trial"
    wait_for(lambda: [job["state"] for job in study_jobs(project)] == ["failed"])
    first = project.run("status").stdout.splitlines()[0]
    assert "2 trials are not done: the job's time of" in first
    assert project.run("explain").stdout.splitlines()[0] == first
    assert (
        f"it waits, 1 trial before it; {first.partition(': ')[2]}"
        in project.run("explain", "2").stdout
    )
    assert first.partition(": ")[2] in project.run("watch", code=None).stdout
    slurm.run("scontrol", "delete", "PartitionName=minute")


def test_a_study_whose_first_trials_fail_alike_stops_on_all_nodes(
    cluster_project: Project, slurm: Cluster
) -> None:
    """Three agents run and two wait. Each has one failure, which together are enough; then nobody begins any more."""
    project = cluster_project
    thirty_trials(project, agents=5, throttle=3)
    fails = "begun() { ls | grep -c begun-; }; while [ $(begun) -lt 3 ]; do sleep 0.1; done; echo 'no data' >&2; exit 3"
    waits = "while [ -e hold ]; do sleep 0.1; done"
    project.write(
        "trial.sh", f"[ -e mended ] && exit 0; touch begun-$1; [ $1 -lt 3 ] || {waits}; {fails}"
    )
    project.run("run", "study.yaml")
    wait_for(
        lambda: (
            "3 trials all failed the same way: no data"
            in project.run("status").stdout.splitlines()[0]
        )
    )
    (project.folder / "hold").unlink()
    wait_until_idle(slurm)
    counts = project.counts()
    begun = len(list(project.folder.glob("begun-*")))
    assert begun <= 6, (
        "a slot is filled again while the scheduler may still have sent the signal that ended a trial"
    )
    assert counts == {"failed": begun, "waiting": 30 - begun}
    wait_for(lambda: "waiting" not in {job["state"] for job in study_jobs(project)})
    states = sorted(job["state"] for job in study_jobs(project))
    assert states[-3:] == ["failed"] * 3 and set(states[:2]) <= {"cancelled", "done"}, (
        "one may begin before it is cancelled"
    )
    assert "no data" in project.json("status", "--json")["problem"]["reason"]
    (project.folder / "mended").touch()
    project.run("run", "study.yaml", "--wait")
    assert project.counts() == {"done": 30}
