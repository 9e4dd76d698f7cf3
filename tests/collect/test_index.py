"""The index answers as the journals do, keeps up with them, and is never needed."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.test_fold import Event, fold, journals
from windlass.collect import absorb, cache, split_events
from windlass.collect import index as index_module
from windlass.collect.attempts import read_attempts
from windlass.collect.follow import Follower
from windlass.collect.index import StudyIndex
from windlass.collect.timeleft import Durations
from windlass.core.damage import forget_reports
from windlass.core.errors import FolderError, InputError
from windlass.core.journal.read import JournalVersionError
from windlass.core.journal.write import encode_event
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import append_trials


@pytest.fixture(autouse=True)
def local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Indexes of these tests go to a folder of their own, also those of processes started here."""
    folder = tmp_path / "local disk"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the smallest journals are indexed in a file."""
    monkeypatch.setattr(index_module, "MEMORY_BELOW_BYTES", 0)


@pytest.fixture
def study(tmp_path: Path) -> StudyPaths:
    paths = StudyPaths(str(tmp_path / "a study's folder"))
    os.makedirs(paths.journal)
    return paths


def write(paths: StudyPaths, writer: str, events: list[Event], mode: str = "ab") -> None:
    with open(paths.journal_of(writer), mode) as file:
        file.writelines(json.dumps(event).encode() + b"\n" for event in events)


def finished(first: int, stop: int, **more: Any) -> list[Event]:
    events: list[Event] = []
    for i in range(first, stop):
        events.append({"e": "start", "t": 100.0 + i, "i": i, "n": 1, "s": 0})
        end = {"e": "end", "t": 100.5 + i, "i": i, "n": 1, "cause": "done", "dur": 0.5}
        events.append({**end, "m": {"loss": [float(i * 7919 % 10_007), 0.0, 1e9, 3]}, **more})
    return events


def look(paths: StudyPaths) -> StudyIndex:
    index = StudyIndex(paths)
    index.refresh()
    return index


def assert_agrees(index: StudyIndex, written: dict[str, list[Event]]) -> None:
    expected = fold(written)
    trials = expected.trials
    assert list(index.records()) == list(trials.values())
    assert index.agents() == list(expected.agents.values())
    assert sorted(index.notes(), key=repr) == sorted(expected.notes, key=repr)
    assert index.damaged() == expected.malformed
    states = Counter(record.state for record in trials.values())
    states[State.WAITING] += 10 - len(trials)
    assert index.counts(10) == {state: states[state] for state in State}
    some = Counter(record.state for number, record in trials.items() if number != 1)
    some[State.WAITING] += 9 - some.total()
    assert index.counts(10, [(2, 10), (0, 1)]) == {state: some[state] for state in State}
    bad = (State.FAILED, State.INTERRUPTED, State.CANCELLED)
    assert index.causes(10) == Counter(
        record.cause for record in trials.values() if record.state in bad
    )
    assert index.running() == [
        record for record in trials.values() if record.state == State.RUNNING
    ]


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(written=journals, data=st.data())
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
@pytest.mark.usefixtures("on_disk")
def test_an_index_kept_up_to_date_equals_the_fold(
    written: dict[str, list[Event]],
    data: st.DataObject,
    batch_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(absorb, "BATCH_BYTES", batch_bytes)
    paths = StudyPaths(str(tmp_path_factory.mktemp("study")))
    os.makedirs(paths.journal)
    left = {writer: list(journal) for writer, journal in written.items()}
    index = look(paths)
    while any(left.values()):
        writer = data.draw(st.sampled_from(sorted(w for w in left if left[w])))
        count = data.draw(st.integers(1, len(left[writer])))
        write(paths, writer, left[writer][:count])
        left[writer] = left[writer][count:]
        if data.draw(st.booleans()):
            index.close()
            index = StudyIndex(paths)
        index.refresh()
    assert_agrees(index, written)
    index.close()


def test_small_journals_leave_nothing_on_disk(study: StudyPaths, local_disk: Path) -> None:
    write(study, "a", finished(0, 10))
    index = look(study)
    assert (index.cache_path, os.listdir(local_disk)) == (None, [])
    assert index.counts(12) == {**dict.fromkeys(State, 0), State.DONE: 10, State.WAITING: 2}


def test_journals_that_grow_large_move_to_disk(
    study: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MEMORY_BELOW_BYTES", 10_000)
    write(study, "a", finished(0, 10))
    index = look(study)
    assert index.cache_path is None
    write(study, "a", finished(10, 500))
    index.refresh()
    assert index.cache_path is not None
    assert index.counts(500)[State.DONE] == 500


def test_twenty_thousand_trials(study: StudyPaths) -> None:
    write(study, "a", finished(0, 12_000, note="enough of them for a file" * 4))
    write(study, "b", [*finished(12_000, 19_990), {"e": "start", "t": 5.0, "i": 19_990, "n": 1}])
    write(study, "b", finished(19_991, 19_995, cause="failed", code=3))
    for _ in range(2):
        index = look(study)
        assert index.cache_path is not None
        counts = {State.DONE: 19_990, State.RUNNING: 1, State.FAILED: 4, State.WAITING: 5}
        assert index.counts(20_000) == {**dict.fromkeys(State, 0), **counts}
        assert index.causes(20_000) == {"failed": 4}
        assert [record.number for record in index.running()] == [19_990]
        assert index.durations() == Durations(19_990, pytest.approx(0.5), 0.5, 0.5)
        assert [record.exit_code for record in index.records(states=(State.FAILED,))] == [3] * 4
        assert [record.number for record in index.records([5, 19_999, 3, 19_994])] == [3, 5, 19_994]
        assert index.record(19_999) is None
        index.close()


def test_the_file_is_used_again_and_only_new_lines_are_read(
    study: StudyPaths, on_disk: None
) -> None:
    write(study, "a", finished(0, 5))
    first = look(study)
    content = Path(study.journal_of("a")).read_bytes()
    # The lines already read are spoilt: whoever reads them again shows it.
    Path(study.journal_of("a")).write_bytes(b"x" * (len(content) - 1) + b"\n")
    write(study, "a", finished(5, 7))
    second = look(study)
    assert second.cache_path == first.cache_path
    assert (second.counts(7)[State.DONE], second.damaged()) == (7, 0)


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("stat", ["last", "min", "max"])
@pytest.mark.parametrize("name", ["loss", "val/loss.best", "it's", 'a "quoted" one', "größe"])
def test_best_is_what_sorting_says(study: StudyPaths, goal: str, stat: str, name: str) -> None:
    generator = random.Random(7)
    values = {i: [float(generator.randrange(40)) for _ in range(3)] for i in range(200)}
    for i, value in values.items():
        write(study, "a", finished(i, i + 1, m={name: [*value, 5]}))
    spoilt: dict[str, Any] = {"m": {name: ["nan", "-inf", "inf", 5]}}
    write(study, "a", finished(200, 201, **spoilt))
    write(study, "a", finished(201, 202, m={}))
    write(study, "a", finished(202, 203, m={name: [-1e9, 1e9, -1e9, 1]}, cause="failed"))
    position = ["last", "min", "max"].index(stat)
    sign = 1 if goal == "minimize" else -1
    order = sorted(values, key=lambda i: (sign * values[i][position], i))
    index = look(study)
    best = index.best(name, goal, stat, 5)
    assert [record.number for record in best] == order[:5]
    assert best[0].metrics[name] == (*values[order[0]], 5)
    within = [number for number in order if 50 <= number < 60 or number >= 150]
    found = index.best(name, goal, stat, 5, included=[(50, 60), (150, 203)])
    assert [record.number for record in found] == within[:5]
    assert index.best("no such metric", goal, stat, 5) == []


def test_best_keeps_up_with_new_trials(study: StudyPaths, on_disk: None) -> None:
    write(study, "a", finished(0, 3, m={"loss": [5.0, 5.0, 5.0, 1]}))
    assert [record.number for record in look(study).best("loss", "minimize", "last", 1)] == [0]
    write(study, "a", finished(3, 4, m={"loss": [4.0, 4.0, 4.0, 1]}))
    assert [record.number for record in look(study).best("loss", "minimize", "last", 1)] == [3]
    write(study, "c", [{"e": "retry", "t": 1000.0, "r": [[3, 4]]}])
    assert [record.number for record in look(study).best("loss", "minimize", "last", 1)] == [0]


def test_best_refuses_what_it_does_not_know(study: StudyPaths) -> None:
    index = look(study)
    with pytest.raises(InputError, match="no statistic 'median'"):
        index.best("loss", "minimize", "median", 1)
    with pytest.raises(InputError, match="no goal 'smaller'"):
        index.best("loss", "smaller", "last", 1)


@pytest.mark.parametrize("where", ["start", "middle", "everything", "empty", "gone"])
def test_a_spoilt_file_is_made_anew(study: StudyPaths, on_disk: None, where: str) -> None:
    write(study, "a", finished(0, 3000))
    index = look(study)
    path = index.cache_path
    assert path is not None
    index.close()
    content = bytearray(Path(path).read_bytes())
    begin, stop = {"start": (0, 100), "middle": (4096 * 5, len(content) - 4096)}.get(
        where, (0, len(content))
    )
    content[begin:stop] = random.Random(1).randbytes(stop - begin)
    Path(path).write_bytes(b"" if where == "empty" else bytes(content))
    if where == "gone":
        os.unlink(path)
    index = look(study)
    assert index.counts(3000)[State.DONE] == 3000
    assert index.best("loss", "minimize", "last", 1)[0].number == 0
    assert sum(1 for _ in index.records()) == 3000


def test_a_file_of_another_schema_is_made_anew(study: StudyPaths, on_disk: None) -> None:
    write(study, "a", finished(0, 3))
    index = look(study)
    path = index.cache_path
    assert path is not None
    index.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {cache.SCHEMA_VERSION + 1}")
    connection.close()
    index = look(study)
    assert index.counts(3)[State.DONE] == 3
    assert index.cache_path not in (None, path)
    assert not os.path.exists(path)


def test_a_file_that_another_process_holds_is_done_without(
    study: StudyPaths, on_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_BUSY_S", 0.05)
    write(study, "a", finished(0, 3))
    index = look(study)
    assert index.cache_path is not None
    holder = sqlite3.connect(index.cache_path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    write(study, "a", finished(3, 5))
    assert look(study).counts(5)[State.DONE] == 5
    index.refresh()
    assert (index.counts(5)[State.DONE], index.cache_path) == (5, None)
    holder.close()


def test_without_a_place_on_disk_memory_serves(
    study: StudyPaths, on_disk: None, local_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(local_disk / "nowhere"))
    write(study, "a", finished(0, 3))
    index = look(study)
    assert (index.cache_path, index.counts(3)[State.DONE]) == (None, 3)


def test_a_folder_that_others_made_or_can_write_to_is_not_used(
    study: StudyPaths, on_disk: None, local_disk: Path
) -> None:
    """Anybody may make a folder of that name; another one beside it serves."""
    write(study, "a", finished(0, 3))
    taken = local_disk / f"windlass-{os.getuid()}"
    taken.write_text("somebody else's")
    first = look(study).cache_path
    assert first is not None
    assert first.startswith(f"{taken}-")
    assert look(study).cache_path == first, "the folder is found again"
    taken.unlink()
    taken.mkdir()
    taken.chmod(0o777)
    assert look(study).cache_path == first
    taken.chmod(0o700)
    assert str(look(study).cache_path).startswith(f"{taken}/")


@pytest.mark.parametrize("change", ["shorter", "gone"])
def test_a_journal_that_lost_lines_is_read_anew(
    study: StudyPaths, on_disk: None, change: str
) -> None:
    write(study, "a", finished(0, 3))
    write(study, "b", finished(3, 9))
    index = look(study)
    if change == "gone":
        os.unlink(study.journal_of("b"))
    else:
        write(study, "b", finished(3, 4), mode="wb")
    index.refresh()
    assert index.counts(9)[State.DONE] == (3 if change == "gone" else 4)


def _write_trials(paths: StudyPaths, ids: list[str]) -> None:
    for path in (paths.trials, paths.trials_index):
        if os.path.exists(path):
            os.unlink(path)
    append_trials(
        paths, 0, [(one, b'{"id":"%s","stages":[],"settings":{}}\n' % one.encode()) for one in ids]
    )


def test_a_record_counts_only_for_the_trial_whose_id_it_has(
    study: StudyPaths, on_disk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, three, four, five, six = ("t" + letter * 12 for letter in "bcdefg")
    events = finished(0, 3)
    for event, trial in zip(events[::2], (one, two, three), strict=True):
        event["id"] = trial[:8]
    events.insert(3, {"e": "beat", "t": 101.2, "live": {"1": {"step": 3}}})
    events.insert(4, {"e": "note", "t": 101.3, "i": 1, "text": "a note"})
    header: Event = {"e": "agent", "t": 1.0, "v": 1}
    lines = [encode_event(event) + "\n" for event in (header, *events)]
    Path(study.journal_of("a")).write_text("".join(lines))
    write(study, "earlier", [header, *finished(3, 4)])

    def done(ids: list[str]) -> list[int]:
        _write_trials(study, ids)
        index = look(study)
        try:
            assert index.counts(4)[State.DONE] == len(list(index.numbers((State.DONE,))))
            stories = [number for number in range(3) if read_attempts(study, number)]
            assert [number for number in index.numbers((State.DONE,)) if number < 3] == stories
            assert [note.number for note in index.notes()] == [
                number for number, one in enumerate(ids) if one == two
            ]
            follower = Follower(study, 4, [(0, 4)])
            follower.update()
            assert follower.count(State.DONE) == index.counts(4)[State.DONE]
            return list(index.numbers((State.DONE,)))
        finally:
            index.close()

    forget_reports()
    assert done([one, two, three, four]) == [0, 1, 2, 3]
    assert capsys.readouterr().err == ""
    # Another order: the index, which is found again, is made anew, and records have the trials' new numbers.
    assert done([one, three, two, four]) == [0, 1, 2, 3]
    assert capsys.readouterr().err == ""
    # Of trials that the study does not have, nothing counts. Records without an id count by their number.
    assert done([one, five, six, four]) == [0, 3]
    assert "2 trials have records of another trial" in capsys.readouterr().err
    assert done([one, two]) == [0, 1, 2, 3]  # there is no id to compare with
    assert done([one, two, four]) == [0, 1, 3]  # now there is
    # A damaged index of trials.jsonl costs no record: the lines tell the ids.
    _write_trials(study, [one, two, three, four])
    for damage in (os.urandom(64), b""):
        Path(study.trials_index).write_bytes(damage)
        index = look(study)
        assert list(index.numbers((State.DONE,))) == [0, 1, 2, 3]
        index.close()
    # An attempt at the right trial counts, whatever the same or another journal has before.
    forget_reports()
    again = finished(1, 2)
    again[0]["id"] = three[:8]
    with open(study.journal_of("a"), "a") as file:
        file.writelines(encode_event(event) + "\n" for event in again)
    assert done([one, three, five, four]) == [0, 1, 3]
    assert done([three, five, one, four]) == [0, 2, 3]
    assert "another trial" not in capsys.readouterr().err


def test_lines_of_another_study_beside_a_damaged_index(
    study: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines alone tell that a number is another trial's now."""
    one, two, five = ("t" + letter * 12 for letter in "bcf")
    events = finished(0, 2)
    for event, trial in zip(events[::2], (one, two), strict=True):
        event["id"] = trial[:8]
    write(study, "a", [{"e": "agent", "t": 1.0, "v": 1}, *events])
    forget_reports()
    for damage in (b"", os.urandom(16)):
        _write_trials(study, [one, five])
        Path(study.trials_index).write_bytes(damage)
        index = look(study)
        assert list(index.numbers((State.DONE,))) == [0]
        index.close()
    assert "1 trial has a record of another trial" in capsys.readouterr().err


