"""What the verbs print: the reason that holds, said once, with an example of what would be right."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ROOT
from tests.conftest import Project
from tests.plan.test_slurm import CLUSTER, plan
from windlass.agent import interrupt
from windlass.agent.interrupt import Limits
from windlass.agent.node.job_end import JobEnd
from windlass.cli.report import StreamReporter
from windlass.collect.follow import Follower
from windlass.collect.jobview import JobView
from windlass.collect.look import TimeLeftReader, look
from windlass.core.counted import counted
from windlass.core.errors import InputError
from windlass.core.paths import StudyPaths
from windlass.core.queue.states import JobState
from windlass.places.slurm.measuring import plan_measuring_job
from windlass.plan.settings import resolve_settings
from windlass.view.history import _job_row


def test_a_study_that_is_not_there_names_those_that_are(project: Project) -> None:
    project.run("run", "--on", "local", "-e", "a_single", "--quiet", "--", "true")
    for number in range(24):
        shutil.copytree(
            project.folder / ".windlass/a_single", project.folder / f".windlass/other{number}"
        )
    text = project.run("status", "a_singel", code=2).stderr
    assert re.search(
        r"did you mean a_single\? there are: (\w+, ){4}\w+ and 20 more \(`windlass history --all`\)",
        text,
    )


@pytest.mark.parametrize(
    ("flags", "example"),
    [
        ({"timeout": "90"}, "for example 30m; accepted are 90s, 30m"),
        ({"time": "soon"}, "for example 90m"),
        ({"grace": "x"}, "for example 30m"),
        ({"memory": "lots"}, "for example 4GB"),
        ({"output_limit": "7"}, "for example 10MB"),
        ({"headroom": "some"}, "for example 1GB"),
    ],
)
def test_a_value_that_cannot_be_read_comes_with_one_that_can(
    flags: dict[str, str], example: str
) -> None:
    for given in ((flags, {}), ({}, flags)):
        with pytest.raises(InputError) as caught:
            resolve_settings(given[0], {}, given[1], "site.toml")
        assert f"hint: {example}" in str(caught.value)


def test_the_limit_of_check_is_a_duration(project: Project) -> None:
    assert (
        "for example 30s; accepted are 90s"
        in project.run("check", "--limit", "x", "--", "true", code=2).stderr
    )
    checked = project.run(
        "check", "--limit", "20s", "--no-run", "--on", "local", "--", "true", code=None
    )
    assert "--limit" not in checked.stderr


@pytest.mark.parametrize("value", ["none", "-1", "1.5"])
def test_a_number_that_is_none(project: Project, value: str) -> None:
    said = project.run("plan", "--small-files", value, "--", "true", code=2).stderr
    assert (
        f"--small-files: a number of files, or `allow`, is wanted, not '{value}'" in said
        and "example 5000" in said
    )
    project.run("plan", "--small-files", "1e9", "--", "true")


def test_a_trial_that_printed_nothing(project: Project) -> None:
    project.run("run", "--on", "local", "--", "false", code=1)
    lines = project.run("explain", "0").stdout.splitlines()
    assert lines[-1] == "  it printed nothing"
    project.run("run", "--on", "local", "--", "sh", "-c", "echo so; exit 3", code=1)
    assert project.run("explain", "0", "--study", "sh").stdout.endswith(
        "  its last lines:\n    so\n"
    )


def test_the_end_of_a_run_says_what_to_look_at(project: Project) -> None:
    done = project.run("run", "--on", "local", "--", "true").stderr
    assert done.endswith("done 1 of 1\n  `windlass results` shows what came out\n")
    failed = project.run("run", "--on", "local", "--", "false", code=1).stderr
    assert "`windlass logs false --failed` shows" in failed and "windlass results" not in failed


def test_a_warning_is_shown_once_a_study(project: Project) -> None:
    words = ["run", "--on", "local", "--seeds", "2", "--", "true", "{seed}"]
    assert "warning: 2 seeds say little" in project.run(*words).stderr
    again = project.run(*words).stderr
    assert "warning:" not in again and "1 warning is the same as at the last run; see " in again
    words[4] = "3"
    assert "warning: 3 seeds say little" in project.run(*words).stderr


def test_routine_steps_are_on_record_and_not_in_status(project: Project) -> None:
    project.write("study.yaml", "command: 'true'\ncode: frozen\n")
    first = project.run("run", "--on", "local").stderr
    assert "unpacked in" not in first and "found on this node" not in first
    project.run("retry", "--done", "--yes", "--on", "local")
    assert "note: code" not in project.run("status").stdout
    assert [text for text in project.json("status", "--json")["notes"] if text.startswith("code ")]


def test_one_size_for_a_data_folder(project: Project) -> None:
    """Of its files, wherever it is spoken of; the archive's own size and what a disk needs are other things."""
    for number in range(30):
        project.write(f"data/one/{number}", "x" * 100)
    project.write("study.yaml", "command: ls\ndata: [data/one]\n")
    size = "30 files, 2.93 kB"
    assert f"one: {size}, not packed" in project.run("data", "list").stdout
    assert f"packing {size}, into" in project.run("run", "--on", "local").stderr
    assert f"unchanged, {size}, in " in project.run("data", "pack").stdout
    assert [
        text
        for text in project.json("status", "--json")["notes"]
        if f"data/one: {size} unpacked" in text
    ]


