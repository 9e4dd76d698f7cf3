"""Runs `windlass` for tests in processes forked from one that has imported it already.

A command of the suite spends most of its time on imports, and the suite starts thousands. Each still is a process of its
own with its own folder, environment, streams and exit code. `Project.start` and `Project.run(..., fresh=True)` start a
new interpreter, as a user does.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent
_REQUEST_BYTES = 1 << 20
_AT_START = (
    "PYTHON",
    "LC_",
    "LANG",
    "LD_",
    "TZ",
    "MALLOC",
)  # variables that an interpreter reads when it starts


class Preloaded:
    """The client's side: one server a test process, started when it is first needed."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
        self._socket = ours
        self._env = dict(os.environ)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", str(theirs.fileno())],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self._socket.close)

    def fits(self, env: Mapping[str, str]) -> bool:
        """Whether `env` has nothing that only a new interpreter would heed."""
        names = {name for name in (*env, *self._env) if name.startswith(_AT_START)}
        return all(env.get(name) == self._env.get(name) for name in names)

    def run(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Return exit code, output and errors of one command."""
        outputs = [os.pipe() for _ in range(3)]  # output, errors, and the server's answer
        request = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode(
            "utf-8", "surrogateescape"
        )
        try:
            socket.send_fds(self._socket, [request], [writer for _, writer in outputs])
        finally:
            for _, writer in outputs:
                os.close(writer)
        read = _read_all([reader for reader, _ in outputs], time.monotonic() + timeout, words)
        lines = read[2].split()
        assert len(lines) == 2, f"the server for tests has ended: {read[2]!r}"
        return int(lines[1]), read[0], read[1]


def _read_all(readers: list[int], deadline: float, words: Sequence[str]) -> list[bytes]:
    """Read until the end of each; the last one begins with the process that is ended when time is up."""
    parts: dict[int, bytearray] = {reader: bytearray() for reader in readers}
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                with contextlib.suppress(ValueError, IndexError, ProcessLookupError):
                    os.kill(int(parts[readers[2]].split()[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired(
                    list(words), 0, bytes(parts[readers[0]]), bytes(parts[readers[1]])
                )
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                parts[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [bytes(part) for part in parts.values()]


_server: Preloaded | None = None
_lock = threading.Lock()


def get_server() -> Preloaded:
    global _server  # noqa: PLW0603
    with _lock:
        if _server is None:
            _server = Preloaded()
        return _server


def serve(number: int) -> None:
    """Fork for each request until the tests close their end of the socket."""
    _import_all()
    requests = socket.socket(fileno=number)
    answers: dict[
        int, tuple[int, int]
    ] = {}  # file descriptor of a process → its number, where to answer
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd != requests.fileno():
                    selector.unregister(key.fd)
                    _answer(key.fd, *answers.pop(key.fd))
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
                if not message:
                    return
                pid = os.fork()
                if pid == 0:
                    _become(json.loads(message), descriptors)
                os.close(descriptors[0])
                os.close(descriptors[1])
                os.write(descriptors[2], b"%d\n" % pid)
                watched = os.pidfd_open(pid)
                answers[watched] = (pid, descriptors[2])
                selector.register(watched, selectors.EVENT_READ)


def _answer(watched: int, pid: int, answer: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(answer)
    os.close(watched)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """In the child: be the command that was asked for, and never return."""
    code = 1
    try:
        for source, target in zip(descriptors, (1, 2), strict=False):
            os.dup2(source, target)
        os.closerange(3, 256)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.path[0] = request["cwd"]
        sys.argv = ["windlass", *request["words"]]
        sys.stdin = open(0)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors=sys.stdout.errors)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        code = _call_main()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


def _call_main() -> int:
    from windlass.cli import main

    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _import_all() -> None:
    from windlass.cli import VERBS

    for verb in VERBS:
        importlib.import_module(f"windlass.cli.{verb.replace('-', '_')}")
    importlib.import_module("windlass.flow")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
