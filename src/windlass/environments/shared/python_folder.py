"""Folders that have a Python of their own, as virtual and conda environments do. Python 3.9, standard library."""

from __future__ import annotations

import glob
import json
import os
from typing import Dict, List, Mapping, Optional
from urllib.parse import unquote, urlsplit

from windlass.core.errors import NotReady
from windlass.environments.shared.probe import PythonFailed, probe_python


def check_python(folder: str, env: Mapping[str, str], what: str) -> None:
    """Raises NotReady, saying what was looked for and what is wrong with it."""
    node = os.uname().nodename
    python = os.path.join(folder, "bin", "python")
    if not os.path.isdir(folder):
        raise NotReady(f"{what} {folder} does not exist on {node}")
    if not os.path.lexists(python):
        raise NotReady(f"{what} {folder} has no bin/python on {node}")
    if not os.path.exists(python):
        raise NotReady(
            f"{what} {folder} has no Python that runs: bin/python is {os.path.realpath(python)}, not on {node}"
        )
    try:
        probe_python(python, env)
    except PythonFailed as error:
        raise NotReady(f"{what} {folder} has no Python that runs on {node}: {error}") from None


def without(env: Mapping[str, str], *names: str) -> Dict[str, str]:
    """These variables but for some."""
    return {name: value for name, value in env.items() if name not in names}


def prepend(folder: str, path: str) -> str:
    """A search path with a folder at its front, where it stands once."""
    rest = [part for part in path.split(os.pathsep) if part and part != folder]
    return os.pathsep.join([folder, *rest])


def find_editable(folder: str, project: str) -> List[str]:
    """Folders of the project, relative to it, that an environment imports from as they are at that moment."""
    project = os.path.realpath(project)
    found: Dict[str, None] = {}
    pattern = os.path.join(
        glob.escape(folder), "lib", "python*", "site-packages", "*.dist-info", "direct_url.json"
    )
    for path in sorted(glob.glob(pattern)):
        root = _editable_root(path)
        if root is not None and os.path.commonpath([root, project]) == project:
            inside = os.path.join(root, "src") if os.path.isdir(os.path.join(root, "src")) else root
            found[os.path.relpath(inside, project)] = None
    return list(found)


def _editable_root(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as file:
            origin = json.load(file)
        if origin.get("dir_info", {}).get("editable"):
            return os.path.realpath(unquote(urlsplit(origin["url"]).path))
    except (OSError, ValueError, KeyError):
        pass
    return None
