"""A second process that ends the trials if the agent is killed without a chance to do so. Python 3.9.

The guard holds the reading end of a pipe whose writing end only the agent has. When the agent dies, of whatever
cause, the guard reads the end of file, ends everything that the agent had started, and goes.
"""

from __future__ import annotations

import os
import signal
from typing import Tuple

from windlass.agent.sweep import release_folder, salvage
from windlass.claims.strays import AGENT_VARIABLE, end_strays


def start_guard(agent: str, runtime_folder: str) -> Tuple[int, int]:
    """Fork the guard. Returns its process number and the descriptor whose closing sets it off."""
    reading, writing = os.pipe()
    agent_pid = os.getpid()
    pid = os.fork()
    if pid:
        os.close(reading)
        return pid, writing
    status = 1
    try:
        os.close(writing)
        _watch(agent, agent_pid, runtime_folder, reading)
        status = 0
    finally:
        os._exit(status)


def _watch(agent: str, agent_pid: int, runtime_folder: str, reading: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    _release_descriptors(reading)
    ended_in_order = os.read(reading, 1) == b"q"
    if not ended_in_order:
        end_strays(AGENT_VARIABLE, agent)
        local = os.environ.get("SLURM_TMPDIR", "")
        if local and local != runtime_folder:
            salvage(local)
        # Where there is no time for that any more, the next agent on this node does it.
        release_folder(runtime_folder)


def _release_descriptors(kept: int) -> None:
    """Hold on to nothing of the agent's: a pipe to the launcher kept open here would hide the agent's death."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, 1024)


def release_guard(pid: int, writing: int) -> None:
    """The agent has cleaned up itself: the guard may go."""
    try:
        os.write(writing, b"q")
        os.close(writing)
        os.waitpid(pid, 0)
    except OSError:
        pass
