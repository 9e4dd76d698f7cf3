"""squeue and sacct as recorded from real ones, odd forms, and one answer shared by many processes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests import HERE
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import USABLE_S, read_last_queue, read_queue
from windlass.core.queue.rows import (
    Queue,
    QueueRow,
    parse_queue,
    parse_tasks,
    parse_time,
    queue_command,
)
from windlass.core.queue.states import JobState
from windlass.core.units import parse_clock_s, parse_slurm_mb
from windlass.slurm.accounting import fetch_records, parse_records

DATA = HERE / "data" / "slurm"


def recorded(version: str, name: str) -> str:
    return (DATA / version / name).read_text()


def by_name(rows: Sequence[QueueRow]) -> dict[str, list[QueueRow]]:
    found: dict[str, list[QueueRow]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
    return found


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_recorded_queues(version: str) -> None:
    """The same jobs on two versions: the same rows, but for numbers and times."""
    text = recorded(version, "squeue.txt")
    rows = parse_queue(text)
    assert len(rows) == len(text.splitlines())
    assert all(row.state is not JobState.UNKNOWN for row in rows)
    names = by_name(rows)
    assert [row.state for row in names["ok"]] == [JobState.DONE]
    bad = names["bad | name, é"][0]
    assert (bad.state, bad.comment, bad.reason) == (
        JobState.FAILED,
        "windlass:aaa",
        "NonZeroExitCode",
    )
    waiting = next(row for row in names["array"] if row.pending_tasks)
    assert (waiting.pending_tasks, waiting.throttle, waiting.tasks()) == (((3, 9),), 3, 7)
    assert waiting.start is None and waiting.reason == "JobArrayTaskLimit"
    running = sorted(row.task for row in names["array"] if row.task is not None)
    assert running == [0, 1, 2]
    first = next(row for row in names["array"] if row.task == 0)
    assert first.state is JobState.RUNNING and first.array == waiting.array != first.id
    assert first.node == "node1" and first.time_left_s is not None and 500 < first.time_left_s < 600
    steps = next(row for row in names["steps"] if row.state is JobState.WAITING)
    assert steps.tasks() == 21 and steps.covers(4) and not steps.covers(5) and steps.covers(35)
    again = {row.task: row.state for row in names["again"]}
    assert again == {0: JobState.RUNNING, 1: JobState.WAITING, 2: JobState.CANCELLED}
    assert {row.name: row.reason for row in rows if row.name in ("held", "never", "long")} == {
        "held": "JobHeldUser",
        "never": "DependencyNeverSatisfied",
        "long": "PartitionTimeLimit",
    }
    late = next(row for row in names["late"] if row.state is JobState.WAITING)
    assert (
        late.start is not None
        and late.submitted is not None
        and late.start == late.submitted + 3600
    )


def test_reasons_with_spaces_and_commas() -> None:
    rows = by_name(parse_queue(recorded("24.11.5", "squeue-no-nodes.txt")))
    assert rows["whole"][0].reason == "ReqNodeNotAvail, UnavailableNodes:node2"
    assert rows["ok"][0].reason.startswith("Nodes required for job are DOWN, DRAINED")


def test_an_array_that_was_cancelled_before_it_began() -> None:
    """22.05 forgets which tasks those were, 24.11 does not."""
    old = Queue(parse_queue(recorded("22.05.8", "squeue.txt")), 0.0)
    rest = old.rest_of(2)
    assert rest is not None and rest.state is JobState.CANCELLED and old.row_of(2, 4) is None
    new = Queue(parse_queue(recorded("24.11.5", "squeue.txt")), 0.0)
    row = new.row_of(19, 4)
    assert row is not None and row.state is JobState.CANCELLED
    assert new.row_of(19, 6) is None and new.rest_of(19) is None


def test_finding_rows() -> None:
    queue = Queue(parse_queue(recorded("22.05.8", "squeue.txt")), 5.0)
    running, waiting = queue.row_of(19, 2), queue.row_of(19, 7)
    assert running is not None and running.id == 32
    assert waiting is not None and waiting.pending_tasks
    assert queue.row_of(19, 10) is None and queue.row_of(99, 0) is None
    alone = queue.row_of(26)
    assert alone is not None and alone.name == "whole"
    assert queue.row_of(0, None, 32) == running
    assert {row.array for row in queue.with_comment("windlass:bbb")} == {19}
    assert len(queue.rows_of(19)) == 4


def test_a_row_of_many_ranges_covers_what_it_lists() -> None:
    listed = {0, 1, 2, 5, 9, 10, 30}
    text = "5|5|0-2,5,9-10,30%4|PENDING|None||N/A|N/A|1:00|900|p|a|c|n"
    (waiting,) = parse_queue(text)
    assert {task for task in range(-1, 40) if waiting.covers(task)} == listed
    (single,) = parse_queue(text.replace("0-2,5,9-10,30%4", "7"))
    assert single.covers(7) and not single.covers(6)


@pytest.mark.parametrize(
    "text,ranges,throttle",
    [
        ("3-9%3", ((3, 9),), 3),
        ("[0,2-4]", ((0, 0), (2, 4)), None),
        ("[0-10:5%2]", ((0, 0), (5, 5), (10, 10)), 2),
        ("7", ((7, 7),), None),
        ("9%1", ((9, 9),), 1),
        ("0-3,5,7,...", ((0, 3), (5, 5), (7, 7), (8, 1 << 31)), None),
        ("0-3,5,7...%4", ((0, 3), (5, 5), (7, 7), (8, 1 << 31)), 4),
    ],
)
def test_lists_of_tasks(text: str, ranges: object, throttle: int | None) -> None:
    assert parse_tasks(text) == (ranges, throttle)


def test_odd_lines() -> None:
    """Hand-made: names with bars and line breaks, headers of federations, fields that are not set."""
    text = (
        "CLUSTER: main\n"
        "5|5|N/A|RUNNING|None|n[1-2]|1000|2000|1-02:03:04|900|p|(null)|(null)|a | b|c\n"
        "6|6|4294967294|PENDING|None||N/A|N/A|UNLIMITED|900|p|a||two\n"
        "lines|of a name\n"
        "7|7|N/A|BRAND_NEW|None|n1|2026-11-15T06:07:44|N/A|INVALID|900|p|a|windlass:x|\n"
    )
    first, second, third = parse_queue(text)
    assert (first.name, first.comment, first.account, first.node) == ("a | b|c", "", "", "n[1-2]")
    assert first.time_left_s == 93784.0
    assert (second.task, second.pending_tasks, second.start, second.time_left_s) == (
        None,
        (),
        None,
        None,
    )
    assert (third.state, third.state_name, third.comment, third.name) == (
        JobState.UNKNOWN,
        "BRAND_NEW",
        "windlass:x",
        "",
    )
    assert third.start == time.mktime((2026, 11, 15, 6, 7, 44, 0, 0, -1))


def test_times() -> None:
    assert [parse_clock_s(text) for text in ("3:04", "2:03:04", "1-00:00:00", "UNLIMITED", "")] == [
        184.0, 7384.0, 86400.0, None, None,
    ]  # fmt: skip
    assert [parse_time(text) for text in ("1794745156", "0", "N/A", "Unknown", "None")] == [
        1794745156.0, None, None, None, None,
    ]  # fmt: skip


def test_recorded_accounting() -> None:
    records = {
        (record.array, record.task): record
        for record in parse_records(recorded("22.05.8", "sacct.txt"))
    }
    failed, killed, no_log = records[17, None], records[18, None], records[28, None]
    assert (failed.state, failed.exit_code, failed.signal, failed.name) == (
        JobState.FAILED,
        3,
        0,
        "bad | name, é",
    )
    assert (killed.exit_code, killed.signal) == (0, 9)
    assert (no_log.exit_code, no_log.signal) == (0, 53)
    cancelled = records[29, 2]
    assert (cancelled.id, cancelled.state, cancelled.state_name) == (
        29,
        JobState.CANCELLED,
        "CANCELLED by 0",
    )
    assert cancelled.max_rss_mb == pytest.approx(3204 / 1024)
    assert cancelled.elapsed_s == 3.0
    assert records[19, 1].id == 31 and records[19, 1].end is None
    assert records[19, None].pending_tasks == ((3, 9),)
    assert len(records[20, None].pending_tasks) == 12


def test_no_accounting_is_not_an_error() -> None:
    asked: list[Sequence[str]] = []

    def nobody(words: Sequence[str], env: Mapping[str, str]) -> str | None:
        asked.append(words)
        return None

    assert fetch_records([3, 1, 3], nobody) is None
    assert asked[0][-1] == "--jobs=1,3"
    assert fetch_records([], nobody) == [] and len(asked) == 1


def test_memory() -> None:
    assert [parse_slurm_mb(text, plain="") for text in ("1024K", "1.5G", "2048M", "0", "", "16?")] == [
        1.0, 1536.0, 2048.0, 0.0, None, None,
    ]  # fmt: skip


# -- one answer for all


class Scheduler:
    """Counts how often it is asked."""

    def __init__(self, text: str | None) -> None:
        self.text = text
        self.asked = 0

    def __call__(self, words: Sequence[str], env: Mapping[str, str]) -> str | None:
        assert words == queue_command() and env["SLURM_TIME_FORMAT"] == "%s"
        self.asked += 1
        return self.text


ROW = "5|5|N/A|RUNNING|None|n1|1000|2000|10:00|900|p|a|windlass:x|name\n"


def make_older(cache: Path, seconds: float) -> None:
    said = json.loads(cache.read_text())
    said["asked"] -= seconds
    if said["good"]:
        said["good"][0] -= seconds
    cache.write_text(json.dumps(said))


def test_an_answer_is_used_again_until_it_is_old(tmp_path: Path) -> None:
    cache, scheduler = tmp_path / "squeue.json", Scheduler(ROW)
    for _ in range(3):
        queue = read_queue(str(cache), scheduler)
        assert queue is not None and queue.rows[0].id == 5
    assert scheduler.asked == 1
    make_older(cache, 9.0)
    read_queue(str(cache), scheduler)
    assert scheduler.asked == 1
    make_older(cache, 2.0)
    read_queue(str(cache), scheduler)
    assert scheduler.asked == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["squeue.json"]


def test_silence_is_remembered_too(tmp_path: Path) -> None:
    cache, scheduler = tmp_path / "squeue.json", Scheduler(ROW)
    read_queue(str(cache), scheduler)
    make_older(cache, 20.0)
    scheduler.text = None
    assert read_queue(str(cache), scheduler) is None
    assert read_queue(str(cache), scheduler) is None
    assert scheduler.asked == 2
    last = read_last_queue(str(cache))
    assert last is not None and last.rows[0].id == 5
    scheduler.text = ROW
    make_older(cache, 11.0)
    assert read_queue(str(cache), scheduler) is not None


def test_a_failure_counts_from_its_end(tmp_path: Path) -> None:
    """A controller that is down lets the question hang; the next one is not asked right after."""
    cache = tmp_path / "squeue.json"
    asked: list[float] = []

    def hangs(words: Sequence[str], env: Mapping[str, str]) -> str | None:
        asked.append(time.time())
        time.sleep(0.3)
        return None

    assert read_queue(str(cache), hangs, max_age_s=0.25) is None
    assert json.loads(cache.read_text())["asked"] >= asked[0] + 0.25


def test_while_another_asks(tmp_path: Path) -> None:
    """The last answer serves if it is not too old; who has been asking for a minute is gone."""
    cache, scheduler = tmp_path / "squeue.json", Scheduler(ROW)
    read_queue(str(cache), scheduler)
    make_older(cache, 20.0)
    lock = tmp_path / "squeue.json.asking-2-0"
    lock.touch()
    assert read_queue(str(cache), scheduler) is not None and scheduler.asked == 1
    old = time.time() - USABLE_S - 5
    os.utime(lock, (old, old))
    leftover = tmp_path / "squeue.json.somewhere-77"
    leftover.touch()
    os.utime(leftover, (old - 3600, old - 3600))
    read_queue(str(cache), scheduler)
    assert scheduler.asked == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["squeue.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 99}', '{"v": 1, "user": "x"}', "\x00\xff"])
def test_a_damaged_cache_is_no_answer(tmp_path: Path, text: str) -> None:
    cache, scheduler = tmp_path / "squeue.json", Scheduler(ROW)
    cache.write_text(text)
    assert read_queue(str(cache), scheduler) is not None and scheduler.asked == 1
    assert read_last_queue(str(cache)) is not None


def test_another_users_answer_is_not_ours(tmp_path: Path) -> None:
    cache, scheduler = tmp_path / "squeue.json", Scheduler(ROW)
    read_queue(str(cache), scheduler)
    said = json.loads(cache.read_text())
    cache.write_text(json.dumps({**said, "user": os.getuid() + 1}))
    assert read_last_queue(str(cache)) is None
    read_queue(str(cache), scheduler)
    assert scheduler.asked == 2


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Nothing can be shared then, but this process still does not ask at every look."""
    cache, scheduler = tmp_path / "gone" / "squeue.json", Scheduler(ROW)
    assert read_queue(str(cache), scheduler) is not None
    assert read_queue(str(cache), scheduler) is not None
    assert scheduler.asked == 1


