"""Lets a slow change of the register through, where quick ones would always be sooner. Python 3.9.

A command that cancels or adds trials reads journals before it makes its change. That may take seconds, and an agent
has claimed something meanwhile. A process that has lost several races makes a file that asks everybody else to wait.
They see it in the listing that they make anyway. They wait for a limited time: its maker may have been killed.
"""

from __future__ import annotations

import os
import time
from typing import Dict, Iterable

from windlass.claims.disk import chance
from windlass.claims.states import States

_PREFIX = "wait~"
_LOSSES = 3  # races that a process loses before it asks the others to wait
_WAIT_S = 20.0  # that others wait for one process


class Precedence:
    """What one process knows of those that ask it to wait, and its own request that others wait."""

    def __init__(self, states: States, who: str) -> None:
        self._states = states
        self._who = who
        self._own = ""
        self._since: Dict[str, float] = {}  # name of a file → when it was first seen here

    def note_loss(self, lost: int) -> None:
        """This process has lost so many races while making one change."""
        if lost >= _LOSSES and not self._own:
            self._own = f"{_PREFIX}{self._who}~{os.urandom(4).hex()}"
            try:
                self._states.disk.touch(os.path.join(self._states.folder, self._own))
            except OSError:
                self._own = ""

    def end(self) -> None:
        """The change is made."""
        if self._own:
            self._states.disk.remove(os.path.join(self._states.folder, self._own))
            self._own = ""

    def wait(self, names: Iterable[str]) -> bool:
        """Wait a moment if another process has asked for that; returns whether. `names` are the folder's."""
        asking = [name for name in names if name.startswith(_PREFIX) and name != self._own]
        if not asking and not self._since:
            return False
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in asking}
        if self._own:
            asking = [name for name in asking if name < self._own]  # two that ask: one after the other
        for name in asking:
            if now - self._since[name] > _WAIT_S:
                self._states.disk.remove(os.path.join(self._states.folder, name))
        if all(now - self._since[name] > _WAIT_S for name in asking):
            return False
        time.sleep(0.05 + 0.1 * chance())
        return True
