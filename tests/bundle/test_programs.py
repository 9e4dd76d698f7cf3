"""A missing program or script is refused before anything is queued; what the environment may bring is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.bundle.programs import find_program_problems
from windlass.search import iterate_trials
from windlass.spec.load import load_study

THERE = {"train.py": "", "job.sh": "echo\n", "run": "#!/bin/sh\n", "tool/__main__.py": ""}


def look(
    folder: Path, text: str, environ: dict[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """Problems as `line: message | hint`, and what could not be looked at."""
    for name, content in THERE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder / "run").chmod(0o755)
    (folder / "study.yaml").write_text(text)
    study = load_study(str(folder / "study.yaml"))
    problems, unseen = find_program_problems(study, iterate_trials(study), environ)
    return [f"{one.line}: {one.message} | {one.hint}" for one in problems], unseen


WRONG = {
    "pyhton train.py": "there is no program pyhton in PATH | did you mean python",
    "python3 nofile.py": "there is no file {folder}/nofile.py",
    "python3 trian.py --lr 1": "there is no file {folder}/trian.py | did you mean train.py?",
    "python3 -u -W ignore nofile.py": "there is no file {folder}/nofile.py",
    "env A=1 python3 nofile.py": "there is no file {folder}/nofile.py",
    "env A=1 pyhton train.py": "there is no program pyhton in PATH",
    "bash -e nofile.sh": "there is no file {folder}/nofile.sh",
    "timeout 5 python3 nofile.py": "there is no file {folder}/nofile.py",
    "./nofile": "there is no file {folder}/./nofile",
    "./train.py": "{folder}/./train.py may not be executed | chmod +x ./train.py",
    "run": "there is no program run in PATH | write ./run for the file here",
    "/no/such/folder/python train.py": "there is no file /no/such/folder/python",
}
RIGHT = (
    "python3 train.py", "python3 -c 'import nofile' nofile.py", "python3 -m nofile", "python3 tool", "bash -c 'pyhton x'",
    "bash -lc 'pyhton x'", "bash job.sh", "./run nofile.py", "python3 $HOME/nofile.py", "env -i pyhton", "timeout 5 ./run",
    "nohup python3 train.py", "python3 {envvar:PLACE}/x.py", "env python3 train.py",
)  # fmt: skip


@pytest.mark.parametrize("command", [*WRONG, *RIGHT])
def test_commands(tmp_path: Path, command: str) -> None:
    problems, unseen = look(tmp_path, f"# a study\ncommand: {command}\n")
    expected = WRONG.get(command)
    assert unseen == []
    if expected is None:
        assert problems == []
    else:
        (problem,) = problems
        assert problem.startswith(f"2: {expected.format(folder=tmp_path)}"), problem


SHELL_WRONG = (
    "pyhton train.py | tee log",
    "A=1 python3 nofile.py && echo done",
    "python3 nofile.py > out.txt",
)
SHELL_RIGHT = (
    "cd there && pyhton x",
    "source bin/activate; pyhton x",
    "for n in 1 2; do echo $n; done",
    "$PYTHON x.py",
)


@pytest.mark.parametrize("command", [*SHELL_WRONG, *SHELL_RIGHT])
def test_commands_for_a_shell(tmp_path: Path, command: str) -> None:
    """Only the first command can be judged, and only where it is none of the shell's own."""
    problems, _ = look(tmp_path, f"shell: true\ncommand: '{command}'\n")
    assert len(problems) == (1 if command in SHELL_WRONG else 0)


def test_a_later_stage(tmp_path: Path) -> None:
    stages = "stages:\n  prepare: python3 train.py --write made.py\n  use: python3 made.py\n  end: python3 nofile.py\n"
    problems, _ = look(tmp_path, stages)
    assert problems == [
        f"4: end: there is no file {tmp_path}/nofile.py | paths are relative to the study's folder, or to its `workdir`"
    ], "a script that an earlier stage names may be written by it"


def test_each_trial_and_each_task(tmp_path: Path) -> None:
    problems, _ = look(
        tmp_path, "command: python3 {script}.py\nparameters: {script: [train, nofile]}\n"
    )
    assert len(problems) == 1 and "nofile.py" in problems[0]
    (tmp_path / "tasks.txt").write_text("python3 train.py\npython3 train.py 2\npyhton train.py\n")
    study = load_study(str(tmp_path / "tasks.txt"))
    (problem,), _ = find_program_problems(study, iterate_trials(study))
    assert problem.line == 3 and "pyhton" in problem.message


