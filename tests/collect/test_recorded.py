"""A shell that was recorded becomes the lines that make trials find the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.collect.recorded import Draft, Typed, draft_environment
from windlass.places.slurm.recording import write_recorder
from windlass.view.recorded import render_draft

SECRET = "0123456789abcdef0123456789abcdef01234567"


def type_lines(folder: Path, lines: str) -> str:
    """What the recording shell says at its end after these lines were typed in it."""
    words = write_recorder(str(folder))
    env = {**os.environ, "HOME": str(folder.parent)}
    done = subprocess.run(
        words, input=lines, text=True, capture_output=True, check=True, env=env, cwd=folder.parent
    )
    return done.stdout


def test_a_session_is_replayed_as_a_study(project: Project) -> None:
    project.write("more.sh", "export FROM_A_FILE=yes\n")
    typed = (
        "ls /nowhere\n\nexport GREETING='good  day'\n. ./more.sh\n"
        f"export WANDB_API_KEY={SECRET}\nexport GREETING='good  day'\necho $GREETING\nexit\n"
    )
    folder = project.folder / "it's recorded"
    said = type_lines(folder, typed)
    draft = (project.folder / "it's recorded.yaml").read_text()
    assert draft in said and SECRET not in draft and not folder.exists()
    assert draft.splitlines()[:4] == [
        "environment:",
        "  setup:",
        "    - \"export GREETING='good  day'\"",
        '    - ". ./more.sh"',
    ]
    assert "#   ls /nowhere   (exit code 2)" in draft and "the value of $WANDB_API_KEY" in draft
    project.write(
        "study.yaml", 'command: sh -c "echo $GREETING, $FROM_A_FILE"\ncode: live\n' + draft
    )
    project.run("run", "study.yaml", "--on", "local", "--quiet")
    assert "good  day" not in project.run("logs", "0").stdout  # sh joins the words
    assert "good day, yes" in project.run("logs", "0").stdout


def test_modules_and_activation() -> None:
    typed = [
        Typed("module load python/3.11 cuda", 0),
        Typed("source env/bin/activate", 0),
        Typed("module load no", 1),
    ]
    before = {"LOADEDMODULES": "StdEnv/2023", "PATH": "/bin"}
    after = {
        "LOADEDMODULES": "StdEnv/2023:python/3.11:cuda/12.2",
        "VIRTUAL_ENV": "/p/env",
        "PATH": "/p/env/bin:/bin",
    }
    draft = draft_environment(typed, before, {**after, "EBROOTCUDA": "/cvmfs/cuda"})
    assert (draft.modules, draft.kind, draft.value) == (
        ("python/3.11", "cuda/12.2"),
        "venv",
        "/p/env",
    )
    assert draft.setup == () and draft.unexplained == ()
    assert render_draft(draft).splitlines()[1:3] == [
        '  modules: ["python/3.11", "cuda/12.2"]',
        '  venv: "/p/env"',
    ]


def test_modules_as_typed_where_nobody_counts_them() -> None:
    draft = draft_environment(
        [Typed("module load a/1 b", 0), Typed("ml c", 0), Typed("module load d", 1)], {}, {}
    )
    assert draft.modules == ("a/1", "b", "c")


def test_what_was_installed_is_a_comment_and_not_a_line_of_every_trial() -> None:
    typed = [
        Typed("pip install numpy", 0),
        Typed("python -m pip install scipy", 0),
        Typed("pip install no", 1),
    ]
    draft = draft_environment(
        typed, {}, {"CONDA_PREFIX": "/c/envs/torch", "CONDA_DEFAULT_ENV": "torch"}
    )
    assert draft.installed == ("pip install numpy", "python -m pip install scipy")
    assert (draft.kind, draft.value) == ("conda", "torch")
    assert "  - " not in render_draft(draft)


def test_a_variable_that_nobody_exported_is_named() -> None:
    assert draft_environment(
        [Typed("export A=1", 0)], {}, {"A": "1", "B": "2", "PATH": "/x"}
    ).unexplained == ("B",)


def test_nothing_to_draft() -> None:
    assert (
        render_draft(Draft()) == "# nothing was changed that trials would need: no `environment:`\n"
    )


def test_a_shell_that_was_killed_is_said_to_be(project: Project) -> None:
    done = project.run("shell", "--draft", str(project.folder / "none"), code=2)
    assert "the shell was killed" in done.stderr


@pytest.mark.parametrize("line", ["export A=1; ", "ulimit -n 4096", "umask 022"])
def test_lines_that_change_the_shell(line: str) -> None:
    assert draft_environment([Typed(line, 0)], {}, {}).setup == (line,)
