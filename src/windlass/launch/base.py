"""What every way of starting agents offers."""

from __future__ import annotations

from typing import Protocol


class LaunchedAgents(Protocol):
    """Agents that a launcher has started."""

    def wait(self, patience_s: float) -> int | None:
        """None if any of them is still there after so long, else the exit code that tells the truth about all."""

    def drain(self) -> None:
        """Take no more trials; let those under way end."""

    def stop(self) -> None:
        """End the trials under way: politely the first time, at once the second."""

    def complaints(self) -> str:
        """What the agents said on their error stream so far."""

    def close(self) -> None:
        """Let go of what was opened for them."""


class Launcher(Protocol):
    """One way to start agents on a study's folder."""

    name: str

    def launch(self, folder: str, slots: int) -> LaunchedAgents:
        """Start agents. They take trials by themselves; nothing else has to be told to them."""
