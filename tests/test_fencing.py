"""Agents on nodes of their own whose shared folder hangs or gives errors: no trial runs twice at a time, none is lost."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from tests.mounts import Node, Shared, why_no_mounts
from windlass.claims.register import Register, RegisterFile
from windlass.journal.read import JournalReader
from windlass.planfile import encode_plan_file

LEASE_S = 8.0

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


class Study:
    """A study in the shared folder, and the agents at it."""

    def __init__(self, project: Project, shared: Shared, trials: int) -> None:
        self.project, self.shared = project, shared
        self.witness = shared.root / "witness"
        self.witness.mkdir()
        project.env.update(SCRATCH=str(shared.mount), WITNESS=str(self.witness))
        project.write("trial.py", TRIAL)
        words = f"command: {sys.executable} trial.py {{n}}\nparameters: {{n: {json.dumps(list(range(trials)))}}}\n"
        project.write("study.yaml", words + "warm: off\n")
        (self.witness / "finish").touch()
        project.run("run", "--sample", "1")
        self.folder = project.study_folder()
        shutil.rmtree(self.folder / "journal")
        (self.folder / "journal").mkdir()
        self._open_all()
        plan = json.loads((self.folder / "plan.json").read_text())
        plan.update(lease_s=LEASE_S, slots=2)
        (self.folder / "plan.json").write_bytes(encode_plan_file(plan))
        for path in self.witness.iterdir():
            path.unlink()
        for path in shared.mount.iterdir():
            shutil.move(path, shared.data / path.name)
        self.served = shared.data / self.folder.relative_to(shared.mount)

    def _open_all(self) -> None:
        def change(register: Register) -> Register:
            register.todo = register.current
            return register

        RegisterFile(str(self.folder / "claims"), "test").update(change)

    def start(self, node: Node, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.folder / "agent.pyz"), str(self.folder), *words]
        return node.start(command, self.project.env, self.project.folder)

    def alive(self) -> dict[str, list[tuple[str, float, float]]]:
        """For each trial: node, first and last sign of life of each of its processes."""
        found: dict[str, list[tuple[str, float, float]]] = {}
        for path in self.witness.iterdir():
            number, _, rest = path.name.partition(".")
            times = [float(line) for line in path.read_text().splitlines() if line]
            if rest and times:
                found.setdefault(number, []).append((rest.partition(".")[0], times[0], times[-1]))
        return found

    def running_on(self, node: Node) -> set[str]:
        """Trials with a sign of life on that node within the last second."""
        now = time.monotonic()
        return {
            number
            for number, processes in self.alive().items()
            if any(name == node.name and last > now - 1.0 for name, _, last in processes)
        }

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
        return sorted(event["i"] for event in self.events() if event["e"] == "end" and event["cause"] == "done")


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


@pytest.fixture
def study(project: Project, shared: Shared) -> Iterator[Study]:
    yield Study(project, shared, 2)


def test_trials_end_before_another_agent_begins_them(study: Study, shared: Shared) -> None:
    """The folder hangs on one node for longer than the lease, and comes back."""
    first, second = shared.add_node("one"), shared.add_node("two")
    hangs = study.start(first)
    wait_for(lambda: len(study.running_on(first)) == 2)
    waits = study.start(second, "--linger")
    wait_for(lambda: len(list((study.served / "journal").glob("*.jsonl"))) == 2)
    first.stop_mount()
    wait_for(lambda: len(study.running_on(second)) == 2, 90)
    assert not study.running_on(first), "the trials of the agent whose folder hangs go on"
    first.continue_mount()
    wait_for(lambda: "folder out of reach" in study.causes(), 90)
    study.finish(hangs, waits)
    assert study.overlaps() == []
    assert study.causes() == ["done", "folder out of reach"]
    assert study.done() == [0, 1], "each trial is done once"
    assert [event["cause"] for event in study.events() if event["e"] == "end" and "lost" in event] == [
        "folder out of reach",
        "folder out of reach",
    ]
