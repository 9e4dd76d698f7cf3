"""Brings code and data next to the trials. Python 3.9, standard library."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Optional

from windlass.agent.config import AgentConfig
from windlass.agent.keep.output_paths import OutputPaths
from windlass.agent.keep.trial_folder import FrozenOrigin, TrialFolders
from windlass.agent.node.live_origin import LiveOrigin
from windlass.agent.node.store import NodeStore
from windlass.core.errors import NotReady


def stage_code(config: AgentConfig, store: NodeStore, near: str = "", stays: bool = False) -> None:
    """Unpack the frozen code and let `config.workdir` and `config.project_dir` point there. Raises NotReady.

    The study's own set-up lines may write there, so each agent has a copy of its own, below `near` if that is given;
    with `stays` it is left to be removed with `near`, by whoever has looked for outputs in it. The archive on the
    shared folder is read once a node; the copy costs what unpacking costs, but nothing of the shared folder.
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


def make_trial_folders(
    config: AgentConfig, store: NodeStore, near: str, stays: bool, at: str = ""
) -> Optional[TrialFolders]:
    """Working folders for trials, to be made from the project as it is now: the node has been made ready.

    None where trials are executed in the project itself. Raises NotReady.
    """
    if not config.own_folders:
        return None
    inside = os.path.relpath(config.workdir, config.project_dir)
    outputs = [
        os.path.join(inside, pattern)
        for pattern in config.outputs
        if not pattern.startswith(("/", "$", "~"))
    ]
    if config.code is not None:
        root = os.path.dirname(config.project_dir)
        return TrialFolders(
            FrozenOrigin(config.project_dir), root, config.workdir, OutputPaths(outputs)
        )
    root = store.make_folder(near, stays, at)
    origin = LiveOrigin(config.project_dir, config.live.get("files") or [], outputs)
    return TrialFolders(origin, root, config.workdir, OutputPaths(outputs))


def move_variables(env: Mapping[str, str], config: AgentConfig, project: str) -> Dict[bytes, bytes]:
    """Variables that lead to the project, so that they lead to a trial's own copy of it.

    Of a frozen project nothing else is to be used. A live one has also what is no code, such as an environment, which
    stays where it is: only the places that modules are imported from move.
    """
    origin = config.project_dir
    moved = {"source_dir": project}
    for name, value in env.items():
        if origin in value and (config.code is not None or name == "PYTHONPATH"):
            moved[name] = _move(value, origin, project, config.scratch_dir)
    # The study may have set a PYTHONPATH of its own in the place of the one that leads to the copy.
    python_path = moved.get("PYTHONPATH", env.get("PYTHONPATH", ""))
    if config.code is not None:
        python_path = _move(python_path, config.code["origin"], project, config.scratch_dir)
    moved["PYTHONPATH"] = _add_package(python_path, project)
    return {os.fsencode(name): os.fsencode(value) for name, value in moved.items()}


def _move(text: str, origin: str, project: str, kept: str) -> str:
    """Replace a folder's path wherever it stands as a whole or with more below it; not what is below `kept`.

    Studies' folders may lie in the project and are no part of its copies: the agent's archive, with the windlass that
    trials import, is in one of them.
    """
    end = r"(?=$|[/:;,\s\"'])"
    moved = re.sub(re.escape(origin) + end, lambda _: project, text)
    if not kept.startswith(origin + os.sep):
        return moved
    return re.sub(re.escape(project + kept[len(origin) :]) + end, lambda _: kept, moved)


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
    python_path = _add_package(os.pathsep.join(paths), copy)
    if python_path:
        os.environ["PYTHONPATH"] = python_path


def _add_package(python_path: str, project: str) -> str:
    """A project that is a package is imported from this copy, wherever it is installed from."""
    is_package = any(
        os.path.exists(os.path.join(project, name))
        for name in ("pyproject.toml", "setup.py", "setup.cfg")
    )
    if not is_package:
        return python_path
    source = os.path.join(project, "src")
    source = source if os.path.isdir(source) else project
    return os.pathsep.join(
        [path for path in python_path.split(os.pathsep) if path and path != source] + [source]
    )


def stage_data(config: AgentConfig, store: NodeStore, target: str) -> None:
    """Let each of the study's data appear below `target`, with its relative path. Raises NotReady.

    They are read-only, because all agents on the node share them. Those that are `writable` are copied for this agent.
    """
    for entry in config.data:
        tree = store.unpack(entry, f"data {entry['as']}")
        source = _inside(tree, entry)
        if entry.get("writable"):
            source = store.make_private(source, os.path.basename(source), target)
        else:
            store.watch(tree, f"data {entry['as']}")
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
