"""Starts one agent on this machine."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile

from windlass.launch._shell import start_detached
from windlass.paths import StudyPaths
from windlass.verified import agent_command, read_digest


class LocalAgents:
    """The agent of this machine. A socket between us tells each when the other has died: it is closed then."""

    def __init__(self, folder: str, slots: int) -> None:
        self._socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        paths = StudyPaths(folder)
        arguments = [folder, "--slots", str(slots), "--launcher-fd", str(theirs.fileno()), "--linger"]
        words = agent_command(sys.executable, paths.agent, read_digest(paths), arguments)
        try:
            self._process = start_detached(words, [theirs.fileno()], self._errors.fileno())
        finally:
            theirs.close()

    def wait(self, patience_s: float) -> int | None:
        if select.select([self._socket], [], [], patience_s)[0]:
            return self._process.wait()
        return None

    def drain(self) -> None:
        self._signal(signal.SIGINT)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def warn(self) -> None:
        """Tell it what the end of a job's time would."""
        self._signal(signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def complaints(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode("utf-8", "replace")

    def close(self) -> None:
        self._socket.close()
        self._process.wait()
        self._errors.close()


class LocalLauncher:
    name = "local"

    def launch(self, folder: str, slots: int) -> LocalAgents:
        return LocalAgents(folder, slots)
