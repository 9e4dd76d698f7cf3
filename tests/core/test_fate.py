"""Which agents of other machines are dead: their journal's silence and the scheduler's word about their job together."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from windlass.core.claims.alive import beat_s
from windlass.core.claims.coroner import Coroner, Fate
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.journal.write import JournalWriter
from windlass.core.paths import StudyPaths

LEASE_S = 300.0
FAR = {"host": "elsewhere", "machine": "other", "boot": "other", "pid": 1, "began": "1"}
JOB = {"id": 14, "array": 12, "task": 2, "restart": 0, "node": "n1", "sub": "s"}


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    paths = StudyPaths(str(tmp_path / "root" / "study"))
    for folder in paths.folders():
        os.makedirs(folder, exist_ok=True)
    Path(paths.plan).write_text(json.dumps({"lease_s": LEASE_S}))
    return paths


def agent(paths: StudyPaths, silent_s: float, began_s: float = 1000.0, **more: Any) -> None:
    """An agent on another machine that last wrote so long ago."""
    now = time.time()
    header = {
        "e": "agent",
        "t": now - began_s,
        "v": JOURNAL_VERSION,
        "id": "far",
        **FAR,
        "slots": 1,
        **more,
    }
    JournalWriter(paths.journal_of("far"), header).close()
    os.utime(paths.journal_of("far"), (now - silent_s, now - silent_s))


def scheduler_said(paths: StudyPaths, state: str | None, start_s: float = 1010.0) -> None:
    """A fresh answer of squeue's; None: it did not answer."""
    now = time.time()
    row = f"14|12|2|{state}|None|n1|{now - start_s:.0f}|N/A|10:00|{now - 2000:.0f}|p|a|windlass:s|name\n"
    text = None if state is None else (row if state else "")
    kept = {"v": 1, "user": os.getuid(), "number": 1, "asked": now, "text": text, "good": None}
    Path(paths.queue).write_text(json.dumps(kept))


BEAT_S = beat_s(LEASE_S)


@pytest.mark.parametrize(
    "state,silent_s,fate",
    [
        ("COMPLETED", 2 * BEAT_S, Fate.DEAD),
        ("CANCELLED", 2 * BEAT_S, Fate.DEAD),
        ("TIMEOUT", 2 * BEAT_S, Fate.DEAD),
        ("COMPLETED", 0.0, Fate.ALIVE),  # it has just spoken: whatever Slurm says, wait a beat
        ("RUNNING", 10 * LEASE_S, Fate.ALIVE),  # stopped or slow, but there
        ("SUSPENDED", 10 * LEASE_S, Fate.ALIVE),
        ("NODE_FAIL", 2 * BEAT_S, Fate.SUSPECT),  # a dead slurmd leaves the job's processes running
        ("NODE_FAIL", LEASE_S + 1, Fate.DEAD),
        ("PENDING", 2 * BEAT_S, Fate.SUSPECT),  # put back
        ("PENDING", LEASE_S + 1, Fate.DEAD),
        ("", 2 * BEAT_S, Fate.SUSPECT),  # not in the queue any more
        ("", LEASE_S + 1, Fate.DEAD),
        (None, 2 * BEAT_S, Fate.ALIVE),  # the controller is down
        (None, LEASE_S + 1, Fate.DEAD),
        ("A_NEW_WORD", 2 * BEAT_S, Fate.ALIVE),
    ],
)
def test_an_agent_in_a_job(
    paths: StudyPaths, state: str | None, silent_s: float, fate: Fate
) -> None:
    agent(paths, silent_s, job=JOB)
    scheduler_said(paths, state)
    assert Coroner(paths).fate("far") is fate


def test_a_later_start_of_the_same_job(paths: StudyPaths) -> None:
    """Requeued: the job runs, but the agent of its first start is gone, perhaps."""
    agent(paths, 2 * BEAT_S, began_s=1000.0, job=JOB)
    scheduler_said(paths, "RUNNING", start_s=100.0)
    assert Coroner(paths).fate("far") is Fate.SUSPECT


def test_an_agent_in_no_job_has_its_lease(paths: StudyPaths) -> None:
    agent(paths, 2 * BEAT_S)
    assert Coroner(paths).fate("far") is Fate.ALIVE
    os.utime(paths.journal_of("far"), (time.time() - LEASE_S - 1,) * 2)
    assert Coroner(paths).fate("far") is Fate.DEAD
    assert not os.path.exists(paths.queue), "nobody was asked"
