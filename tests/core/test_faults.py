"""Each call on the study's folder may fail: patience or a clear end, never a wrong answer. See faulty.py."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.faulty import (
    ERRORS,
    LOOKS,
    Fault,
    FaultyStudy,
    Looks,
    build_library,
    count_calls,
    try_fault,
)
from tests.sshfs import bring_server_back, sshfs, take_server_away

SEED = 13


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_library(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def calls(tmp_path_factory: pytest.TempPathFactory, library: str) -> dict[str, int]:
    return count_calls(tmp_path_factory.mktemp("counting").resolve(), library)


def test_all_kinds_of_calls_are_seen(calls: dict[str, int]) -> None:
    """A library that intercepts nothing would let every other test pass."""
    assert calls["client"] > 100 and calls["agent"] > 50


@pytest.mark.parametrize(
    "role,error",
    [("client", "EIO"), ("client", "ENOSPC"), ("agent", "ESTALE"), ("agent", "EDQUOT")],
)
def test_a_call_of_a_study_fails(
    tmp_path: Path, library: str, calls: dict[str, int], role: str, error: str
) -> None:
    # Not the last ones: how often an agent looks before it ends is not the same in each run.
    at = random.Random(f"{SEED}{role}{error}").randrange(1, calls[role] * 3 // 4)
    study = try_fault(
        tmp_path.resolve(), library, Fault(role, at, error, for_ms=500 if error == "EIO" else 0)
    )
    assert not study.problems, "\n".join(
        [f"{role} call {at} {error}", *study.hits()[:2], *study.problems]
    )


def test_commands_that_look_are_not_misled(tmp_path: Path, library: str) -> None:
    looks = Looks(tmp_path.resolve(), library)
    chance = random.Random(SEED)
    for words in LOOKS:
        count = looks.count_calls(words)
        fault = Fault("client", chance.randrange(1, count + 1), chance.choice(ERRORS))
        problems, hits = looks.find_problems(words, fault)
        assert hits and not problems, "\n".join(
            [f"{' '.join(words)}: {fault}", *hits[:2], *problems]
        )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, library: str) -> FaultyStudy:
    """A study that is done."""
    study = FaultyStudy(tmp_path_factory.mktemp("outage").resolve(), library)
    assert study.run().returncode == 0
    return study


class TestAnOutage:
    """The folder's server is away: all calls of a command fail for a while."""

    @pytest.mark.parametrize("error", ["EIO", "ENOTCONN"])
    def test_that_ends_is_waited_for(self, study: FaultyStudy, error: str) -> None:
        plain = study.windlass("status", "faulty", "--folder", str(study.studies))
        done = study.windlass(
            "status",
            "faulty",
            "--folder",
            str(study.studies),
            fault=Fault("client", 1, error, for_ms=2000),
        )
        assert (done.returncode, done.stdout) == (0, plain.stdout)
        told = [line for line in done.stderr.splitlines() if line.startswith("waiting for")]
        assert len(told) == 1 and str(study.studies) in told[0], done.stderr
        assert "it answers again" in done.stderr

    @pytest.mark.parametrize(
        "words", [("status", "faulty"), ("results",), ("run", "study.yaml", "--on", "local")]
    )
    def test_that_does_not_end_is_named(self, study: FaultyStudy, words: tuple[str, ...]) -> None:
        study.patience_s = 1.5
        fault = Fault("client", 1, "ENOTCONN", for_ms=3_600_000)
        done = study.windlass(*words, "--folder", str(study.studies), fault=fault)
        study.patience_s = 60
        assert done.returncode == 2 and not study.problems, study.problems
        assert f"{study.studies}" in done.stderr and "out of reach" in done.stderr
        assert "hint:" in done.stderr and "there is no study" not in done.stderr

    def test_is_left_with_ctrl_c(self, study: FaultyStudy) -> None:
        process = study.start(
            "status",
            "faulty",
            "--folder",
            str(study.studies),
            fault=Fault("client", 1, "EIO", 3_600_000),
        )
        assert process.stderr is not None
        assert process.stderr.readline().startswith("waiting for")
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        assert process.stderr.read().strip() == "interrupted"
        process.stderr.close()


def test_threads_that_wait_end_with_ctrl_c(tmp_path: Path, library: str) -> None:
    """Journals of large studies are read by several threads; the system reports Ctrl-C to the main one alone."""
    (tmp_path / "file").write_text("x")
    code = (
        "import sys, concurrent.futures as futures; from windlass.patience import patient_calls\n"
        "with patient_calls(), futures.ThreadPoolExecutor(2) as pool:\n"
        "    list(pool.map(lambda n: open(sys.argv[2]).read(), range(2)))"
    )
    # The library looks for the name of the program among its words.
    process = subprocess.Popen(
        [sys.executable, "-c", code, "windlass", str(tmp_path / "file")],
        env={
            **os.environ,
            **Fault("client", 1, "EIO", 3_600_000).variables(),
            "LD_PRELOAD": library,
            "FAULT_FOLDER": str(tmp_path.resolve()),
            "FAULT_LOG": f"{library}.log",
            "WINDLASS_PATIENCE_S": "3600",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("waiting for")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors


def test_a_real_server_that_is_away_for_a_while(tmp_path: Path, project: Project) -> None:
    """Several commands at once, on a mount whose server is ended and comes back."""
    project.write(
        "study.yaml", "name: s\ncommand: echo loss={x}\nparameters: {x: [1, 2]}\nmetrics: [loss]\n"
    )
    data = tmp_path / "data"
    data.mkdir()
    with sshfs(data, tmp_path / "mount", "reconnect", "cache=no") as mount:
        place = ("--folder", str(mount / "studies"))
        project.run("run", "study.yaml", "--on", "local", *place)
        plain = project.run("results", "--json", *place).stdout
        take_server_away(mount)
        lines = (
            ("status", "s"),
            ("results", "--json"),
            ("logs", "0"),
            ("run", "study.yaml", "--on", "local"),
        )
        commands = [project.start(*words, *place) for words in lines]
        for command in commands:
            assert command.stderr is not None
            assert command.stderr.readline().startswith(f"waiting for {mount}")
        bring_server_back(mount)
        ended = [command.communicate(timeout=300) for command in commands]
        assert [command.returncode for command in commands] == [0, 0, 0, 0], ended
        assert ended[1][0] == plain and "loss=1" in ended[2][0]


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(project: Project) -> None:
    """As for a user whose scratch is not mounted here, or closed."""
    project.write("study.yaml", "command: echo {x}\nparameters: {x: [1]}\n")
    gone = project.folder / "scratch" / "studies"
    done = project.run("status", "thing", "--folder", str(gone), code=2)
    assert f"{gone}: out of reach: {gone.parent} is not there" in done.stderr
    gone.parent.write_text("no folder")
    done = project.run("status", "thing", "--folder", str(gone), code=2)
    assert f"{gone}: out of reach (Not a directory)" in done.stderr
    assert "there is no study" not in done.stderr


@pytest.mark.parametrize("error,code", [("EIO", 0), ("EACCES", 2)])
def test_the_start_of_an_agent(tmp_path: Path, library: str, error: str, code: int) -> None:
    """The lines that start the agent wait for its file as well, and end with a message where it cannot be read."""
    study = FaultyStudy(tmp_path.resolve(), library)
    done = study.run(Fault("agent", 1, error))
    assert done.returncode == code and not study.problems, [done.stderr, *study.problems]
    assert any("agent.pyz" in hit for hit in study.hits())
    assert code == 0 or "agent.pyz cannot be read: Permission denied" in done.stderr
