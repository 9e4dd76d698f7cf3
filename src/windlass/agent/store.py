"""A cache on the node's own disk, shared by all agents of the user there. Python 3.9, standard library."""

from __future__ import annotations

from typing import Callable


class NotReady(Exception):
    """The node cannot be made ready for trials; the text says why. No trial is begun."""


class NodeStore:
    """Archives unpacked once for all agents of this user on this node."""

    def __init__(self, root: str, say: Callable[[str], None]) -> None:
        self._root = root
        self._say = say

    def close(self) -> None:
        """Let go of what this agent used."""