def test_records_of_earlier_rounds(study: StudyPaths, on_disk: None) -> None:
    header = {"e": "agent", "t": 1.0, "v": 1, "rounds": True}
    write(study, "a", [header, *finished(0, 4), {"e": "cancel", "t": 300.0, "r": [[3, 4]]}])
    write(study, "b", [{**header, "rounds": None}, *finished(4, 5)])
    write(
        study,
        "c",
        [header, *({**event, "t": 200.0 + at} for at, event in enumerate(finished(1, 2, round=2)))],
    )
    write(
        study, "d", [{"e": "client", "t": 1.0, "v": 1}, {"e": "cancel", "t": 300.0, "r": [[5, 6]]}]
    )
    for _ in range(2):  # from journals, and from the index that was made of them
        index = look(study)
        assert index.list_behind([(0, 9)], 1, False) == [0, 2, 3, 5], (
            "4 was executed by an agent that does not count"
        )
        assert index.list_behind([(0, 9)], 2, True) == [0, 2, 3]
        assert index.list_behind([(0, 2)], 3, True) == [0, 1]
        index.close()


def test_a_journal_of_a_newer_version_is_refused(study: StudyPaths) -> None:
    write(study, "a", finished(0, 3))
    write(study, "b", [{"e": "agent", "t": 1.0, "v": 99, "id": "b"}])
    with pytest.raises(JournalVersionError, match="install a newer Windlass"):
        look(study)


