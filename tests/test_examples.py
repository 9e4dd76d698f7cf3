"""The examples load, their commands start, and what they claim to learn is what they learn."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.check.environment import check_environment
from windlass.cli.examples import read_examples
from windlass.model import Metric
from windlass.search.trials import count_trials, iterate_trials
from windlass.spec.load import load_study

EXAMPLES = Path(__file__).parent.parent / "examples"
SOURCES = str(Path(__file__).parent.parent / "src")
QUICKSTART = EXAMPLES / "quickstart"
STUDIES = {
    "quickstart/study.yaml": 75,
    "quickstart/cartpole.yaml": 30,
    "wandb-sweep/sweep.yaml": 15,
    "task-file/tasks.txt": 3,
    "packing/study.yaml": 100,
    "rl-packing/study.yaml": 64,
    "chain/study.yaml": 8,
    "ladder/study.yaml": 45,
    "advanced/study.yaml": 30,
    "neural-ode/study.yaml": 30,
    "container/study.yaml": 20,
    "distributed/study.yaml": 3,
}


NO_STUDIES = ("pyproject.toml", "requirements.txt")
# The first has several stages and needs data, the others packages that need not be here.
STARTED_ELSEWHERE = (
    "container/study.yaml",
    "advanced/study.yaml",
    "neural-ode/study.yaml",
    "rl-packing/study.yaml",
    "distributed/study.yaml",
)


def python(*words: str, folder: Path = QUICKSTART) -> subprocess.CompletedProcess[str]:
    """Start this Python as a user would by hand, outside any trial."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")
    }
    environment |= {"PYTHONPATH": SOURCES, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def numbers(label: str, words: str) -> list[float]:
    """What a script prints behind `label`, line by line."""
    ended = python(*words.split())
    assert ended.returncode == 0, ended.stderr
    return [float(number) for number in re.findall(rf"{label} +([\d.]+)", ended.stdout)]


@pytest.mark.parametrize(("name", "trials"), STUDIES.items())
def test_studies_load(name: str, trials: int) -> None:
    study = load_study(str(EXAMPLES / name))
    assert study.warnings == ()
    assert count_trials(study) == trials
    assert len({trial.id for trial in iterate_trials(study)}) == trials


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in STARTED_ELSEWHERE])
def test_commands_start(name: str) -> None:
    """The first command as the trial would see it, cut short with a last option that wins."""
    study = load_study(str(EXAMPLES / name))
    ((_, words),) = next(iter(iterate_trials(study))).stages
    script = next(index for index, word in enumerate(words) if word.endswith(".py"))
    assert words[:script] in (("python",), ("/usr/bin/env", "python"))
    ended = python(*words[script:], "--steps", "1", folder=Path(study.workdir))
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 1


def test_metrics_are_what_the_scripts_log() -> None:
    assert load_study(str(QUICKSTART / "study.yaml")).metric == Metric("error", "minimize")
    assert load_study(str(QUICKSTART / "cartpole.yaml")).metric == Metric("return", "maximize")
    assert "error=" in (QUICKSTART / "value.py").read_text(encoding="utf-8")
    assert '"return":' in (QUICKSTART / "cartpole.py").read_text(encoding="utf-8")


def test_no_example_is_missing_here_or_in_the_readme() -> None:
    found = {
        str(path.relative_to(EXAMPLES))
        for path in EXAMPLES.rglob("*")
        if path.suffix in (".yaml", ".txt", ".toml")
        and path.name not in NO_STUDIES
        and "datasets" not in path.parts
    }
    assert found == set(STUDIES)
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"windlass run examples/{name}" in readme for name in STUDIES)


