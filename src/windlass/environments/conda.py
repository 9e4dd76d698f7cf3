"""A conda environment that is there already, by its name or its folder. Python 3.9, standard library."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import Dict, Mapping, Optional

from windlass.core.errors import NotReady
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
from windlass.environments.shared.conda import (
    find_conda_script,
    find_environment_folder,
    find_roots,
    is_folder_name,
    list_environment_names,
)
from windlass.environments.shared.python_folder import check_python, find_editable, prepend, without
from windlass.environments.shared.shell import ShellFailed, Step, run_shell


class Conda(EnvironmentKind):
    """Its name is looked up on the node; conda itself need not be known to the shell there."""

    name = "conda"
    keys = (Key("conda", "text", "Name or folder of a conda environment.", "torch"),)

    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        """Whether the environment exists on this machine, found by its name or its folder; nothing is activated."""
        value = wanted.value
        if is_folder_name(value):
            try:
                check_python(wanted.expand(value), env, "the conda environment")
            except NotReady as missing:
                return Findings([Trouble("conda", str(missing))], env)
            return Findings([], env)
        if find_environment_folder(value, env) is not None:
            return Findings([], env)
        names = list_environment_names(env)
        if find_conda_script(env) is None and not names:
            places = ", ".join(find_roots(env))
            message = f"conda is not found: looked for etc/profile.d/conda.sh in {places}"
            return Findings([Trouble("conda", message)], env)
        hint = f"there are: {', '.join(names)}" if names else f"conda create --name {value} python"
        return Findings(
            [Trouble("conda", f"there is no conda environment named {value}", hint)], env
        )

    def find_folder(self, wanted: Wanted, env: Mapping[str, str]) -> Optional[str]:
        if is_folder_name(wanted.value):
            return wanted.expand(wanted.value)
        return find_environment_folder(wanted.value, env)

    def render(self, wanted: Wanted, folders: Folders, env: Variables) -> Wanted:
        folder = self.find_folder(wanted, env)
        value = folder if folder is not None and is_folder_name(wanted.value) else wanted.value
        editable = [] if folder is None else find_editable(folder, wanted.project)
        return replace(wanted, value=value, editable=editable)

    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        return enter_conda(wanted.value, env, node.workdir, node.say)


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
        printed = " ".join(failed.output.split())[:600] or failed.reason
        raise NotReady(
            f"conda environment {value} cannot be activated on {os.uname().nodename}: {printed}"
        ) from None
    except OSError as error:
        raise NotReady(
            f"bash cannot be started on {os.uname().nodename}: {error.strerror}"
        ) from None


def _enter_conda_folder(folder: str, env: Dict[str, str], cwd: str) -> Dict[str, str]:
    env = without(env, "PYTHONHOME", "VIRTUAL_ENV")
    check_python(folder, env, "the conda environment")
    env.update(CONDA_PREFIX=folder, CONDA_DEFAULT_ENV=folder)
    env["PATH"] = prepend(os.path.join(folder, "bin"), env.get("PATH", os.defpath))
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


MEMBER = Conda
