"""What a look at a large study asks of the shared folder, counted in calls, and what it does only once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.collect.test_index import (
    _write_trials,
    finished,
    local_disk,
    look,
    on_disk,
    study,
    write,
)
from tests.conftest import Project
from windlass.collect import absorb, follow, trial_ids
from windlass.collect.failures import read_failures
from windlass.collect.index import StudyIndex
from windlass.collect.look import read_register
from windlass.collect.results import result_rows
from windlass.collect.trial_ids import TrialIds
from windlass.core.claims import coroner
from windlass.core.damage import forget_reports
from windlass.core.ids import trial_id
from windlass.core.journal import read as journal_read
from windlass.core.journal.read import JournalReader, for_each
from windlass.core.paths import StudyPaths
from windlass.core.queue.queue import Ask, Queue, read_queue
from windlass.core.states import State

__all__ = ["local_disk", "on_disk", "study"]

_JOURNALS = 40


@contextmanager
def counted_calls(folder: str) -> Iterator[Counter[str]]:
    """Calls of the operating system on files below a folder, by name, also those of threads."""
    counts: Counter[str] = Counter()
    opened: dict[int, str] = {}
    lock = threading.Lock()
    real = {
        name: getattr(os, name) for name in ("open", "stat", "fstat", "pread", "close", "listdir")
    }

    def wrap(name: str) -> Any:
        def call(*words: Any, **more: Any) -> Any:
            with lock:
                found = words[0] if isinstance(words[0], str) else opened.get(words[0], "")
                if name == "close":
                    opened.pop(words[0], None)  # before another thread is given the same number
            result = real[name](*words, **more)
            if found.startswith(folder):
                with lock:
                    counts[name] += 1
                    if name == "open":
                        opened[result] = found
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in real:
            patch.setattr(os, name, wrap(name))
        yield counts


@pytest.fixture
def many(study: StudyPaths, on_disk: None) -> StudyPaths:
    """A study with a journal each for many agents."""
    for number in range(_JOURNALS):
        write(study, f"agent-{number:03d}", finished(5 * number, 5 * number + 5))
    return study


@pytest.mark.parametrize("slow_s", [0.0, 1e9], ids=["in threads", "one by one"])
def test_a_journal_is_opened_read_and_closed_once_and_not_at_all_when_it_has_not_grown(
    many: StudyPaths, slow_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_read, "_SLOW_S", slow_s)
    once = dict.fromkeys(("open", "pread", "close", "stat"), _JOURNALS)
    with counted_calls(many.journal) as first:
        assert look(many).counts(5 * _JOURNALS)[State.DONE] == 5 * _JOURNALS
    assert first == {**once, "listdir": 1}
    with counted_calls(many.journal) as again:
        assert look(many).counts(5 * _JOURNALS)[State.DONE] == 5 * _JOURNALS
    assert again == {"stat": _JOURNALS, "listdir": 1}
    write(many, "agent-007", finished(5 * _JOURNALS, 5 * _JOURNALS + 1))
    with counted_calls(many.journal) as grown:
        assert look(many).counts(5 * _JOURNALS + 1)[State.DONE] == 5 * _JOURNALS + 1
    assert grown == {"stat": _JOURNALS, "listdir": 1, "open": 1, "pread": 1, "close": 1}


def test_many_at_a_time_keep_their_order_and_raise_what_one_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_read, "_SLOW_S", 0.0)
    names: set[str] = set()
    everybody = threading.Barrier(journal_read.THREADS)

    def call(number: int) -> int:
        if number in range(8, 8 + journal_read.THREADS):
            everybody.wait(60)  # so that all threads are needed at the same time
        names.add(threading.current_thread().name)
        if number == 777:
            raise OSError(number)
        return -number

    assert for_each(call, range(500)) == [-number for number in range(500)]
    assert len(names) == 1 + journal_read.THREADS
    with pytest.raises(OSError):
        list(map(call, [777]))
    with pytest.raises(OSError):
        for_each(call, [*range(100, 400), 777, *range(400, 500)])


def test_what_another_process_has_read_meanwhile_is_no_loss_of_lines(many: StudyPaths) -> None:
    """Between asking for sizes and opening the index, another process read lines that were appended since."""
    late = look(many)
    sizes = late._sizes()
    write(many, "agent-007", finished(900, 905))
    look(many).close()
    generation = next(late._select("SELECT value FROM meta WHERE key = 'generation'"))
    late._read_new(sizes)
    assert next(late._select("SELECT value FROM meta WHERE key = 'generation'")) == generation
    assert late.counts(1000)[State.DONE] == 5 * _JOURNALS + 5
    with late._transaction():
        assert absorb.absorb(late._cache.connection, sizes, late._ids) == {}
    assert late.counts(1000)[State.DONE] == 5 * _JOURNALS + 5


def test_a_line_that_is_being_written_makes_no_answer_old(study: StudyPaths) -> None:
    write(study, "a", finished(0, 5))
    with open(study.journal_of("a"), "a") as file:
        file.write('{"e":"start","t":9e9,"i":7')
    index = look(study)
    asked: list[int] = []
    for _ in range(3):
        index.refresh()
        index.remembered("question", lambda: asked.append(1))
    assert asked == [1]


def test_settings_of_trials_that_failed_are_read_together_and_once(
    study: StudyPaths, on_disk: None
) -> None:
    _write_trials(study, [trial_id({"lr": number}, "") for number in range(1000)])
    events = finished(0, 1000)
    for event in events[1::20]:
        event.update(cause="failed", code=1, m={})
    write(study, "a", events)
    index = look(study)
    with counted_calls(study.trials) as first:
        (group,) = read_failures(study, index, [(0, 1000)])
    assert (group.count, group.trials[:3]) == (100, (0, 10, 20))
    # The trials that failed are read in one go, and then some of the others: each time the length and the lines.
    assert first["pread"] <= 2 and first["open"] == first["close"] == 1
    with counted_calls(study.trials) as again:
        assert read_failures(study, index, [(0, 1000)]) == (group,)
    assert not again


def test_ids_of_scattered_trials_are_read_together(
    study: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each agent has trials from all over the study; to read each of their lines anew takes a call for each."""
    ids = [trial_id({"lr": number}, "") for number in range(1000)]
    _write_trials(study, ids)
    pieces: list[int] = []

    class Counting(TrialIds):
        def _read_piece(self, offset: int, count: int) -> bytes:
            pieces.append(offset)
            return super()._read_piece(offset, count)

    monkeypatch.setattr(trial_ids, "_GROUP", 300)
    counting = Counting(study)
    for number in [n for start in range(10) for n in range(start, 1000, 10)]:
        assert counting.place(number, ids[number][:8]) == number
    assert len(pieces) == 4
    monkeypatch.setattr(trial_ids, "_MOST_BYTES", 10)  # of very long lines
    assert [Counting(study).place(number, ids[number][:8]) for number in (5, 999)] == [5, 999]
    assert counting.place(5, ids[7][:8]) == 7


