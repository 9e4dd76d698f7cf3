"""Interruptions on this machine: told in time, resumed where they were, another turn, no progress, rude trials."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.conftest import Project, processes_with, wait_for
from windlass.collect.usage import read_usage
from windlass.core.paths import StudyPaths

PYTHON = shlex.quote(sys.executable)
# Counts to `total`, one number a checkpoint; stops when told, with the exit code given.
COUNTER = """
import os, sys, time, windlass
folder, total, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
loaded = sys.argv[sys.argv.index("--load") + 1] if "--load" in sys.argv else ""
count = int(open(loaded).read()) if loaded else 0
print("from", count, flush=True)
while count < total:
    count += 1
    windlass.log(step=count)
    path = os.path.join(folder, f"{count:04d}.state")
    open(path + ".tmp", "w").write(str(count))
    os.replace(path + ".tmp", path)
    if windlass.should_stop() and count < total:
        print("told at", count, windlass.remaining_s() is not None, flush=True)
        sys.exit(code)
    time.sleep(0.05)
print("done at", count, flush=True)
"""


def counter_study(project: Project, total: int = 100, code: int = 42, **more: Any) -> None:
    project.write("count.py", COUNTER)
    keys = {
        "command": f"{PYTHON} count.py {{checkpoint_dir}} {total} {code} {{n}}",
        "parameters": {"n": [1, 2]},
        "slots": 2,
        "checkpoint": {"resume": "--load {checkpoint}", "keep": 1, **more.pop("checkpoint", {})},
        **more,
    }
    project.write("study.yaml", json.dumps(keys))


def folder_of(project: Project) -> Path:
    """The study's folder, found without asking `windlass`, so that it can be looked for often."""
    return next(project.folder.glob(".windlass/*/plan.json")).parent


def agent_pid(project: Project) -> int:
    """The agent that lives now, by its journal."""
    for path in (folder_of(project) / "journal").glob("*.jsonl"):
        header = json.loads(path.read_text().splitlines()[0])
        if header["e"] == "agent" and os.path.exists(f"/proc/{header['pid']}"):
            return int(header["pid"])
    return 0


def checkpoints(project: Project) -> dict[str, list[str]]:
    folders = (folder_of(project) / "checkpoints").iterdir()
    return {folder.name: sorted(path.name for path in folder.glob("*.state")) for folder in folders}


def counted(project: Project, least: int) -> bool:
    found = checkpoints(project)
    return len(found) == 2 and all(
        names and int(names[-1][:4]) >= least for names in found.values()
    )


@contextmanager
def under_way(project: Project, *words: str) -> Iterator[subprocess.Popen[str]]:
    run = project.start("run", "--on", "local", *words)
    try:
        wait_for(lambda: list(project.folder.glob(".windlass/*/journal/*.jsonl")))
        yield run
    finally:
        if run.poll() is None:
            run.kill()
        run.communicate()


def rows(project: Project) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.json("results", "--json")
    return found


def test_told_that_the_end_is_near_and_resumed(project: Project) -> None:
    """What a job's time limit does, by the signal that Slurm sends."""
    counter_study(project, total=60)
    with under_way(project) as run:
        wait_for(lambda: counted(project, 5))
        os.kill(agent_pid(project), signal.SIGUSR1)
        assert run.wait(180) == 1, "not all is done"
    assert project.counts() == {"interrupted": 2}
    assert {row["cause"] for row in rows(project)} == {"job's time up"}
    reached = {name: int(names[-1][:4]) for name, names in checkpoints(project).items()}
    assert all(5 <= count < 60 for count in reached.values())
    project.run("run", "--on", "local")
    assert project.counts() == {"done": 2}
    for row in rows(project):
        text = project.run("logs", str(row["id"])).stdout
        count = reached[str(row["id"])]
        assert text.splitlines() == [
            "from 0",
            f"told at {count} True",
            f"from {count}",
            "done at 60",
        ]
        assert row["attempts"] == 2
    assert {tuple(names) for names in checkpoints(project).values()} == {("0060.state",)}, "keep: 1"


