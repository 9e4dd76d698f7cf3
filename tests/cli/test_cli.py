"""The command line as a user meets it: errors, exit codes, JSON, init, arguments on their way to the program."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Project
from windlass.cli import VERBS
from windlass.cli.run import command as run_command
from windlass.collect.attempts import AttemptStory
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.register import RegisterFile
from windlass.core.errors import FolderError
from windlass.core.paths import StudyPaths
from windlass.todo import cancel_trials, retry_trials
from windlass.view.story import render_attempts

AWKWARD = [
    "",
    " ",
    "a b",
    "it's",
    '"',
    "a,b;c",
    "$HOME",
    "`ls`",
    "\\",
    "line\nbreak",
    "tab\t",
    "né ☃ 日本",
    "--",
    "-x",
    "{lr}",
    "{{x}}",
    "%s",
    "*",
    "~",
    "!",
]


def echo_study(project: Project, values: list[str]) -> list[str]:
    """Runs a program once with all values as arguments; returns what reached it."""
    project.write("echo.py", "import json, sys\njson.dump(sys.argv[1:], open('seen.json', 'w'))\n")
    words = [sys.executable, "echo.py", *(f"{{p{k}}}" for k in range(len(values)))]
    study = {
        "command": words,
        "parameters": {f"p{k}": {"value": value} for k, value in enumerate(values)},
    }
    project.write("study.yaml", json.dumps(study))
    project.run("run", "--quiet")
    seen: list[str] = json.loads((project.folder / "seen.json").read_text())
    return seen


def test_arguments_reach_the_program_as_written(project: Project) -> None:
    assert echo_study(project, AWKWARD) == AWKWARD


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        min_size=1,
        max_size=30,
    )
)
def test_any_text_reaches_the_program(project: Project, values: list[str]) -> None:
    reserved = ("{envvar:", "{args_json_file}")
    values = [value for value in values if not any(word in value for word in reserved)] or ["x"]
    assert echo_study(project, values) == values


def test_words_after_the_dashes(project: Project) -> None:
    program = "import json, sys; json.dump(sys.argv[1:], open('seen.json', 'w'))"
    project.run(
        "run",
        "--param",
        "lr=[0.5]",
        "--",
        sys.executable,
        "-c",
        program,
        "a b",
        "{lr}",
        "--",
        "$X",
        "'",
    )
    assert json.loads((project.folder / "seen.json").read_text()) == ["a b", "0.5", "--", "$X", "'"]


def test_bytes_that_are_no_text(project: Project) -> None:
    program = "import os, sys; open('seen', 'wb').write(os.fsencode(sys.argv[1]))"
    project.run("run", "--param", "n=[1]", "--", sys.executable, "-c", program, "\udcff\udc80{n}")
    assert (project.folder / "seen").read_bytes() == b"\xff\x801"


def test_problems_all_at_once_with_places(project: Project) -> None:
    project.write(
        "study.yaml",
        "comand: python train.py\nparameters:\n  lr: []\ntimeout: 5 parsecs\nneeds:\n  memory: 4\n",
    )
    done = project.run("run", code=2)
    for place in ("study.yaml:1:1", "study.yaml:3:", "study.yaml:4:", "study.yaml:6:"):
        assert place in done.stderr, done.stderr
    assert "hint: " in done.stderr and "command" in done.stderr and "Traceback" not in done.stderr
    assert not (project.folder / ".windlass").exists(), "nothing half done"


@pytest.mark.parametrize("verb", ["status", "logs", "results", "explain", "history"])
def test_verbs_without_any_study(project: Project, verb: str) -> None:
    assert "windlass run" in project.run(verb, code=2).stderr


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["plan"],
        ["run", "nosuch.yaml"],
        ["status", "nosuch"],
        ["logs", "999"],
        ["nosuch"],
        ["run", "--nosuch"],
    ],
)
def test_bad_command_lines(project: Project, words: list[str]) -> None:
    if words[0] in ("status", "logs"):
        project.run("run", "--quiet", "--param", "n=[1]", "--", "true", "{n}")
    done = project.run(*words, code=2)
    assert done.stderr and "Traceback" not in done.stderr


def test_both_a_file_and_a_command(project: Project) -> None:
    assert "not both" in project.run("run", "study.yaml", "--", "true", code=2).stderr


def test_init_plan_run(project: Project) -> None:
    project.write(
        "train.py",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--seed', type=int, default=0)\na = p.parse_args()\nprint('loss=%g' % (a.lr + a.seed))\n",
    )
    project.env["PATH"] = f"{Path(sys.executable).parent}:{project.env['PATH']}"
    project.run("init", "train.py")
    assert "--yes" in project.run("init", "train.py", code=2).stderr
    project.run("init", "train.py", "--yes")
    plan = project.json("plan", "--json")
    assert plan["trials"] == 15 and set(plan) >= {
        "study",
        "trials",
        "agents",
        "slots",
        "request",
        "settings",
    }
    project.run("run", "--quiet")
    assert project.counts() == {"done": 15}


def test_init_refuses_with_the_reason(project: Project) -> None:
    helps = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\np.parse_args()\n"
    project.write("train.py", helps)
    said = project.run("init", "train.py", "-o", "sub/x.yaml", code=2).stderr
    assert "there is no folder sub" in said and "mkdir -p" in said
    project.write("needs.py", "import nosuchmodule\n" + helps)
    said = project.run("init", "needs.py", code=2).stderr
    assert "--help fails: ModuleNotFoundError: No module named 'nosuchmodule'" in said
    assert not (project.folder / "study.yaml").exists()


@pytest.mark.parametrize(
    "line,command",
    [("", "bash"), ("#!/usr/bin/env -S sh -e\n", "sh -e"), ("#!/bin/sh\n", "/bin/sh")],
)
def test_init_starts_a_shell_script_with_its_shell(
    project: Project, line: str, command: str
) -> None:
    project.write(
        "train.sh",
        line
        + "echo 'usage: train.sh [--lr LR]'; echo; echo options:; echo '  --lr LR  the rate'\n",
    )
    assert f"command: {command} train.sh" in project.run("init", "train.sh", "-o", "-").stdout


def test_the_last_lines_of_trials(project: Project) -> None:
    project.run(
        "run",
        "--quiet",
        "--param",
        "n=[1,2]",
        "--",
        "sh",
        "-c",
        "echo a {n}; echo b {n}; echo c {n}",
    )
    assert project.run("logs", "-n", "1").stdout == "[0] c 1\n[1] c 2\n"
    assert project.run("logs", "0", "-n", "2").stdout == "b 1\nc 1\n"
    assert project.run("logs", "0", "-n", "0").stdout == project.run("logs", "-n", "0").stdout == ""
    assert project.json("logs", "0", "-n", "0", "--json")[0]["stdout"] == ""
    assert "-1" in project.run("logs", "0", "-n", "-1", code=2).stderr


def test_status_json_keys(project: Project) -> None:
    project.run("run", "--quiet", "--param", "n=[1,2]", "--", "true", "{n}")
    status = project.json("status", "--json")
    assert set(status) >= {
        "study",
        "folder",
        "trials",
        "counts",
        "causes",
        "eta_s",
        "running",
        "agents",
        "notes",
    }
    assert set(status["counts"]) == {
        "waiting",
        "running",
        "done",
        "failed",
        "interrupted",
        "cancelled",
    }
    assert status["trials"] == 2 and status["eta_s"] == 0.0


def test_results_forms(project: Project) -> None:
    project.write(
        "t.py", "import sys, windlass\nwindlass.log(loss=float(sys.argv[1]) * int(sys.argv[2]))\n"
    )
    project.write("study.yaml", json.dumps({
        "command": [sys.executable, "t.py", "{lr}", "{seed}"], "parameters": {"lr": [1, 2]}, "seeds": 4, "metric": "loss",
    }))  # fmt: skip
    project.run("run", "--quiet")
    table = project.run("results", "--by", "lr").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["lr", "loss", "n"],
        ["1", "2.5", "±", "2.1", "4"],
        ["2", "5.0", "±", "4.1", "4"],
    ]
    best = project.json("results", "--best", "--json")
    assert best[0]["lr"] == 1 and best[0]["mean"] == 2.5
    best = project.json("results", "--best", "--json", "--metric", "loss:maximize")
    assert best[0]["lr"] == 2
    csv = project.run("results", "--format", "csv").stdout.splitlines()
    assert len(csv) == 9 and csv[0].startswith(
        "id,number,lr,seed,state,cause,attempts,duration_s,exit_code,loss,loss.min,loss.max"
    )
    project.run("results", "-o", "r.parquet")
    project.run("results", "-o", "r.csv")
    assert (project.folder / "r.csv").read_text().splitlines() == csv
    import polars

    assert polars.read_parquet(project.folder / "r.parquet")["loss"].max() == 8.0
    assert "lr" in project.run("results", "--by", "lrr", code=2).stderr


def test_the_newest_study_is_meant(project: Project) -> None:
    for name in ("one", "two"):
        project.run("run", "--quiet", "--name", name, "--param", "n=[1]", "--", "true", "{n}")
    assert project.json("status", "--json")["study"] == "two"
    assert project.json("status", "one", "--json")["study"] == "one"
    assert (
        project.json("status", str(project.folder / ".windlass" / "one"), "--json")["study"]
        == "one"
    )


def test_piped_output_has_no_control_characters(project: Project) -> None:
    done = project.run("run", "--param", "n=[1,2,3]", "--", "true", "{n}")
    assert not re.search(r"[\x1b\r]", done.stderr + done.stdout)
    assert (
        "3" in done.stderr
        and project.run("run", "--quiet", "--param", "n=[1,2,3]", "--", "true", "{n}").stderr == ""
    )


def test_every_verb_has_help(project: Project) -> None:
    for verb in VERBS:
        assert "Usage: windlass " + verb in project.run(verb, "--help").stdout.replace(
            "python -m windlass", "windlass"
        )


def test_nothing_is_wrong_with_an_empty_task_file(project: Project) -> None:
    project.write("tasks.txt", "# nothing here\n\n")
    assert "tasks.txt" in project.run("run", "tasks.txt", code=2).stderr


def test_examples_of_the_other_forms(project: Project) -> None:
    project.write("tasks.txt", "echo one  # a comment\n\n# a line\necho two \\\n  three\necho one")
    project.run("run", "tasks.txt", "--quiet")
    assert [project.run("logs", str(n)).stdout for n in range(3)] == [
        "one\n",
        "two three\n",
        "one\n",
    ]
    project.write(
        "hpc_files/experiment_configurations.txt",
        "# as in the documents\npython -c \\\n  'print(7)'\n",
    )
    project.env["PATH"] = f"{Path(sys.executable).parent}:{project.env['PATH']}"
    project.run("run", "hpc_files/experiment_configurations.txt", "--name", "configs", "--quiet")
    assert project.run("logs", "0").stdout == "7\n"


def test_a_sample_of_far_apart_trials(project: Project) -> None:
    project.write(
        "study.yaml",
        f"command: 'true {{a}} {{b}}'\nparameters:\n  a: {list(range(10))}\n  b: {list(range(10))}\n",
    )
    project.run("run", "--sample", "5")
    done = [row for row in project.json("results", "--json") if row["state"] == "done"]
    assert len(done) == 5
    assert {(0, 0), (9, 9)} <= {(row["a"], row["b"]) for row in done}
    project.run("run")
    assert project.counts() == {"done": 100}


def test_a_failing_sample_says_so(project: Project) -> None:
    project.write("study.yaml", "command: sh -c 'exit {n}'\nparameters:\n  n: [0, 1, 2]\n")
    project.run("run", "--sample", "2", code=1)
    assert project.counts() == {"done": 1, "failed": 1, "waiting": 1}


def test_plan_checks_options_against_help(project: Project) -> None:
    project.write(
        "train.py",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n",
    )
    study = {
        "command": [sys.executable, "train.py", "--lr", "{lr}", "--seed", "{seed}"],
        "parameters": {"lr": [1]},
        "seeds": 5,
    }
    project.write("study.yaml", json.dumps(study))
    project.run("plan")
    assert "does not list --seed" in project.run("plan", "--check", code=2).stderr
    without_seed = {"command": study["command"][:4], "parameters": study["parameters"]}
    project.write("study.yaml", json.dumps(without_seed))
    project.run("plan", "--check")


def test_logs_as_json(project: Project) -> None:
    project.write(
        "study.yaml",
        "command: sh -c 'echo out {n}; echo err >&2; exit {n}'\nparameters:\n  n: [0, 1]\n",
    )
    project.run("run", code=1)
    (failed,) = project.json("logs", "--failed", "--json")
    assert (failed["number"], failed["stdout"], failed["stderr"], failed["cause"]) == (
        1,
        "out 1\n",
        "err\n",
        "failed",
    )
    assert project.json("logs", "0", "--json")[0]["stdout"] == "out 0\n"


def test_folders_of_the_documents(project: Project) -> None:
    project.env["SCRATCH"] = str(project.folder / "scratch")
    (project.folder / ".git").mkdir()
    project.run("run", "--quiet", "--name", "exp", "--param", "n=[1]", "--", "true", "{n}")
    roots = list((project.folder / "scratch").iterdir())
    assert (
        len(roots) == 1
        and (roots[0] / "hpc_outputs").is_dir()
        and (roots[0] / "exp" / "checkpoints").is_dir()
    )


def test_studies_of_one_folder_are_found_together(project: Project) -> None:
    """Without .git or the like, where the first study was run becomes the project."""
    for name in ("one", "two"):
        project.write(f"{name}/study.yaml", "command: 'true {n}'\nparameters: {n: [1]}\n")
        project.run("run", f"{name}/study.yaml", "--quiet")
        assert project.json("status", "--json")["study"] == name
    assert (project.folder / ".windlass" / "one").is_dir() and (
        project.folder / ".windlass" / "two"
    ).is_dir()


def test_nothing_is_no_amount(project: Project) -> None:
    said = project.run(
        "plan", "--on", "local", "-t", "0", "-c", "0", "-j", "0", "--", "true", code=2
    ).stderr
    assert said.count("error: ") == 3
    assert (
        "--slots: 1 or more" in said
        and "--cpus: more than 0" in said
        and "--time: more than no time" in said
    )
    project.write("study.yaml", 'command: "true"\nneeds: {time: 0s}\n')
    assert (
        "study.yaml:2:15: needs.time: this must be more than no time"
        in project.run("plan", code=2).stderr
    )


def test_a_study_that_was_put_elsewhere_is_found(project: Project) -> None:
    """By `folder:` in the file, by the file's path from anywhere, and as the newest."""
    project.write(
        "deep/study.yaml",
        "name: other\ncommand: 'true {n}'\nparameters: {n: [1]}\nfolder: ../far away\n",
    )
    project.write(".git/HEAD", "")
    project.run("run", "deep/study.yaml")
    folder = str(project.folder / "far away" / "other")
    for words in ((), ("other",), ("deep/study.yaml",), (str(project.folder / "deep/study.yaml"),)):
        assert project.json("status", "--json", *words)["folder"] == folder, words
    project.folder = project.folder.parent
    assert (
        project.json("status", "--json", str(Path(folder).parent.parent / "deep/study.yaml"))[
            "folder"
        ]
        == folder
    )


