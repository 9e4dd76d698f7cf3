"""The environment of a project that uv manages: `.venv`, as uv.lock says. Python 3.9, standard library."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, Mapping

from windlass.agent.shell import run_process
from windlass.agent.store import NotReady
from windlass.agent.turns import MakingTurn

_MARK = ".windlass-synced"  # in .venv: the lock it was last made from
_POLL_S = 0.5
Say = Callable[[str], None]


def sync_project(asked: Mapping[str, Any], env: Dict[str, str], say: Say) -> str:
    """The folder of the environment, in step with the lock. Raises NotReady."""
    project = asked["project"]
    folder = os.path.join(project, ".venv")
    digest = lock_digest(project)
    if digest is None:
        raise NotReady(f"there is no {os.path.join(project, 'uv.lock')} on {os.uname().nodename}")
    if digest != asked["digest"]:
        say(f"{os.path.join(project, 'uv.lock')} has changed since submission")
    token = f"{os.uname().nodename}-{os.getpid()}-{time.time_ns():x}"
    turn = MakingTurn(os.path.join(project, ".venv-turn"), token)
    while _read_mark(folder) != digest:
        uv = shutil.which("uv", path=env.get("PATH", os.defpath))
        if uv is None:
            if os.path.exists(os.path.join(folder, "bin", "python")):
                say(f"there is no uv on {os.uname().nodename}: {folder} is taken as it is")
                return folder
            raise NotReady(f"there is no uv on {os.uname().nodename} to make {folder} with")
        if not turn.take():
            time.sleep(_POLL_S)
            continue
        try:
            if _read_mark(folder) != digest:
                _sync(uv, project, env, turn)
                with open(os.path.join(folder, _MARK), "w", encoding="ascii") as file:
                    file.write(digest)
        finally:
            turn.release()
    return folder


def lock_digest(project: str) -> Any:
    """Of the lock that says what is installed; None where there is none."""
    try:
        with open(os.path.join(project, "uv.lock"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _sync(uv: str, project: str, env: Dict[str, str], turn: MakingTurn) -> None:
    env = {name: value for name, value in env.items() if name not in ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")}
    with tempfile.TemporaryFile() as output:
        code = run_process([uv, "sync", "--frozen"], env, project, output.fileno(), beat=turn.beat)
        if code:
            output.seek(0)
            said = " ".join(output.read().decode("utf-8", "replace").split())
            raise NotReady(f"`uv sync --frozen` in {project} ended with code {code}: {said[-600:]}")


def _read_mark(folder: str) -> str:
    try:
        with open(os.path.join(folder, _MARK), encoding="ascii") as file:
            mark = file.read()
        return mark if os.path.exists(os.path.join(folder, "bin", "python")) else ""
    except OSError:
        return ""
