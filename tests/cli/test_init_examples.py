"""`windlass init --example`, as somebody meets it who has installed the wheel and nothing else of ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import ROOT
from tests.conftest import Project
from tests.images import find_apptainer
from windlass.cli.examples import ALIASES, copy_example, read_examples
from windlass.core.errors import InputError

FOLDERS = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel; third-party packages are those of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    litter = shutil.ignore_patterns("__pycache__", ".windlass", "datasets")
    for name in ("src", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=litter)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    (source / "examples/advanced/datasets").mkdir()
    (source / "examples/advanced/datasets/left.txt").write_text(
        "made when somebody tried the example\n"
    )
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    python = folder / "env/bin/python"
    (wheel,) = folder.glob("*.whl")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True
    )
    (packages,) = (folder / "env/lib").glob("python3*/site-packages")
    # Lines of a .pth file are searched last, and .pth files found there are not read: ours is the wheel's.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.rmtree(source)
    return python


class Installed(Project):
    python = Path()

    def words(self, *words: str) -> list[str]:
        return [str(self.python.parent / "windlass"), *words]


@pytest.fixture
def user(project: Project, installed: Path) -> Installed:
    found = Installed(project.folder)
    found.python = installed
    found.env = {**project.env, "PATH": f"{installed.parent}:{project.env['PATH']}"}
    found.env.pop("PYTHONPATH", None)
    return found


def test_the_wheel_is_what_is_tested(user: Installed) -> None:
    code = "import windlass; print(windlass.__file__)"
    done = subprocess.run(
        [user.python, "-c", code], env=user.env, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(user.python.parent.parent))


def test_all_are_listed_with_a_line(user: Installed) -> None:
    lines = user.run("init", "--example", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == FOLDERS
    assert all(len(line[24:].strip()) > 20 for line in lines)
    assert {alias for alias in ALIASES if f"(or {alias})" in "".join(lines)} == {"simple", "array"}


def add_apptainer(user: Installed) -> bool:
    """Put Apptainer on the user's PATH. False where this machine has none."""
    apptainer = find_apptainer()
    if apptainer is not None:
        folders = [user.env["PATH"], str(Path(apptainer).parent)]
        user.env = {**user.env, "PATH": ":".join(folders)}
    return apptainer is not None


@pytest.mark.parametrize("name", [*FOLDERS, *ALIASES])
def test_each_plans_where_it_was_put(user: Installed, name: str) -> None:
    said = user.json("init", "--example", name, "a new/folder", "--json")
    copy = user.folder / "a new/folder"
    assert said["folder"] == str(copy) and said["example"] == ALIASES.get(name, name)
    assert "datasets" not in {path.name for path in copy.iterdir()}
    assert not [
        path
        for path in copy.rglob("*")
        if path.suffix in (".yaml", ".txt") and "../" in path.read_text()
    ]
    (command,) = (words for words in said["next"] if words.startswith("windlass run"))
    inside = Installed(copy)
    inside.python, inside.env = user.python, user.env
    if name == "container" and not add_apptainer(inside):
        done = inside.run("plan", *command.split()[2:], code=2)
        assert "there is no apptainer or singularity here" in done.stderr
        return
    plan = inside.json("plan", *command.split()[2:], "--json")
    assert plan["trials"] >= 3
    there = ("--site", "cedar", "--account", "def-prof")
    assert plan["trials"] == inside.json("plan", *command.split()[2:], *there, "--json")["trials"]


@pytest.mark.parametrize(("name", "trials", "error"), [("simple", 75, 0.26), ("array", 3, 0.22)])
def test_simple_and_array_run_whole(user: Installed, name: str, trials: int, error: float) -> None:
    steps = user.run("init", "--example", name).stdout.split("next:\n")[1].splitlines()
    assert steps[0].split() == ["cd", name]
    subprocess.run(
        ["sh", "-c", " &&".join(steps)],
        cwd=user.folder,
        env=user.env,
        check=True,
        capture_output=True,
    )
    inside = Installed(user.folder / name)
    inside.python, inside.env = user.python, user.env
    assert inside.counts() == {"done": trials}
    assert min(row["error"] for row in inside.json("results", "--json")) == pytest.approx(
        error, abs=0.02
    )


def test_what_is_there_is_left_alone(project: Project) -> None:
    project.write("mine/notes.txt", "keep me")
    project.write("file", "keep me")
    for target in ("mine", "file"):
        assert "not empty" in project.run("init", "--example", "simple", target, code=2).stderr
    assert [path.name for path in (project.folder / "mine").iterdir()] == ["notes.txt"]
    (project.folder / "empty").mkdir()
    project.run("init", "--example", "simple", "empty")
    assert (project.folder / "empty/study.yaml").exists()
    assert "wandb-sweep" in project.run("init", "--example", "sweep", code=2).stderr


def test_an_installation_that_cannot_be_written_to(tmp_path: Path) -> None:
    example = read_examples()["wandb-sweep"]
    place = tmp_path / "examples"
    for name in ("wandb-sweep", "quickstart"):
        shutil.copytree(
            ROOT / "examples" / name, place / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    locked = place / "wandb-sweep"
    (locked / "sweep.yaml").chmod(0o444)
    locked.chmod(0o555)
    try:
        copy_example(type(example)(example.name, str(locked), "", ()), str(tmp_path / "copy"))
    finally:
        locked.chmod(0o755)
    copied = sorted(path for path in (tmp_path / "copy").iterdir())
    assert [path.name for path in copied] == ["sweep.yaml", "value.py"]
    assert all(path.stat().st_mode & 0o200 for path in [tmp_path / "copy", *copied])


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        copy_example(read_examples()["chain"], str(tmp_path / "file/below"))
