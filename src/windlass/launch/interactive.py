"""The command line that gets an interactive job with a study's needs. Pure."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from windlass.counted import counted
from windlass.launch import idle
from windlass.launch.script import identity_options, merge_options, size_options
from windlass.model import Request
from windlass.slurm.options import render_time

SHELL_NAME = "windlass-shell"  # of every interactive job of ours: that is how a second one is noticed
# What belongs to batch jobs alone.
_BATCH_ONLY = ("array", "output", "error", "open-mode", "requeue", "no-requeue", "mail-type", "mail-user", "wrap")


def with_idle_warning(program: Sequence[str], limit_s: float, request: Request) -> list[str]:
    """The program, with a process beside it that warns in the terminal when nothing has run for so long.

    Where that process cannot be started, the program is there all the same.
    """
    watcher = [sys.executable, "-I", os.path.abspath(idle.__file__), f"{limit_s:g}", describe_held(request)]
    return ["/bin/sh", "-c", f'{shlex.join(watcher)} </dev/null & exec "$@"', "sh", *program]


def describe_held(request: Request) -> str:
    """What a job keeps others from using."""
    gpus = f"{counted(request.gpus, 'GPU')} and " if request.gpus else ""
    nodes = f" on each of {request.nodes} nodes" if request.nodes > 1 else ""
    return f"{gpus}{counted(request.cpus, 'core')}{nodes}"


def render_salloc(request: Request, time_s: float, program: Sequence[str]) -> list[str]:
    """The words of salloc, and of the srun that puts the program on the node with a terminal."""
    own: dict[str, Any] = {**identity_options(request), **size_options(request), "time": render_time(time_s)}
    own["job-name"] = SHELL_NAME
    further = {name: value for name, value in request.options.items() if name.strip("-") not in _BATCH_ONLY}
    words = ["salloc"]
    for name, value in merge_options(own, further).items():
        text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        words.append(f"--{name}" if value is True else f"--{name}={text}")
    return [*words, "srun", f"--cpus-per-task={request.cpus}", "--pty", *program]
