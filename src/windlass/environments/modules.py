"""Modules of the site, by `module load`. Python 3.9, standard library."""

from __future__ import annotations

import os
import re
import shlex
from typing import List, Sequence

from windlass.core.errors import NotReady
from windlass.environments.base import (
    EnvironmentKind,
    Findings,
    Node,
    Say,
    Trouble,
    Variables,
    Wanted,
)
from windlass.environments.shared.shell import FIND_MODULE, ShellFailed, Step, run_shell

_HAS_MODULE = "type module >/dev/null 2>&1"


class Modules(EnvironmentKind):
    """They come before everything else, because a Python or a compiler may be among them."""

    name = "modules"
    layer = 0

    def is_wanted(self, wanted: Wanted) -> bool:
        return bool(wanted.modules)

    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        """Load the modules once. Each that does not load is reported, and the others are tried without it.

        Where this machine has no `module` command, nothing is known and nothing is reported.
        """
        modules = list(wanted.modules)
        troubles: List[Trouble] = []
        if not has_module_command(env):
            return Findings([], env)
        while modules:
            try:
                return Findings(troubles, load_modules(modules, env, "/", lambda _: None))
            except NotReady as missing:
                name = str(missing).split()[1]
                if name not in modules:
                    return Findings([*troubles, Trouble("modules", str(missing))], env)
                troubles.append(
                    Trouble("modules", str(missing), "`module avail` lists what there is")
                )
                modules.remove(name)
        return Findings(troubles, env)

    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        return load_modules(wanted.modules, env, node.workdir, node.say)


def load_modules(modules: Sequence[str], base: Variables, cwd: str, say: Say) -> Variables:
    """The environment with these modules loaded. Raises NotReady with a missing module's own message."""
    if not modules:
        return base
    steps = [Step("module", FIND_MODULE + _HAS_MODULE)]
    steps += [Step(name, f"module load {shlex.quote(name)}") for name in modules]
    try:
        done = run_shell(steps, base, cwd)
    except ShellFailed as failed:
        if failed.step > 0:
            raise NotReady(
                _module_message(modules[failed.step - 1], failed.output or failed.reason)
            ) from None
        if base.get("SLURM_JOB_ID"):
            raise NotReady(
                f"there is no `module` command on {os.uname().nodename} to load {', '.join(modules)} with: "
                "looked for $LMOD_PKG/init/bash, $MODULESHOME/init/bash and /etc/profile.d/{lmod,modules}.sh"
            ) from None
        say(f"there is no `module` command here: {', '.join(modules)} not loaded")
        return base
    except OSError as error:
        raise NotReady(
            f"bash cannot be started on {os.uname().nodename}: {error.strerror}"
        ) from None
    for number, name in enumerate(modules, start=1):
        output = done.outputs[number]
        if re.search(r":ERROR:\d+:", output):  # old ones say so and end with 0
            raise NotReady(_module_message(name, output))
    return done.env


def has_module_command(env: Variables) -> bool:
    """Whether `module` can be had in a shell that is no login shell."""
    try:
        run_shell([Step("module", FIND_MODULE + _HAS_MODULE)], env, "/")
        return True
    except (ShellFailed, OSError):
        return False


def _module_message(name: str, output: str) -> str:
    printed = " ".join(output.split())
    return f"module {name} cannot be loaded on {os.uname().nodename}: {printed[:600]}"


MEMBER = Modules