class TestRandomWalk:
    def test_an_intermediate_step_size_wins(self) -> None:
        errors = {
            (lr, trace): numbers("mean so far", f"value.py --lr {lr} --trace {trace} --seed 1")[-1]
            for lr, trace in [
                (0.1, 0.8),
                (0.2, 0.8),
                (0.4, 0.8),
                (0.8, 0.8),
                (1.0, 0.8),
                (0.8, 0.4),
                (0.8, 0.0),
            ]
        }
        assert min(errors, key=lambda setting: errors[setting]) == (0.4, 0.8)
        assert errors[0.4, 0.8] == pytest.approx(0.26, abs=0.02)

    def test_it_converges_to_the_true_values(self) -> None:
        assert (
            numbers("error now", "value.py --lr 0.05 --trace 0.8 --steps 100 --learners 10")[-1]
            < 0.1
        )

    def test_the_seed_decides_everything(self) -> None:
        first, again, other = (
            numbers("error now", f"value.py --seed {seed}") for seed in (3, 3, 4)
        )
        assert first == again
        assert first != other


class TestCartPole:
    def test_it_learns_to_balance(self) -> None:
        returns = numbers("return", "cartpole.py --lr 0.1 --steps 40 --seed 1")
        assert returns[0] < 40
        assert max(returns) == 500

    def test_a_small_learning_rate_is_too_slow(self) -> None:
        assert max(numbers("return", "cartpole.py --lr 0.01 --steps 40 --hidden 4 --seed 1")) < 150


class TestPacking:
    def test_the_request_is_the_guide_s(self, project: Project) -> None:
        """Three of twelve GB each: four a GPU, so 25 jobs of one GPU."""
        shutil.copytree(EXAMPLES / "packing", project.folder, dirs_exist_ok=True)
        plan = project.json("plan", "study.yaml", "--site", "cedar", "-a", "def-prof", "--json")
        assert (plan["trials"], plan["slots"], plan["agents"]) == (100, 4, 25)
        request = plan["request"]
        assert (request["gpus"], request["gpu_type"], request["cpus"]) == (1, "p100", 4)
        text = project.run("plan", "study.yaml", "--site", "cedar", "-a", "def-prof").stdout
        assert "#SBATCH --array=0-24" in text and "#SBATCH --gpus-per-node=p100:1" in text
        assert "12288 MB on a p100, 3072 MB a trial" in text

    def test_ten_trials_make_three_agents(self, project: Project) -> None:
        """The last one has less to do, and there is none without."""
        shutil.copytree(EXAMPLES / "packing", project.folder, dirs_exist_ok=True)
        plan = project.json(
            "plan", "study.yaml", "--site", "cedar", "-a", "def-prof", "--trials", "2", "--json"
        )
        assert (plan["trials"], plan["slots"], plan["agents"]) == (10, 4, 3)
        assert (
            "--array=0-2\n"
            in project.run(
                "plan", "study.yaml", "--site", "cedar", "-a", "def-prof", "--trials", "2"
            ).stdout
        )

    def test_large_steps_and_enough_units_win(self) -> None:
        packing = EXAMPLES / "packing"
        errors = {}
        for lr, hidden in ((0.01, 2), (0.01, 16), (0.3, 16)):
            words = f"train.py --plain --seed 1 --lr {lr} --hidden {hidden}"
            ended = python(*words.split(), folder=packing)
            errors[lr, hidden] = float(re.findall(r"error ([\d.]+)", ended.stdout)[-1])
        assert errors[0.3, 16] < 0.03 < errors[0.01, 16] < errors[0.01, 2]


class TestRlPacking:
    def test_what_is_measured_is_what_the_script_logs(self) -> None:
        assert load_study(str(EXAMPLES / "rl-packing/study.yaml")).metric == Metric(
            "ret", "maximize"
        )
        script = (EXAMPLES / "rl-packing/train.py").read_text(encoding="utf-8")
        assert "windlass.log(step=step, of=options.steps, ret=" in script

    @pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
    def test_both_learn_to_balance_and_too_large_a_step_does_not(self) -> None:
        returns = {}
        for algo, lr, steps in (("ppo", 0.01, 1280), ("a2c", 0.001, 2048), ("a2c", 0.01, 2048)):
            words = f"train.py --algo {algo} --lr {lr} --steps {steps} --seed 1"
            ended = python(*words.split(), folder=EXAMPLES / "rl-packing")
            assert ended.returncode == 0, ended.stderr
            returns[algo, lr] = [
                float(number) for number in re.findall(r"return ([\d.]+)", ended.stdout)
            ]
        assert returns["ppo", 0.01][0] < 60 and max(returns["ppo", 0.01]) > 300
        assert max(returns["a2c", 0.001]) > 200 and max(returns["a2c", 0.01]) < 60


