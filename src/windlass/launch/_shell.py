"""The only place outside the agent that starts processes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def fetch_text(words: Sequence[str], timeout_s: float = 20.0, cwd: str | None = None) -> str | None:
    """What a command prints on both streams, or None when it cannot be run. Its exit code does not matter."""
    try:
        done = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            cwd=cwd,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace")


def start_detached(words: Sequence[str], pass_descriptors: Sequence[int], errors: int) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that Ctrl-C in the terminal reaches only us."""
    return subprocess.Popen(
        list(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
        pass_fds=tuple(pass_descriptors),
    )