def test_the_example_of_a_chain_keeps_its_promise(project: Project) -> None:
    file = ROOT / "examples/chain/study.yaml"
    (promised,) = re.findall(r"#   windlass (plan .*?)   .*(--array=\S+)", file.read_text())
    words = promised[0].replace("examples/chain/study.yaml", str(file)).split()
    assert f"#SBATCH {promised[1]}\n" in project.run(*words, "--folder", "studies").stdout
    assert f"`{promised[1]}`" in (ROOT / "examples/README.md").read_text()


# -- jobs


def limits(
    job_time_s: float, trial_time_s: float | None = None, lead_s: float = 15.0, **environ: str
) -> Limits:
    config: Any = SimpleNamespace(
        lease_s=300.0,
        job_time_s=job_time_s,
        trial_time_s=trial_time_s,
        checkpoint=None,
        lead_s=lead_s,
        grace_s=10.0,
        end_grace_s=10.0,
    )
    return Limits(config, True, environ)


def test_a_signal_before_the_end_is_not_the_time_limit() -> None:
    """A job of one minute that is cancelled in its first seconds, or in its last but some."""
    now = time.monotonic()
    short = limits(60.0, SLURM_JOB_END_TIME=str(int(time.time()) + 60))
    assert (
        not short.at_its_end(now) and not short.at_its_end(now + 50) and short.at_its_end(now + 61)
    )
    untold = limits(60.0)
    assert not untold.at_its_end(interrupt._BEGAN + 30) and untold.at_its_end(interrupt._BEGAN + 59)


