"""Holds one node: starts slurmd, adopts whatever it leaves behind, and starts it again on SIGUSR1.

    keeper.py plain COMMAND...
    keeper.py apart HOSTNAME HOSTS_FILE LOCAL_FOLDER SHARED_FOLDERS MOUNT COMMAND...
    keeper.py mount MOUNT
    keeper.py network ADDRESS READY_FILE

`apart` is run as the first process of namespaces of its own: it takes the hostname and the hosts file, and its local
folder and all temporary folders are empty file systems of its own. SHARED_FOLDERS, separated by colons, are what the
nodes of a real cluster have in common: they stay visible, also where they lie below a temporary folder. All processes
of the node's jobs stay below this one, however they detach themselves: so all can be ended.

MOUNT is empty, or a JSON object: the network file system that the node mounts. `words` are the network namespace in
which its client runs, the mount point, and the command; `hidden` is the servers' own folder, which no node may see.
`mount` mounts it where it is started and holds its client. `network` is run as the first process of namespaces of its
own and holds the servers of such a file system: it gives their network an address and adopts them.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
MS_BIND, MS_REC, MNT_DETACH = 4096, 16384, 2
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, IFF_UP = 0x8914, 0x8916, 0x891C, 1
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
AWAITED = {signal.SIGCHLD, signal.SIGUSR1}


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    if LIBC.mount(*words, ctypes.c_ulong(flags), options.encode() or None) != 0:
        sys.exit(f"{target} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def mount_empty(folder: str) -> None:
    mount("windlass", folder, "tmpfs", options="mode=1777")


def mount_network_file_system(network: int, folder: str, words: list[str]) -> None:
    """Start the client in the network of its servers. It goes on in the background, below this process."""
    while LIBC.umount2(folder.encode(), MNT_DETACH) == 0:
        pass  # namespaces begin with a copy of all mounts: this node's own one takes the place of another's
    command = ["nsenter", f"--net=/proc/self/fd/{network}", *words]
    done = subprocess.run(command, pass_fds=[network], stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        sys.exit(f"{folder} cannot be mounted: {words[0]} ended with {done.returncode}")


def set_apart(hostname: str, hosts: str, local: str, shared: str, scratch: str) -> None:
    here = os.getcwd()
    wanted = json.loads(scratch) if scratch else None
    # The name of the network below /proc belongs to the machine's process numbers, not to this node's.
    network = os.open(wanted["words"][0], os.O_RDONLY) if wanted else -1
    socket.sethostname(hostname)
    mount("proc", "/proc", "proc")
    mount(hosts, "/etc/hosts", flags=MS_BIND)
    # A shared folder below a temporary one is opened before it is hidden, and bound to its place afterwards.
    hidden = [
        folder
        for folder in shared.split(":")
        if folder.startswith(tuple(f"{root}/" for root in TEMPORARY))
    ]
    opened = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in hidden}
    for root in TEMPORARY:
        if os.path.isdir(root):
            mount_empty(root)
    for folder, descriptor in opened.items():
        os.makedirs(folder, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", folder, flags=MS_BIND | MS_REC)
        os.close(descriptor)
    mount_empty(local)
    if wanted:
        mount_network_file_system(network, wanted["words"][1], wanted["words"][2:])
        os.close(network)
        mount_empty(wanted["hidden"])
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


def give_address(address: str) -> None:
    """Bring the loopback device of this network namespace up, with an address that is not one of loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def request(number: int, device: bytes, content: bytes) -> None:
            fcntl.ioctl(control, number, struct.pack("16s24s", device, content))

        def name(of: str) -> bytes:
            return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(of))

        request(SIOCSIFFLAGS, b"lo", struct.pack("H", IFF_UP))
        request(SIOCSIFADDR, b"lo:1", name(address))
        request(SIOCSIFNETMASK, b"lo:1", name("255.255.255.255"))


def hold(others: bool) -> None:
    """Adopt what descendants leave behind: with `others` for ever, else until none is left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    while reap()[1] or others:
        signal.sigwait(AWAITED)
    sys.exit("the client of the file system ended")


def count_children() -> int:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return len(file.read().split())


def hold_slurmd(command: list[str]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    clients = count_children()  # of the network file system, where the node has one

    def start() -> int:
        return os.posix_spawnp(command[0], command, os.environ, setsigmask=())

    slurmd = start()
    while True:
        received = signal.sigwait(AWAITED)
        ended, others = reap()
        if slurmd in ended:
            if os.WIFEXITED(ended[slurmd]) and (not others or count_children() <= clients):
                sys.exit("slurmd gave up")
            slurmd = 0
        if received == signal.SIGUSR1 and slurmd == 0:
            slurmd = start()


def main(words: list[str]) -> None:
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if words[0] == "network":
        mount("proc", "/proc", "proc")
        give_address(words[1])
        with open(words[2], "w"):
            pass
        hold(others=True)
    elif words[0] == "mount":
        wanted = json.loads(words[1])["words"]
        mount_network_file_system(os.open(wanted[0], os.O_RDONLY), wanted[1], wanted[2:])
        hold(others=False)
    elif words[0] == "apart":
        set_apart(*words[1:6])
        hold_slurmd(words[6:])
    else:
        hold_slurmd(words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
