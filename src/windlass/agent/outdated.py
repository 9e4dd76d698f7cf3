"""Which code and settings an agent has, and whether the study has others by now. Python 3.9, standard library."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Dict, Optional, Tuple

from windlass.agent.config import AgentConfig
from windlass.core.errors import FolderError
from windlass.core.journal.code import code_facts, code_key, has_other_settings
from windlass.core.planfile import read_plan_file

_GIT_S = 5.0  # A large repository on a slow file system must not keep trials from beginning.
# Outside of jobs: the launcher starts another agent, which has the new code and settings.
EXIT_OUTDATED = 6
NOTE = ": this agent ends after the trials it has begun, and takes no more"
_OTHER_CODE = "the code of the study has changed"
_OTHER_SETTINGS = "settings of the study that trials use have changed"


def describe_code(config: AgentConfig) -> Dict[str, Any]:
    """What the agent's header says of the code. To be called before the frozen code is unpacked."""
    return _describe_live(config.project_dir) if config.code is None else code_facts(config.code)


def _describe_live(folder: str) -> Dict[str, Any]:
    """Commit of the project and whether it has uncommitted changes, now. The files may change later."""
    argv = [
        "git",
        "--no-optional-locks",
        "-C",
        folder,
        "status",
        "--porcelain=v2",
        "--branch",
        "--",
        ".",
    ]
    found: Dict[str, Any] = {"live": True, "commit": None, "dirty": None}
    try:
        done = subprocess.run(
            argv,
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


class PlanWatch:
    """Notices that the study got other code, or other settings, after this agent had read plan.json."""

    def __init__(self, plan_path: str, config: AgentConfig) -> None:
        self._path = plan_path
        self._code = code_key(config.code)
        self._settings = config.settings_key
        self._seen: Optional[Tuple[int, int]] = None

    def find_change(self) -> Optional[str]:
        """What has changed; None: nothing, or plan.json cannot be read. Costs one `stat` while the file is the same."""
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp == self._seen:
                return None
            plan = read_plan_file(self._path)
            if code_key(plan.code) != self._code:
                return _OTHER_CODE
            if has_other_settings(self._settings, plan.settings_key):
                return _OTHER_SETTINGS
        except (OSError, AttributeError, FolderError):
            return None
        self._seen = stamp
        return None
