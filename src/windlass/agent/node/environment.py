"""Enters the environment that trials need around them, and keeps a record of what it was. Python 3.9."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence

from windlass.agent.config import AgentConfig
from windlass.agent.node.store import NodeStore
from windlass.core.errors import NotReady
from windlass.core.units import render_duration
from windlass.environments.base import Command, Inside, Node, Say, Variables, Wanted, layers_of
from windlass.environments.shared.probe import PythonFailed, find_python, record_environment


class Entered(NamedTuple):
    """The variables of trials, and what puts a command into the environment where that takes more than variables."""

    env: Variables
    wrap: Callable[[Command], Command]
    inside: Optional[Inside] = None  # of an environment with programs of its own


def activate(
    config: AgentConfig,
    base: Variables,
    store: NodeStore,
    say: Say,
    local: str = "",
    folders: Sequence[str] = (),
) -> Entered:
    """Enter the study's environment, layer by layer. Raises NotReady where something is missing.

    `local` is the job's folder on this node's disk, `folders` are others that trials use.
    """
    asked = config.environment
    if asked is None:
        return Entered(base, list)
    wanted: Wanted = asked
    began = time.monotonic()
    layers, node, env = layers_of(wanted), Node(config.workdir, store, say, local, folders), base

    def wrap(command: Command) -> Command:
        for kind in reversed(layers):
            command = kind.wrap(wanted, command)
        return command

    with _refuse_when_signalled():
        for kind in layers:
            env = kind.enter(wanted, env, node)
        env = _prefer_frozen_code(wanted, env, config)
        inside = next((kind.inside for kind in layers if kind.inside is not None), None)
        about = _record(wanted, Entered(env, wrap, inside), say)
    store.mention(f"environment: {about} ({render_duration(time.monotonic() - began)})")
    return Entered(env, wrap, inside)


def find_folders(config: AgentConfig, study: str, store: NodeStore) -> List[str]:
    """The folders that trials use besides that of the job on the node's own disk."""
    found = [config.project_dir, config.scratch_dir, study, store.root, tempfile.gettempdir()]
    template = (config.checkpoint or {}).get("dir") or ""
    if template:  # it may begin with a variable, and have placeholders
        path = os.path.join(config.scratch_dir, os.path.expandvars(template)).partition("{")[0]
        folder = path.rstrip(os.sep) if path.endswith(os.sep) else os.path.dirname(path)
        if "{" not in template:
            folder = os.path.join(config.scratch_dir, os.path.expandvars(template))
        try:
            os.makedirs(folder, exist_ok=True)
            found.append(folder)
        except OSError:
            pass  # the trial that cannot make its own folder there tells
    return found


@contextmanager
def _refuse_when_signalled() -> Iterator[None]:
    """A signal that ends us meanwhile is no reason to leave anything behind."""

    def end(number: int, _frame: object) -> None:
        raise NotReady(f"asked to end by signal {number} before it was ready")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {
        number: signal.signal(number, end)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _prefer_frozen_code(wanted: Wanted, env: Variables, config: AgentConfig) -> Variables:
    """Where the environment has the project installed as it is edited, let the copy of submission go before it."""
    if not wanted.editable or config.project_dir == wanted.project:
        return env
    folders = [
        os.path.normpath(os.path.join(config.project_dir, folder)) for folder in wanted.editable
    ]
    known = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
    return {**env, "PYTHONPATH": os.pathsep.join([*folders, *known])}


# -- what it was


def _record(wanted: Wanted, entered: Entered, say: Say) -> str:
    """Keep with the study what trials are executed with. Returns it in words."""
    env, inside = entered.env, entered.inside
    wrap = list if inside is None else entered.wrap
    modules = [name for name in env.get("LOADEDMODULES", "").split(":") if name]
    parts = [f"{wanted.kind} {wanted.value}".strip()] if wanted.kind else []
    python = find_python(env)
    if inside is not None:
        python = inside.find_program("python") or inside.find_program("python3")
    if python is not None:
        try:
            asked = {
                name: getattr(wanted, name)
                for name in ("kind", "value", "modules", "setup", "digest")
            }
            found = record_environment(wanted.record, asked, python, env, modules, say, wrap)
        except PythonFailed as error:
            raise NotReady(f"{python} does not run on {os.uname().nodename}: {error}") from None
        parts.append(f"Python {found['python']} in {found['prefix']}")
    if modules:
        parts.append(f"modules {' '.join(modules)}")
    return ", ".join(parts) or "as set up"
