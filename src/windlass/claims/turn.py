"""The lock of a study's register, for whoever changes what is to be done or who is to do it. Python 3.9."""

from __future__ import annotations

import time
from typing import Optional

from windlass.claims.alive import identity, is_alive
from windlass.claims.register import Register, RegisterFile
from windlass.errors import FolderError

_PREPARING_S = 600.0  # a holder on another machine that takes longer than this is taken for dead


class Turn:
    """A lock in the register: its holder alone may add trials, submit agents, or cancel agents that wait.

    A dead holder has no claim to it. The process that has it may take it again.
    """

    def __init__(self, register_file: RegisterFile, folder: str, patience_s: float = 60.0) -> None:
        self._register_file = register_file
        self._folder = folder
        self._patience_s = patience_s
        self._me = {**identity(), "since": round(time.time(), 3)}
        self._had = False

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._patience_s
        holder = self._register_file.read().preparer
        self._had = holder is not None and all(holder.get(key) == self._me[key] for key in ("pid", "began", "boot"))
        while not self._had and self._register_file.update(self._begin).preparer != self._me:
            if time.monotonic() > deadline:
                raise FolderError(
                    f"{self._folder}: another windlass has been preparing this study for long\n  hint: try again later"
                )
            time.sleep(0.05)

    def _begin(self, register: Register) -> Optional[Register]:
        other = register.preparer
        if other is not None and is_alive(other) is not False and time.time() - other["since"] < _PREPARING_S:
            return None
        register.preparer = self._me
        return register

    def __exit__(self, *_: object) -> None:
        if not self._had:
            self._register_file.update(self._end)

    def _end(self, register: Register) -> Optional[Register]:
        if register.preparer != self._me:
            return None
        register.preparer = None
        return register