@pytest.mark.parametrize(
    "signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]], ids=["term", "ctrl-c twice"]
)
def test_stopped_and_resumed(project: Project, signals: list[signal.Signals]) -> None:
    counter_study(project, total=60)
    with under_way(project) as run:
        wait_for(lambda: counted(project, 5))
        for number in signals:
            run.send_signal(number)
            if number == signal.SIGINT and run.stderr is not None:
                assert any("stop" in line for line in iter(run.stderr.readline, "")), "it has heard"
        assert run.wait(180) == 130
    assert project.counts() == {"interrupted": 2}
    project.run("run", "--on", "local")
    assert project.counts() == {"done": 2}
    assert all(row["attempts"] == 2 for row in rows(project))
    first, *_, resumed, last = project.run("logs", "0").stdout.splitlines()
    assert (
        (first, last) == ("from 0", "done at 60")
        and resumed.startswith("from ")
        and resumed != "from 0"
    )


def test_a_trial_that_ends_well_after_the_word_is_done(project: Project) -> None:
    counter_study(project, total=25, code=0)
    project.write(
        "count.py",
        COUNTER.replace("windlass.should_stop()", "False").replace(
            "import os", "import signal, os"
        ),
    )
    text = (project.folder / "count.py").read_text()
    project.write(
        "count.py", text.replace("folder,", "signal.signal(15, signal.SIG_IGN); folder,", 1)
    )
    with under_way(project) as run:
        wait_for(lambda: counted(project, 3))
        os.kill(agent_pid(project), signal.SIGUSR1)
        assert run.wait(180) == 0
    assert project.counts() == {"done": 2}


def test_exit_0_when_told_is_not_done_without_the_file(project: Project) -> None:
    """Programs that save and exit with 0 when told: `done` tells whether they were through."""
    text = COUNTER.replace(
        'print("done at"', 'open(os.path.join(folder, "finished"), "w"); print("done at"'
    )
    counter_study(project, total=40, code=0, checkpoint={"done": "finished"})
    project.write("count.py", text)
    with under_way(project) as run:
        wait_for(lambda: counted(project, 3))
        os.kill(agent_pid(project), signal.SIGUSR1)
        assert run.wait(180) == 1
    assert project.counts() == {"interrupted": 2}
    project.run("run", "--on", "local")
    assert project.counts() == {"done": 2}
    project.run("retry", "--done", "--no-run", "--yes")
    before = [row["attempts"] for row in rows(project)]
    project.run("run", "--on", "local")
    assert project.counts() == {"done": 2}
    assert [row["attempts"] for row in rows(project)] == [count + 1 for count in before]
    assert all(
        "finished is there" in row["note"] for row in map(dict, rows(project)) if "note" in row
    )


def test_a_trial_that_ignores_every_signal(project: Project) -> None:
    project.write(
        "deaf.py",
        "import signal, time\n"
        "for number in (1, 2, 3, 10, 12, 15): signal.signal(number, signal.SIG_IGN)\n"
        "print('here', flush=True)\ntime.sleep(600)\n",
    )
    project.write(
        "study.yaml",
        f"command: {PYTHON} deaf.py {{n}}\nparameters: {{n: [1]}}\ninterrupt: {{lead: 2s, signal: USR2}}\ncheckpoint: {{}}\n",
    )
    with under_way(project) as run:
        wait_for(
            lambda: any(
                b"here" in path.read_bytes() for path in folder_of(project).glob("output/*.log")
            )
        )
        os.kill(agent_pid(project), signal.SIGUSR1)
        assert run.wait(180) == 1
    assert project.counts() == {"interrupted": 1}
    assert not processes_with(f"WINDLASS_FOLDER={project.study_folder()}")


