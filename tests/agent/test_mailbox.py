"""The pipe of windlass.log: no trial can silence or stall the others."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from windlass.agent.report.lines import LineCutter
from windlass.agent.report.mailbox import PIPE_BYTES, Mailbox
from windlass.agent.report.metrics import Message
from windlass.trial.log import log


class Heard:
    """A mailbox, and what came out of it."""

    def __init__(self, path: Path) -> None:
        self.messages: list[Message] = []
        self.notes: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.box = Mailbox(str(path), self.messages.append, self.said.append, self.notes.append)
        self.poller = select.epoll()
        self.box.watch(self.poller)

    def values(self) -> list[float]:
        self.box.read()
        return [float(message[4]["loss"]) for message in self.messages]


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Heard:
    path = tmp_path / "runtime" / "metrics"
    path.parent.mkdir()
    monkeypatch.setenv("WINDLASS_METRICS", str(path))
    return Heard(path)


def report(value: float) -> None:
    """As another process of a trial would."""
    program = f"from windlass.trial.log import log; log(loss={value})"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_pipe_that_was_removed_or_replaced_is_made_anew(heard: Heard) -> None:
    path = Path(os.environ["WINDLASS_METRICS"])
    log(loss=1.0)  # this process keeps the pipe that it has opened
    heard.box.restore()
    assert not heard.notes
    path.unlink()
    heard.box.restore()
    report(2.0)
    log(loss=3.0)
    assert sorted(heard.values()) == [1.0, 2.0, 3.0], "both pipes are read"
    assert len(heard.poller.poll(0)) == 0
    path.unlink()
    path.mkdir()
    heard.box.restore()
    report(4.0)
    assert heard.poller.poll(0), "the new pipe is watched"
    path.rename(path.parent / "elsewhere")
    path.parent.rename(path.parent.parent / "gone")
    heard.box.restore()
    report(5.0)
    assert sorted(heard.values()) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(heard.notes) == 3 and "was removed or replaced" in heard.notes[0]


def test_rubbish_without_a_newline_costs_neither_memory_nor_messages(heard: Heard) -> None:
    path = os.environ["WINDLASS_METRICS"]
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    for number in range(40):
        os.write(pipe, b"x" * 30_000)
        log(loss=float(number))
        heard.box.read()
    assert heard.values() == list(range(40))
    assert len(heard.notes) == 1 and "what is no message is passed over" in heard.notes[0]


def test_one_read_ends_although_a_trial_writes_without_end(heard: Heard) -> None:
    pipe = os.open(os.environ["WINDLASS_METRICS"], os.O_WRONLY)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            os.write(pipe, b"[1,2]\n" * 600)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        for _ in range(3):
            heard.box.read()  # returns, although there is always more
    finally:
        ended.set()
        while thread.is_alive():
            heard.box.read()
            thread.join(0.01)
    assert PIPE_BYTES >= 1 << 20


def test_lines_are_cut_the_same_however_they_arrive() -> None:
    data = b"one\n\ntwo" + b"x" * 50 + b"\nthree\n" + b"y" * 9 + b"\n" + b"z" * 30 + b"\nfour\nrest"
    wanted = [b"one", b"three", b"y" * 9, b"four"]
    for size in (1, 2, 7, 13, len(data)):
        cutter = LineCutter(10)
        lines = [
            line for at in range(0, len(data), size) for line in cutter.cut(data[at : at + size])
        ]
        assert lines == wanted
        assert cutter.dropped


def test_metrics_of_other_trials_survive_a_trial_that_removes_the_pipe(project: Project) -> None:
    project.write(
        "train.py",
        "import os, sys, windlass\n"
        "if sys.argv[1] == '0': os.unlink(os.environ['WINDLASS_METRICS'])\n"
        "else: windlass.log(loss=float(sys.argv[1]))\n",
    )
    project.write(
        "study.yaml",
        "command: python3 train.py {n}\nparameters:\n  n: [0, 1, 2, 3]\nmetric: {name: loss}\nslots: 1\n",
    )
    project.run("run", "--on", "local")
    rows = project.json("results", "--format", "json")
    assert {row["n"]: row.get("loss") for row in rows} == {0: None, 1: 1.0, 2: 2.0, 3: 3.0}
    assert "was removed or replaced" in project.run("status").stdout
