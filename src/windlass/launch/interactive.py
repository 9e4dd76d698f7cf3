"""The command line that gets an interactive job with a study's needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.launch.script import identity_options, merge_options, size_options
from windlass.model import Request
from windlass.slurm.options import render_time

SHELL_NAME = "windlass-shell"  # of every interactive job of ours: that is how a second one is noticed
# What belongs to batch jobs alone.
_BATCH_ONLY = ("array", "output", "error", "open-mode", "requeue", "no-requeue", "mail-type", "mail-user", "wrap")


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
