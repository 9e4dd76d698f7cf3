"""What trials are given is as it was written, and what is printed of a trial can be copied and executed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Project

SHOW = """
import json, os, sys
names = ("LR", "WHERE", "FLAG", "LIST", "MOMENTUM", "LITERAL")
print(json.dumps([sys.argv[1:], [os.environ.get(name) for name in names]]))
"""


def test_variables_have_values_as_the_command_has_them(project: Project) -> None:
    project.write("show.py", SHOW)
    project.write(
        "study.yaml",
        "name: given\ncommand: python show.py {lr} {flag} {list}\n"
        "parameters:\n  lr: [1e-3, 0.10]\n  flag: [true, null]\n  list: [[1, 1e-5]]\n  opt: [sgd, adam]\n"
        "  momentum: {values: [0.90], when: {opt: sgd}}\n"
        "env: {LR: '{lr}', WHERE: '{study}/{trial_id}/{opt}', FLAG: '{flag}', LIST: '{list}', "
        "MOMENTUM: 'm={momentum}', LITERAL: '{{lr}} ${lr}'}\n",
    )
    project.run("run", "--on", "local")
    for row in project.json("results", "--json"):
        (lr, flag, listed), variables = json.loads(project.run("logs", str(row["number"])).stdout)
        assert lr in ("1e-3", "0.10") and flag in ("True", "None")
        where = f"given/{row['id']}/{row['opt']}"
        momentum = "m=0.90" if row["opt"] == "sgd" else None
        assert variables == [lr, where, flag, listed, momentum, "{lr} ${lr}"]


WORK = r"""
import json, os, sys
folder, settings, text, data = sys.argv[1:5]
assert os.path.isdir(folder) and os.environ["checkpoint_dir"] == folder, folder
print(json.load(open(settings)), repr(text), open(data).read(), os.environ["NAME"], sys.argv[5:], flush=True)
open(os.path.join(folder, "state.pt"), "w").write("1")
sys.exit(3)
"""


@pytest.mark.parametrize("shell", [False, True])
def test_a_failed_trial_can_be_executed_from_what_is_printed(
    project: Project, tmp_path: Path, shell: bool
) -> None:
    """With every placeholder that only the agent fills in, in a folder of its own for checkpoints."""
    project.env["TMPDIR"] = str(tmp_path)
    project.write("pyproject.toml", "")
    project.write("datasets/one/a.txt", "read")
    project.write("work.py", WORK)
    command = (
        "python work.py {checkpoint_dir} {args_json_file} {text} {envvar:SLURM_TMPDIR}/datasets/one/a.txt "
        "--from {checkpoint}"
    )
    if shell:
        command = command.replace(" --from {checkpoint}", " {envvar:SHELL_WORD}")
        project.env["SHELL_WORD"] = "x"
    project.write(
        "study.yaml",
        f"stages:\n  first: 'true'\n  main: {json.dumps(command)}\nshell: {str(shell).lower()}\n"
        'parameters:\n  text: ["it\'s $HOME {x}"]\n  lr: [1e-3]\n'
        "env: {NAME: 'a b {lr}'}\ndata: [datasets/one]\ncheckpoint: {}\ncode: frozen\n",
    )
    project.run("run", "--on", "local", code=1)
    expected = project.run("logs", "0").stdout
    assert "'lr': 0.001" in expected and "a b 1e-3" in expected
    kept = project.study_folder() / "checkpoints"
    before = [path.stat().st_mtime_ns for path in kept.rglob("state.pt")]
    ticket = (
        project.run("explain", "--ticket", "0")
        .stdout.split("To see it again\n", 1)[1]
        .split("\n\n")[0]
    )
    for text in ("\n".join(project.json("explain", "0", "--json")["by_hand"]), ticket):
        done = subprocess.run(
            ["sh", "-c", text],
            cwd="/",
            env=project.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 3 and done.stdout == expected, f"{text}\n{done.stderr}"
    assert [path.stat().st_mtime_ns for path in kept.rglob("state.pt")] == before


def test_variables_and_the_folder_stand_whatever_the_setup_does(project: Project) -> None:
    project.write(
        "show.py",
        "import os, sys\nprint(os.environ['WINDLASS_SEED'], os.path.isdir(os.environ['source_dir']), flush=True)\n"
        "sys.exit(4)\n",
    )
    project.write(
        "study.yaml", "command: python show.py\nrepeat: 2\nenvironment: {setup: ['cd /']}\n"
    )
    project.run("run", "--on", "local", code=1)
    lines = project.json("explain", "1", "--json")["by_hand"]
    done = subprocess.run(
        ["sh", "-c", "\n".join(lines)],
        cwd="/",
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4 and done.stdout == project.run("logs", "1").stdout, (lines, done)


def test_a_trial_of_two_nodes_is_started_on_two(project: Project) -> None:
    """In its job `srun` has the job's nodes; by hand it has to be told."""
    project.write("study.yaml", "name: two\ncommand: srun echo {n}\nparameters: {n: [1]}\n")
    project.run("run", "--on", "local", code=None)
    plan = project.folder / ".windlass" / "two" / "plan.json"
    content = json.loads(plan.read_text())
    del content["crc"]
    content["terms"] = {"request": {"nodes": 2}}
    plan.write_text(json.dumps(content))
    assert "    srun -N 2 echo 1" in project.run("explain", "0").stdout.splitlines()
