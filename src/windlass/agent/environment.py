"""Activates what trials need around them: modules, a Python environment, lines of the user's. Python 3.9."""

from __future__ import annotations

import os
import re
import shlex
import signal
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Mapping, Sequence

from windlass.agent.build import Recipe, make_environment, make_on_node
from windlass.agent.conda import find_conda_script, find_environment_folder, find_roots, is_folder_name
from windlass.agent.config import AgentConfig
from windlass.agent.probe import PythonFailed, find_python, probe_python, record_environment
from windlass.agent.shell import ShellFailed, Step, run_shell
from windlass.agent.store import NodeStore, NotReady
from windlass.agent.sync import sync_project

Say = Callable[[str], None]

# Where sites keep the `module` command of shells that are no login shells.
_FIND_MODULE = """
for windlass_file in "" "$LMOD_PKG/init/bash" "$MODULESHOME/init/bash" \\
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash /usr/share/Modules/init/bash; do
    if type module >/dev/null 2>&1; then break; fi
    if [ -r "$windlass_file" ]; then . "$windlass_file"; fi
done
unset windlass_file
"""
_HAS_MODULE = "type module >/dev/null 2>&1"


def activate(config: AgentConfig, base: Dict[str, str], store: NodeStore, say: Say) -> Dict[str, str]:
    """The environment of trials. Raises NotReady where something is missing."""
    asked = config.environment
    if asked is None:
        return base
    began = time.monotonic()
    with _told_to_end():
        env = load_modules(asked["modules"], base, config.workdir, say)
        env = _enter(asked, env, config, store, say)
        env = _run_setup(asked["setup"], env, config.workdir, bool(asked["modules"]))
        env = _prefer_frozen_code(asked, env, config)
        about = _record(asked, env, say)
    store.mention(f"environment: {about} ({time.monotonic() - began:.1f} s)")
    return env


@contextmanager
def _told_to_end() -> Iterator[None]:
    """A signal that ends us meanwhile is no reason to leave anything behind."""

    def end(number: int, _frame: object) -> None:
        raise NotReady(f"told to end by signal {number} before it was ready")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


# -- modules


def load_modules(modules: Sequence[str], base: Dict[str, str], cwd: str, say: Say) -> Dict[str, str]:
    """The environment with these modules loaded. Raises NotReady with a missing module's own message."""
    if not modules:
        return base
    steps = [Step("module", _FIND_MODULE + _HAS_MODULE)]
    steps += [Step(name, f"module load {shlex.quote(name)}") for name in modules]
    try:
        done = run_shell(steps, base, cwd)
    except ShellFailed as failed:
        if failed.step > 0:
            raise NotReady(_module_message(modules[failed.step - 1], failed.output or failed.reason)) from None
        if base.get("SLURM_JOB_ID"):
            raise NotReady(
                f"there is no `module` command on {os.uname().nodename} to load {', '.join(modules)} with: "
                "looked for $LMOD_PKG/init/bash, $MODULESHOME/init/bash and /etc/profile.d/{lmod,modules}.sh"
            ) from None
        say(f"there is no `module` command here: {', '.join(modules)} not loaded")
        return base
    except OSError as error:
        raise NotReady(f"bash cannot be started on {os.uname().nodename}: {error.strerror}") from None
    for number, name in enumerate(modules, start=1):
        output = done.outputs[number]
        if re.search(r":ERROR:\d+:", output):  # old ones say so and end with 0
            raise NotReady(_module_message(name, output))
    return done.env


def has_module_command(env: Dict[str, str]) -> bool:
    try:
        run_shell([Step("module", _FIND_MODULE + _HAS_MODULE)], env, "/")
        return True
    except (ShellFailed, OSError):
        return False


def _module_message(name: str, output: str) -> str:
    said = " ".join(output.split())
    return f"module {name} cannot be loaded on {os.uname().nodename}: {said[:600]}"


# -- the Python environment


def _enter(
    asked: Mapping[str, Any], env: Dict[str, str], config: AgentConfig, store: NodeStore, say: Say
) -> Dict[str, str]:
    kind, value = asked["kind"], asked["value"]
    if kind == "venv":
        return enter_venv(value, env)
    if kind == "conda":
        return enter_conda(value, env, config.workdir, say)
    if kind == "uv":
        return enter_venv(sync_project(asked, env, say), env)
    if kind == "build":
        folder = _build(asked, env, store, say)
        if asked["build"]["engine"] == "conda":
            return enter_conda(folder, env, config.workdir, say)
        return enter_venv(folder, env)
    return env


