"""What a trial with a launcher needs on its first node: a port of its own, and the program around ranks. Python 3.9."""

from __future__ import annotations

import os
import random
import socket

from windlass.launchers import _task

# The copy of launchers/_task.py in the agent's runtime folder, which every node has.
TASK = "task.py"
_PORTS = (20_000, 32_000)  # below those that the kernel gives to outgoing connections
_TRIES = 100


def any_port() -> int:
    """A port that may be free."""
    return random.randrange(*_PORTS)


def write_task(folder: str) -> str:
    """Put _task.py into the runtime folder of this node; returns its path."""
    path = os.path.join(folder, TASK)
    loader = getattr(_task, "__loader__", None)
    source = loader.get_source(_task.__name__) if loader is not None else ""
    with open(path, "w", encoding="utf-8") as file:
        file.write(source or "")
    return path


def hold_port() -> socket.socket:
    """A socket whose port nobody else gets for as long as it is open, and to which a trial may bind. Raises OSError.

    It is bound alone, so the port is free, and shared afterwards without listening: then a program that sets
    SO_REUSEADDR, as torch and gRPC do, may listen there, while others who look for a free port do not find it.
    """
    for left in reversed(range(_TRIES)):
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind(("", any_port()))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return held
        except OSError:
            held.close()
            if not left:
                raise
    raise OSError("no free port")