def test_data_on_the_command_line(project: Project) -> None:
    """As the documents' submitter has it: several paths in one word, or the option several times."""
    for name in ("one", "two", "three three"):
        project.write(f"datasets/{name}/file", name)
    words = [
        "run",
        "-d",
        "datasets/one datasets/two",
        "--data",
        "'datasets/three three'",
        "--param",
        "n=[1]",
        "--",
    ]
    project.run(
        *words, "sh", "-c", "find -L $SLURM_TMPDIR/datasets -type f -exec cat {} +; true {n}"
    )
    found = project.run("logs", "0").stdout
    assert len(found) == len("one" + "two" + "three three") and all(
        name in found for name in ("one", "two", "three three")
    )
    for bad in ("/etc", "../elsewhere", "datasets/none"):
        done = project.run("run", "-d", bad, "--param", "n=[1]", "--", "true", "{n}", code=2)
        assert bad in done.stderr


def test_a_trial_that_was_put_back_and_cancelled_is_not_done(project: Project) -> None:
    project.run("run", "--quiet", "--param", "n=[1,2]", "--", "true", "{n}")
    project.run("retry", "0", "--no-run", "--yes")
    project.run("cancel", "0", "--yes")
    assert project.counts() == {"done": 1, "cancelled": 1}
    assert "it was cancelled" in project.run("explain", "0").stdout
    assert "it is done" in project.run("explain", "1").stdout


