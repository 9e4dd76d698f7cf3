"""One client at a time measures a study; the dead have no turn; what they left may be cleaned away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from windlass.claims.alive import identity
from windlass.errors import FolderError
from windlass.measure.turn import MeasuringTurn, is_taken, turn_path

WAITS = "command: sh -c 'until [ -e go ]; do sleep 0.1; done' {n}\nparameters: {n: [1, 2]}\n"


def dead() -> dict[str, Any]:
    """The identity of a process that is no more."""
    words = "import json; from windlass.claims.alive import identity; print(json.dumps(identity()))"
    done: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, "-c", words]))
    return done


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return Path(turn_path(str(tmp_path / ".measuring-x")))


@pytest.fixture
def turn(tmp_path: Path) -> MeasuringTurn:
    return MeasuringTurn(str(tmp_path / ".measuring-x"))


def test_it_is_given_back(turn: MeasuringTurn, mark: Path) -> None:
    with turn:
        assert is_taken(str(mark))
    assert not is_taken(str(mark)) and list(mark.parent.iterdir()) == []


@pytest.mark.parametrize("there", [json.dumps(identity()), json.dumps({"boot": "b", "host": "far", "pid": 1}), ""])
def test_nobody_loses_it_who_may_live(turn: MeasuringTurn, mark: Path, there: str) -> None:
    """Also who is on another machine, or has yet to write its name."""
    mark.write_text(there)
    with pytest.raises(FolderError, match="another measurement of this study is under way"), turn:
        pass
    assert mark.read_text() == there


def test_the_dead_lose_it(turn: MeasuringTurn, mark: Path) -> None:
    mark.write_text(json.dumps(dead()))
    assert not is_taken(str(mark))
    with turn:
        assert is_taken(str(mark))
    assert list(mark.parent.iterdir()) == []


def test_of_two_at_once_one_is_refused(project: Project) -> None:
    project.write("study.yaml", WAITS)
    both = [project.start("measure", "--no-curve", "--trial-limit", "5m") for _ in range(2)]
    refused = wait_for(lambda: [one for one in both if one.poll() is not None])[0]
    assert refused.returncode == 2 and "another measurement of this study is under way" in refused.communicate()[1]
    project.write("go", "")
    (other,) = (one for one in both if one is not refused)
    assert "what one trial needs" in other.communicate(timeout=180)[0] and other.returncode == 0
    assert not list((project.folder / ".windlass").glob(".measur*"))
