"""windlass check --interruption: programs that go on where they were, and the ways in which others do not."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.conftest import Project

PYTHON = shlex.quote(sys.executable)
# Counts to 40, a checkpoint each; what is particular about it is put in the places marked.
PROGRAM = """
import os, sys, time, windlass
folder = sys.argv[1]
loaded = sys.argv[sys.argv.index("--load") + 1] if "--load" in sys.argv else ""
count = int(open(loaded).read()) if loaded else 0
while count < 40:
    count += 1
    windlass.log(step=count, loss=1 / count)
    open(os.path.join(folder, f"{count:04d}.state"), "w").write(str(count))
    if windlass.should_stop():
        sys.exit(42)
    time.sleep(0.05)
"""


def rehearse(project: Project, program: str, code: int, *words: str, **more: object) -> str:
    project.write("count.py", program)
    keys = {
        "command": f"{PYTHON} count.py {{checkpoint_dir}} {{n}}",
        "parameters": {"n": [1, 2, 3]},
        "checkpoint": {"resume": "--load {checkpoint}"},
        **more,
    }
    project.write("study.yaml", json.dumps(keys))
    done = project.run("check", "--interruption", "study.yaml", *words, code=code)
    assert "Traceback" not in done.stderr
    assert not list(project.folder.glob(".windlass/*")), "it leaves nothing behind"
    return done.stdout


def test_a_program_that_goes_on(project: Project) -> None:
    said = rehearse(project, PROGRAM, 0)
    assert said.count("ok  ") == 5 and "FAIL" not in said and "note" not in said
    assert said.splitlines()[-1] == "it goes on where it was"


def test_one_that_begins_anew(project: Project) -> None:
    said = rehearse(project, PROGRAM.replace("int(open(loaded).read()) if loaded else 0", "0"), 1)
    assert "FAIL  it began anew at step 1" in said


def test_one_that_ends_with_0_when_told(project: Project) -> None:
    said = rehearse(project, PROGRAM.replace("sys.exit(42)", "sys.exit(0)"), 1)
    assert "which is taken for done" in said and "exit with 42" in said
    with_file = (
        PROGRAM.replace("sys.exit(42)", "sys.exit(0)") + 'open(os.path.join(folder, "end"), "w")\n'
    )
    rehearse(project, with_file, 0, checkpoint={"resume": "--load {checkpoint}", "done": "end"})


def test_one_that_saves_nothing(project: Project) -> None:
    said = rehearse(project, "import time; time.sleep(60)", 1, "--after", "1s")
    assert "saved nothing" in said and "WINDLASS_CHECKPOINT_DIR" in said


def test_one_whose_checkpoints_are_not_known_as_such(project: Project) -> None:
    said = rehearse(project, PROGRAM.replace(".state", ".mine"), 1)
    assert "0001.mine" in said and "pattern" in said


def test_one_that_hears_nothing(project: Project) -> None:
    """It goes on all the same: only what came after the last checkpoint is lost."""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    program = deaf + PROGRAM.replace("windlass.should_stop()", "False").replace("0.05", "0.2")
    said = rehearse(project, program, 0, interrupt={"lead": "1s"})
    assert "was killed" in said and "went on at step" in said


def test_one_that_fails_to_load(project: Project) -> None:
    said = rehearse(
        project, PROGRAM.replace("int(open(loaded).read()) if loaded", "1 / 0 if loaded"), 1
    )
    assert "FAIL  the next session did not end well: failed" in said


@pytest.mark.parametrize("after", ["nonsense", "-1s"])
def test_a_wrong_time(project: Project, after: str) -> None:
    project.write("study.yaml", "command: 'true {n}'\nparameters: {n: [1]}\n")
    done = project.run("check", "--interruption", "--after", after, code=2)
    assert "Traceback" not in done.stderr
