"""Asks one of Slurm's commands a question. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional, Sequence

from windlass.core.processes import ask as run

TIMEOUT_S = 30.0  # a controller that is down makes the commands give up after 9 to 18 s
# The user's own defaults for these commands would filter or reshape what they print.
_SHAPING = (
    "SQUEUE_",
    "SACCT_",
    "SINFO_",
    "SCONTROL_",
    "SCANCEL_",
    "SLURM_BITSTR_LEN",
    "SLURM_TIME_FORMAT",
)


def plain_environment(more: Mapping[str, str]) -> Dict[str, str]:
    """This process's environment without what changes the form of answers, and with `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SHAPING)}
    return {**kept, **more}


def ask(argv: Sequence[str], env: Mapping[str, str]) -> Optional[str]:
    """What the command prints; None where it cannot be run, fails, or does not answer in time."""
    answer = run(argv, TIMEOUT_S, env=plain_environment(env))
    return answer.text if answer.ok else None
