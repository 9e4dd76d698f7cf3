"""Which code an agent runs, and whether the study has another one by now. Python 3.9, standard library."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, Optional, Tuple

from windlass.agent.config import AgentConfig
from windlass.journal.code import code_facts, code_key

_GIT_S = 5.0  # A large repository on a slow file system must not keep trials from beginning.
EXIT_OUTDATED = 6  # Outside of jobs: the launcher starts another agent, which has the new code.
REASON = "the code has changed"
NOTE = "the code of the study has changed: this agent ends after the trials it has begun, and takes no more"


def describe_code(config: AgentConfig) -> Dict[str, Any]:
    """What the agent's header says of the code. To be called before the frozen code is unpacked."""
    return _describe_live(config.project_dir) if config.code is None else code_facts(config.code)


def _describe_live(folder: str) -> Dict[str, Any]:
    """Commit of the project and whether it has uncommitted changes, now. The files may change later."""
    words = ["git", "--no-optional-locks", "-C", folder, "status", "--porcelain=v2", "--branch", "--", "."]
    found: Dict[str, Any] = {"live": True, "commit": None, "dirty": None}
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return found
    if done.returncode != 0:
        return found
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    commits = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    if commits and commits[0] != "(initial)":
        found["commit"] = commits[0]
    found["dirty"] = any(not line.startswith("#") for line in lines)
    return found


class CodeWatch:
    """Notices that the study got other code after this agent had read plan.json."""

    def __init__(self, plan_path: str, config: AgentConfig) -> None:
        self._path = plan_path
        self._key = code_key({"code": config.code})
        self._seen: Optional[Tuple[int, int]] = None

    def changed(self) -> bool:
        """Costs one `stat` while plan.json stays as it is. False where it cannot be read."""
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp == self._seen:
                return False
            with open(self._path, encoding="utf-8") as file:
                other = code_key(json.load(file)) != self._key
        except (OSError, ValueError, AttributeError):
            return False
        if not other:
            self._seen = stamp
        return other
