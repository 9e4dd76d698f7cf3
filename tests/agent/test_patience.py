"""What an agent does about errors that may pass, about changes it cannot be sure of, and about trials it has lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from windlass.agent.child import Trial
from windlass.agent.claim import Claimer
from windlass.agent.keep.finder import Finder, Place
from windlass.agent.keep.outputs import OutputKeeper
from windlass.agent.lease import reach
from windlass.agent.lease.fence_page import FencePage
from windlass.agent.lease.guard import Fence, FenceRule
from windlass.agent.lease.reach import patiently
from windlass.agent.report.output import OutputLog
from windlass.collect.output import OutputReader
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.errors import FolderError
from windlass.core.journal.fold import Folded, fold_events
from windlass.core.journal.kept import read_kept
from windlass.core.journal.read import JournalReader
from windlass.core.journal.write import AppendFile, JournalWriter
from windlass.core.passing import passing_error
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.patience import is_passing


def test_commands_and_agents_agree_on_errors_that_may_pass() -> None:
    """But for those of a pipe: a command that waits for one of these would hang in `windlass results | head`."""
    for number in sorted(errno.errorcode):
        error = OSError(number, os.strerror(number))
        is_of_pipes = number in (errno.EAGAIN, errno.EPIPE)
        assert is_passing(error) == (passing_error(error) is not None and not is_of_pipes), (
            errno.errorcode[number]
        )


def test_which_errors_may_pass() -> None:
    wrapped = FolderError("claims: cannot be read")
    wrapped.__cause__ = OSError(errno.ESTALE, "stale")
    assert passing_error(wrapped) is wrapped.__cause__
    assert passing_error(OSError(errno.EIO, "")) is not None
    for number in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EEXIST):
        assert passing_error(OSError(number, "")) is None
    assert passing_error(FolderError("something else")) is None


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "PATIENCE_S", 0.6)
    monkeypatch.setattr(reach, "_FIRST_WAIT_S", 0.02)
    tries: list[int] = []

    def fail(number: int) -> Callable[[], str]:
        def action() -> str:
            tries.append(number)
            if len(tries) < 3:
                raise OSError(number, "away")
            return "there"

        return action

    assert patiently(fail(errno.EIO)) == "there" and len(tries) == 3
    tries[:] = []
    with pytest.raises(FileNotFoundError):
        patiently(fail(errno.ENOENT))
    assert len(tries) == 1, "an error that stays is reported at once"
    with pytest.raises(OSError, match="away"):
        patiently(lambda: (_ for _ in ()).throw(OSError(errno.EIO, "away")))


def break_descriptor(file: AppendFile) -> None:
    """Make the next write fail, as with the handle of a server that was started anew."""
    other = os.open(file.path, os.O_RDONLY)
    os.dup2(other, file._descriptor)
    os.close(other)


def test_a_journal_restores_what_never_arrived(tmp_path: Path) -> None:
    """The kernel had accepted a record, and the file system lost it: it stands in the file again, once."""
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(str(path), {"e": "agent", "t": 1.0})
    safe = path.stat().st_size
    journal.add({"e": "note", "t": 2.0, "text": "lost"})
    journal.flush()
    os.truncate(path, safe)
    break_descriptor(journal._file)
    journal.add({"e": "note", "t": 3.0, "text": "waits"})
    with pytest.raises(OSError):
        journal.flush()
    journal.flush()
    journal.beat()
    journal.close()
    assert [event.get("text", event["e"]) for event in JournalReader(str(path)).read()] == [
        "agent",
        "lost",
        "waits",
        "beat",
    ]


def test_a_torn_record_is_cut_off_when_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalWriter(str(path), {"e": "agent", "t": 1.0})
    with path.open("ab") as file:
        file.write(b'{"e":"note","t":2.0,"te')
    break_descriptor(journal._file)
    journal.add({"e": "note", "t": 2.0, "text": "whole"})
    with pytest.raises(OSError):
        journal.flush()
    journal.flush()
    reader = JournalReader(str(path))
    assert [event["e"] for event in reader.read()] == ["agent", "note"] and reader.damaged == 0


def test_output_is_kept_until_it_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    paths = StudyPaths(str(tmp_path))
    log = OutputLog(paths.output_of("a"), paths.output_index_of("a"))
    log.add(b"before\n", 0, 0, 1, 1.0)
    log.flush(1.0)
    for broken in ("_log", "_index"):
        break_descriptor(getattr(log, broken))
        log.add(f"while {broken} fails\n".encode(), 0, 0, 1, 2.0)
        with pytest.raises(OSError):
            log.flush(2.0)
        log.add(b"after\n", 0, 0, 1, 3.0)
        log.flush(3.0)
    log.close()
    printed = b"".join(piece.data for piece in OutputReader(paths, "a").read({0: 0}))
    assert printed == b"before\nwhile _log fails\nafter\nwhile _index fails\nafter\n"


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    found = StudyPaths(str(tmp_path))
    os.makedirs(found.claims)
    RegisterFile(found.claims, "test").update(
        lambda register: Register(10, [(0, 10)], [(0, 10)], {}, [])
    )
    return found


def change(paths: StudyPaths, **fields: Any) -> None:
    def apply(register: Register) -> Register:
        for name, value in fields.items():
            setattr(register, name, value)
        return register

    RegisterFile(paths.claims, "test").update(apply)


def read(paths: StudyPaths) -> Register:
    return RegisterFile(paths.claims, "test").read()


def test_what_others_have_is_neither_kept_nor_given_back(paths: StudyPaths) -> None:
    """Others took this agent for dead: one of its trials has begun elsewhere, one is nobody's, two were never lost."""
    claimer = Claimer(paths, "paused")
    assert claimer.take(4, 0.0, set()) == [(0, 4)]
    change(paths, held={"paused": [(2, 4)], "other": [(0, 1)]}, todo=[(1, 2), (4, 10)])
    assert claimer.still_held() == [(2, 4)]
    assert claimer.reclaim({0, 1, 2, 3}) == [(1, 4)], "what nobody has begun is taken back"
    assert read(paths).held == {"paused": [(1, 4)], "other": [(0, 1)]} and read(paths).todo == [
        (4, 10)
    ]
    claimer.give_back([(0, 4)])
    assert read(paths).held == {"other": [(0, 1)]} and read(paths).todo == [(1, 10)]


