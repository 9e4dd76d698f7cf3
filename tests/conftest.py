"""What many tests need: a project in a folder with an awkward name, and the command line as a user has it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.images import find_apptainer, require_image
from tests.preloaded import get_server
from windlass.core.ids import slug

# A shell has what it starts in the background ignore Ctrl-C, and so would all commands that tests start and interrupt.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


def write_program(path: Path, main: str) -> str:
    """An archive in the place of agent.pyz whose main function executes the line `main`. Returns its SHA-256."""
    files = {
        "windlass/__init__.py": "",
        "windlass/agent/__init__.py": "",
        "windlass/agent/__main__.py": f"import json, os, sys\ndef main():\n    {main}\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(
                zipfile.ZipInfo(name), text
            )  # without the time: the same program has the same checksum
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Project:
    """A folder with files, and `windlass` run in it as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("WINDLASS", "SLURM", "SCRATCH"))
        }
        self.env["XDG_CONFIG_HOME"] = str(folder / "config")
        self.env["XDG_CACHE_HOME"] = str(folder / "cache")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "windlass", *words]

    def run(
        self, *words: str, code: int | None = 0, timeout: float = 300, fresh: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `fresh`: in a new interpreter, also where a forked one would do."""
        server = get_server()
        if fresh or not server.fits(self.env):
            done = self._run_fresh(words, timeout)
        else:
            returned, output, errors = server.run(words, self.folder, self.env, timeout)
            texts = [
                io.TextIOWrapper(io.BytesIO(text), errors="replace").read()
                for text in (output, errors)
            ]
            done = subprocess.CompletedProcess(self.words(*words), returned, *texts)
        if code is not None:
            assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def _run_fresh(self, words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*words),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def json(self, *words: str, code: int | None = 0) -> Any:
        return json.loads(self.run(*words, code=code).stdout)

    def counts(self) -> dict[str, int]:
        """Trials by state; nothing while there is no study yet, as when a run has just been started."""
        done = self.run("status", "--json", code=None)
        if "there is no study here yet" in done.stderr:
            return {}
        assert done.returncode == 0, done.stderr
        return {state: count for state, count in json.loads(done.stdout)["counts"].items() if count}

    @property
    def studies(self) -> Path:
        """Where the folders of its studies are, unless a test puts them elsewhere."""
        scratch = self.env.get("SCRATCH")
        return Path(scratch) / slug(self.folder.name) if scratch else self.folder / ".windlass"

    def study_folder(self) -> Path:
        return Path(self.json("status", "--json")["folder"])


def wait_for(condition: Callable[[], Any], timeout_s: float = 180.0) -> Any:
    """Poll until something is true; the limit only keeps a broken test from hanging.

    A look that starts a process takes a core for as long as it lasts. The pause grows with it, so that tests which wait
    leave the machine to what they wait for.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        time.sleep(min(1.0, max(0.02, 2 * (time.monotonic() - began))))
    raise AssertionError("it did not come true")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    folder = tmp_path / 'it\'s a "project" né'
    folder.mkdir()
    yield Project(folder)


def processes_with(text: str) -> list[int]:
    """Processes whose environment holds `text`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if text.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image of a container that holds a Python other than the one that runs the tests."""
    return require_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def container_project(project: Project, image: Path) -> Project:
    """A project beside an image, with Apptainer on its PATH."""
    apptainer = find_apptainer()
    assert apptainer is not None
    project.env["PATH"] = f"{project.env['PATH']}{os.pathsep}{os.path.dirname(apptainer)}"
    os.link(image, project.folder / "image.sif")
    return project
