"""A virtual environment that is there already. Python 3.9, standard library."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Dict, Mapping, Optional

from windlass.core.errors import NotReady
from windlass.environments.base import (
    EnvironmentKind,
    Findings,
    Folders,
    Key,
    Node,
    Trouble,
    Variables,
    Wanted,
)
from windlass.environments.shared.python_folder import check_python, find_editable, prepend, without


class Venv(EnvironmentKind):
    """Its folder is named in the study, relative to the project."""

    name = "venv"
    keys = (
        Key(
            "venv",
            "path",
            "Folder of a virtual environment, relative to the project.",
            ".venv",
        ),
    )

    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        try:
            check_python(wanted.expand(wanted.value), env, "the virtual environment")
        except NotReady as missing:
            return Findings([Trouble("venv", str(missing), f"python3 -m venv {wanted.value}")], env)
        return Findings([], env)

    def find_folder(self, wanted: Wanted, env: Mapping[str, str]) -> Optional[str]:
        return wanted.expand(wanted.value)

    def render(self, wanted: Wanted, folders: Folders, env: Variables) -> Wanted:
        folder = wanted.expand(wanted.value)
        return replace(wanted, value=folder, editable=find_editable(folder, wanted.project))

    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        return enter_venv(wanted.value, env)


def enter_venv(folder: str, env: Dict[str, str]) -> Dict[str, str]:
    """What the folder's own `activate` does. Raises NotReady where its Python does not run."""
    env = without(env, "PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
    check_python(folder, env, "the virtual environment")
    env["VIRTUAL_ENV"] = folder
    env["PATH"] = prepend(os.path.join(folder, "bin"), env.get("PATH", os.defpath))
    return env


MEMBER = Venv
