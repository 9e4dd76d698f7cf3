"""What every launcher has to keep to. A new module in launchers/ is tested here without being mentioned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.members import add_member, install_with
from windlass import launchers
from windlass.launchers.base import Launcher, Needs, Placement, launcher_names, load_launcher
from windlass.model import Request
from windlass.places.slurm.script import size_options

TWICE = '''
from windlass.launchers.base import Launched, Launcher, Shape


class Twice(Launcher):
    """Two tasks a node, and a shell around the command."""

    def shape(self, needs, nodes):
        return Shape(tasks=2, cpus=-(-needs.cpus // 2))

    def wrap(self, command, placement):
        words = ["sh", "-c", 'echo launched; exec "$@"', "sh", *placement.enter(command)]
        return Launched(words, {"TWICE": f"slot {placement.slot}"})


MEMBER = Twice
'''


def place(slot: int = 0, nodes: int = 1) -> Placement:
    names = tuple(f"node{number}" for number in range(1, nodes + 1))
    env = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "4"}
    return Placement("0123abcd", slot, 2, 4, 2, names, "node1", 23456, env, list)


@pytest.mark.parametrize("name", launcher_names())
class TestContract:
    def test_is_a_launcher_with_a_word_about_itself(self, name: str) -> None:
        launcher = load_launcher(name)
        assert isinstance(launcher, Launcher)
        assert type(launcher).__doc__

    @pytest.mark.parametrize(
        "needs",
        [Needs(1, 0), Needs(4, 0), Needs(6, 2), Needs(16, 4), Needs(3, 2), Needs(8, 4, 0, 2)],
    )
    @pytest.mark.parametrize("nodes", [1, 2, 8])
    def test_asks_for_what_the_trials_need(self, name: str, needs: Needs, nodes: int) -> None:
        shape = load_launcher(name).shape(needs, nodes)
        assert shape.tasks >= 1
        assert shape.cpus >= 1
        assert shape.tasks * shape.cpus >= needs.cpus
        assert shape == load_launcher(name).shape(needs, nodes)

    @pytest.mark.parametrize("nodes", [1, 2])
    def test_starts_the_command_whole_and_in_order(self, name: str, nodes: int) -> None:
        command = ["python", "train.py", "--lr", "1e-3", "two words", "", "$HOME", "{x}"]
        given = list(command)
        words, variables = load_launcher(name).wrap(command, place(nodes=nodes))
        assert command == given
        assert any(words[at : at + len(command)] == command for at in range(len(words)))
        assert all(isinstance(text, str) for pair in variables.items() for text in pair)

    def test_enters_the_environment_once(self, name: str) -> None:
        placement = replace(place(), enter=lambda command: ["enter", "image", *command])
        words, _ = load_launcher(name).wrap(["python", "train.py"], placement)
        assert words.count("enter") == 1
        assert words.index("enter") < words.index("train.py")


def test_one_file_is_a_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_member(monkeypatch, launchers, tmp_path / "more", "twice", TWICE)
    assert {"plain", "twice"} <= set(launcher_names())
    shape = load_launcher("twice").shape(Needs(5, 2), 1)
    request = Request("job", 60, shape.tasks * shape.cpus, 1000, tasks=shape.tasks)
    assert size_options(request)["ntasks-per-node"] == 2
    assert size_options(request)["cpus-per-task"] == 3


def test_no_launcher_of_that_name() -> None:
    with pytest.raises(KeyError):
        load_launcher("base")


def test_trials_start_by_a_launcher_that_is_one_new_file(project: Project) -> None:
    install_with(project, "launchers/twice.py", TWICE)
    project.run("run", "--launch", "twice", "--", "sh", "-c", "echo $TWICE in trial")
    assert project.run("logs", "0").stdout.splitlines() == ["launched", "slot 0 in trial"]
