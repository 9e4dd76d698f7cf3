"""Holds one node: starts slurmd, adopts whatever it leaves behind, and starts it again on SIGUSR1.

    keeper.py plain COMMAND...
    keeper.py apart HOSTNAME HOSTS_FILE LOCAL_FOLDER SHARED_FOLDERS COMMAND...

`apart` is run as the first process of namespaces of its own: it takes the hostname and the hosts file, and its local
folder and all temporary folders are empty file systems of its own. SHARED_FOLDERS, separated by colons, are what the
nodes of a real cluster have in common: they stay visible, also where they lie below a temporary folder. All processes
of the node's jobs stay below this one, however they detach themselves: so all can be ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
MS_BIND, MS_REC = 4096, 16384
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
AWAITED = {signal.SIGCHLD, signal.SIGUSR1}


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    if LIBC.mount(*words, ctypes.c_ulong(flags), options.encode() or None) != 0:
        sys.exit(f"{target} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def mount_empty(folder: str) -> None:
    mount("windlass", folder, "tmpfs", options="mode=1777")


def set_apart(hostname: str, hosts: str, local: str, shared: str) -> None:
    here = os.getcwd()
    socket.sethostname(hostname)
    mount("proc", "/proc", "proc")
    mount(hosts, "/etc/hosts", flags=MS_BIND)
    # A shared folder below a temporary one is opened before it is hidden, and bound to its place afterwards.
    hidden = [folder for folder in shared.split(":") if folder.startswith(tuple(f"{root}/" for root in TEMPORARY))]
    opened = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in hidden}
    for root in TEMPORARY:
        if os.path.isdir(root):
            mount_empty(root)
    for folder, descriptor in opened.items():
        os.makedirs(folder, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", folder, flags=MS_BIND | MS_REC)
        os.close(descriptor)
    mount_empty(local)
    os.chdir(here)  # the folder that is visible now, not the one below it


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
        set_apart(*words[1:5])
        command = words[5:]
    else:
        command = words[1:]
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
