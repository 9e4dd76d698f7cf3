"""One client at a time measures a study; the dead hold no lock; what they left may be cleaned away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from windlass.core.claims.alive import identity
from windlass.core.errors import FolderError
from windlass.measure.lock import MeasuringLock, is_taken, lock_path

WAITS = "command: sh -c 'until [ -e go ]; do sleep 0.1; done' {n}\nparameters: {n: [1, 2]}\n"


def dead() -> dict[str, Any]:
    """The identity of a process that is no more."""
    words = "import json; from windlass.core.claims.alive import identity; print(json.dumps(identity()))"
    done: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, "-c", words]))
    return done


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return Path(lock_path(str(tmp_path / ".measuring-x")))


@pytest.fixture
def lock(tmp_path: Path) -> MeasuringLock:
    return MeasuringLock(str(tmp_path / ".measuring-x"))


def test_it_is_given_back(lock: MeasuringLock, mark: Path) -> None:
    with lock:
        assert is_taken(str(mark))
    assert not is_taken(str(mark)) and list(mark.parent.iterdir()) == []


@pytest.mark.parametrize(
    "there", [json.dumps(identity()), json.dumps({"boot": "b", "host": "far", "pid": 1}), ""]
)
def test_nobody_loses_it_who_may_live(lock: MeasuringLock, mark: Path, there: str) -> None:
    """Also who is on another machine, or has yet to write its name."""
    mark.write_text(there)
    with pytest.raises(FolderError, match="another measurement of this study is under way"), lock:
        pass
    assert mark.read_text() == there


def test_the_dead_lose_it(lock: MeasuringLock, mark: Path) -> None:
    mark.write_text(json.dumps(dead()))
    assert not is_taken(str(mark))
    with lock:
        assert is_taken(str(mark))
    assert list(mark.parent.iterdir()) == []


def test_of_two_at_once_one_is_refused(project: Project) -> None:
    project.write("study.yaml", WAITS)
    both = [project.start("measure", "--no-curve", "--trial-limit", "5m") for _ in range(2)]
    try:
        refused = wait_for(lambda: [one for one in both if one.poll() is not None])[0]
        assert "a measurement is under way" in project.run("clean", "--yes").stdout
    finally:
        project.write("go", "")
    assert (
        refused.returncode == 2
        and "another measurement of this study is under way" in refused.communicate()[1]
    )
    (other,) = (one for one in both if one is not refused)
    assert "what one trial needs" in other.communicate(timeout=180)[0] and other.returncode == 0
    assert not list((project.folder / ".windlass").glob(".measur*"))


def test_what_a_measurement_left_is_cleaned_away(project: Project) -> None:
    """Of one that failed, and of one whose client and agent were killed."""
    project.write("fails.yaml", "command: sh -c 'exit 3' {n}\nparameters: {n: [1]}\n")
    project.run("measure", "fails.yaml", code=1)
    root = project.folder / ".windlass"
    assert [path.name for path in root.glob(".measur*")] == [".measuring-fails"]
    (root / ".measuring-killed/claims").mkdir(parents=True)
    (root / ".measurer-killed").write_text(json.dumps(dead()))
    assert project.run("clean").stdout.count("(left by a measurement)") == 3
    project.run("clean", "--yes")
    assert not list(root.glob(".measur*")) and "nothing to remove" in project.run("clean").stdout
