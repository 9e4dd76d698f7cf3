"""What every kind of environment has to keep to. A new module in environments/ is tested without being mentioned."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.members import add_member
from windlass import environments
from windlass.agent.config import AgentConfig
from windlass.agent.node.environment import activate
from windlass.agent.node.store import NodeStore
from windlass.bundle.environment import find_environment_problems
from windlass.core.errors import NotReady
from windlass.environments.base import (
    EnvironmentKind,
    Folders,
    Unusable,
    Wanted,
    kind_names,
    layers_of,
    load_kind,
    own_kind_names,
)
from windlass.model import Environment, Space, Study

BOX = '''
from dataclasses import replace

from windlass.core.errors import NotReady
from windlass.environments.base import EnvironmentKind, Findings, Trouble


class Box(EnvironmentKind):
    """An environment that takes a command of its own to enter."""

    name = "box"

    def find_problems(self, wanted, env):
        return Findings([Trouble("box", f"there is no box {wanted.value}", "make one")], env)

    def enter(self, wanted, env, node):
        if wanted.value == "closed":
            raise NotReady("the box is closed")
        return {**env, "BOX": wanted.value}

    def wrap(self, wanted, command):
        return ["box", "exec", wanted.value, *command]


MEMBER = Box
'''


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    project = tmp_path / "a project"
    project.mkdir()
    return Wanted(
        "", "nothing there", "shared", [], [], str(project), str(tmp_path / "environment.json")
    )


def named(wanted: Wanted, name: str) -> Wanted:
    """What makes a kind wanted: its name, or for modules and lines of the user's, some of them."""
    if load_kind(name).layer == 1:
        return replace(wanted, kind=name)
    more: dict[str, Any] = {name: ["something"]}
    return replace(wanted, **more)


@pytest.mark.parametrize("name", kind_names())
class TestContract:
    def test_goes_by_the_name_of_its_module(self, name: str) -> None:
        kind = load_kind(name)
        assert isinstance(kind, EnvironmentKind)
        assert kind.name == name
        assert type(kind).__doc__
        assert kind.layer in (0, 1, 2)

    def test_is_a_layer_where_it_is_wanted_and_only_there(self, name: str, wanted: Wanted) -> None:
        assert [kind.name for kind in layers_of(named(wanted, name))] == [name]
        assert layers_of(wanted) == []

    def test_a_look_at_what_is_not_there_changes_nothing_and_names_a_key(
        self, name: str, wanted: Wanted
    ) -> None:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(wanted.project)}
        before = dict(env)
        troubles, after = load_kind(name).find_problems(named(wanted, name), env)
        assert env == before
        assert os.listdir(wanted.project) == []
        assert after["PATH"] == "/usr/bin:/bin"
        for trouble in troubles:
            assert trouble.key and trouble.message

    def test_plan_json_carries_what_it_renders(
        self, name: str, wanted: Wanted, tmp_path: Path
    ) -> None:
        folders = Folders(str(tmp_path / "built"), str(tmp_path / "wheels"), is_shared=True)
        Path(wanted.project, "requirements.txt").write_text("numpy\n")
        asked = replace(named(wanted, name), value="requirements.txt")
        rendered = load_kind(name).render(asked, folders, {"PATH": "/usr/bin:/bin"})
        read = Wanted.from_json(json.loads(json.dumps(asdict(rendered))))
        assert json.loads(json.dumps(asdict(read))) == json.loads(json.dumps(asdict(rendered)))
        assert (read.kind, read.project) == (asked.kind, asked.project)

    def test_what_is_missing_on_the_node_is_reported_as_such(
        self, name: str, wanted: Wanted
    ) -> None:
        """It raises NotReady and nothing else, before any trial is taken; or it goes without what it can go without."""
        env = {"PATH": "/usr/bin:/bin", "HOME": str(wanted.project), "SLURM_JOB_ID": "1"}
        asked = named(wanted, name)
        if name == "build":
            file = {
                "file": "x",
                "engine": "conda",
                "text": "",
                "constraints": "",
                "wheels_only": False,
            }
            asked = replace(
                asked,
                build={**file, "root": f"{wanted.project}/built", "wheels": f"{wanted.project}/w"},
            )
        with pytest.raises(NotReady):
            enter(asked, env)

    def test_wraps_a_command_whole_and_in_order(self, name: str, wanted: Wanted) -> None:
        command = ["python", "train.py", "two words", "", "$HOME"]
        given = list(command)
        words = load_kind(name).wrap(named(wanted, name), command)
        assert command == given
        assert words[-len(command) :] == command


def enter(wanted: Wanted, env: dict[str, str]) -> tuple[dict[str, str], Any, Any]:
    config = SimpleNamespace(environment=wanted, workdir=wanted.project, project_dir=wanted.project)
    store = SimpleNamespace(mention=lambda text: None)
    return activate(cast(AgentConfig, config), env, cast(NodeStore, store), lambda text: None)


def test_one_file_is_a_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: Wanted
) -> None:
    add_member(monkeypatch, environments, tmp_path / "more", "box", BOX)
    assert own_kind_names()[-1] == "box"
    environment = Environment("box", "red", setup=("export LID=open",))
    study = Study(
        "s",
        (),
        Space(),
        workdir=wanted.project,
        project_dir=wanted.project,
        environment=environment,
    )
    assert [problem.message for problem in find_environment_problems(study)] == [
        "there is no box red"
    ]
    asked = replace(wanted, kind="box", value="red", setup=["export LID=open"])
    env, wrap, _ = enter(asked, {"PATH": "/usr/bin:/bin"})
    assert (env["BOX"], env["LID"]) == ("red", "open")
    assert wrap(["python", "train.py"]) == ["box", "exec", "red", "python", "train.py"]
    with pytest.raises(NotReady, match="the box is closed"):
        enter(replace(asked, value="closed"), {"PATH": "/usr/bin:/bin"})


def test_layers_are_entered_one_after_another(wanted: Wanted) -> None:
    env = {"PATH": "/usr/bin:/bin", "BASH_FUNC_module%%": '() { export "LOADED=$LOADED $2"; }'}
    asked = replace(wanted, modules=["cuda"], setup=["export SEEN=$LOADED"])
    assert [kind.name for kind in layers_of(asked)] == ["modules", "setup"]
    assert enter(asked, env)[0]["SEEN"].strip() == "cuda"


def test_a_file_that_nothing_can_be_built_from(wanted: Wanted) -> None:
    folders = Folders("built", "wheels", is_shared=False)
    with pytest.raises(Unusable):
        load_kind("build").render(replace(wanted, kind="build"), folders, {})