def enter_venv(folder: str, env: Dict[str, str]) -> Dict[str, str]:
    """What the folder's own `activate` does. Raises NotReady where its Python does not run."""
    env = _without(env, "PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
    check_python(folder, env, "the virtual environment")
    env["VIRTUAL_ENV"] = folder
    env["PATH"] = _prepend(os.path.join(folder, "bin"), env.get("PATH", os.defpath))
    return env


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


def enter_conda(value: str, env: Dict[str, str], cwd: str, say: Say) -> Dict[str, str]:
    """By `conda activate`; by its folder where that is known or conda itself is not there."""
    if is_folder_name(value):
        return _enter_conda_folder(value, env, cwd)
    script = find_conda_script(env)
    if script is None:
        folder = find_environment_folder(value, env)
        if folder is None:
            raise NotReady(
                f"conda is not found on {os.uname().nodename}, nor an environment named {value}: looked for "
                f"etc/profile.d/conda.sh and envs/{value} in {', '.join(find_roots(env))}"
            )
        say(f"conda itself is not found; using {folder}")
        return _enter_conda_folder(folder, env, cwd)
    step = Step("conda", f". {shlex.quote(script)} && conda activate {shlex.quote(value)}")
    try:
        return run_shell([step], env, cwd).env
    except ShellFailed as failed:
        said = " ".join(failed.output.split())[:600] or failed.reason
        raise NotReady(f"conda environment {value} cannot be activated on {os.uname().nodename}: {said}") from None
    except OSError as error:
        raise NotReady(f"bash cannot be started on {os.uname().nodename}: {error.strerror}") from None


def _enter_conda_folder(folder: str, env: Dict[str, str], cwd: str) -> Dict[str, str]:
    env = _without(env, "PYTHONHOME", "VIRTUAL_ENV")
    check_python(folder, env, "the conda environment")
    env.update(CONDA_PREFIX=folder, CONDA_DEFAULT_ENV=folder)
    env["PATH"] = _prepend(os.path.join(folder, "bin"), env.get("PATH", os.defpath))
    scripts = os.path.join(folder, "etc", "conda", "activate.d")
    try:
        names = sorted(name for name in os.listdir(scripts) if name.endswith(".sh"))
    except OSError:
        return env
    steps = [Step(name, f". {shlex.quote(os.path.join(scripts, name))}\ntrue") for name in names]
    try:
        return run_shell(steps, env, cwd).env if steps else env
    except (ShellFailed, OSError) as error:
        raise NotReady(f"the conda environment {folder} cannot be activated: {error}") from None


def _build(asked: Mapping[str, Any], env: Dict[str, str], store: NodeStore, say: Say) -> str:
    build = asked["build"]
    recipe = Recipe(build, build["root"], env)
    if asked["place"] != "node":
        return make_environment(recipe, say)
    folder = make_on_node(recipe, store, say, build["wheels_only"])
    local = env.get("SLURM_TMPDIR")
    if not local or not os.path.isdir(local):
        return folder
    link = os.path.join(local, "env")
    try:
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(folder, link)
        return link
    except OSError:
        return folder


def _without(env: Mapping[str, str], *names: str) -> Dict[str, str]:
    return {name: value for name, value in env.items() if name not in names}


def _prepend(folder: str, path: str) -> str:
    rest = [part for part in path.split(os.pathsep) if part and part != folder]
    return os.pathsep.join([folder, *rest])


# -- lines of the user's


def _run_setup(lines: Sequence[str], env: Dict[str, str], cwd: str, with_module: bool) -> Dict[str, str]:
    if not lines:
        return env
    steps = [Step("module", _FIND_MODULE + "\ntrue")] if with_module else []
    steps.append(Step("setup", "\n".join(lines), strict=True))
    try:
        return run_shell(steps, env, cwd).env
    except ShellFailed as failed:
        text = "\n".join(lines).split("\n")
        place = f"line {failed.line} of `setup`" if failed.line else "`setup`"
        named = f" ({text[failed.line - 1].strip()})" if 0 < failed.line <= len(text) else ""
        said = failed.output.strip()[-600:]
        raise NotReady(f"{place}{named} {failed.reason}" + (f": {said}" if said else "")) from None
    except OSError as error:
        raise NotReady(f"bash cannot be started on {os.uname().nodename}: {error.strerror}") from None


def _prefer_frozen_code(asked: Mapping[str, Any], env: Dict[str, str], config: AgentConfig) -> Dict[str, str]:
    """Where the environment has the project installed as it is edited, let the copy of submission go before it."""
    if not asked["editable"] or config.project_dir == asked["project"]:
        return env
    folders = [os.path.normpath(os.path.join(config.project_dir, folder)) for folder in asked["editable"]]
    known = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
    return {**env, "PYTHONPATH": os.pathsep.join([*folders, *known])}


# -- what it was


def _record(asked: Mapping[str, Any], env: Dict[str, str], say: Say) -> str:
    """Keep with the study what trials are executed with. Returns it in words."""
    modules = [name for name in env.get("LOADEDMODULES", "").split(":") if name]
    parts = [f"{asked['kind']} {asked['value']}".strip()] if asked["kind"] else []
    python = find_python(env)
    if python is not None:
        try:
            wanted = {name: asked[name] for name in ("kind", "value", "modules", "setup", "digest")}
            found = record_environment(asked["record"], wanted, python, env, modules, say)
        except PythonFailed as error:
            raise NotReady(f"{python} does not run on {os.uname().nodename}: {error}") from None
        parts.append(f"Python {found['python']} in {found['prefix']}")
    if modules:
        parts.append(f"modules {' '.join(modules)}")
    return ", ".join(parts) or "as set up"
