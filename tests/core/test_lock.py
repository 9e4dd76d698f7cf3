"""A lock that is a file: one holder at a time, and never a dead one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.core.claims.alive import identity
from windlass.core.lock import FileLock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


def elsewhere() -> str:
    """The content of a lock whose holder is on another machine."""
    return json.dumps(
        {**identity(), "host": "elsewhere", "machine": "m", "boot": "b", "token": "x"}
    )


def test_one_at_a_time_and_given_up_by_its_holder_alone(path: str) -> None:
    first, second = FileLock(path, {"token": "a"}, 60.0), FileLock(path, {"token": "b"}, 60.0)
    assert first.take() and first.is_taken() and not second.take()
    second.release()
    assert first.is_taken()
    first.release()
    assert second.take() and os.listdir(os.path.dirname(path)) == ["lock"]


def test_the_dead_of_this_machine_lose_it(path: str) -> None:
    code = f"from windlass.core.lock import FileLock; assert FileLock({path!r}, {{'token': 'x'}}, 60.0).take()"
    subprocess.run([sys.executable, "-c", code], check=True)
    lock = FileLock(path, {"token": "a"}, 60.0)
    assert not lock.is_taken() and lock.take() and lock.is_taken()


@pytest.mark.parametrize("text", [elsewhere(), "", "{"], ids=["named", "empty", "cut off"])
def test_a_silent_holder_elsewhere_loses_it_after_a_time(path: str, text: str) -> None:
    Path(path).write_text(text)
    assert not FileLock(path, {"token": "a"}, 600.0).take()
    os.utime(path, (1e9, 1e9))
    assert FileLock(path, {"token": "a"}, 600.0).take()


def test_one_who_waits_counts_by_its_own_clock(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(path).write_text(elsewhere())
    os.utime(path, (1e9, 1e9))
    now = [0.0]
    monkeypatch.setattr("windlass.core.lock.time.monotonic", lambda: now[0])
    lock = FileLock(path, {"token": "a"}, 60.0, is_watched=True)
    assert not lock.take()
    now[0] = 59.0
    FileLock(path, {"token": "b"}, 60.0).beat()
    assert not lock.take()
    now[0] = 118.0
    assert not lock.take()
    now[0] = 120.0
    assert lock.take()
