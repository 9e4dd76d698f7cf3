"""Which folder is a project's root: never the home folder, ``/`` or a folder that others write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windlass.core.errors import InputError
from windlass.core.paths import find_project, passed_over
from windlass.spec.build import Overrides, study_from_command
from windlass.spec.load import load_study


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a project in it; an earlier command has left `.windlass` and `.git` in the home folder."""
    home = tmp_path / "home"
    (home / "project" / "code").mkdir(parents=True)
    (home / ".windlass").mkdir()
    (home / ".git").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir("/")
    return home


def test_marks_in_the_home_folder_do_not_count(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = home / "project" / "code"
    assert find_project(str(code)) == str(code)
    assert passed_over(str(code)) == [str(home)]
    (home / "project" / ".windlass").mkdir()
    assert find_project(str(code)) == str(home / "project") and not passed_over(str(code))
    linked = home.parent / "linked"
    linked.symlink_to(home)
    monkeypatch.setenv("HOME", str(linked))
    assert find_project(str(home / "other")) == str(home / "other"), (
        "the home folder by another path"
    )


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o757])
def test_marks_in_a_folder_that_others_write_to_do_not_count(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared" / "mine").mkdir(parents=True)
    (tmp_path / "shared" / ".windlass").mkdir()
    (tmp_path / "shared" / "pyproject.toml").touch()
    mine = str(tmp_path / "shared" / "mine")
    assert find_project(mine) == str(tmp_path / "shared")
    (tmp_path / "shared").chmod(mode)
    assert find_project(mine) == mine


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_studies_in_a_groups_folder_does_not_count_but_a_shared_checkout_does(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "group" / "mine"
    mine.mkdir(parents=True)
    (tmp_path / "group" / ".windlass").mkdir()
    (tmp_path / "group").chmod(0o2775)
    assert find_project(str(mine)) == str(tmp_path / "group"), (
        "with a umask of 002 one's own folders are like this"
    )
    os.chown(tmp_path / "group", 4711, 4711)
    assert find_project(str(mine)) == str(mine)
    (tmp_path / "group" / ".git").mkdir()
    assert find_project(str(mine)) == str(tmp_path / "group")


def test_the_current_folder_is_no_root_for_what_is_below_it_either(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert find_project(str(home / "project")) == str(home / "project")


def test_a_study_in_such_a_folder_itself_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("study.yaml", "command: echo {x}\nparameters: {x: [1, 2]}\n"),
        ("tasks.txt", "echo 1\n"),
    ):
        (home / name).write_text(text)
        with pytest.raises(
            InputError, match="is your home folder, and all that is in it would be"
        ) as caught:
            load_study(str(home / name))
        assert caught.value.problems[0].file == str(home / name)
        assert f"mkdir {home}/my-study" in caught.value.problems[0].hint
    temporary = home.parent / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    monkeypatch.chdir(temporary)
    with pytest.raises(InputError, match="can be written to by all users"):
        study_from_command(["echo"], Overrides())
    temporary.chmod(
        0o777
    )  # as every folder of some file systems of Windows and of containers looks
    assert study_from_command(["echo"], Overrides()).project_dir == str(temporary)


def test_a_study_that_is_no_longer_found_above_is_named(home: Path) -> None:
    study = home / "project" / "study.yaml"
    study.write_text("name: sweep\ncommand: echo\n")
    old = home / ".windlass" / "sweep"
    old.mkdir()
    assert load_study(str(study)).warnings == ()
    (old / "plan.json").write_text("{}")
    (warning,) = load_study(str(study)).warnings
    assert f"{old} is not continued: {home} is your home folder" in warning
    assert f"mv {old} {home}/project/.windlass" in warning
    (home / "project" / ".windlass" / "sweep").mkdir(parents=True)
    (home / "project" / ".windlass" / "sweep" / "plan.json").write_text("{}")
    (home / "project").chmod(0o777)
    assert load_study(str(study)).warnings == (warning,), (
        "the folder that is continued is not warned of"
    )
