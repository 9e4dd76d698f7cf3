"""Nodes on one machine that share nothing but a folder: each has its own mount of it, host name and process numbers.

The folder is served by sshfs with a private sftp-server for each mount, so neither keys nor a network are needed. A
mount hangs when its sshfs process is stopped, and gives errors while its server is away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.conftest import wait_for

SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
)

# The first process of a node: sets the host name, has the folder mounted, and reaps what becomes its child.
INIT = """
import os, socket, subprocess, sys, time
name, mount, *words = sys.argv[1:]
socket.sethostname(name)
process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
while not os.path.ismount(mount):
    if process.poll() is not None:
        sys.exit(f"the mount ended with {process.returncode}")
    time.sleep(0.02)
print("ready", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(1)
"""


def why_no_mounts() -> str:
    """What keeps this machine from having such nodes; "" where nothing does."""
    if os.geteuid() != 0:
        return "mounts need root"
    if shutil.which("sshfs") is None or not any(map(os.path.exists, SERVERS)):
        return "sshfs or sftp-server is not installed"
    if not os.path.exists("/dev/fuse"):
        return "no /dev/fuse"
    probe = ["unshare", "-m", "-u", "-p", "-f", "--mount-proc", "--propagation", "private", "true"]
    return (
        ""
        if subprocess.run(probe, check=False, capture_output=True).returncode == 0
        else "no namespaces"
    )


class Node:
    """One node: processes started here see the shared folder at `Shared.mount`."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.name = name
        self._own = shared.root / name
        for part in ("home", "tmp"):
            (self._own / part).mkdir(parents=True)
        words = [
            "sshfs",
            "-f",
            "-o",
            f"ssh_command={shared.connect},reconnect,{shared.options}",
            f"x:{shared.data}",
        ]
        init = [sys.executable, "-c", INIT, name, str(shared.mount), *words, str(shared.mount)]
        namespaces = [
            "-m",
            "-u",
            "-p",
            "-f",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ]
        self._outer = subprocess.Popen(
            ["unshare", *namespaces, *init],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # sshfs writes a line for each call while its server is away
            start_new_session=True,
        )
        assert self._outer.stdout is not None and self._outer.stdout.readline() == b"ready\n", (
            "the mount failed"
        )
        (self._init,) = _children(self._outer.pid)
        self.client = next(pid for pid in _children(self._init) if _name_of(pid) == "sshfs")
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, words: Sequence[str], env: Mapping[str, str], cwd: Path
    ) -> subprocess.Popen[str]:
        own = {"HOME": str(self._own / "home"), "TMPDIR": str(self._own / "tmp")}
        enter = ["nsenter", "-t", str(self._init), "-m", "-u", "-p", f"--wd={cwd}", "--"]
        process = subprocess.Popen(
            [*enter, *words],
            env={**env, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def stop_mount(self) -> None:
        """From now on every call on the shared folder hangs."""
        os.kill(self.client, signal.SIGSTOP)

    def continue_mount(self) -> None:
        os.kill(self.client, signal.SIGCONT)

    def cut_server(self) -> None:
        """Calls on the shared folder give errors, until the server may come back: see `Shared.away`."""
        for pid in _children(self._init):  # sshfs leaves its server to the node's first process
            if _name_of(pid) == "sftp-server":
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.continue_mount()
        with contextlib.suppress(OSError):
            os.kill(self._init, signal.SIGKILL)
        for process in (self._outer, *self.processes):
            process.wait(timeout=60)
            if process.stdout is not None:
                process.stdout.close()


class Shared:
    """A folder, and the nodes that have it mounted."""

    def __init__(self, root: Path, options: str = "dir_cache=no") -> None:
        self.root = root
        self.options = options
        self.data, self.mount = root / "data", root / "mnt"
        self.data.mkdir(parents=True)
        self.mount.mkdir()
        self.away = root / "away"  # while this file is there, no server can be reached
        self.connect = root / "connect"
        server = next(path for path in SERVERS if os.path.exists(path))
        self.connect.write_text(
            f'#!/bin/sh\n[ -e "{self.away}" ] && exit 1\nexec {server} -e 2>/dev/null\n'
        )
        self.connect.chmod(0o700)
        self.nodes: list[Node] = []

    def add_node(self, name: str) -> Node:
        node = Node(self, name)
        self.nodes.append(node)
        return node

    @contextlib.contextmanager
    def server_away(self) -> Iterator[None]:
        """For all nodes."""
        self.away.touch()
        for node in self.nodes:
            node.cut_server()
        try:
            yield
        finally:
            self.away.unlink()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in wait_for(lambda: path.read_text().split(), 60)]


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
