"""A folder mounted by a real network file system: sshfs, with an sftp-server of its own and without ssh."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_for

SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/lib/sftp-server",
    "/usr/libexec/openssh/sftp-server",
)


def away_mark(mount: Path) -> Path:
    """While this file exists no server answers the mount."""
    return mount.with_suffix(".away")


def _server_of(mount: Path) -> Path:
    """Holds the process number of the server."""
    return mount.with_suffix(".server")


@contextlib.contextmanager
def sshfs(data: Path, mount: Path, *options: str) -> Iterator[Path]:
    """The folder `data`, mounted once more by a real network file system, with a server of its own."""
    server = next((path for path in SERVERS if os.access(path, os.X_OK)), None)
    if shutil.which("sshfs") is None or server is None or not os.path.exists("/dev/fuse"):
        pytest.skip("sshfs, sftp-server and /dev/fuse are needed")
    mount.mkdir()
    only = mount.with_suffix(".sh")
    only.write_text(
        f"#!/bin/sh\n[ -e '{away_mark(mount)}' ] && exit 1\necho $$ > '{_server_of(mount)}'\nexec {server}\n"
    )
    only.chmod(0o700)
    words = [
        "sshfs",
        "-f",
        "-o",
        ",".join([f"ssh_command={only}", *options]),
        f"x:{data}",
        str(mount),
    ]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        wait_for(lambda: os.path.ismount(mount) or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip(f"sshfs cannot mount here: {process.stderr.read().strip()}")
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False, stderr=subprocess.DEVNULL)
        process.kill()
        process.wait()
        process.stderr.close()


def take_server_away(mount: Path) -> None:
    """End the server of a mount that has the option `reconnect`. All calls fail until `bring_server_back`."""
    away_mark(mount).touch()
    os.kill(int(_server_of(mount).read_text()), signal.SIGKILL)


def bring_server_back(mount: Path) -> None:
    away_mark(mount).unlink()