def test_without_checkpoints_a_trial_is_left_alone_to_the_last(project: Project) -> None:
    """It may still get done, or fail in its own way; only at the very end it is told."""
    project.write("t.sh", 'echo here; sleep "$1"; exit "$2"\n')
    project.write(
        "study.yaml",
        "command: sh t.sh {seconds} {code}\nslots: 3\ngrace: 1s\ninterrupt: {lead: 8s}\n"
        "parameters:\n  - {seconds: 2, code: 0}\n  - {seconds: 2, code: 3}\n  - {seconds: 600, code: 0}\n",
    )
    with under_way(project) as run:
        wait_for(
            lambda: (
                b"".join(
                    path.read_bytes() for path in folder_of(project).glob("output/*.log")
                ).count(b"here")
                == 3
            )
        )
        os.kill(agent_pid(project), signal.SIGUSR1)
        assert run.wait(180) == 1
    assert [row["cause"] for row in rows(project)] == ["done", "failed", "job's time up"]


def test_another_turn(project: Project) -> None:
    """Exit code 42 as often as it likes, as long as it gets on; no failure, and no retry."""
    text = COUNTER.replace("windlass.should_stop()", "count % 10 == 0")
    counter_study(project, total=35)
    project.write("count.py", text)
    project.run("run", "--on", "local")
    assert project.counts() == {"done": 2}
    assert [row["attempts"] for row in rows(project)] == [4, 4]
    lines = [
        line
        for path in folder_of(project).glob("journal/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    ends = [event for event in map(json.loads, lines) if event["e"] == "end"]
    for row in rows(project):
        whole_s = sum(event["dur"] for event in ends if event["i"] == row["number"])
        assert row["duration_s"] == pytest.approx(whole_s, abs=0.02), (
            "all turns together make the trial"
        )
    usage = read_usage(StudyPaths(str(folder_of(project))))
    assert usage is not None and usage.overall.time_s is not None
    assert usage.overall.time_s[2] == max(row["duration_s"] for row in rows(project))


def test_the_code_may_be_another_one(project: Project) -> None:
    text = COUNTER.replace("windlass.should_stop()", "count == 5")
    counter_study(project, total=8, code=85, interrupt={"again": 85})
    project.write("count.py", text)
    project.run("run", "--on", "local")
    assert project.counts() == {"done": 2}
    counter_study(project, total=8, code=42, interrupt={"again": 85}, name="other")
    project.write("count.py", text)
    project.run("run", "--on", "local", code=1)
    assert {row["cause"] for row in project.json("results", "other", "--json")} == {"failed"}


def test_no_progress_over_two_turns(project: Project) -> None:
    project.write(
        "study.yaml", "command: sh -c 'exit 42' {n}\nparameters: {n: [1, 2]}\nretries: 5\n"
    )
    project.run("run", "--on", "local", code=1)
    assert project.counts() == {"failed": 2}
    assert {(row["cause"], row["attempts"]) for row in rows(project)} == {("no progress", 2)}
    assert "no new checkpoint" in project.run("explain", "0").stdout


def test_a_checkpoint_cut_short(project: Project) -> None:
    """The one before it is used, and the user is told which one is damaged."""
    counter_study(project, total=60)
    with under_way(project) as run:
        wait_for(lambda: counted(project, 5))
        os.kill(agent_pid(project), signal.SIGUSR1)
        run.wait(180)
    expected = {}
    for name, names in checkpoints(project).items():
        folder = project.study_folder() / "checkpoints" / name
        expected[name] = int(names[-2][:4])
        (folder / names[-1]).write_bytes(b"")
    project.run("run", "--on", "local")
    for row in rows(project):
        assert project.run("logs", str(row["id"])).stdout.endswith(
            f"\nfrom {expected[str(row['id'])]}\ndone at 60\n"
        )
    assert "is empty; the one before it is used" in project.run("explain", "0").stdout
    journals = "".join(
        path.read_text() for path in (project.study_folder() / "journal").glob("*.jsonl")
    )
    assert journals.count("is empty; the one before it is used") == 4, (
        "once for the study, once with the attempt"
    )


def test_checkpoints_that_were_exchanged(project: Project) -> None:
    project.write(
        "train.py",
        """import os, sys
folder, n, *found = sys.argv[1:]
print("from", open(found[1]).read() if found else "the beginning")
open(os.path.join(folder, "a.state"), "w").write(n)
sys.exit(0 if os.path.exists("mended") else 1)
""",
    )
    checkpoint = {"resume": "--load {checkpoint}"}
    keys = {
        "command": f"{PYTHON} train.py {{checkpoint_dir}} {{n}}",
        "checkpoint": checkpoint,
        "code": "live",
    }
    project.write("study.yaml", json.dumps({**keys, "parameters": {"n": [1, 2, 3]}}))
    project.run("run", "study.yaml", "--keep-going", code=1)
    ids = {row["n"]: row["id"] for row in rows(project)}
    root = folder_of(project) / "checkpoints"
    for old, new in ((ids[1], "between"), (ids[2], ids[1]), ("between", ids[2])):
        (root / old).rename(root / new)
    project.write("mended", "")
    project.run("run", "study.yaml")
    shown = [project.run("logs", str(number), "-n", "1").stdout for number in range(3)]
    assert shown == ["from the beginning\n", "from the beginning\n", "from 3\n"]
    assert (
        f"had checkpoints of another trial, {ids[2]}; they are not used"
        in project.run("explain", "0").stdout
    )
    assert (next(root.glob(f"{ids[1]}.of-{ids[2]}-*")) / "a.state").read_text() == "2", (
        "nothing is lost"
    )


def test_without_configuration_there_is_a_name_and_no_file(project: Project) -> None:
    project.write(
        "t.py",
        "import os; print(os.environ['checkpoint_dir']); print(os.environ['WINDLASS_CHECKPOINT_DIR'])",
    )
    project.write(
        "study.yaml", f"command: {PYTHON} t.py {{n}}\nparameters: {{n: {list(range(20))}}}\n"
    )
    project.run("run", "--on", "local")
    folder = project.study_folder() / "checkpoints"
    assert list(folder.iterdir()) == []
    expected = folder / str(rows(project)[3]["id"])
    assert project.run("logs", "3").stdout.splitlines() == [str(expected)] * 2
    project.write("t.py", "import windlass; open(windlass.checkpoint_dir() + '/a', 'w')")
    project.run("retry", "3")
    assert [path.name for path in expected.iterdir()] == ["a"]


def test_remaining_time(project: Project) -> None:
    project.write("t.py", "import windlass; print(windlass.remaining_s(), windlass.should_stop())")
    project.write("study.yaml", f"command: {PYTHON} t.py {{n}}\nparameters: {{n: [1]}}\n")
    project.run("run", "--on", "local")
    assert project.run("logs", "0").stdout == "None False\n"
    project.run("retry", "0", "--no-run")
    project.run("run", "--on", "local", "--timeout", "1h")
    left, stop = project.run("logs", "0").stdout.split()
    assert 3000 < float(left) <= 3600 and stop == "False"
    alone = subprocess.run(
        [
            sys.executable,
            "-c",
            "import windlass as w; print(w.remaining_s(), w.should_stop(), w.checkpoint_dir())",
        ],
        env={**project.env, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert alone.stdout == "None False None\n"


def test_a_shell_is_a_shell(project: Project) -> None:
    keys = {
        "command": "echo {n} | tr 1 2 && ls -d {checkpoint_dir} > /dev/null && echo $((1 + 1))",
        "shell": True,
        "parameters": {"n": [1]},
    }
    project.write("study.yaml", json.dumps(keys))
    project.run("run", "--on", "local")
    assert project.run("logs", "0").stdout == "2\n2\n"


# Reports what its session has in the file; asks for another session until there is none.
SESSIONS = """
import os, sys, windlass
place = os.path.join(os.environ["PLACE"], os.environ["WINDLASS_TRIAL_NUMBER"])
done = int(open(place).read()) if os.path.exists(place) else 0
sessions = [[.1, .9, .5], [.4, .3, .4]]
for step, value in enumerate(sessions[done]):
    windlass.log(step=10 * done + step, acc=value)
print("session", done, flush=True)
open(place, "w").write(str(done + 1))
if "--save" in sys.argv:
    open(os.path.join(sys.argv[sys.argv.index("--save") + 1], f"{done}.state"), "w").write("x")
sys.exit(42 if done + 1 < len(sessions) else 0)
"""


@pytest.mark.parametrize(
    "checkpoint", [{}, {"checkpoint": {"write": "--save {checkpoint_dir}", "resume": "--from x"}}]
)
def test_metrics_and_lines_of_all_sessions_are_the_trials(
    project: Project, checkpoint: dict[str, Any]
) -> None:
    project.write("train.py", SESSIONS)
    project.write("place/none", "")
    keys: dict[str, Any] = {
        "command": f"{PYTHON} train.py {{n}}",
        "parameters": {"n": [1]},
        "metric": "acc",
        **checkpoint,
    }
    keys["env"] = {"PLACE": str(project.folder / "place")}
    project.write("study.yaml", json.dumps(keys))
    project.run("run", "study.yaml")
    (trial,) = project.json("results", "--json")
    assert [trial[f"acc{stat}"] for stat in ("", ".min", ".max")] == [0.4, 0.1, 0.9], trial
    shown = project.run("logs", "0")
    assert shown.stdout == "session 0\nsession 1\n" and shown.stderr.count("== attempt ") == 2
    assert project.run("logs", "0", "-n", "1").stdout == "session 1\n"
    (told,) = project.json("logs", "0", "--json")
    assert told["stdout"] == shown.stdout and told["attempts"] == 2
    left = [
        json.loads(path.read_text())
        for path in folder_of(project).glob("checkpoints/*/.windlass-turns.json")
    ]
    assert left == ([{"trial": trial["id"]}] if checkpoint else []), (
        "only whose checkpoints these are"
    )
    if not checkpoint:
        assert not list(folder_of(project).glob("checkpoints/*"))


def test_a_retry_of_what_was_done_begins_at_the_beginning(project: Project) -> None:
    """With --fresh also what failed. Checkpoints are moved aside, not deleted."""
    code = """
import os, sys
folder, end = sys.argv[1], END
begin = int(open(sys.argv[3]).read()) if "--load" in sys.argv else 0
for step in range(begin + 1, 4):
    open(os.path.join(folder, f"step-{step}.json"), "w").write(str(step))
    print(f"step={step} loss={step * FACTOR}", flush=True)
print("began at", begin, flush=True)
sys.exit(end)
"""
    checkpoint = {"resume": "--load {checkpoint}", "pattern": "step-*.json", "keep": 5}
    keys = {
        "command": f"{PYTHON} train.py {{checkpoint_dir}}",
        "checkpoint": checkpoint,
        "metrics": ["loss"],
    }
    project.write("train.py", code.replace("END", "0").replace("FACTOR", "1"))
    project.write("study.yaml", json.dumps(keys))
    project.run("run", "study.yaml")

    project.write("train.py", code.replace("END", "1").replace("FACTOR", "10"))
    told = project.run("retry", "0", code=None).stderr
    (aside,) = folder_of(project).glob("checkpoints/*.before-*")
    assert str(aside) in told and len(list(aside.glob("step-*.json"))) == 3
    (trial,) = project.json("results", "--json")
    assert [trial[f"loss{stat}"] for stat in ("", ".min", ".max")] == [30, 10, 30], trial
    assert project.run("logs", "0").stdout.splitlines()[-1] == "began at 0"

    project.write("train.py", code.replace("END", "0").replace("FACTOR", "100"))
    project.run("retry", "0", "--fresh")
    (trial,) = project.json("results", "--json")
    assert [trial[f"loss{stat}"] for stat in ("", ".min", ".max")] == [300, 100, 300], trial
    shown = project.run("logs", "0")
    assert shown.stdout.splitlines()[-1] == "began at 0" and "left out: 2 " in shown.stderr
    assert project.run("logs", "0", "--all").stdout.count("began at 0") == 3
    project.run("clean", "--checkpoints", "--yes")
    assert not list(folder_of(project).glob("checkpoints/*"))
