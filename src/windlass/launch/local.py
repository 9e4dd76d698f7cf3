"""Starts one agent on this machine."""

from __future__ import annotations

import os
import signal
import sys
import tempfile

from windlass.launch._shell import start_detached
from windlass.paths import StudyPaths


class LocalAgents:
    """The agent of this machine. When this process dies, so does the agent: it holds the other end of a pipe."""

    def __init__(self, folder: str, slots: int) -> None:
        reading, self._held = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        words = [sys.executable, "-I", StudyPaths(folder).agent, folder]
        words += ["--slots", str(slots), "--launcher-fd", str(reading), "--linger"]
        try:
            self._process = start_detached(words, [reading], self._errors.fileno())
        finally:
            os.close(reading)

    def poll(self) -> int | None:
        return self._process.poll()

    def drain(self) -> None:
        self._signal(signal.SIGINT)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def complaints(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode("utf-8", "replace")

    def close(self) -> None:
        os.close(self._held)
        self._process.wait()
        self._errors.close()


class LocalLauncher:
    name = "local"

    def launch(self, folder: str, slots: int) -> LocalAgents:
        return LocalAgents(folder, slots)