@pytest.mark.parametrize("change", [cancel_trials, retry_trials])
def test_a_study_that_cannot_be_written_to(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[StudyPaths, Ranges], Ranges],
) -> None:
    project.run("run", "--quiet", "--param", "n=[1]", "--", "true", "{n}")
    paths = StudyPaths(str(project.study_folder()))

    def refuse(*_: object) -> bool:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(RegisterFile, "swap", refuse)
    with pytest.raises(FolderError, match="cannot be written to"):
        change(paths, [(0, 1)])


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"rss_mb": 25.0}, "done after 2 s"),
        ({"rss_mb": 25.0, "use": {"k": 1}}, "done after 2 s"),
        ({"rss_mb": 25.0, "use": {"mem_mb": 0.4}}, "done after 2 s, 410 kB"),
        ({"rss_mb": 250.0}, "done after 2 s, 250 MB"),
        ({"rss_mb": 250.0, "use": {"mem_mb": 900.0}}, "done after 2 s, 900 MB"),
    ],
)
def test_memory_of_an_attempt_is_not_its_agents(figures: dict[str, Any], said: str) -> None:
    end = {"cause": "done", "code": 0, "dur": 2.0, **figures}
    line, *_ = render_attempts([AttemptStory("agent", "host", 1, 0.0, end)], ["main"], {})
    assert line.endswith(said)


@pytest.mark.parametrize(
    "words, data, study",
    [
        (["--data", "sets/one", "sets/two", "-g", "1"], ["sets/one", "sets/two"], None),
        (["-d", "sets/one", "sets/two", "own.yaml"], ["sets/one", "sets/two"], "own.yaml"),
        (
            ["own.yaml", "-d", "sets/one sets/two", "sets/three"],
            ["sets/one sets/two", "sets/three"],
            "own.yaml",
        ),
        (["--data", "own.yaml", "--data=sets/one"], ["own.yaml", "sets/one"], None),
        (
            ["-d", "sets/one", "labels.json", "--", "python", "-d", "a", "b"],
            ["sets/one", "labels.json"],
            None,
        ),
    ],
)
def test_several_data_after_one_option(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    data: list[str],
    study: str | None,
) -> None:
    (tmp_path / "own.yaml").touch()
    monkeypatch.chdir(tmp_path)
    context = run_command.make_context("run", list(words))
    assert list(context.params["data"]) == data and context.params["study"] == study
    assert context.meta["arguments"] == (
        tuple(words[words.index("--") + 1 :]) if "--" in words else ()
    )
