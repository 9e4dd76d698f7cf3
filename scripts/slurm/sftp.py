"""Serves a folder over SFTP without encryption, for sshfs's `directport`: one sftp-server a connection.

    sftp.py ADDRESS PORT FOLDER

Returns once it listens; the server goes on in the background.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

PROGRAMS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
)


def main(address: str, port: str, folder: str) -> None:
    listener = socket.create_server((address, int(port)))
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir(folder)
    program = next(path for path in PROGRAMS if os.access(path, os.X_OK))
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # nobody waits for the servers of connections that are closed
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
            os.execv(program, [program, "-e"])
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
