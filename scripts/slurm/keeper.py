"""Holds one node: starts slurmd, adopts whatever it leaves behind, and starts it again on SIGUSR1.

    keeper.py plain COMMAND...
    keeper.py apart HOSTNAME HOSTS_FILE LOCAL_FOLDER COMMAND...

`apart` is run as the first process of namespaces of its own: it takes the hostname, the hosts file and an empty local
folder. All processes of the node's jobs stay below this one, however they detach themselves: so all can be ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

PR_SET_CHILD_SUBREAPER = 36
AWAITED = {signal.SIGCHLD, signal.SIGUSR1}


def mount(*words: str) -> None:
    if os.spawnvp(os.P_WAIT, "mount", ["mount", *words]) != 0:
        sys.exit(f"mount {' '.join(words)} failed")


def set_apart(hostname: str, hosts: str, local: str) -> None:
    socket.sethostname(hostname)
    mount("-t", "proc", "proc", "/proc")
    mount("--bind", hosts, "/etc/hosts")
    mount("-t", "tmpfs", "-o", "mode=1777", "windlass", local)


def reap() -> tuple[dict[int, int], bool]:
    """Collect every child that has ended, with its status. Also: is any left?"""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def main(words: list[str]) -> None:
    if words[0] == "apart":
        set_apart(*words[1:4])
        command = words[4:]
    else:
        command = words[1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)

    def start() -> int:
        return os.posix_spawnp(command[0], command, os.environ, setsigmask=())

    slurmd = start()
    while True:
        received = signal.sigwait(AWAITED)
        ended, others = reap()
        if slurmd in ended:
            if os.WIFEXITED(ended[slurmd]) and not others:
                sys.exit("slurmd gave up")
            slurmd = 0
        if received == signal.SIGUSR1 and slurmd == 0:
            slurmd = start()


if __name__ == "__main__":
    main(sys.argv[1:])
