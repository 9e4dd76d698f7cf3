"""A checkout as the guides of clusters lay it out: hpc_files with the configurations, and requirements beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.bundle.environment import find_environment_hints
from windlass.search.trials import iterate_trials
from windlass.spec.load import load_study

TRAIN = """import argparse, os
p = argparse.ArgumentParser()
p.add_argument('--lr', type=float, default=0.1)
p.add_argument('--seed', type=int, default=0)
a = p.parse_args()
print('loss=%g' % (a.lr + a.seed), os.path.basename(os.getcwd()))
"""


@pytest.fixture(params=["experiment_configuration.txt", "experiment_configurations.txt"])
def checkout(project: Project, request: pytest.FixtureRequest) -> Project:
    project.write("train.py", TRAIN)
    project.write(
        f"hpc_files/{request.param}",
        "python train.py --lr 1\npython train.py \\\n  --lr 2  # a comment\n",
    )
    project.write(
        "hpc_files/job_submitter.sh", "#!/usr/bin/env bash\nsbatch --array=1-2 slurm_arrayjob.sh\n"
    )
    project.write("requirements.txt", "\n")
    project.write("Pipfile", "[packages]\n")
    project.env["PATH"] = f"{Path(sys.executable).parent}:{project.env['PATH']}"
    return project


@pytest.mark.parametrize("below", [".", "hpc_files"])
def test_the_study_is_found_and_runs_where_its_commands_mean(checkout: Project, below: str) -> None:
    inside = Project(checkout.folder / below)
    inside.env = checkout.env
    plan = inside.json("plan", "--json")
    assert plan["trials"] == 2
    inside.run("run", "--quiet")
    assert inside.counts() == {"done": 2}
    assert inside.study_folder().parent == checkout.folder / ".windlass"
    printed = [inside.run("logs", str(number)).stdout for number in range(2)]
    assert printed == [f"loss={number} {checkout.folder.name}\n" for number in (1, 2)]


def test_init_sees_the_study_that_is_there(checkout: Project) -> None:
    assert "is a study already: windlass plan" in checkout.run("init", code=2).stderr
    assert "now from this file" in checkout.run("init", "train.py").stdout
    assert checkout.json("plan", "--json")["trials"] == 15
    assert "now from this file" not in checkout.run("init", "train.py", "--yes").stdout


def test_init_writes_a_file_of_commands(project: Project) -> None:
    project.write("my train.py", TRAIN)
    (project.folder / "hpc_files").mkdir()
    project.run("init", "my train.py", "-o", "hpc_files/experiment_configurations.txt")
    project.run("init", "my train.py")
    written = load_study(str(project.folder / "hpc_files/experiment_configurations.txt"))
    meant = load_study(str(project.folder / "study.yaml"))
    commands = [
        [words for trial in iterate_trials(study) for _, words in trial.stages]
        for study in (written, meant)
    ]
    assert commands[0] == commands[1] and len(commands[0]) == 15


def test_the_hint_at_an_environment(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "study.yaml").write_text("command: 'true'\n")
    study = load_study(str(tmp_path))
    assert find_environment_hints(study, {}) == []
    (tmp_path / "requirements.txt").write_text("numpy\n")
    assert find_environment_hints(study, {}) == [
        "requirements.txt is there: environment: {build: requirements.txt}"
    ]
    assert find_environment_hints(study, {"VIRTUAL_ENV": "/home/me/env"}) == []
    assert find_environment_hints(study, {"CONDA_PREFIX": "/opt/conda/envs/me"}) == []
    (tmp_path / "Pipfile").write_text("")
    assert find_environment_hints(study, {}) == ["Pipfile is there: environment: {build: Pipfile}"]
    (tmp_path / "study.yaml").write_text("command: 'true'\nenvironment: {setup: ['true']}\n")
    assert find_environment_hints(load_study(str(tmp_path)), {}) == []


def test_no_hint_for_this_machine(checkout: Project) -> None:
    checkout.env.pop("VIRTUAL_ENV", None)
    checkout.env.pop("CONDA_PREFIX", None)
    assert "environment:" not in checkout.run("plan", "--on", "local").stderr
