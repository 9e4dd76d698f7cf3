"""The time a study still takes: from what trials under way tell, from those that are done, or as measured."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.collect.test_index import finished, write
from tests.collect.test_usage import study
from windlass.collect.index import StudyIndex
from windlass.collect.jobview import JobsView, JobView
from windlass.collect.look import look
from windlass.collect.reconcile import study_view
from windlass.collect.submissions import Submission
from windlass.collect.timeleft import (
    Durations,
    Hours,
    TimeLeft,
    estimate_time_left,
    fold_spent,
    fold_to_come,
    play_out,
    remaining_s,
)
from windlass.core.journal.records import AgentRecord, TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.queue.states import JobState
from windlass.core.states import State
from windlass.view.status import render_hours, render_left, render_status, view_to_json
from windlass.view.watch import render_watch, running_in, watch_to_json

__all__ = ["study"]
NOW = 1000.0


def running(
    number: int, began: float, p: list[Any] | None = None, told: float = NOW
) -> TrialRecord:
    use = {} if p is None else {"p": p}
    return TrialRecord(number, State.RUNNING, since=began, start=began, use=use, told=told)


def test_a_trial_under_way_tells_of_itself() -> None:
    assert remaining_s(running(0, 960.0, [40, 200, 160.0]), NOW) == 160.0
    assert (
        remaining_s(running(0, 960.0, [40, 200, 160.0], told=990.0), NOW) == 150.0
    )  # ten seconds ago
    assert remaining_s(running(0, 960.0, [40, 200, None]), NOW) == pytest.approx(
        160.0
    )  # from its own rate
    assert (
        remaining_s(running(0, NOW - 2.0, [1, 2000, None]), NOW) is None
    )  # most of it was the start of the program
    assert remaining_s(running(0, 960.0, [40, None, None]), NOW) is None
    assert remaining_s(running(0, 960.0), NOW) is None


def test_two_hundred_steps_after_a_fifth_of_them() -> None:
    """One trial under way and seven waiting in two slots: four waves of 200 s, 40 s of the first are over."""
    left = estimate_time_left([running(0, 960.0, [40, 200, 160.0])], 7, 2, Durations(), NOW)
    assert left is not None and left.seconds == pytest.approx(800.0 - 40.0, rel=0.2)
    assert left.work_s == pytest.approx(160.0 + 7 * 200.0)


def test_waiting_trials_take_as_long_as_those_that_are_done() -> None:
    left = estimate_time_left([], 4, 2, Durations(5, 10.0, 8.0, 12.0), NOW)
    assert left is not None and left.seconds == 20.0
    assert left.low is not None and left.high is not None and left.low < 20.0 < left.high
    assert left.because == "5 done"


def test_one_that_is_overdue_is_not_about_to_have_ended() -> None:
    left = estimate_time_left([running(0, NOW - 500.0)], 0, 1, Durations(5, 10.0, 8.0, 12.0), NOW)
    assert left is not None and left.seconds == pytest.approx(1.0)


def test_without_anything_else_the_measurement_tells() -> None:
    assert estimate_time_left([], 4, 2, Durations(), NOW) is None
    left = estimate_time_left([], 4, 2, Durations(), NOW, measured_s=30.0)
    assert left is not None and (left.seconds, left.because) == (60.0, "measured")


def test_without_slots_only_the_work_is_known() -> None:
    left = estimate_time_left([], 4, 0, Durations(5, 10.0, 8.0, 12.0), NOW)
    assert left == TimeLeft(40.0, because="5 done")


@pytest.mark.parametrize("waiting", [0, 1, 7, 10_000, 10_001, 1_000_000])
def test_many_trials_are_reckoned_like_few(waiting: int) -> None:
    ideal = (5.0 + waiting * 2.0) / 4
    assert max(5.0, ideal) <= play_out([5.0], waiting, 4, 2.0) <= max(5.0, ideal + 2.0)


def agent(name: str, **more: Any) -> AgentRecord:
    return AgentRecord(**{"id": name, "slots": 4, "start": 100.0, "last_seen": 900.0, **more})


def jobs_view(*jobs: JobView) -> JobsView:
    request = {"gpus": 2, "cpus": 8, "nodes": 1}
    return JobsView(
        (Submission("s1", 0.0, 3, 0, request, {}, job=7),), jobs, asked=0.0, answered=True
    )


def test_gpu_hours_are_those_of_agents_and_of_jobs_without_one() -> None:
    lives = agent("a", start=NOW - 3600.0, job={"sub": "s1"})
    ended = agent("b", start=0.0, last_seen=1800.0, ended=True, job={"sub": "s1"}, gpus=1, cpus=3)
    never = JobView("s1", 7, 2, state=JobState.FAILED, elapsed_s=900.0)
    spent = fold_spent([lives, ended], {"a": True, "b": False}, jobs_view(never), NOW)
    assert spent == Hours(pytest.approx(2.0 + 0.5 + 0.5), pytest.approx(8.0 + 1.5 + 2.0))


def test_what_is_not_known_is_not_made_up() -> None:
    assert fold_spent([agent("a")], {"a": True}, None, NOW) == Hours(None, None)
    assert fold_to_come(None, [agent("a", gpus=1)], {"a": True}, None) == Hours(None, None)


def test_gpu_hours_to_come_follow_from_the_work() -> None:
    left = TimeLeft(work_s=4 * 3600.0)
    assert fold_to_come(left, [agent("a", job={"sub": "s1"})], {"a": True}, jobs_view()) == Hours(
        2.0, 8.0
    )


def test_status_says_how_long_and_how_much(study: StudyPaths) -> None:
    header = {"e": "agent", "t": 1.0, "v": 1, "id": "a", "slots": 2, "gpus": 1, "host": "n1"}
    began = {"e": "start", "t": 7.0, "i": 8, "n": 1, "s": 0}
    beat = {"e": "beat", "t": 8.0, "live": {"8": {"p": [20, 100, 40.0], "mem": 12.5}}}
    write(
        study,
        "a",
        [header, *finished(0, 8, dur=10.0), began, beat, {"e": "bye", "t": 3601.0, "reason": "x"}],
    )
    view = look(study)
    assert view.left is not None and view.left.work_s == pytest.approx(
        20.0
    )  # two of ten are left, ten seconds each
    said = view_to_json(view)
    assert said["spent"]["gpu_h"] == pytest.approx(1.0) and said["to_come"][
        "gpu_h"
    ] == pytest.approx(10 / 3600, 0.01)
    assert said["time_left"]["seconds"] is None and said["eta_s"] is None
    assert "GPU-hours: 1 spent, less than 0.01 to come" in render_status(view)


def test_a_look_at_what_runs(study: StudyPaths) -> None:
    job = {"id": 9, "array": 7, "task": 2}
    header = {"e": "agent", "t": 1.0, "v": 1, "id": "a", "slots": 2, "host": "n1", "job": job}
    beat = {"e": "beat", "t": 8.0, "live": {"8": {"p": [20, 100, 40.0], "mem": 12.5, "gpu": 2048}}}
    write(study, "a", [header, {"e": "start", "t": 7.0, "i": 8, "n": 1, "s": 0}, beat])
    index = StudyIndex(study)
    index.refresh()
    view = study_view(
        name="demo", folder="/f", total=10, counts=index.counts(10), causes={}, running=index.running(),
        agents=index.agents(), alive={"a": True}, now=9.0,
    )  # fmt: skip
    index.close()
    text = render_watch(view, None, 9.0, None)
    assert re.search(r"8 +7_2 +n1 +2 s +20/100 +39 s +12.5 MB +2 GB", text), text
    assert running_in(view, (7, None)) and running_in(view, (7, 2))
    assert not running_in(view, (7, 1)) and not running_in(view, (8, None))
    (said,) = watch_to_json(view, None, 9.0)["running"]
    assert (said["job"], said["step"], said["steps"], said["eta_s"], said["gpu_mb"]) == (
        "7_2",
        20.0,
        100.0,
        39.0,
        2048,
    )


def test_ranges_are_shown_where_they_say_something() -> None:
    assert render_left(None) == "–"
    assert render_left(TimeLeft(0.0, 750.0)) == "12 min 30 s"
    assert render_left(TimeLeft(0.0, 750.0, 600.0, 900.0)) == "12 min 30 s (10 min to 15 min)"
    assert render_left(TimeLeft(0.0, 5.0, 4.9, 5.1)) == "5 s"


def test_a_study_without_gpus_counts_core_hours(study: StudyPaths) -> None:
    header = {"e": "agent", "t": 0.0, "v": 1, "id": "a", "slots": 2, "gpus": 0, "cpus": 3}
    write(study, "a", [header, {"e": "bye", "t": 1800.0, "reason": "x"}])
    assert render_hours(look(study)) == "core-hours: 1.5 spent"
