"""Folding journals gives the same state in any order and in any pieces, and the state is what happened."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.collect.follow import Follower
from windlass.core.journal.fold import Folded, fold_events
from windlass.core.journal.records import TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import STATE_OF, Cause, State

Event = dict[str, Any]


def fold(journals: dict[str, list[Event]]) -> Folded:
    folded = Folded()
    for writer, events in journals.items():
        fold_events(folded, writer, events)
    return folded


def trial(journals: dict[str, list[Event]], number: int = 0) -> TrialRecord:
    return fold(journals).trials[number]


def start(t: float, n: int = 1) -> Event:
    return {"e": "start", "t": t, "i": 0, "n": n, "s": 0}


def end(t: float, cause: str = "done", n: int = 1, **more: Any) -> Event:
    return {"e": "end", "t": t, "i": 0, "n": n, "cause": cause, **more}


def test_an_attempt_from_start_to_end() -> None:
    metrics = {"loss": [0.5, 0.25, "inf", 7]}
    details = {
        "code": 0,
        "start": 10.0,
        "dur": 2.5,
        "stage": "train",
        "out": 99,
        "rss_mb": 12.0,
        "cpu_s": 2.0,
    }
    journal = [start(10.0, n=3), end(12.5, n=3, m=metrics, step=7, **details)]
    assert trial({"a": journal[:1]}) == TrialRecord(
        0, State.RUNNING, since=10.0, attempts=1, agent="a", attempt=3, start=10.0
    )
    assert trial({"a": journal}) == TrialRecord(
        number=0,
        state=State.DONE,
        cause="done",
        since=12.5,
        attempts=1,
        agent="a",
        attempt=3,
        start=10.0,
        duration_s=2.5,
        exit_code=0,
        stage="train",
        step=7,
        metrics={"loss": (0.5, 0.25, math.inf, 7)},
        output_bytes=99,
        rss_mb=12.0,
        cpu_s=2.0,
    )


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_its_state(cause: Cause) -> None:
    record = trial({"a": [start(1), end(2, cause.value)]})
    assert (record.state, record.cause) == (STATE_OF[cause], cause.value)


def test_a_cause_of_the_future_is_no_success_and_is_shown() -> None:
    record = trial({"a": [start(1), end(2, "eaten by a whale")]})
    assert (record.state, record.cause) == (State.FAILED, "eaten by a whale")


def test_a_beat_shows_how_far_an_attempt_is() -> None:
    beat = {"e": "beat", "t": 5.0, "live": {"0": {"step": 3, "m": {"loss": [1.0, 0.5, 2.0, 3]}}}}
    record = trial({"a": [start(1.0, n=4), beat]})
    assert (record.state, record.since, record.start, record.attempt) == (
        State.RUNNING,
        1.0,
        1.0,
        4,
    )
    assert (record.step, record.metrics) == (3, {"loss": (1.0, 0.5, 2.0, 3)})


def test_the_agent_tries_again_and_the_trial_waits_in_between() -> None:
    journal = [
        start(1),
        end(2, "failed"),
        {"e": "again", "t": 2, "i": 0, "n": 1},
        start(3, n=2),
        end(4, n=2),
    ]
    states = [trial({"a": journal[:stop]}).state for stop in range(1, 6)]
    assert states == [State.RUNNING, State.FAILED, State.WAITING, State.RUNNING, State.DONE]
    assert trial({"a": journal}).attempts == 2


def test_cancel_and_retry_reach_trials_that_nothing_else_is_known_of() -> None:
    cancel = {"e": "cancel", "t": 5, "r": [[0, 2], [7, 9]]}
    folded = fold({"c": [cancel]})
    assert {number: record.state for number, record in folded.trials.items()} == dict.fromkeys(
        [0, 1, 7, 8], State.CANCELLED
    )
    fold_events(folded, "c", [{"e": "retry", "t": 6, "r": [[1, 8]]}])
    states = {number: record.state for number, record in folded.trials.items()}
    assert states[0] == states[8] == State.CANCELLED
    assert states[1] == states[7] == State.WAITING


def test_cancelled_trial_is_cancelled_whatever_its_agent_does_before_it_notices() -> None:
    """Its attempt may be interrupted, or may fail and be due for another one. Only a retry opens the trial again."""
    cancel = {"c": [{"e": "cancel", "t": 5, "r": [[0, 1]]}]}
    again = {"e": "again", "t": 7, "i": 0, "n": 1}
    for late in (
        [end(7, Cause.FOLDER.value)],
        [end(7, Cause.FOLDER.value), again],
        [end(7, "failed"), again],
        [end(7, Cause.TAKEN.value)],
    ):
        assert trial({"a": [start(1), *late], **cancel}).state == State.CANCELLED
        assert trial({"a": [start(6), *late], **cancel}).state == State.CANCELLED
        retried = {"c": [*cancel["c"], {"e": "retry", "t": 6, "r": [[0, 1]]}]}
        assert trial({"a": [start(1), *late], **retried}).state != State.CANCELLED
    assert trial({"a": [start(1), end(7)], **cancel}).state == State.DONE
    assert trial({"a": [start(1), end(7, "failed")], **cancel}).state == State.FAILED


def test_what_is_done_stays_done_until_it_is_retried() -> None:
    done = {"a": [start(1), end(2)]}
    late = {
        "b": [start(50), end(60, "failed", code=1)],
        "c": [{"e": "cancel", "t": 70, "r": [[0, 1]]}],
    }
    assert trial({**done, **late}).state == State.DONE
    assert trial({**done, **late}).agent == "a"
    retried = {**done, "c": [{"e": "retry", "t": 3, "r": [[0, 1]]}]}
    assert trial(retried).state == State.WAITING
    assert trial({**retried, "b": late["b"]}).state == State.FAILED
    assert trial({**retried, "b": [start(1.5), end(2.5)]}).state == State.WAITING
    assert trial({**retried, "b": [start(4), end(5)]}).state == State.DONE


def test_a_clock_set_back_does_not_reorder_what_one_agent_wrote() -> None:
    assert trial({"a": [start(100), end(40, "failed")]}).state == State.FAILED
    journal = [start(7), end(7, "failed"), {"e": "again", "t": 7, "i": 0, "n": 1}, start(7, n=2)]
    assert trial({"a": journal}).state == State.RUNNING


def test_agents_tell_who_they_are_and_how_they_ended() -> None:
    header = {
        "e": "agent",
        "t": 1.0,
        "v": 1,
        "host": "n1",
        "boot": "b",
        "pid": 7,
        "began": "x",
        "slots": 4,
    }
    folded = fold({"a": [header, start(3.0)], "c": [{"e": "client", "t": 1.0, "v": 1}]})
    agent = folded.agents["a"]
    assert (agent.id, agent.host, agent.pid, agent.slots) == ("a", "n1", 7, 4)
    assert (agent.start, agent.last_seen, agent.ended) == (1.0, 3.0, False)
    fold_events(folded, "a", [{"e": "bye", "t": 9.0, "reason": "nothing left"}])
    agent = folded.agents["a"]
    assert (agent.last_seen, agent.ended, agent.reason) == (9.0, True, "nothing left")
    assert list(folded.agents) == ["a"]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"e": "start", "t": 1.0},
        {"e": "start", "t": "x", "i": 1},
        {"e": "start", "t": math.nan, "i": 1},
        {"e": "start", "t": 1.0, "i": -1},
        {"e": "start", "t": 1.0, "i": "1"},
        {"e": "end", "t": 1.0, "i": 1},
        {"e": "end", "t": 1.0, "i": 1, "cause": None},
        {"e": "end", "t": 1.0, "i": 1, "cause": "done", "m": 3},
        {"e": "cancel", "t": 1.0, "r": [[1]]},
        {"e": "cancel", "t": 1.0, "r": 7},
        {"e": "beat", "t": 1.0, "live": {"x": {}}},
        {"e": [], "t": 1.0},
    ],
)
def test_an_event_that_makes_no_sense_is_counted_and_changes_nothing(event: Event) -> None:
    folded = fold({"a": [event]})
    assert (folded.trials, folded.malformed) == ({}, 1)


def test_an_event_of_a_kind_yet_to_come_is_passed_over() -> None:
    folded = fold({"a": [{"e": "teleport", "t": 1.0, "i": 3}]})
    assert (folded.trials, folded.malformed) == ({}, 0)


numbers = st.integers(0, 3)
times = st.integers(0, 12).map(float)  # few, so that writers meet at the same moment
metric_maps = st.dictionaries(
    st.sampled_from(["loss", "acc"]), st.just([1.0, 0.5, 2.0, 3]), max_size=2
)
use_maps = st.dictionaries(
    st.sampled_from(["mem_mb", "k", "later"]), st.sampled_from([1, 2.5, "x"]), max_size=2
)
progress = st.sampled_from([None, [1, 2, 3.5], [1, None, None], "damage"])
ranges = st.lists(st.tuples(numbers, numbers).map(list), max_size=2)
events = st.one_of(
    st.fixed_dictionaries({"e": st.just("start"), "t": times, "i": numbers, "n": numbers}),
    st.fixed_dictionaries(
        {
            "e": st.just("end"),
            "t": times,
            "i": numbers,
            "n": numbers,
            "cause": st.sampled_from(
                ["done", "failed", "stopped", "cancelled", Cause.FOLDER.value]
            ),
            "start": times,
            "dur": times,
            "m": metric_maps,
            "use": use_maps,
        }
    ),
    st.fixed_dictionaries({"e": st.just("again"), "t": times, "i": numbers, "n": numbers}),
    st.fixed_dictionaries({"e": st.sampled_from(["cancel", "retry"]), "t": times, "r": ranges}),
    st.fixed_dictionaries(
        {
            "e": st.just("beat"),
            "t": times,
            "live": st.dictionaries(
                numbers.map(str),
                st.fixed_dictionaries(
                    {"step": numbers, "m": metric_maps, "p": progress, "mem": times}
                ),
                max_size=3,
            ),
        }
    ),
    st.fixed_dictionaries({"e": st.just("note"), "t": times, "text": st.text(max_size=5)}),
    st.fixed_dictionaries({"e": st.just("agent"), "t": times, "v": st.just(1), "slots": numbers}),
    st.fixed_dictionaries({"e": st.just("bye"), "t": times, "reason": st.text(max_size=5)}),
    st.fixed_dictionaries({"e": st.sampled_from(["start", "end"]), "t": times}),
)
journals = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(events, max_size=12), min_size=1, max_size=3
)


def summary(folded: Folded) -> tuple[Any, ...]:
    return folded.trials, folded.agents, sorted(folded.notes, key=repr), folded.malformed


@settings(max_examples=400, deadline=None)
@given(written=journals, data=st.data())
def test_order_of_files_and_splits_of_reads_do_not_matter(
    written: dict[str, list[Event]], data: st.DataObject
) -> None:
    folded, left = Folded(), {writer: list(journal) for writer, journal in written.items()}
    while any(left.values()):
        writer = data.draw(st.sampled_from(sorted(w for w in left if left[w])))
        count = data.draw(st.integers(1, len(left[writer])))
        fold_events(folded, writer, left[writer][:count])
        left[writer] = left[writer][count:]
    assert summary(folded) == summary(fold(written))


def test_progress_counts_trials_that_were_put_back_and_done_again(tmp_path: Path) -> None:
    """Journals of commands are read after those of agents, whenever they were written."""
    journals = {
        "20261116-1": [(kind, 1.0, number) for number in (0, 1, 2) for kind in ("start", "end")],
        "client-20261116-2": [("retry", 2.0, 0)],
        "20261116-3": [("start", 3.0, 0), ("end", 4.0, 0)],
        "client-20261116-4": [("retry", 5.0, 1), ("cancel", 5.0, 2)],
    }
    (tmp_path / "journal").mkdir()
    for name, events in journals.items():
        lines = []
        for kind, when, number in events:
            about = (
                {"r": [[number, number + 1]]}
                if kind in ("retry", "cancel")
                else {"i": number, "cause": "done"}
            )
            lines.append(json.dumps({"e": kind, "t": when, **about}) + "\n")
        (tmp_path / "journal" / f"{name}.jsonl").write_text("".join(lines))
    follower = Follower(StudyPaths(str(tmp_path)), 3, [(0, 3)])
    follower.skip_existing()
    assert (follower.count(State.DONE), follower.count(State.WAITING)) == (2, 1), (
        "trial 0 is done again"
    )
    (tmp_path / "journal" / "20261116-5.jsonl").write_text('{"e":"start","t":6.0,"i":1}\n')
    assert follower.update() and follower.count(State.RUNNING) == 1


def test_following_agrees_with_the_fold_whatever_the_order_of_journals(tmp_path: Path) -> None:
    """The journal that is read last is not the one that was written last, and a damaged line is passed over."""
    (tmp_path / "journal").mkdir()
    journals: dict[str, list[dict[str, Any]]] = {
        "20261116-1": [{"e": "start", "t": 20.0, "i": 0}, {"e": "end", "t": 21.0, "i": 1}],
        "20261116-2": [{"e": "end", "t": 10.0, "i": 0, "cause": "exit"}],
        "client-3": [{"e": "cancel", "t": 5.0, "r": [[2, 3]]}],
    }
    folded = Folded()
    for name, events in journals.items():
        lines = [json.dumps(event) + "\n" for event in events]
        (tmp_path / "journal" / f"{name}.jsonl").write_text("".join(lines))
        fold_events(folded, name, events)
    heard: list[str] = []
    follower = Follower(
        StudyPaths(str(tmp_path)), 3, [(0, 3)], on_end=lambda cause, event: heard.append(cause)
    )
    assert follower.update() and heard == ["exit"] and follower.ended == 1
    states = [record.state for record in folded.trials.values()]
    assert states == [State.RUNNING, State.CANCELLED]
    assert follower.count(State.RUNNING) == follower.count(State.CANCELLED) == 1