BROUGHT = {
    "environment: {modules: [python/3.11]}": "the modules python/3.11 are loaded on the node",
    "environment: {setup: ['export PATH=/opt/x:$PATH']}": "the lines under `setup` are executed on the node",
    "environment: {build: requirements.txt}": "the environment (build) is not there yet",
    "env: {PATH: '/opt/{trial_id}'}": "`env` sets PATH",
    "slurm: {options: {export: NONE}}": "--export keeps this shell's PATH from jobs",
}


@pytest.mark.parametrize("key", BROUGHT)
def test_what_the_environment_may_bring_is_not_refused(tmp_path: Path, key: str) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}  # without a module command
    problems, unseen = look(tmp_path, f"command: mytool --x 1\n{key}\n", environ)
    assert problems == []
    assert unseen == [f"whether there is a program mytool could not be looked at: {BROUGHT[key]}"]
    problems, _ = look(tmp_path, f"command: python3 nofile.py\n{key}\n", environ)
    assert len(problems) == 1, "a script of the project is the project's own"


def test_the_programs_of_a_virtual_environment(tmp_path: Path) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/mytool").write_text("#!/bin/sh\n")
    (tmp_path / "venv/bin/mytool").chmod(0o755)
    assert look(tmp_path, "command: mytool\nenvironment: {venv: venv}\n") == ([], [])
    problems, _ = look(tmp_path, "command: mytol\nenvironment: {venv: venv}\n")
    assert problems == ["1: there is no program mytol in PATH | did you mean mytool?"]


def test_every_verb_that_starts_trials_refuses(project: Project) -> None:
    project.write("study.yaml", "command: pyhton train.py --lr {lr}\nparameters: {lr: [1, 2]}\n")
    for verb in ("plan", "run", "measure"):
        ended = project.run(verb, "--on", "local", code=2)
        assert "study.yaml:1: there is no program pyhton in PATH" in ended.stderr
    assert not (project.folder / ".windlass").exists()
    said = project.json("check", "--on", "local", "--no-run", "--json", code=1)
    (item,) = [item for item in said["items"] if item["name"] == "environment"]
    assert (
        item["verdict"] == "fail"
        and "pyhton" in item["why"]
        and "did you mean python" in item["todo"]
    )


def test_what_init_leaves_to_be_filled_in(project: Project) -> None:
    project.write(
        "train.py",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('out')\n"
        "parser.add_argument('--data-dir', required=True)\nparser.add_argument('--lr', type=float, default=0.1)\n"
        "parser.parse_args()\n",
    )
    project.run("init", "train.py")
    for verb in ("plan", "run"):
        errors = project.run(verb, "--on", "local", code=2).stderr
        assert "TO_FILL_OUT is a placeholder that nobody replaced" in errors
        assert (
            "TO_FILL_DATA_DIR is a placeholder that nobody replaced" in errors
            and "study.yaml:" in errors
        )
    text = (project.folder / "study.yaml").read_text()
    project.write(
        "study.yaml", text.replace("TO_FILL_OUT", "here").replace("TO_FILL_DATA_DIR", "there")
    )
    project.run("plan", "--on", "local", "--check")


def test_a_help_that_died_is_not_an_option_that_is_missing(project: Project) -> None:
    program = "import argparse{}\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nparser.parse_args()\n"
    project.write(
        "study.yaml", "command: python3 train.py --lr {lr} --seed 1\nparameters: {lr: [1]}\n"
    )
    project.write("train.py", program.format(", no_such_module"))
    errors = project.run("plan", "--check", "--on", "local", code=2).stderr
    assert (
        "could not import what it needs: ModuleNotFoundError: No module named 'no_such_module'"
        in errors
    )
    assert "does not list" not in errors and "environment: {venv: PATH}" in errors
    item = next(
        item
        for item in project.json("check", "--on", "local", "--json", code=1)["items"]
        if item["name"] == "options"
    )
    assert item["verdict"] == "fail" and "no_such_module" in item["why"]
    project.write("train.py", program.format("\nraise SystemError('broken')"))
    assert (
        "ended with an error: SystemError: broken"
        in project.run("plan", "--check", "--on", "local", code=2).stderr
    )
    project.write("train.py", program.format(", windlass"))
    errors = project.run("plan", "--check", "--on", "local", code=2).stderr
    assert "does not list --seed" in errors and "--lr" not in errors.replace("train.py --lr", "")
