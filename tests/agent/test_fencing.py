"""Agents on nodes of their own whose shared folder hangs or gives errors: no trial runs twice at a time, none is lost."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, processes_with
from tests.conftest import wait_for as wait
from tests.mounts import Node, Shared, why_no_mounts
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.journal.read import JournalReader
from windlass.core.planfile import decode_plan

LEASE_S = 8.0


def wait_for(condition: Callable[[], Any]) -> Any:
    return wait(condition, 60.0)


# Each process of a trial leaves a file in a folder outside the shared one, and writes the time there while it lives.
# It ends once a file says so, and never by itself before.
TRIAL = """
import os, socket, sys, time
number = sys.argv[1]
witness = os.environ["WITNESS"]
name = f"{number}.{socket.gethostname()}.{time.monotonic_ns()}"
with open(os.path.join(witness, name), "w") as file:
    while True:
        print(time.monotonic(), file=file, flush=True)
        if os.path.exists(os.path.join(witness, "finish")):
            break
        time.sleep(0.05)
print("value=1")
"""


class Watched:
    """A study whose trials leave signs of life in a folder outside of its own."""

    def __init__(
        self, project: Project, scratch: Path, witness: Path, trials: int, lease_s: float
    ) -> None:
        self.project, self.witness = project, witness
        witness.mkdir()
        project.env.update(SCRATCH=str(scratch), WITNESS=str(witness))
        project.write("trial.py", TRIAL)
        words = f"command: {sys.executable} trial.py {{n}}\nparameters: {{n: {json.dumps(list(range(trials)))}}}\n"
        project.write("study.yaml", words + "warm: off\n")
        (self.witness / "finish").touch()
        project.run("run", "--sample", "1")
        self.folder = project.study_folder()
        for name in ("journal", "output"):
            shutil.rmtree(self.folder / name)
            (self.folder / name).mkdir()
        self._open_all()
        plan = json.loads((self.folder / "plan.json").read_text())
        plan.update(lease_s=lease_s, slots=2)
        (self.folder / "plan.json").write_bytes(decode_plan(plan).encode())
        for path in self.witness.iterdir():
            path.unlink()
        self.served = self.folder  # where this process finds it

    def _open_all(self) -> None:
        def change(register: Register) -> Register:
            register.todo = register.current
            return register

        RegisterFile(str(self.folder / "claims"), "test").update(change)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(self.folder / "agent.pyz"), str(self.folder), *words]

    def alive(self) -> dict[str, list[tuple[str, float, float]]]:
        """For each trial: node, first and last sign of life of each of its processes."""
        found: dict[str, list[tuple[str, float, float]]] = {}
        for path in self.witness.iterdir():
            number, _, rest = path.name.partition(".")
            times = [float(line) for line in path.read_text().splitlines() if line]
            if rest and times:
                found.setdefault(number, []).append((rest.partition(".")[0], times[0], times[-1]))
        return found

    def finish(self, *agents: subprocess.Popen[str]) -> list[str]:
        """Let all trials end. Returns what each agent printed."""
        (self.witness / "finish").touch()
        printed = [agent.communicate(timeout=240)[0] for agent in agents]
        codes = [agent.returncode for agent in agents]
        assert codes == [0] * len(agents), (codes, printed)
        return printed

    def overlaps(self) -> list[tuple[str, float]]:
        """Trials of which two processes lived at the same time, and for how many seconds."""
        found = []
        for number, processes in self.alive().items():
            ordered = sorted(processes, key=lambda one: one[1])
            for (_, _, ended), (_, began, _) in itertools.pairwise(ordered):
                if began < ended:
                    found.append((number, ended - began))
        return found

    def events(self) -> list[dict[str, Any]]:
        paths = (self.served / "journal").glob("*.jsonl")
        return [event for path in paths for event in JournalReader(str(path)).read()]

    def causes(self) -> list[str]:
        return sorted({event["cause"] for event in self.events() if event["e"] == "end"})

    def done(self) -> list[int]:
        """Numbers of the attempts that ended well."""
        return sorted(
            event["i"]
            for event in self.events()
            if event["e"] == "end" and event["cause"] == "done"
        )


class LocalStudy(Watched):
    """One agent on this machine."""

    def __init__(self, project: Project, root: Path) -> None:
        scratch = root / "scratch"
        scratch.mkdir()
        super().__init__(project, scratch, root / "witness", 2, LEASE_S)

    def start(self) -> subprocess.Popen[str]:
        out = subprocess.PIPE
        return subprocess.Popen(
            self.command(),
            env=self.project.env,
            cwd=self.project.folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def count_alive(self) -> int:
        now = time.monotonic()
        return sum(
            last > now - 1.0 for processes in self.alive().values() for _, _, last in processes
        )


class Study(Watched):
    """A study in a folder that nodes share, and the agents at it."""

    def __init__(
        self, project: Project, shared: Shared, trials: int, lease_s: float = LEASE_S
    ) -> None:
        super().__init__(project, shared.mount, shared.root / "witness", trials, lease_s)
        for path in shared.mount.iterdir():
            shutil.move(path, shared.data / path.name)
        self.served = shared.data / self.folder.relative_to(shared.mount)

    def start(self, node: Node, *words: str) -> subprocess.Popen[str]:
        return node.start(self.command(*words), self.project.env, self.project.folder)

    def running_on(self, node: Node) -> set[str]:
        """Trials with a sign of life on that node within the last second."""
        now = time.monotonic()
        return {
            number
            for number, processes in self.alive().items()
            if any(name == node.name and last > now - 1.0 for name, _, last in processes)
        }


@pytest.fixture
def local(project: Project, tmp_path: Path) -> Iterator[LocalStudy]:
    study = LocalStudy(project, tmp_path)
    yield study
    for pid in processes_with(f"WITNESS={study.witness}"):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    problem = why_no_mounts()
    if problem:
        pytest.skip(problem)
    folder = Shared(tmp_path / "shared")
    try:
        yield folder
    finally:
        folder.close()


def test_trials_end_before_another_agent_begins_them(project: Project, shared: Shared) -> None:
    """The folder hangs on one node for longer than the lease, and comes back."""
    study = Study(project, shared, 2)
    first, second = shared.add_node("one"), shared.add_node("two")
    hangs = study.start(first)
    wait_for(lambda: len(study.running_on(first)) == 2)
    waits = study.start(second, "--linger")
    wait_for(lambda: len(list((study.served / "journal").glob("*.jsonl"))) == 2)
    first.stop_mount()
    wait_for(lambda: len(study.running_on(second)) == 2)
    assert not study.running_on(first), "the trials of the agent whose folder hangs go on"
    first.continue_mount()
    wait_for(lambda: "folder out of reach" in study.causes())
    study.finish(hangs, waits)
    assert study.overlaps() == []
    assert study.causes() == ["done", "folder out of reach"]
    assert study.done() == [0, 1], "each trial is done once"
    assert [
        event["cause"] for event in study.events() if event["e"] == "end" and "lost" in event
    ] == [
        "folder out of reach",
        "folder out of reach",
    ]


def test_an_outage_for_everybody_that_is_longer_than_the_lease(
    project: Project, shared: Shared
) -> None:
    study = Study(project, shared, 4)
    nodes = [shared.add_node("one"), shared.add_node("two")]
    agents = []
    for node in nodes:
        agents.append(study.start(node, "--linger"))
        wait_for(lambda node=node: len(study.running_on(node)) == 2)
    began = time.monotonic()
    for node in nodes:
        node.stop_mount()
    wait_for(lambda: not any(study.running_on(node) for node in nodes))
    wait_for(lambda: time.monotonic() > began + 1.5 * LEASE_S)
    for node in nodes:
        node.continue_mount()
    wait_for(lambda: study.causes() == ["folder out of reach"])
    wait_for(lambda: sum(len(study.running_on(node)) for node in nodes) == 4)
    study.finish(*agents)
    assert study.overlaps() == []
    assert study.done() == [0, 1, 2, 3], "each trial is done once"


def test_a_server_that_is_away_for_longer_than_trials_may_go_on(
    project: Project, shared: Shared
) -> None:
    """Calls give errors meanwhile. The agent waits, and begins the trials again that the guard has ended."""
    study = Study(project, shared, 2)
    node = shared.add_node("one")
    agent = study.start(node)
    wait_for(lambda: len(study.running_on(node)) == 2)
    with shared.server_away():
        wait_for(lambda: not study.running_on(node))
        until = time.monotonic() + 0.5 * LEASE_S
        wait_for(lambda: agent.poll() is not None or time.monotonic() > until)
        assert agent.poll() is None, "it does not leave because of an error that may pass"
    wait_for(lambda: len(study.running_on(node)) == 2)
    (printed,) = study.finish(agent)
    assert "out of reach" in printed
    assert study.overlaps() == []
    assert study.causes() == ["done", "folder out of reach"] and study.done() == [0, 1]


def test_a_server_that_is_away_for_a_moment_interrupts_nothing(
    project: Project, shared: Shared
) -> None:
    """Also what trials print meanwhile, and how they ended, is recorded once the server is back."""
    study = Study(project, shared, 3, lease_s=300.0)
    nodes = [shared.add_node("one"), shared.add_node("two")]
    first = study.start(nodes[0])
    wait_for(lambda: len(study.running_on(nodes[0])) == 2)
    second = study.start(nodes[1])
    wait_for(lambda: len(study.running_on(nodes[1])) == 1)
    with shared.server_away():
        (study.witness / "finish").touch()
        wait_for(lambda: not any(study.running_on(node) for node in nodes))
    study.finish(first, second)
    assert study.causes() == ["done"] and study.done() == [0, 1, 2]
    assert not [path for path in (study.served / "journal").iterdir() if path.suffix != ".jsonl"]
    logs = [path.read_text() for path in (study.served / "output").glob("*.log")]
    assert "".join(logs).count("value=1") == 3


def test_an_agent_that_is_stopped_alone(local: LocalStudy) -> None:
    """The guard does not need the agent: trials end, and begin again once it goes on."""
    study = local
    agent = study.start()
    wait_for(lambda: study.count_alive() == 2)
    agent.send_signal(signal.SIGSTOP)
    wait_for(lambda: study.count_alive() == 0)
    agent.send_signal(signal.SIGCONT)
    wait_for(lambda: study.count_alive() == 2)
    study.finish(agent)
    assert study.overlaps() == []
    assert study.causes() == ["done", "folder out of reach"] and study.done() == [0, 1]


def test_a_job_that_was_suspended_as_a_whole_goes_on(local: LocalStudy) -> None:
    """Trials were stopped with their agent, and nobody has begun them meanwhile: they are not ended."""
    study = local
    agent = study.start()
    wait_for(lambda: study.count_alive() == 2)
    everything = processes_with(f"WITNESS={study.witness}")
    assert len(everything) >= 4, "agent, guard and two trials"
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for(lambda: time.monotonic() > stopped + 0.6 * LEASE_S)
    for pid in everything:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: study.count_alive() == 2)
    study.finish(agent)
    assert study.causes() == ["done"] and study.done() == [0, 1]
