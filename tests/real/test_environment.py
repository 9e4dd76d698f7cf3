"""Environments on a real cluster: every agent's trials have them, and what is missing never reaches a trial."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from scripts.slurm import Cluster

from tests.conftest import Project
from tests.environments.test_environment import MODULE, make_venv, make_wheel, notes, site_packages
from tests.real.conftest import on_cluster
from tests.real.study import study_jobs, wait_until_idle

SHOW = "import os, sys, time\nimport only_here\nprint(sys.prefix, os.environ.get('CUDA_HOME'))\ntime.sleep(0.3)\n"


def venv_study(project: Project, more: str = "") -> Path:
    venv = make_venv(project.folder / ".venv")
    (site_packages(venv) / "only_here.py").write_text("value = 17\n")
    project.write("show.py", SHOW)
    project.write(
        "study.yaml",
        "command: python show.py {n}\nparameters: {n: [1, 2, 3, 4, 5, 6]}\nneeds: {cpus: 1, time: 2m}\n"
        f"slurm: {{agents: 3}}\nslots: 1\nenvironment:\n  venv: .venv\n{more}",
    )
    return venv


def shown(project: Project, trials: int) -> set[str]:
    return {project.run("logs", str(number)).stdout.splitlines()[-1] for number in range(trials)}


def test_trials_of_every_agent_get_it(cluster_project: Project) -> None:
    project = cluster_project
    project.write("site/init/bash", MODULE)
    project.env["MODULESHOME"] = str(project.folder / "site")
    venv = venv_study(project, "  modules: [python/3.11, cuda]\n")
    project.run("run", "--on", "slurm", "--wait")
    assert project.counts() == {"done": 6}
    assert shown(project, 6) == {f"{venv} /opt/cuda"}
    assert len(study_jobs(project)) == 3
    record = json.loads((project.study_folder() / "environment.json").read_text())
    assert record["prefix"] == str(venv) and record["modules"] == ["python/3.11", "cuda"]


def test_what_is_missing_is_refused_before_the_queue(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    venv = venv_study(project, "  setup: ['true']\n")
    shutil.rmtree(venv)
    before = slurm.run("squeue", "--noheader")
    done = project.run("run", "--on", "slurm", code=2)
    assert f"study.yaml:7: the virtual environment {venv} does not exist" in done.stderr
    assert (
        slurm.run("squeue", "--noheader") == before and not (project.folder / ".windlass").exists()
    )


def test_what_vanishes_later_fails_the_job_and_no_trial(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    venv = venv_study(project)
    job = project.json("run", "--on", "slurm", "--json", "--sbatch", "--hold")["jobs"][0]
    shutil.rmtree(venv)
    slurm.run("scontrol", "release", str(job))
    wait_until_idle(slurm)
    assert project.counts() == {"waiting": 6}
    assert f"the virtual environment {venv} does not exist on" in " ".join(notes(project))
    assert "JobState=FAILED" in slurm.run("scontrol", "show", "job", str(job))
    venv_study_again = make_venv(project.folder / ".venv")
    (site_packages(venv_study_again) / "only_here.py").write_text("value = 17\n")
    project.run("run", "--on", "slurm", "--wait")
    assert project.counts() == {"done": 6}


def build_study(project: Project, place: str) -> None:
    make_wheel(project.folder / "index", "only_here", "1.0")
    project.env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    project.write("requirements.txt", "-f index\nonly_here\n")
    project.write("show.py", SHOW)
    project.write(
        "study.yaml",
        "command: python show.py {n}\nparameters: {n: [1, 2, 3, 4, 5, 6]}\nneeds: {cpus: 1, time: 2m}\n"
        f"slurm: {{agents: 3}}\nslots: 1\nenvironment: {{build: requirements.txt, place: {place}}}\n",
    )


def test_of_all_agents_one_builds(cluster_project: Project) -> None:
    project = cluster_project
    build_study(project, "shared")
    project.run("run", "--on", "slurm", "--wait")
    assert project.counts() == {"done": 6}
    assert sum("built the environment" in note for note in notes(project)) == 1
    (place,) = shown(project, 6)
    assert place.startswith(str(project.study_folder().parent / ".windlass-environments"))


def test_on_each_node_s_own_disk_without_a_network(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        build_study(project, "node")
        words = [
            "--sbatch",
            "--hold",
            "--sbatch",
            "--exclusive",
        ]  # each agent has a node of its own
        job = project.json("run", "--on", "slurm", "--json", *words)["jobs"][0]
        shutil.rmtree(project.folder / "index")  # what nodes need has been fetched
        slurm_apart.run("scontrol", "release", str(job))
        wait_until_idle(slurm_apart, 300)
        assert project.counts() == {"done": 6}
        places = {line.split()[0] for line in shown(project, 6)}
        assert all(place.endswith("/env") for place in places), places
        nodes = {str(job["node"]) for job in study_jobs(project)}
        assert len(nodes) > 1
        assert sum("built the environment" in note for note in notes(project)) == len(nodes), (
            "once a node"
        )


def test_a_build_that_fails_is_told_once_and_by_all(
    cluster_project: Project, slurm: Cluster
) -> None:
    project = cluster_project
    build_study(project, "shared")
    project.write("requirements.txt", "-f index\nno-such-thing\n")
    done = project.run("run", "--on", "slurm", "--wait", code=1)
    assert "no-such-thing" in done.stderr
    assert project.counts() == {"waiting": 6}
    wait_until_idle(slurm)