def test_damage_is_counted_and_does_not_stop_anything(study: StudyPaths) -> None:
    write(study, "a", finished(0, 3))
    strange = {
        "code": [1],
        "dur": {"x": 1},
        "sig": 1 << 80,
        "note": "\udcff",
        "m": {"loss": 3, "acc": [1]},
    }
    write(study, "a", finished(3, 4, **strange))
    with open(study.journal_of("a"), "ab") as file:
        file.write(
            b'{"e":"end","t":1,"i":0,"n":1,"cause":"done","m":{"loss":[NaN,1,2,3]}}\nrubbish\n'
        )
        file.write(
            b'{"e":"start","t":1e300,"i":5}\n{"e":"start","t":1,"i":123456789012345678901234567890}\n{"e":'
        )
    index = look(study)
    assert index.counts(4)[State.DONE] == 4
    assert index.damaged() == 3
    assert index.best("loss", "minimize", "last", 9)[0].number in (0, 1, 2)
    assert index.best("loss", "minimize", "min", 9)
    record = index.record(3)
    assert record is not None and record.metrics == {}


def test_a_range_over_very_many_trials(study: StudyPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (absorb, split_events):
        monkeypatch.setattr(module, "MOST_TRIALS", 100)
    write(study, "a", finished(0, 10))
    write(study, "c", [{"e": "cancel", "t": 5000.0, "r": [[0, 1000], [2000, 2500]]}])
    write(study, "c", [{"e": "retry", "t": 5001.0, "r": [[900, 2100]]}])
    counts = look(study).counts(3000)
    expected = {State.DONE: 10, State.CANCELLED: 890 + 400, State.WAITING: 3000 - 10 - 890 - 400}
    assert counts == {**dict.fromkeys(State, 0), **expected}


_KILLED = """
import os, signal, sys, windlass.collect.index as module
from windlass.core.paths import StudyPaths
module.MEMORY_BELOW_BYTES = 0
index = module.StudyIndex(StudyPaths(sys.argv[1]))
index._cache.connection.execute("PRAGMA cache_size = 5")  # so that half a transaction reaches the file
module.absorb.bump_generation = lambda connection: os.kill(os.getpid(), signal.SIGKILL)
index.refresh()
"""


def test_a_process_killed_in_the_midst_of_writing_spoils_nothing(
    study: StudyPaths, on_disk: None
) -> None:
    write(study, "a", finished(0, 100))
    path = look(study).cache_path
    assert path is not None
    size = os.path.getsize(path)
    write(study, "a", finished(100, 5000))
    killed = subprocess.run([sys.executable, "-c", _KILLED, study.folder], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert os.path.getsize(path) > size and os.path.exists(path + "-journal"), (
        "nothing was left half done"
    )
    index = look(study)
    assert (index.cache_path, index.counts(5000)[State.DONE]) == (path, 5000)
    assert sum(1 for _ in index.records()) == 5000


def test_indexes_that_nobody_looks_at_are_removed(
    study: StudyPaths, on_disk: None, tmp_path: Path
) -> None:
    write(study, "a", finished(0, 3))
    path = look(study).cache_path
    assert path is not None
    other = StudyPaths(str(tmp_path / "other"))
    os.makedirs(other.journal)
    look(other)
    assert os.path.exists(path)
    os.utime(path, (1.0, 1.0))
    another = StudyPaths(str(tmp_path / "another"))
    os.makedirs(another.journal)
    look(another)
    assert not os.path.exists(path)
    assert look(study).counts(3)[State.DONE] == 3


def test_a_journal_that_cannot_be_read_is_named(study: StudyPaths) -> None:
    os.makedirs(study.journal_of("a"))
    with pytest.raises(FolderError, match=r"a\.jsonl: cannot be read \(Is a directory\)"):
        look(study)


_LOOK = """
import sys, windlass.collect.index as module
from windlass.core.paths import StudyPaths
from windlass.core.states import State
module.MEMORY_BELOW_BYTES = 0
module.absorb.BATCH_BYTES = 20_000
index = module.StudyIndex(StudyPaths(sys.argv[1]))
while True:
    index.refresh()
    counts = index.counts(6000)
    assert sum(counts.values()) == 6000 and min(counts.values()) >= 0, counts
    if counts[State.DONE] == 6000:
        break
print(sum(1 for _ in index.records()), index.durations().mean_s, index.cache_path, len(index.notes()))
"""


def test_processes_share_one_file_while_journals_grow(study: StudyPaths) -> None:
    write(study, "a", finished(0, 1000))
    looks = [
        subprocess.Popen(
            [sys.executable, "-c", _LOOK, study.folder], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for first in range(1000, 6000, 250):
        write(study, "ab"[first % 500 // 250], finished(first, first + 250))
    write(study, "a", [{"e": "note", "t": 1.0, "text": "once"}])
    outputs = [process.communicate(timeout=180)[0].split(maxsplit=2) for process in looks]
    assert [process.returncode for process in looks] == [0, 0, 0]
    assert [output[:2] for output in outputs] == [["6000", "0.5"]] * 3
    index = look(study)
    assert [note.text for note in index.notes()] == ["once"]


def test_an_answer_is_remembered_until_something_changes(study: StudyPaths, on_disk: None) -> None:
    write(study, "a", finished(0, 3))
    asked: list[int] = []

    def ask() -> list[Any]:
        asked.append(1)
        return ["answer", len(asked)]

    assert [look(study).remembered("q", ask) for _ in range(3)] == [["answer", 1]] * 3
    assert look(study).remembered("another", ask) == ["answer", 2]
    write(study, "a", finished(3, 4))
    assert look(study).remembered("q", ask) == ["answer", 3]


def test_status_needs_no_heavy_imports() -> None:
    code = (
        "import sys, windlass.collect.index, windlass.collect.reconcile\n"
        "heavy = {'pydantic', 'ruamel', 'polars', 'numpy', 'click', 'asyncio'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