class TestAdvanced:
    def test_it_goes_on_where_it_was_and_pairs_win(self, tmp_path: Path) -> None:
        """A training in two pieces ends exactly as one in a single piece."""
        folder = tmp_path / "advanced"
        shutil.copytree(
            EXAMPLES / "advanced", folder, ignore=shutil.ignore_patterns("datasets", ".windlass")
        )
        assert python("make_data.py", folder=folder).returncode == 0
        data = ["--data", "datasets/letters"]
        assert (
            "400 documents to learn from, 100 to judge by"
            in python("prepare.py", *data, folder=folder).stdout
        )
        assert python("prepare.py", "--data", "nowhere", folder=folder).returncode == 1
        errors = {}
        for order in (1, 2, 3):
            words = [
                *data,
                "--order",
                str(order),
                "--model",
                f"{order}.json",
                "--checkpoints",
                f"saved-{order}",
            ]
            assert python("train.py", *words, folder=folder).returncode == 0
            said = python("predict.py", *data, "--model", f"{order}.json", folder=folder).stdout
            errors[order] = float(said.split()[-1])
        assert errors[2] < errors[3] < errors[1], errors
        words = [
            *data,
            "--model",
            "again.json",
            "--checkpoints",
            "again",
            "--resume",
            "saved-2/epoch-002.json",
        ]
        assert "going on after epoch 2" in python("train.py", *words, folder=folder).stdout
        assert (folder / "again.json").read_text() == (folder / "2.json").read_text()


class TestNeuralOde:
    def test_it_plans_and_its_environment_can_be_built(self, project: Project) -> None:
        shutil.copytree(EXAMPLES / "neural-ode", project.folder, dirs_exist_ok=True)
        assert project.json("plan", "study.yaml", "--on", "local", "--json")["trials"] == 30
        shown = project.json("env", "show", "study.yaml", "--on", "local", "--json")
        assert (shown["kind"], shown["value"], shown["problems"]) == (
            "build",
            "requirements.txt",
            [],
        )


@pytest.mark.parametrize(
    "script", ["value.py", "cartpole.py", "../packing/train.py", "../chain/train.py"]
)
def test_without_windlass_a_script_says_what_to_install(script: str) -> None:
    start = f"import runpy, sys; sys.modules['windlass'] = None; runpy.run_path('{script}', run_name='__main__')"
    ended = python("-c", start)
    assert ended.returncode == 1
    assert "install Windlass" in ended.stderr


def test_what_an_example_needs_is_named_before_it_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {name: one.needs for name, one in read_examples().items() if one.needs}
    assert needs == {"ladder": ("numpy",), "rl-packing": ("torch",), "distributed": ("torch",)}, (
        "the first one needs nothing but Python"
    )
    bare = project.write("bin/python", f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    project.env["PATH"] = f"{bare.parent}:{project.env['PATH']}"
    assert "needs numpy" in project.run("init", "--example", "ladder", "copy").stdout
    for words in (["run"], ["check", "--ladder"]):
        said = project.run(*words, "copy/study.yaml", "--on", "local", code=2).stderr
        assert "train.py:12: imports numpy" in said and "pip install numpy" in said
    assert not list(project.folder.rglob("trials.jsonl")), "nothing was begun"
    monkeypatch.setenv("PATH", project.env["PATH"])
    study = load_study(str(project.folder / "copy/study.yaml"))
    item = check_environment(study, None)
    assert item.verdict == "fail" and "train.py:12 imports numpy" in item.why
    lazy = "try:\n    import nope1\nexcept ImportError:\n    pass\ndef plot():\n    import nope2\nif 0:\n    import nope3\n"
    (project.folder / "copy/train.py").write_text(lazy)
    assert check_environment(study, None).verdict == "pass", "it may never come to those"
