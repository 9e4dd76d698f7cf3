"""The contract of every way to start agents. A new launcher is added to LAUNCHERS and inherits all of it."""

from __future__ import annotations

import pytest

from tests.conftest import Project, wait_for
from windlass.launch.base import Launcher
from windlass.launch.local import LocalLauncher

LAUNCHERS = [LocalLauncher()]


@pytest.fixture(params=LAUNCHERS, ids=lambda launcher: launcher.name)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    found: Launcher = request.param
    return found


def prepared(project: Project, command: str, trials: int) -> str:
    """A study's folder with all its trials up for taking."""
    project.write("study.yaml", f"command: {command}\nparameters: {{n: {list(range(trials))}}}\n")
    project.run("run", "--sample", "1", code=None)
    project.run("retry", "--done", "--failed", "--yes", "--no-run")
    return str(project.study_folder())


def wait_to_end(agents: object) -> int:
    return int(wait_for(lambda: [code] if (code := agents.wait(0.2)) is not None else None)[0])  # type: ignore[attr-defined]


def test_runs_what_is_up_for_taking_and_tells_the_truth(project: Project, launcher: Launcher) -> None:
    agents = launcher.launch(prepared(project, "sh -c 'exit {n}'", 2), 2)
    assert wait_to_end(agents) == 0 and agents.complaints() == ""
    agents.close()
    assert project.counts() == {"done": 1, "waiting": 1}


def test_drain_lets_trials_end_and_stop_does_not(project: Project, launcher: Launcher) -> None:
    project.write("go", "")
    folder = prepared(project, "sh -c 'touch began; while [ ! -e go ]; do sleep 0.05; done; true {n}'", 1)
    for name in ("go", "began"):
        (project.folder / name).unlink()
    agents = launcher.launch(folder, 1)
    wait_for((project.folder / "began").exists)
    agents.drain()
    assert agents.wait(0.3) is None
    agents.stop()
    assert wait_to_end(agents) == 130
    agents.close()
    assert project.counts() == {"interrupted": 1}


def test_a_folder_that_is_none(project: Project, launcher: Launcher) -> None:
    agents = launcher.launch(str(project.folder / "nowhere"), 1)
    assert wait_to_end(agents) != 0
    assert agents.complaints()
    agents.close()