def test_a_claim_does_not_take_over_what_others_have(paths: StudyPaths) -> None:
    claimer = Claimer(paths, "paused")
    claimer.take(2, 0.0, set())
    change(paths, held={"other": [(0, 2)]})
    assert claimer.take(1, 0.0, {0, 1}) == [(2, 3)]
    assert claimer.lost == [(0, 2)]
    assert read(paths).held == {"other": [(0, 2)], "paused": [(2, 3)]}


def journal_of(start: float, end: float, cause: str, **more: Any) -> list[dict[str, Any]]:
    ended = {
        "e": "end",
        "t": end,
        "i": 0,
        "n": 0,
        "cause": cause,
        "start": start,
        "dur": end - start,
    }
    return [{"e": "start", "t": start, "i": 0, "n": 0}, {**ended, **more}]


@pytest.mark.parametrize("first", ["paused", "other"])
def test_the_attempt_of_the_agent_that_held_the_trial_counts(first: str) -> None:
    journals = {
        "paused": journal_of(100.0, 300.0, "done", lost=180.0),
        "other": journal_of(200.0, 260.0, "done"),
    }
    folded = Folded()
    for writer in sorted(journals, key=lambda writer: writer != first):
        fold_events(folded, writer, journals[writer])
    record = folded.trials[0]
    assert (record.state, record.agent, record.attempts) == (State.DONE, "other", 2)
    assert record.overlapped_s == 60.0


def test_an_agent_that_lost_a_trial_does_not_hide_that_it_runs_elsewhere() -> None:
    folded = Folded()
    fold_events(folded, "other", [{"e": "start", "t": 200.0, "i": 0, "n": 0}])
    fold_events(folded, "paused", journal_of(100.0, 300.0, "taken over", lost=180.0))
    assert (folded.trials[0].state, folded.trials[0].agent) == (State.RUNNING, "other")
    alone = Folded()
    fold_events(alone, "paused", journal_of(100.0, 300.0, "done", lost=180.0))
    assert alone.trials[0].state is State.DONE, "nobody else has begun it"


def test_attempts_one_after_the_other_do_not_overlap() -> None:
    folded = Folded()
    fold_events(folded, "one", journal_of(100.0, 150.0, "folder out of reach", lost=180.0))
    fold_events(folded, "two", journal_of(200.0, 260.0, "done"))
    assert folded.trials[0].overlapped_s == 0.0 and len(folded.trials[0].spans) == 2


