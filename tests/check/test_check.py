"""windlass check: each item can fail, for its own reason, and says what to do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from windlass.check.headless import find_windows
from windlass.check.record import passed_at
from windlass.spec.load import load_study

TRAIN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
arguments = parser.parse_args()
print(arguments.lr)
"""
STUDY = "command: python3 train.py --lr {lr}\nparameters:\n  lr: [0.1, 0.2]\nneeds: {time: 1m, memory: 100MB}\n"


def git(project: Project, *words: str) -> None:
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *who, *words], cwd=project.folder, check=True, capture_output=True)


@pytest.fixture
def good(project: Project) -> Project:
    """A study that passes."""
    project.write("train.py", TRAIN)
    project.write("study.yaml", STUDY)
    project.write(".gitignore", "cache/\nconfig/\n")
    git(project, "init", "-q")
    commit(project)
    return project


def commit(project: Project) -> None:
    git(project, "add", ".")
    git(project, "commit", "-qm", "all")


def items(project: Project, *words: str, code: int) -> dict[str, dict[str, Any]]:
    said = project.json("check", "--json", "--on", "local", *words, code=code)
    assert said["ready"] is (code == 0)
    return {item["name"]: item for item in said["items"]}


def only_failure(project: Project, *words: str) -> dict[str, Any]:
    found = items(project, *words, code=1)
    wrong = [item for item in found.values() if item["verdict"] == "fail"]
    assert len(wrong) == 1, wrong
    assert wrong[0]["todo"]
    return wrong[0]