def test_a_journal_that_becomes_shorter_after_its_size_was_asked_for_is_noticed(
    study: StudyPaths,
) -> None:
    write(study, "a", finished(0, 5))
    path = study.journal_of("a")
    size = os.path.getsize(path)
    write(study, "a", finished(0, 2), mode="wb")
    reader = JournalReader(path)
    assert len(reader.take(reader.fetch(size=size))) == 4 and not reader.restarted
    write(study, "a", finished(0, 1), mode="wb")
    assert len(reader.take(reader.fetch(size=size))) == 2 and reader.restarted


STUDY = "command: echo loss={lr} {args}\nparameters: {lr: [0.1, 0.2, 0.3]}\nmetric: {name: loss, goal: minimize}\n"


def test_a_table_is_made_once_and_anew_when_something_has_changed(project: Project) -> None:
    project.write("study.yaml", STUDY)
    project.run("run", "study.yaml", "--on", "local", "--quiet")
    paths = StudyPaths(str(project.study_folder()))
    made: list[str] = []

    def show(words: list[str], index: StudyIndex) -> str:
        index.refresh()
        rows = result_rows(paths, index, read_register(paths).current)

        def render() -> str:
            made.append(words[0])
            return f"{words} {len(list(rows))}"

        return rows.remembered(words, render)

    forget_reports()
    index = StudyIndex(paths)
    assert show(["a"], index) == show(["a"], index) == "['a'] 3" and made == ["a"]
    assert show(["b"], index) == "['b'] 3" and made == ["a", "b"]
    os.utime(paths.trials)  # perhaps written to
    show(["a"], index)
    assert made == ["a", "b", "a"]
    agent = next(name for name in os.listdir(paths.journal) if not name.startswith("client-"))
    with open(os.path.join(paths.journal, agent), "a") as file:
        file.write(
            '{"e":"start","t":9e9,"i":0,"n":9,"s":0}\n{"e":"end","t":9e9,"i":0,"n":9,"cause":"failed"}\n'
        )
    show(["a"], index)
    assert made == ["a", "b", "a", "a"]
    with open(os.path.join(paths.journal, agent), "a") as file:
        file.write(
            '{"e":"start","t":9e9,"i":1,"n":10,"s":0}\n{"e":"retry","t":9.1e9,"r":[[1,2]]}\n'
        )
        file.write('{"e":"start","t":9.2e9,"i":1,"n":11,"s":0}\n')
    for _ in range(2):
        show(["a"], index)  # a trial is said to run
    assert made == ["a", "b", "a", "a", "a", "a"]


