"""A stand-in for nvidia-cuda-mps-control: daemonises, makes its socket, starts a server for the first client, obeys.

    nvidia-cuda-mps-control -d            the daemon; FAKE_MPS=refuse|silent makes that fail
    echo WORDS | nvidia-cuda-mps-control  get_server_list, quit, and of our own: client (answers the server's number)

The server ends of SIGUSR1 as of a client's fatal fault, and of SIGTERM in order.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))


def log(name: str, who: str, text: str) -> None:
    with open(LOGS / f"{name}.log", "a") as file:
        file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S.000')} {who} {os.getpid():5}] {text}\n")


def serve() -> None:
    """The server: waits for its end."""
    log(
        "server",
        "Server",
        f"Created server context on device {os.environ.get('CUDA_VISIBLE_DEVICES')}",
    )
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.sigwait({signal.SIGUSR1})
    log("server", "Server", "Volta MPS Server is handling a fatal GPU exception.")
    os._exit(1)


def start_server() -> int:
    """A process of the same program, as the real daemon starts its server with exec."""
    pid = os.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, __file__, "--server"])
    log("control", "Control", f"Starting new server {pid} for user {os.getuid()}")
    return pid


def listen(door: socket.socket) -> None:
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGUSR1}
    )  # servers inherit it: no signal comes too early
    servers: list[int] = []
    door.settimeout(0.02)
    while True:
        for pid in list(servers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                servers.remove(pid)
                log(
                    "control",
                    "Control",
                    f"Server {pid} exited with status {os.waitstatus_to_exitcode(status)}",
                )
        try:
            client, _ = door.accept()
        except TimeoutError:
            continue
        client.settimeout(5)
        word = client.recv(100).decode().strip()
        if word == "client" and not servers:
            servers.append(start_server())
        if word == "quit":
            for pid in servers:
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
            client.close()
            return
        client.sendall("".join(f"{pid}\n" for pid in servers).encode())
        client.close()


def daemonise() -> None:
    if os.environ.get("FAKE_MPS") == "refuse":
        sys.exit("An instance of this daemon is already running")
    if os.environ.get("FAKE_MPS") == "silent":
        log("control", "Control", "Failed to start : operation not supported")
        return
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(PIPES / "control"))
    door.listen(16)
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    log("control", "Control", f"Starting control daemon using socket {PIPES}/control")
    listen(door)
    os._exit(0)


def ask(word: str) -> None:
    door = socket.socket(socket.AF_UNIX)
    try:
        door.connect(str(PIPES / "control"))
    except OSError:
        print("Cannot find MPS control daemon process")
        sys.exit(1)
    door.sendall(word.encode())
    while data := door.recv(1000):
        sys.stdout.write(data.decode())


if __name__ == "__main__":
    if sys.argv[1:] == ["-d"]:
        daemonise()
    elif sys.argv[1:] == ["--server"]:
        serve()
    else:
        ask(sys.stdin.readline())
