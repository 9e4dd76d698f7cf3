"""When agents in jobs take no more trials, when they wait for others, and what they see to when they leave."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.agent.departure import Departure
from windlass.agent.interrupt import Limits
from windlass.agent.lease.others import Others
from windlass.agent.report.tally import Tally
from windlass.core.claims.register import RegisterFile
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause


def limits(time_s: float | None, job_time_s: float, **more: Any) -> Limits:
    usual: dict[str, Any] = {
        "lease_s": 300.0,
        "checkpoint": None,
        "lead_s": 120.0,
        "end_grace_s": 10.0,
    }
    config: Any = SimpleNamespace(**{**usual, **more}, trial_time_s=time_s, job_time_s=job_time_s)
    return Limits(config, True, {})


def test_what_fits_is_judged_against_the_notice() -> None:
    """A job of two minutes gives notice after 90 s: a trial of 20 s is not begun after 70 s."""
    job = limits(20.0, 120.0)
    assert job.deadline is not None and job.near_at == job.deadline - 30
    begin = job.deadline - 120
    assert not job.too_late(begin + 69, begin, False) and job.too_late(begin + 71, begin, False)
    assert not job.too_late(begin + 71, begin + 60, True), (
        "the first one is begun however late the setup was through"
    )
    assert job.too_late(begin + 130, begin + 60, True), "but not one that came back long after"
    assert not limits(None, 120.0).too_late(begin + 89, begin, False), (
        "nobody knows how long trials take"
    )
    resumed = limits(3600.0, 120.0, checkpoint={})
    assert not resumed.too_late(begin + 89, begin, False), "it goes on in another job"


def test_trials_that_take_longer_than_they_should_are_not_begun_too_late() -> None:
    tally = Tally()
    job = limits(1.0, 240.0, lead_s=10.0)
    assert job.deadline is not None and job.near_at == job.deadline - 10
    for place, duration_s in enumerate([50.0, 200.0, 50.0, 3.0]):
        done: Any = SimpleNamespace(started=1000.0, ended=1000.0 + duration_s, late_s=0.0)
        tally.ended(done, Cause.DONE if place < 3 else Cause.FAILED, int(place == 3), 0)
    assert tally.usual_s == 50.0, (
        "one slow trial does not stop everything, and one that failed tells nothing"
    )
    for usual_s, fits in ((None, True), (tally.usual_s, False)):
        job.usual_s = usual_s
        assert job.too_late(job.deadline - 40, job.deadline - 240, False) is not fits
    assert not job.too_late(job.deadline - 61, job.deadline - 240, False)


NOW = 1_000_000.0


def others(
    folder: Path, notice: float = math.inf, ends: float = math.inf, **began: float
) -> Others:
    paths = StudyPaths(str(folder))
    path = Path(paths.journal_of("a"))
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"e": "agent", "t": NOW, "v": 1, "id": "a"}
    if ends < math.inf:
        header.update(notice=notice, ends=ends)
    events = [
        header,
        *({"e": "start", "t": began[name], "i": int(name[1:]), "n": 0, "s": 0} for name in began),
    ]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return Others(paths, "b")


@pytest.mark.parametrize(
    "trial_s,began_s,notice_s,latest_s,waits",
    [
        (20, -10, 30, 600, True),  # it is soon over: waiting costs little
        (20, -100, 30, 600, True),  # overdue, and may be cut
        (20, -500, 30, 600, False),  # it hangs
        (3600, -60, 4000, 9000, False),  # a long one, which will be done in time
        (3600, -60, 1800, 9000, True),  # which will be cut while there is time here
        (3600, -60, 1800, 1900, False),  # which will be cut, and here it is too late then
        (3600, -60, 3500, 99999, False),  # longer to wait for than it takes
        (None, -60, 300, 9000, True),  # nobody knows how long it takes, and its job ends soon
        (None, -60, 3000, 9000, False),
        (20, -10, 30, -1, False),  # nothing could be begun here any more
    ],
)
def test_agents_wait_for_what_may_come_back(
    tmp_path: Path,
    trial_s: float | None,
    began_s: float,
    notice_s: float,
    latest_s: float,
    waits: bool,
) -> None:
    found = others(tmp_path, NOW + notice_s, NOW + notice_s + 120, n7=NOW + began_s)
    assert (
        found.may_come_back({"a": [(7, 8)], "b": [(9, 10)]}, NOW, NOW + latest_s, trial_s, False)
        is waits
    )
    assert not found.may_come_back({"b": [(9, 10)]}, NOW, NOW + latest_s, trial_s, False), (
        "its own are no matter"
    )


def test_trials_with_checkpoints_are_left_to_the_jobs_that_follow(tmp_path: Path) -> None:
    found = others(tmp_path, NOW + 1800, NOW + 1900, n7=NOW)
    assert not found.may_come_back({"a": [(7, 8)]}, NOW, NOW + 9000, 3600, True)
    assert found.may_come_back({"a": [(7, 8)]}, NOW, NOW + 9000, 30, True)


def test_an_agent_of_another_day_says_nothing_of_its_end(tmp_path: Path) -> None:
    found = others(tmp_path, n7=time.time())
    assert not found.may_come_back({"a": [(7, 8)]}, NOW, math.inf, 3600, False)


@pytest.mark.parametrize("begun", [1, 3])
def test_only_agents_that_wait_are_cancelled_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], begun: int
) -> None:
    """The scheduler's answer is some seconds old: tasks that have begun since then, this one too, do not wait."""
    paths = StudyPaths(str(tmp_path / "studies" / "demo"))
    for folder in (paths.journal, paths.claims, paths.hpc_outputs):
        Path(folder).mkdir(parents=True, exist_ok=True)
    RegisterFile(paths.claims, "a0").update(lambda register: register)
    now = time.time()
    rows = ["50|50|0-2|PENDING|Priority||0|0|9:00|0|debug|acc|windlass:s1|p"]
    rows.append(
        "60|60|0|PENDING|Priority||0|0|9:00|0|debug|acc|windlass:other|p"
    )  # of another study
    answer = {"v": 1, "user": os.getuid(), "number": 1, "asked": now, "text": "\n".join(rows)}
    Path(paths.queue).write_text(json.dumps({**answer, "good": [now, answer["text"]]}))
    client = [
        {"e": "client", "t": now - 60, "v": 1},
        {"e": "submit", "t": now - 60, "sub": "s1", "agents": 3},
    ]
    Path(paths.journal, "client-1.jsonl").write_text(
        "".join(json.dumps(event) + "\n" for event in client)
    )
    for task in range(begun):
        header = {
            "e": "agent",
            "t": now + 1,
            "v": 1,
            "id": f"a{task}",
            "job": {"array": 50, "task": task},
        }
        Path(paths.journal_of(f"a{task}")).write_text(json.dumps(header) + "\n")
    scancel = tmp_path / "bin" / "scancel"
    scancel.parent.mkdir()
    scancel.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/cancelled'\n")
    scancel.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scancel.parent}:{os.environ['PATH']}")
    notes: list[str] = []
    assert not Departure(paths, "a0", False).leave(0, notes.append)
    called = tmp_path / "cancelled"
    if begun == 3:
        assert notes == [] and not called.exists() and "waited" not in capsys.readouterr().err
    else:
        assert notes == [
            "2 jobs that waited were cancelled: all trials are through, and nothing was left for them"
        ]
        assert called.read_text() == "--state=PENDING 50\n"
