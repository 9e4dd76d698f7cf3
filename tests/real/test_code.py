"""Which code a job's trials run: the project as it is at the last `run` or `retry`, and what is recorded of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.bundle.test_code import attempts, git
from tests.conftest import Project, wait_for
from tests.real.study import wait_until_idle

pytestmark = pytest.mark.slow

STEP = """
import os, sys, time
print("code", "{version}", flush=True)
while sys.argv[1] == "1" and os.path.exists(os.path.join(os.environ["HOME_OF_STUDY"], "hold")):
    time.sleep(0.05)
sys.exit(3 if "{version}" == "old" and sys.argv[1] == "0" else 0)
"""


def make_study(project: Project, more: str = "") -> Path:
    git(project.folder, "init", "-q", "-b", "main")
    project.write(".gitignore", "config\ncache\nhold\n")
    project.write("step.py", STEP.replace("{version}", "old"))
    home = json.dumps(str(project.folder))
    project.write(
        "study.yaml",
        "command: python3 step.py {n}\nparameters: {n: [0, 1, 2]}\nslots: 1\nneeds: {time: 10m, memory: 200MB}\n"
        f"env: {{HOME_OF_STUDY: {home}}}\nslurm: {{agents: 1{more}}}\n",
    )
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "first")
    return project.write("hold", "")


def test_retry_beside_an_agent_that_began_with_the_former_code(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    hold = make_study(project)
    assert "code: commit" in project.run("run").stderr
    wait_for(lambda: project.counts() == {"failed": 1, "running": 1, "waiting": 1})
    project.write("step.py", STEP.replace("{version}", "new"))
    done = project.run("retry")
    assert (
        "the code has changed" in done.stderr
        and "1 agent at work began with the former code" in done.stderr
    )
    assert "submitted 1 agent as job" in done.stderr
    wait_for(lambda: project.counts() == {"done": 2, "running": 1})
    hold.unlink()
    wait_until_idle(slurm)
    assert project.counts() == {"done": 3}
    assert [project.run("logs", number).stdout.split()[-1] for number in "012"] == [
        "new",
        "old",
        "new",
    ]
    codes = [
        [attempt["code"]["dirty"] for attempt in attempts(project, number)] for number in (0, 1, 2)
    ]
    assert codes == [[False, True], [False], [True]]
    assert len({attempt["job"]["array"] for attempt in attempts(project, 0)}) == 2


def test_run_beside_an_agent_that_began_with_other_settings(
    cluster_project: Project, slurm: Cluster
) -> None:
    """Trials that begin after the second `run` have its settings, on live code too; the one under way goes on."""
    project = cluster_project
    project.write(
        "step.py",
        "import os, sys, time\n"
        "print('FOO', os.environ.get('FOO'), 'loss=0.5', flush=True)\n"
        "while sys.argv[1] == '0' and os.path.exists('hold'):\n    time.sleep(0.05)\n",
    )
    hold = project.write("hold", "")
    study = "command: python3 step.py {n}\nslots: 1\nneeds: {time: 10m, memory: 200MB}\ncode: live\nslurm: {agents: 1}\n"
    project.write("study.yaml", study + "parameters: {n: [0, 1]}\n")
    project.run("run")
    wait_for(lambda: project.counts() == {"running": 1, "waiting": 1})
    planned = project.run("plan").stdout
    assert "1 of them there already" in planned and "#SBATCH" not in planned, (
        "nothing would be submitted"
    )
    assert "1 agent is on it already" in project.run("run").stderr, "nothing has changed"
    project.write(
        "study.yaml", study + "parameters: {n: [0, 1, 2]}\nmetrics: [loss]\nenv: {FOO: bar}\n"
    )
    done = project.run("run")
    assert "1 agent at work began with the former code or settings" in done.stderr
    assert "submitted 1 agent as job" in done.stderr
    wait_for(lambda: project.counts() == {"done": 2, "running": 1})
    hold.unlink()
    wait_until_idle(slurm)
    assert project.counts() == {"done": 3}
    assert [project.run("logs", number).stdout.split()[1] for number in "012"] == [
        "None",
        "bar",
        "bar",
    ]
    metrics = {row["n"]: row.get("loss") for row in project.json("results", "--json")}
    assert metrics == {0: None, 1: 0.5, 2: 0.5}


def test_a_job_that_waited_uses_the_code_of_the_last_run(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    hold = make_study(project, ", options: {hold: true}")
    hold.unlink()
    job = project.json("run", "--json")["jobs"][0]
    project.write("step.py", STEP.replace("{version}", "new"))
    done = project.run("retry", "0")
    assert "the code has changed" in done.stderr and "1 agent is on it already" in done.stderr
    slurm.run("scontrol", "release", str(job))
    wait_until_idle(slurm)
    assert project.counts() == {"done": 3}
    assert {project.run("logs", number).stdout.split()[-1] for number in "012"} == {"new"}
    assert all(attempts(project, number)[0]["code"]["dirty"] for number in (0, 1, 2))