def test_a_job_whose_time_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it began: its end is Slurm's, and trials begin though the planned notice would be due at once.

    While it runs: the scheduler's last answer tells, if it is of this start of the job and the end is an earlier one.
    """
    now = time.monotonic()
    monkeypatch.setattr(interrupt, "_BEGAN", now)
    monkeypatch.setattr(interrupt, "_BEGAN_WALL", time.time())
    cut = limits(3600.0, lead_s=120.0, SLURM_JOB_END_TIME=str(int(time.time()) + 40))
    assert not cut.is_near(now) and cut.is_near(now + 35) and cut.job_time_s == 3600.0
    running = limits(3600.0, SLURM_JOB_END_TIME=str(int(time.time()) + 3600))
    job = {"id": 11, "array": 7, "task": 3}
    cache = tmp_path / "squeue.json"
    end = JobEnd(str(cache), job, running)

    def answer(id: int, ends: float, asked: float, state: str = "RUNNING") -> bool:
        text = f"{id}|7|3|{state}|None|n1|0|{int(ends)}|9:00|0|debug|acc|windlass:s|p"
        kept = {
            "v": 1,
            "user": os.getuid(),
            "number": 1,
            "asked": asked,
            "text": text,
            "good": [asked, text],
        }
        cache.write_text(json.dumps(kept))
        os.utime(cache, ns=(0, time.time_ns()))
        end._next_look = 0.0
        return end.look(time.monotonic())

    wall = time.time()
    assert not end.look(now)  # nobody has asked
    assert not answer(11, wall + 100, wall - 1000) and not answer(12, wall + 100, wall + 1)
    assert not answer(11, wall + 100, wall + 1, "PENDING") and not answer(11, wall + 7200, wall + 1)
    assert not running.is_near(now + 95)
    assert answer(11, wall + 100, wall + 1)
    assert (
        not running.is_near(now + 80)
        and running.is_near(now + 95)
        and not running.shorten(wall + 99, now)
    )


@pytest.mark.parametrize(
    ("state", "reason", "failed", "why"),
    [
        (JobState.FAILED, "nothing left", 2, "2 of its trials failed"),
        (JobState.FAILED, "nothing left", 0, "some of its trials failed"),
        (JobState.DONE, "nothing left", 0, "nothing left"),
        (JobState.FAILED, "disk full", 1, "1 of its trials failed; disk full"),
    ],
)
def test_why_a_job_ended(state: JobState, reason: str, failed: int, why: str) -> None:
    job = JobView(
        "s",
        7,
        0,
        state=state,
        agent="a",
        agent_ended=True,
        agent_reason=reason,
        agent_failed=failed,
    )
    assert _job_row(job)["why"] == why


def test_agents_tell_how_many_of_their_trials_failed(project: Project) -> None:
    project.run(
        "run", "--on", "local", "--param", "x=[0,1,2]", "--", "sh", "-c", "exit $0", "{x}", code=1
    )
    assert "2 of its trials failed" in project.run("history").stdout


def test_a_measurement_asks_for_no_more_than_a_node_has() -> None:
    """It takes more cores than a trial needs, and memory in proportion as far as there is some."""
    made, _ = plan_measuring_job(
        plan(4, {"memory": "100GB", "slots": 2}, CLUSTER, cpus=1), CLUSTER, 60
    )
    assert made.request is not None and made.request.memory_mb == 192000
    small, _ = plan_measuring_job(
        plan(4, {"memory": "1GB", "slots": 2}, CLUSTER, cpus=1), CLUSTER, 60
    )
    assert small.request is not None and small.request.memory_mb == 1024 * small.request.cpus


# -- following


def test_the_time_left_is_the_one_that_status_knows(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run("run", "--on", "local", "--quiet", "--", "true")
    paths = StudyPaths(str(project.study_folder()))
    left_s = TimeLeftReader(paths)
    assert left_s() == look(paths).eta_s == 0.0
    follower = Follower(paths, 2, [(0, 2)])
    StreamReporter(quiet=False).progress(follower, 2, lambda: 754.0)
    assert "12 min 34 s left" in capsys.readouterr().err


def test_the_joblog_can_be_written_later(project: Project) -> None:
    project.run(
        "run",
        "--on",
        "local",
        "--joblog",
        "now",
        "--param",
        "x=[0,3]",
        "--",
        "sh",
        "-c",
        "exit $0",
        "{x}",
        code=1,
    )
    assert "later: 2 attempts" in project.run("logs", "--joblog", "later").stderr
    now, later = ((project.folder / name).read_text().splitlines() for name in ("now", "later"))
    assert now[0] == later[0] and sorted(now) == sorted(later)
    assert sorted(line.split("\t")[6] for line in later[1:]) == ["0", "3"]
    text = project.run("run", "--on", "local", "--joblog", "no/where", "--", "true", code=2).stderr
    assert "--joblog: no/where cannot be written" in text
    assert json.loads(project.run("status", "--json").stdout)["study"] == "sh", "nothing was begun"


def test_one_is_written_in_the_singular() -> None:
    assert [counted(number, "trial") for number in (0, 1, 2, 12_000)] == [
        "0 trials",
        "1 trial",
        "2 trials",
        "12,000 trials",
    ]
    assert counted(0.5, "core") == "0.5 cores" and counted(1.0, "core") == "1 core"
    assert counted(1, "trial was", "trials were") == "1 trial was"
    assert counted(2, "trial was", "trials were") == "2 trials were"


def test_no_message_leaves_the_plural_to_the_reader() -> None:
    """No `(s)` in what is printed: `counted` writes the singular or the plural."""
    found = [
        path
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"[a-z}]\((s|es|ies)\)[ ,;:.{\"]", path.read_text())
    ]
    assert not found
