"""The environment of a project that uv manages: `.venv`, as uv.lock says. Python 3.9, standard library."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from dataclasses import replace
from typing import Mapping, Optional

from windlass.core.errors import NotReady
from windlass.core.lock import FileLock, making_lock
from windlass.environments.base import (
    EnvironmentKind,
    Findings,
    Folders,
    Key,
    Node,
    Say,
    Trouble,
    Variables,
    Wanted,
)
from windlass.environments.shared.shell import run_process
from windlass.environments.venv import enter_venv

_MARK = ".windlass-synced"  # in .venv: the lock it was last made from
_POLL_S = 0.5


class Uv(EnvironmentKind):
    """`.venv` of the project, made anew by `uv sync --frozen` where the lock has changed."""

    name = "uv"
    keys = (
        Key(
            "uv",
            "truth",
            "Whether the environment of the project, as `uv sync` makes it from uv.lock, is used.",
            "true",
        ),
    )

    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        project = wanted.project
        for name, hint in (
            ("pyproject.toml", "`uv init` writes one"),
            ("uv.lock", "`uv lock` writes one"),
        ):
            if not os.path.isfile(os.path.join(project, name)):
                return Findings(
                    [Trouble("uv", f"there is no {os.path.join(project, name)}", hint)], env
                )
        has_uv = shutil.which("uv", path=env.get("PATH", os.defpath)) is not None
        if has_uv or os.path.exists(os.path.join(project, ".venv", "bin", "python")):
            return Findings([], env)
        trouble = Trouble("uv", "there is no uv here, and no .venv that it made", "pip install uv")
        return Findings([trouble], env)

    def find_folder(self, wanted: Wanted, env: Mapping[str, str]) -> Optional[str]:
        return os.path.join(wanted.project, ".venv")

    def render(self, wanted: Wanted, folders: Folders, env: Variables) -> Wanted:
        sources = "src" if os.path.isdir(os.path.join(wanted.project, "src")) else "."
        return replace(wanted, digest=lock_digest(wanted.project), editable=[sources])

    def refresh(self, wanted: Wanted, say: Say) -> Wanted:
        return replace(wanted, digest=lock_digest(wanted.project))

    def name_source(self, wanted: Wanted) -> str:
        return "uv.lock"

    def make(self, wanted: Wanted, say: Say) -> str:
        return sync_project(wanted, dict(os.environ), say)

    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        return enter_venv(sync_project(wanted, env, node.say), env)


def sync_project(wanted: Wanted, env: Variables, say: Say) -> str:
    """The folder of the environment, in step with the lock. Raises NotReady."""
    project = wanted.project
    folder = os.path.join(project, ".venv")
    digest = lock_digest(project)
    if digest is None:
        raise NotReady(f"there is no {os.path.join(project, 'uv.lock')} on {os.uname().nodename}")
    if digest != wanted.digest:
        say(f"{os.path.join(project, 'uv.lock')} has changed since submission")
    token = f"{os.uname().nodename}-{os.getpid()}-{time.time_ns():x}"
    lock = making_lock(os.path.join(project, ".venv-turn"), token)
    while _read_mark(folder) != digest:
        uv = shutil.which("uv", path=env.get("PATH", os.defpath))
        if uv is None:
            if os.path.exists(os.path.join(folder, "bin", "python")):
                say(f"there is no uv on {os.uname().nodename}: {folder} is taken as it is")
                return folder
            raise NotReady(f"there is no uv on {os.uname().nodename} to make {folder} with")
        if not lock.take():
            time.sleep(_POLL_S)
            continue
        try:
            if _read_mark(folder) != digest:
                _sync(uv, project, env, lock)
                with open(os.path.join(folder, _MARK), "w", encoding="ascii") as file:
                    file.write(digest)
        finally:
            lock.release()
    return folder


def lock_digest(project: str) -> Optional[str]:
    """Of the lock that says what is installed; None where there is none."""
    try:
        with open(os.path.join(project, "uv.lock"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _sync(uv: str, project: str, env: Variables, lock: FileLock) -> None:
    env = {
        name: value
        for name, value in env.items()
        if name not in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
    }
    with tempfile.TemporaryFile() as output:
        code = run_process([uv, "sync", "--frozen"], env, project, output.fileno(), beat=lock.beat)
        if code:
            output.seek(0)
            printed = " ".join(output.read().decode("utf-8", "replace").split())
            raise NotReady(
                f"`uv sync --frozen` in {project} ended with code {code}: {printed[-600:]}"
            )


def _read_mark(folder: str) -> str:
    try:
        with open(os.path.join(folder, _MARK), encoding="ascii") as file:
            mark = file.read()
        return mark if os.path.exists(os.path.join(folder, "bin", "python")) else ""
    except OSError:
        return ""


MEMBER = Uv
