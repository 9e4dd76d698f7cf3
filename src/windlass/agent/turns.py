"""Whose turn it is to make something slow that all want; the others wait for it. Python 3.9, standard library.

Works on shared file systems without file locks: a turn is a file that only one process can link, touched while its
holder lives. Should two hold it after all, because one was silent for too long, work is done twice and nothing breaks.
"""

from __future__ import annotations

import json
import os
import time
from typing import Optional, Tuple

from windlass.claims.alive import identity, is_alive

_SILENT_S = 60.0  # a holder on another machine that did not touch its file for so long is taken for dead


class MakingTurn:
    """The file `path` says who is making it."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token
        self._seen: Optional[Tuple[str, int]] = None  # whose turn, and when the file was touched, as last seen
        self._seen_at = 0.0

    def take(self) -> bool:
        """Whether it is ours now. Takes it from the dead."""
        if self._link():
            return True
        if not self._is_dead():
            return False
        old = f"{self._path}.{self._token}.old"
        try:
            os.rename(self._path, old)
            os.unlink(old)
        except OSError:
            return False
        return self._link()

    def _link(self) -> bool:
        partial = f"{self._path}.{self._token}"
        try:
            with open(partial, "w", encoding="utf-8") as file:
                file.write(json.dumps({**identity(), "token": self._token}))
            os.link(partial, self._path)
            return True
        except FileExistsError:
            return False
        finally:
            try:
                os.unlink(partial)
            except OSError:
                pass

    def _is_dead(self) -> bool:
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read()
                touched = os.fstat(file.fileno()).st_mtime_ns
            alive = is_alive(json.loads(text))
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError):
            return False
        if alive is not None:
            return not alive
        # By our own clock alone: those of machines differ.
        if (text, touched) != self._seen:
            self._seen, self._seen_at = (text, touched), time.monotonic()
        return time.monotonic() - self._seen_at > _SILENT_S

    def beat(self) -> None:
        try:
            os.utime(self._path)
        except OSError:
            pass

    def release(self) -> None:
        """Give it up, if it is still ours."""
        try:
            with open(self._path, encoding="utf-8") as file:
                if json.load(file).get("token") == self._token:
                    os.unlink(self._path)
        except (OSError, ValueError):
            pass
