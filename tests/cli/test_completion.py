"""Completion: what is offered, that the answer imports nothing slow, installing it, and the shells themselves."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.completion.answer import Answer, find_answer, render_answer, split_line
from windlass.completion.install import find_places, find_shell, install, uninstall
from windlass.completion.table import read_table
from windlass.core.errors import InputError, WindlassError
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import append_trials

STUDY = """name: sweep
command: python train.py --lr {lr} --opt {opt}
parameters:
  # the rate
  lr: [0.1, 0.01]  # two of them
  opt: [adam, "sgd"]
  depth:
    distribution: log_uniform
seeds: 3
"""


def make_study(folder: Path, name: str, settings: list[dict[str, object]]) -> None:
    """A study's folder as far as completion reads it."""
    paths = StudyPaths(str(folder / ".windlass" / name))
    os.makedirs(paths.folder)
    Path(paths.plan).write_text("{}")
    append_trials(paths, 0, (trial_line(number, one) for number, one in enumerate(settings)))


def trial_line(number: int, settings: dict[str, object]) -> tuple[str, bytes]:
    name = (
        "taaaaaaaaaa"
        + "abcdefghijklmnopqrstuvwxyz"[number // 26 % 26]
        + "abcdefghijklmnopqrstuvwxyz"[number % 26]
    )
    return name, json.dumps({"id": name, "stages": [], "settings": settings}).encode() + b"\n"


@pytest.fixture
def project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "train.py").touch()
    make_study(tmp_path, "older", [{"width": 1}])
    time_of_old = time.time() - 1000
    for path in (tmp_path / ".windlass/older", tmp_path / ".windlass/older/plan.json"):
        os.utime(path, (time_of_old, time_of_old))
    make_study(
        tmp_path,
        "sweep",
        [{"lr": lr, "opt": opt} for lr in (0.1, 0.01) for opt in ("adam", "a b", "x\x1b[2J")],
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCRATCH", raising=False)
    return tmp_path


def ask(line: str) -> tuple[str, list[str]]:
    """What is offered for this unfinished line: how, and the values."""
    words = split_line(line)
    answer = find_answer(read_table(), words[1:-1], words[-1])
    return answer.how, [one.value for one in answer.candidates]


def test_what_is_offered(project_folder: Path) -> None:
    verbs = ask("windlass ")[1]
    assert {"run", "plan", "logs", "completion"} <= set(verbs) and ask("windlass st") == (
        "plain",
        ["status"],
    )
    assert ask("windlass run --sl")[1] == ["--slots"] and ask("windlass run --array")[1] == [
        "--array-size"
    ]
    assert (
        "--agents" in ask("windlass run --")[1] and "--array-size" not in ask("windlass run --")[1]
    )
    assert ask("windlass run --on ")[1] == ask("windlass run -q --on ")[1] == ["slurm", "local"]
    assert ask("windlass run --on=l")[1] == ["--on=local"]
    assert ask("windlass status ")[1] == ["sweep", "older"], "the newest first"
    assert ask("windlass logs --study ol")[1] == ["older"]
    assert ask("windlass logs ")[1] == ["sweep", "older", *(str(number) for number in range(6))]
    assert ask("windlass logs older ")[1] == ["0"] and ask("windlass logs sweep 5")[1] == ["5"]
    assert ask("windlass logs --study older ")[1] == ["0"] and ask("windlass retry 0 1 3")[1] == [
        "3"
    ]
    assert ask("windlass cancel o")[1] == ["older"] and ask("windlass cancel 5")[1] == ["5"]
    assert ask("windlass results --where ") == ("nospace", ["lr=", "opt="])
    assert ask("windlass results --where lr=")[1] == ["lr=0.1", "lr=0.01"]
    assert ask("windlass results older --where ") == ("nospace", ["width="])
    assert ask("windlass results --where opt=")[1] == ["opt=adam", "opt=a b"], (
        "nothing that a terminal would obey"
    )
    assert ask("windlass results --by lr,")[1] == ["lr,opt"]
    assert ask("windlass plan --param ") == ("nospace", ["lr=", "opt=", "depth="])
    assert ask("windlass plan study.yaml --param opt=")[1] == ["opt=adam", "opt=sgd"]
    assert ask("windlass plan s") == ("paths", ["study.yaml"]) and ask("windlass init t") == (
        "paths",
        ["train.py"],
    )
    assert ask("windlass run -- python tr") == ("files", []) and ask("windlass run --folder ") == (
        "folders",
        [],
    )
    assert ask("windlass data ")[1] == ["list", "pack"] and ask("windlass site fi")[1] == ["fir"]
    assert ask("windlass completion install ")[1] == ["bash", "zsh", "fish"]
    assert ask("windlass nonsense ")[1] == verbs and ask("windlass run --nonsense=") == (
        "plain",
        [],
    )


def test_numbers_of_many_trials_are_few_and_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_study(tmp_path, "many", [{"a": 1}])
    paths = StudyPaths(str(tmp_path / ".windlass/many"))
    append_trials(paths, 0, (trial_line(number, {"a": 1}) for number in range(3000)))
    monkeypatch.chdir(tmp_path)
    assert (
        ask("windlass logs 12")[1][:3] == ["12", "120", "121"]
        and len(ask("windlass logs 12")[1]) == 111
    )
    assert len(ask("windlass logs ")[1]) == 200 and ask("windlass logs 0")[1] == ["0"]
    assert ask("windlass logs 4000")[1] == ask("windlass logs 00")[1] == []


def test_lines_are_split_as_shells_do_it() -> None:
    assert split_line("windlass logs ") == ["windlass", "logs", ""]
    assert split_line(r"""windlass run 'a b' "c\"d" e\ f 'g h""") == [
        "windlass",
        "run",
        "a b",
        'c"d',
        "e f",
        "g h",
    ]


def test_bash_gets_what_follows_the_last_break_quoted(project_folder: Path) -> None:
    found = find_answer(read_table(), ["results", "--where"], "opt=a")
    assert render_answer(found, "bash", "opt=a") == "plain\nadam\na\\ b\n"
    assert render_answer(found, "zsh", "opt=a") == "plain\nopt=adam\t\nopt=a b\t\n"
    assert render_answer(Answer("files"), "fish", "") == "files\n"


def test_an_answer_imports_nothing_slow(project_folder: Path) -> None:
    """Neither click, pydantic and the YAML reader, nor any verb: an answer comes at every press of the tab key."""
    code = (
        "import sys; before = set(sys.modules); sys.argv = ['windlass', 'windlass', 'results', '--where', 'lr=']\n"
        "from windlass.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    env = {**os.environ, "_WINDLASS_COMPLETE": "zsh"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    *answer, modules = done.stdout.splitlines()
    assert answer == ["plain", "lr=0.1\t", "lr=0.01\t"]
    imported = json.loads(modules)
    slow = (
        "click",
        "pydantic",
        "ruamel",
        "windlass.cli",
        "windlass.spec",
        "sqlite3",
        "subprocess",
        "asyncio",
    )
    assert not [name for name in imported if name.startswith(slow)]
    assert len(imported) < 120, imported


def test_what_goes_wrong_is_not_shown(project_folder: Path) -> None:
    """A damaged folder completes nothing: an error would be printed into the line that is being typed."""
    (project_folder / ".windlass/sweep/trials.jsonl").write_bytes(b"\xff{\n" * 500)
    env = {**os.environ, "_WINDLASS_COMPLETE": "bash"}
    words = [sys.executable, "-m", "windlass", "windlass results --where "]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.stdout in ("", "plain\n") and done.stderr == ""
    (project_folder / ".windlass/sweep/trials.idx").unlink()
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.stdout in ("", "plain\n") and done.stderr == ""


def test_installing_twice_changes_nothing_and_can_be_undone(tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    before = b"export A=1\n# caf\xe9"  # not UTF-8, and no newline at the end
    (dotfiles / "bashrc").write_bytes(before)
    os.chmod(dotfiles / "bashrc", 0o600)
    (tmp_path / ".bashrc").symlink_to("dotfiles/bashrc")
    env = {"HOME": str(tmp_path), "SHELL": "/usr/bin/bash"}
    places = find_places(find_shell(None, env), env)
    assert install("bash", places) == [
        str(tmp_path / ".local/share/windlass/completion.bash"),
        str(tmp_path / ".bashrc"),
    ]
    first = (dotfiles / "bashrc").read_bytes()
    assert (
        first.startswith(before + b"\n# >>> windlass completion >>>\n")
        and (tmp_path / ".bashrc").is_symlink()
    )
    assert (dotfiles / "bashrc").stat().st_mode & 0o777 == 0o600
    (dotfiles / "bashrc").write_bytes(first + b"export B=2\n")
    assert install("bash", places) == []
    assert uninstall(places) == [
        str(tmp_path / ".bashrc"),
        str(tmp_path / ".local/share/windlass/completion.bash"),
    ]
    assert (dotfiles / "bashrc").read_bytes() == before + b"\nexport B=2\n" and uninstall(
        places
    ) == []

    zsh = find_places("zsh", {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path / "z")})
    assert zsh.start == str(tmp_path / "z/.zshrc")
    fish = find_places("fish", env)
    assert (
        install("fish", fish)
        == [str(tmp_path / ".config/fish/completions/windlass.fish")]
        == uninstall(fish)
    )
    with pytest.raises(InputError, match="no completion for tcsh"):
        find_shell(None, {"SHELL": "/bin/tcsh"})
    (tmp_path / ".zshrc").mkdir()
    with pytest.raises(WindlassError, match=r"\.zshrc: Is a directory"):
        install("zsh", find_places("zsh", env))
    assert not (tmp_path / ".local/share/windlass/completion.zsh").exists(), "nothing is half done"


def type_line(shell: str, home: Path, folder: Path, line: str, expected: str) -> None:
    """Type a line into an interactive shell and wait until it shows what is expected."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        path = f"{home}/bin:{os.environ['PATH']}"
        os.execvpe(
            shell,
            [shell, "-i"],
            {"HOME": str(home), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8"},
        )
    seen, typed, end = "", False, time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if not select.select([terminal], [], [], 1.0)[0]:
                continue
            seen += os.read(terminal, 65536).decode(errors="replace")
            if not typed and "ready> " in seen:
                os.write(terminal, line.encode())
                seen, typed = "", True
            if typed and expected in seen:
                return
        raise AssertionError(f"{shell}: {expected!r} is not in {seen!r}")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def test_in_the_shells(project: Project, project_folder: Path) -> None:
    """bash, and where they are installed zsh and fish, with the files that `completion install` writes."""
    project.write(
        "home/bin/windlass", f'#!/bin/sh\nexec {sys.executable} -m windlass "$@"\n'
    ).chmod(0o755)
    home = project.folder / "home"
    project.write("home/.bashrc", "PS1='ready> '\n")
    project.write("home/.zshrc", "PROMPT='ready> '\n")
    project.env = {**project.env, "HOME": str(home), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    for shell in ("bash", "zsh"):
        if shutil.which(shell) is None:
            continue
        done = project.run("completion", "install", shell)
        assert f"To undo this: windlass completion uninstall {shell}" in done.stdout
        for line, expected in (
            ("windlass stat\tX", "windlass status "),
            ("windlass results --where lr=0.0\tX", "--where lr=0.01 "),
            ("windlass plan --par\t", "--par"),
        ):
            type_line(shell, home, project_folder, line, expected)
    if shutil.which("fish") is not None:
        project.run("completion", "install", "fish")
        path = f"{home}/bin:{os.environ['PATH']}"
        words = [
            "fish",
            "-c",
            "complete -C 'windlass results --where lr=0.0'; complete -C 'windlass stat'",
        ]
        env = {"HOME": str(home), "PATH": path, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            words, cwd=project_folder, env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout == "lr=0.01\nstatus\tShow how far a study is.\n"
