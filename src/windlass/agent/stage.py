"""Brings code and data next to the trials. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from windlass.agent.config import AgentConfig
from windlass.agent.store import NodeStore, NotReady


def stage_code(config: AgentConfig, store: NodeStore, near: str = "", stays: bool = False) -> None:
    """Unpack the frozen code and let `config.workdir` and `config.project_dir` point there. Raises NotReady.

    Trials may write where they are executed, so each agent has a copy of its own, below `near` if that is given; with
    `stays` it is left to be removed with `near`, by whoever has looked for outputs in it. The archive on the shared
    folder is read once a node; the copy costs what unpacking costs, but nothing of the shared folder.
    """
    code = config.code
    if code is None:
        return
    tree = store.unpack(code, code["key"].replace("code-", "code "))
    name = os.path.basename(config.project_dir)
    copy = store.make_private(tree, name, near, stays, at=code.get("copy", ""))
    _link_to_origin(code, copy)
    _move_python_path(code["origin"], copy)
    code["tree"] = tree  # as it was before trials wrote to the copy
    config.project_dir = copy
    config.workdir = os.path.normpath(os.path.join(copy, code["workdir"]))
    try:
        os.makedirs(config.workdir, exist_ok=True)
    except OSError as error:
        raise NotReady(f"code: {config.workdir}: {error.strerror}") from error


def _link_to_origin(code: Dict[str, Any], copy: str) -> None:
    """What the command names in the project and is not part of the code: it is where it always was."""
    for name in code["links"]:
        _link(os.path.join(code["origin"], name), os.path.join(copy, name))


def _move_python_path(origin: str, copy: str) -> None:
    """Modules are imported from the copy, also those of a package that is installed as editable from the project."""
    paths: List[str] = []
    for path in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        inside = path == origin or path.startswith(origin + os.sep)
        paths.append(copy + path[len(origin) :] if inside else path)
    is_package = any(os.path.exists(os.path.join(copy, name)) for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    if is_package:
        source = os.path.join(copy, "src")
        paths.append(source if os.path.isdir(source) else copy)
    if paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def stage_data(config: AgentConfig, store: NodeStore, target: str) -> None:
    """Let each of the study's data appear below `target`, with its relative path. Raises NotReady.

    They are read-only, because all agents on the node share them. Those that are `writable` are copied for this agent.
    """
    for entry in config.data:
        tree = store.unpack(entry, f"data {entry['as']}")
        source = _inside(tree, entry)
        if entry.get("writable"):
            source = store.make_private(source, os.path.basename(source), target)
        try:
            _link(source, os.path.join(target, entry["as"]))
            if config.code is not None and entry.get("project"):
                _link(source, os.path.join(config.project_dir, entry["project"]))
        except OSError as error:
            raise NotReady(f"data {entry['as']}: {error.strerror}: {error.filename}") from error


def _inside(tree: str, entry: Dict[str, Any]) -> str:
    """The folder or file itself. An archive of the user's may have been made with a folder of its name, or without."""
    path = os.path.join(tree, entry["inner"])
    if entry.get("foreign") and os.listdir(tree) != [entry["inner"]]:
        return tree
    return path


def _link(source: str, path: str) -> None:
    """A link that leads to `source`. Several agents of a job may make it at once; what is there already stays."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(path) and os.readlink(path) != source:
        os.unlink(path)
    try:
        os.symlink(source, path)
    except FileExistsError:
        pass