def test_all_is_well_and_remembered(good: Project) -> None:
    study = load_study(str(good.folder / "study.yaml"))
    assert passed_at(study) is None
    found = items(good, code=0)
    assert {item["verdict"] for name, item in found.items() if name != "folders"} == {"pass"}
    assert passed_at(study) is not None
    good.write("train.py", TRAIN + "print(1)\n")
    commit(good)
    assert passed_at(study) is None, "another commit is another program"
    assert "ready" in good.run("check", "--on", "local").stdout
    assert not (good.folder / "out").exists() and not list(good.folder.glob("*.pyc"))
    status = subprocess.run(
        ["git", "status", "--porcelain"],
        cwd=good.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert status.stdout == "", "a check leaves nothing that git sees"


def test_without_a_run(good: Project) -> None:
    found = items(good, "--no-run", code=0)
    assert {name for name, item in found.items() if item["verdict"] == "skipped"} == {
        "trial", "headless", "options", "shared folders", "folders",
    }  # fmt: skip
    assert passed_at(load_study(str(good.folder / "study.yaml"))) is None


class TestCode:
    def test_not_committed(self, good: Project) -> None:
        good.write("more.py", "")
        item = only_failure(good)
        assert item["name"] == "code" and "more.py" in item["why"]

    def test_not_pushed(self, good: Project, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", "--bare", tmp_path / "remote"], check=True)
        git(good, "remote", "add", "origin", str(tmp_path / "remote"))
        assert only_failure(good)["todo"] == "git push"
        git(good, "push", "-q", "origin", "HEAD")
        assert "pushed" in items(good, code=0)["code"]["why"]

    def test_no_repository(self, project: Project) -> None:
        project.write("train.py", TRAIN)
        project.write("study.yaml", STUDY)
        assert only_failure(project)["name"] == "code"


def test_data_not_packed(good: Project) -> None:
    good.write("datasets/a/x.txt", "x")
    good.write("study.yaml", STUDY + "data: [datasets/a]\n")
    commit(good)
    assert only_failure(good, "--no-run")["todo"] == "windlass data pack"
    good.run("data", "pack")
    commit_if_needed(good)
    assert items(good, "--no-run", code=0)["data"]["verdict"] == "pass"
    good.write("datasets/a/y.txt", "y")
    commit_if_needed(good)
    assert only_failure(good, "--no-run")["name"] == "data"


def commit_if_needed(project: Project) -> None:
    project.write(".gitignore", "cache/\nconfig/\n.windlass-data/\n")
    commit(project)


def test_environment_missing(good: Project) -> None:
    good.write("study.yaml", STUDY + "environment: {venv: nowhere}\n")
    commit(good)
    found = items(good, "--no-run", code=1)
    assert found["environment"]["verdict"] == "fail" and "nowhere" in found["environment"]["why"]


def test_a_module_is_missing(good: Project) -> None:
    good.write("train.py", TRAIN + "import no_such_module_at_all\n")
    commit(good)
    found = items(good, code=1)
    assert (
        found["environment"]["verdict"] == "fail"
        and "no_such_module_at_all" in found["environment"]["why"]
    )
    assert found["trial"]["verdict"] == "fail"


def test_needs_not_known(good: Project) -> None:
    good.write(
        "study.yaml", STUDY.replace("needs: {time: 1m, memory: 100MB}\n", "needs: {time: 1m}\n")
    )
    commit(good)
    item = only_failure(good)
    assert item["name"] == "needs" and "memory" in item["why"] and "memory: 8GB" in item["todo"]


def test_a_window(good: Project) -> None:
    """It runs all the same: there is no display that could hold it up."""
    good.write(
        "plots.py",
        "import importlib\n\n\ndef show():\n    import matplotlib.pyplot as p\n\n    p.show()\n",
    )
    good.write("train.py", TRAIN + "import plots\n")
    commit(good)
    item = only_failure(good)
    assert item["name"] == "headless" and "plots.py:7" in item["why"]


def test_a_program_that_asks(good: Project) -> None:
    good.write("train.py", TRAIN + "import builtins\ngetattr(builtins, 'in' + 'put')('name? ')\n")
    commit(good)
    found = items(good, code=1)
    assert found["headless"]["verdict"] == "fail" and "EOFError" in found["headless"]["why"]


def test_an_option_that_is_not_there(good: Project) -> None:
    good.write("train.py", TRAIN.replace("parse_args()", "parse_known_args()[0]"))
    good.write("study.yaml", STUDY.replace("--lr {lr}", "--lr {lr} --momentum 0.9"))
    commit(good)
    item = only_failure(good)
    assert item["name"] == "options" and "--momentum" in item["why"]


def test_a_trial_that_fails(good: Project) -> None:
    good.write("train.py", TRAIN + "raise SystemExit('the data are wrong')\n")
    commit(good)
    item = only_failure(good)
    assert item["name"] == "trial" and "the data are wrong" in item["why"]


def test_a_trial_that_takes_long_is_cut_short(good: Project) -> None:
    good.write("train.py", TRAIN + "import time\ntime.sleep(1000)\n")
    commit(good)
    assert "went on well for 2 s" in items(good, "--limit", "2", code=0)["trial"]["why"]


@pytest.mark.parametrize(
    ("place", "verdict"), [("scratch_dir", "fail"), ("SLURM_TMPDIR", "pass"), ("SCRATCH", "fail")]
)
def test_many_small_files(good: Project, place: str, verdict: str) -> None:
    (good.folder.parent / "scratch/data").mkdir(parents=True)
    good.env["SCRATCH"] = str(good.folder.parent / "scratch")
    folder = f'{{os.environ["{place}"]}}' + ("/data/new" if place == "SCRATCH" else "")
    writes = f"import os\nos.makedirs(f'{folder}', exist_ok=True)\n"
    writes += f"for n in range(1200):\n    open(f'{folder}/f{{n}}', 'w').write('x')\n"
    good.write("train.py", TRAIN + writes)
    commit(good)
    found = items(good, code=int(verdict == "fail"))
    assert found["shared folders"]["verdict"] == verdict
    if verdict == "fail":
        assert (
            "1,200 files" in found["shared folders"]["why"]
            and "$SLURM_TMPDIR" in found["shared folders"]["todo"]
        )


def test_results_in_home_where_there_is_scratch(good: Project) -> None:
    """As a profile says it, without asking any scheduler."""
    good.write(
        "config/windlass/sites/toy.toml",
        f'scratch = "{good.folder.parent}/scratch/$USER"\nlogin_hosts = ["nowhere"]\n',
    )
    good.env["HOME"] = str(good.folder.parent)
    said = good.json(
        "check",
        "--site",
        "toy",
        "--no-run",
        "--folder",
        str(good.folder / "studies"),
        "--json",
        code=1,
    )
    (item,) = [item for item in said["items"] if item["name"] == "folders"]
    assert item["verdict"] == "fail" and "export SCRATCH=" in item["todo"]


LOUD = {
    "import matplotlib.pyplot as plt\nplt.show()": "plt.show()",
    "from matplotlib import pyplot\npyplot.show()": "pyplot.show()",
    "from matplotlib.pyplot import show\nshow()": "show()",
    "import cv2\ncv2.imshow('x', 1)": "cv2.imshow()",
    "import pygame\npygame.display.set_mode((1, 1))": "pygame.display.set_mode()",
    "import gymnasium\ngymnasium.make('CartPole-v1', render_mode='human')": "render_mode='human'",
    "name = input('?')": "input()",
    "import tkinter\nroot = window()\nroot.mainloop()": ".mainloop()",
    "breakpoint()": "breakpoint()",
}
SILENT = (
    "import matplotlib.pyplot as plt\nplt.savefig('x.png')",
    "class Model:\n    def input(self): ...\nModel().input()",
    "import gymnasium\ngymnasium.make('CartPole-v1', render_mode='rgb_array')",
    "config.show()",
)


@pytest.mark.parametrize("source", [*LOUD, *SILENT])
def test_what_opens_windows(tmp_path: Path, source: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/deep.py").write_text("# a line\n" + source)
    (tmp_path / "main.py").write_text("from package import deep\n")
    found = find_windows([("main", ["python", "main.py"])], str(tmp_path), str(tmp_path))
    lines = len(source.splitlines()) + 1
    expected = [(f"package/deep.py:{lines}", LOUD[source])] if source in LOUD else []
    assert [(window.place, window.what) for window in found] == expected
    again = find_windows([("main", ["python", "-m", "package.deep"])], str(tmp_path), str(tmp_path))
    assert again == found


def test_json_is_stable(good: Project) -> None:
    said = json.loads(good.run("check", "--json", "--no-run", "--on", "local").stdout)
    assert set(said) == {"ready", "items"}
    assert set(said["items"][0]) == {"name", "verdict", "why", "todo", "places"}
