"""Asks one of Slurm's commands a question. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional, Sequence

TIMEOUT_S = 30.0  # a controller that is down makes the commands give up after 9 to 18 s
# The user's own defaults for these commands would filter or reshape what they print.
_SHAPING = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_", "SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT")


def plain_environment(more: Mapping[str, str]) -> Dict[str, str]:
    """This process's environment without what changes the form of answers, and with `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SHAPING)}
    return {**kept, **more}


def ask(words: Sequence[str], env: Mapping[str, str]) -> Optional[str]:
    """What the command prints; None where it cannot be run, fails, or does not answer in time."""
    import subprocess  # brings many modules along, which a look at a study without jobs does not need

    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            env=plain_environment(env),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
