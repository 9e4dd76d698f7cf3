"""Lines of the user's, executed by a shell after all else. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, Sequence

from windlass.core.errors import NotReady
from windlass.environments.base import EnvironmentKind, Findings, Node, Variables, Wanted
from windlass.environments.shared.shell import FIND_MODULE, ShellFailed, Step, run_shell


class Setup(EnvironmentKind):
    """Whatever these lines export, trials get. They are executed on the node only."""

    name = "setup"
    layer = 2

    def is_wanted(self, wanted: Wanted) -> bool:
        return bool(wanted.setup)

    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        return Findings([], env)

    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        return run_setup(wanted.setup, env, node.workdir, bool(wanted.modules))


def run_setup(
    lines: Sequence[str], env: Dict[str, str], cwd: str, with_module: bool
) -> Dict[str, str]:
    """The variables after these lines. Raises NotReady, which names the line that failed."""
    steps = [Step("module", FIND_MODULE + "\ntrue")] if with_module else []
    steps.append(Step("setup", "\n".join(lines), strict=True))
    try:
        return run_shell(steps, env, cwd).env
    except ShellFailed as failed:
        text = "\n".join(lines).split("\n")
        place = f"line {failed.line} of `setup`" if failed.line else "`setup`"
        named = f" ({text[failed.line - 1].strip()})" if 0 < failed.line <= len(text) else ""
        printed = failed.output.strip()[-600:]
        raise NotReady(
            f"{place}{named} {failed.reason}" + (f": {printed}" if printed else "")
        ) from None
    except OSError as error:
        raise NotReady(
            f"bash cannot be started on {os.uname().nodename}: {error.strerror}"
        ) from None


MEMBER = Setup