def test_a_table_from_memory_has_the_same_text_and_reports_damage_each_time(
    project: Project, tmp_path: Path
) -> None:
    local = tmp_path / "indexes"
    local.mkdir()
    project.env["TMPDIR"] = str(local)
    project.write("study.yaml", STUDY)
    project.run("run", "study.yaml", "--on", "local", "--quiet")
    paths = StudyPaths(str(project.study_folder()))
    agent = next(name for name in os.listdir(paths.journal) if not name.startswith("client-"))
    with open(os.path.join(paths.journal, agent), "a") as file:
        file.write(
            '{"e":"note","t":9e9,"text":"%s","routine":true}\n' % ("x" * (5 << 20))
        )  # enough for an index on disk
    first = project.run("results")
    assert any(local.rglob("*.sqlite"))
    again = project.run("results")
    assert (first.stdout, first.stderr) == (again.stdout, again.stderr) and "0.1" in first.stdout
    content = Path(paths.trials).read_bytes()
    Path(paths.trials).write_bytes(content.replace(b"0.3", b"0.4"))
    for _ in range(2):
        said = project.run("results")
        assert "1 trial are damaged" in said.stderr or "damaged or missing" in said.stderr
        assert "0.4" not in said.stdout and "0.1" in said.stdout


def test_following_opens_each_journal_once_and_reads_long_ones_to_their_end(
    many: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_PIECE_BYTES", 2000)  # less than the longest journal has
    monkeypatch.setattr(follow, "_TOGETHER", 7)
    write(many, "agent-007", finished(500, 900))
    follower = follow.Follower(many, 1000, [(0, 1000)])
    assert follower.update() and follower.count(State.DONE) == 5 * _JOURNALS + 400
    write(many, "agent-008", finished(900, 901))
    with counted_calls(many.journal) as calls:
        assert follower.update() and follower.count(State.DONE) == 5 * _JOURNALS + 401
        assert calls["open"] == calls["close"] == _JOURNALS
        assert not follower.update()


def test_one_answer_of_the_scheduler_serves_all_agents_of_a_look(
    study: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a file of one line a job, on the shared folder, and there may be a thousand of both."""
    os.makedirs(study.hpc_outputs)
    readings: list[str] = []

    def read(cache: str, ask: Ask) -> Queue | None:
        readings.append(cache)
        return read_queue(cache, lambda words, env: "")

    monkeypatch.setattr(coroner, "read_queue", read)
    monkeypatch.setattr(coroner, "_ANSWER_KEPT_S", 1e9)  # a loaded machine may be slow
    judge = coroner.Coroner(study)
    header = {
        "e": "agent",
        "t": 1.0,
        "job": {"id": 7, "array": 7, "task": None, "restart": 0, "node": "n", "sub": "s"},
    }
    for_each(lambda _: judge.is_job_over(header), range(100))
    assert readings == [study.queue]