def test_overlapping_attempts_are_shown(project: Project) -> None:
    project.write("study.yaml", "command: echo {n}\nparameters: {n: [1, 2]}\nwarm: off\n")
    project.run("run")
    assert "overlapped" not in project.run("results").stderr
    folder = project.study_folder()
    (path,) = [
        path for path in (folder / "journal").glob("*.jsonl") if not path.name.startswith("client")
    ]
    end = next(event for event in JournalReader(str(path)).read() if event["e"] == "end")
    began = end["start"]
    journals = {
        "paused": journal_of(began - 100.0, began + 1.0, "done", lost=began - 60.0),
        "other": journal_of(began - 50.0, began + 5.0, "done"),
    }
    for name, events in journals.items():
        header = {"e": "agent", "t": began - 100.0, "v": 1, "id": name}
        journal = JournalWriter(str(folder / "journal" / f"{name}.jsonl"), header)
        for event in events:
            journal.add({**event, "i": end["i"]})
        journal.flush()
        journal.close()
    said = project.run("results").stderr
    assert (
        f"trial {end['i']}: attempts of different agents overlapped" in said
        and "held the trial" in said
    )
    rows = json.loads(project.run("results", "--json").stdout)
    assert [row["number"] for row in rows if row.get("overlapped_s")] == [end["i"]]
    explained = project.json("explain", str(end["i"]), "--json")
    assert round(explained["overlapped_s"]) == 51
    assert [one["agent"] for one in explained["attempts"] if one["counts"]] == ["other"]
    assert any("counts" in line for line in explained["lines"])


class Stubborn:
    """A page whose proofs the test sets, and the guard's fence around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in ("fence_page", "guard"):
            monkeypatch.setattr(f"windlass.agent.lease.{module}.clock_s", lambda: self.now)
        self.page = FencePage(1)
        self.fence = Fence("no such agent", self.page, FenceRule(15.0, 10.0, 15))

    def look_until(self, until: float) -> None:
        while self.now < until:
            self.now += min(self.fence.look(), until - self.now)
        self.fence.look()


def test_the_fence_closes_once_and_opens_with_the_next_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Stubborn(monkeypatch)
    one.look_until(1005.9)
    assert one.page.fired == 0
    one.look_until(1010.0)
    assert one.page.fired == 1
    one.page.prove(1010.0, 3.0)
    assert one.page.pauses == 1 and one.page.before_pause == 1000.0
    one.look_until(1015.0)
    assert one.page.fired == 1
    one.look_until(1020.0)
    assert one.page.fired == 2


def test_a_proof_of_before_the_pause_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that was blocked returns at last: what it proves was written long ago."""
    one = Stubborn(monkeypatch)
    one.look_until(1010.0)
    one.page.prove(1001.0, 3.0)
    one.look_until(1011.0)
    assert one.page.fired == 1 and one.page.pauses == 0


def test_a_guard_that_was_stopped_itself_waits_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Stubborn(monkeypatch)
    one.look_until(1002.0)
    one.now = 1600.0  # everything on the node was stopped
    one.fence.look()
    assert one.page.fired == 0
    one.page.prove(1600.1, 3.0)
    one.look_until(1603.0)
    assert one.page.fired == 0, "the agent was quick enough"
    one.now = 2600.0
    one.look_until(2602.5)
    assert one.page.fired == 1, "it was not"


COMPANION = """
import os, subprocess, sys
from windlass.agent.node.companion import Companion
companion = Companion({"agent": "agent-of-a-test", "runtime": "", "boot": ""})
companion.lease_s, companion.grace_s = 2.0, 0.1
rank = subprocess.Popen(["sleep", "600"], env={**os.environ, "WINDLASS_AGENT": "agent-of-a-test"})
try:
    companion._do({"do": "proof", "age_s": 0.0})
    sys.exit(0 if rank.wait(timeout=120) == -15 else 1)
finally:
    rank.kill()
"""


def test_a_companion_ends_trials_whose_agent_sends_no_proofs() -> None:
    """On the other nodes of a job there is no guard."""
    assert (
        subprocess.run([sys.executable, "-c", COMPANION], timeout=180, check=False).returncode == 0
    )


def test_outputs_are_kept_once_the_folder_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive's handle has become stale: it is opened again, and the trial is not taken for one without outputs."""
    written = tmp_path / "work" / "result.txt"
    written.parent.mkdir()
    written.write_text("precious")
    study = StudyPaths(str(tmp_path / "study"))
    line = json.dumps(
        {"id": "t" + "a" * 12, "stages": [["main", ["true"]]], "settings": {}},
        separators=(",", ":"),
    )
    trial = Trial(0, line.encode())
    keeper = OutputKeeper(Finder(["result.txt"], {}), study, "agent", "", False)
    place = Place(str(written.parent), str(written.parent), {str(written)})
    keeper._writer._open(archive=True)
    stale = os.open(os.devnull, os.O_RDONLY)
    os.dup2(stale, keeper._writer._tar)
    monkeypatch.setattr(
        "windlass.agent.keep.outputs.passing_error", lambda error: error
    )  # /dev/null is no file server
    assert not keeper.safe(0, trial, {}, lambda: place)
    assert keeper.safe(0, trial, {}, lambda: place)
    settled = keeper.settle(0)
    keeper.close()
    assert not settled.is_lost and not settled.note
    (kept,) = read_kept(study.outputs)
    assert (kept.trial, kept.path) == (trial.id, "result.txt")