LOOKER = """
import sys, time
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import read_queue
end = time.monotonic() + float(sys.argv[2])
looks = 0
while time.monotonic() < end:
    queue = read_queue(sys.argv[1], ask, max_age_s=1.0)
    assert queue is not None and len(queue.rows) == 1
    looks += 1
    time.sleep(0.05)
print(looks)
"""


def test_many_processes_ask_once(tmp_path: Path) -> None:
    """Five processes look for three seconds; squeue is started no more often than the age allows."""
    bin_folder, folder = tmp_path / "bin", tmp_path / "shared"
    bin_folder.mkdir()
    folder.mkdir()
    squeue = bin_folder / "squeue"
    squeue.write_text(
        f"#!/bin/sh\necho >> '{tmp_path}/asked'\nsleep 0.2\nprintf '%s\\n' '{ROW.strip()}'\n"
    )
    squeue.chmod(squeue.stat().st_mode | stat.S_IXUSR)
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    words = [sys.executable, "-c", LOOKER, str(folder / "squeue.json"), "3"]
    began = time.monotonic()
    lookers = [
        subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) for _ in range(5)
    ]
    looks = [int(looker.communicate()[0]) for looker in lookers]
    assert [looker.returncode for looker in lookers] == [0] * 5
    asked = len((tmp_path / "asked").read_text())
    assert 2 <= asked <= time.monotonic() - began + 1
    assert sum(looks) > asked
    assert sorted(path.name for path in folder.iterdir()) == ["squeue.json"]


def test_the_users_own_defaults_do_not_reach_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQUEUE_FORMAT", "SQUEUE_STATES", "SACCT_FORMAT"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "kept")
    text = ask(["env"], {"SLURM_TIME_FORMAT": "%s"})
    assert text is not None
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert not {"SQUEUE_FORMAT", "SQUEUE_STATES", "SACCT_FORMAT"} & names
    assert {"SLURM_CONF", "SLURM_TIME_FORMAT"} <= names


def test_a_command_that_fails_is_no_answer() -> None:
    assert ask(["false"], {}) is None
    assert ask(["/nowhere/squeue"], {}) is None
