"""Locks that work on shared file systems without file locks. The agent needs them: Python 3.9, standard library.

The holder of a lock is a process, which the lock names. A process that has ended does not hold it: on the same machine
its process number and start time tell, and a process on another machine is taken for dead after a time of silence.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Mapping, Optional, Tuple

from windlass.core.claims.alive import identity, is_alive, seconds_silent
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.errors import FolderError
from windlass.core.files import remove_if_there, write_first

_MAKING_S = 60.0  # a holder that beats, on another machine, is taken for dead after so much silence
_PREPARING_S = 600.0  # a holder on another machine that takes longer than this is taken for dead


class StudyLock:
    """The lock in a study's register: its holder alone may add trials, submit agents, or cancel agents that wait.

    The process that has it may take it again. Raises FolderError where another process keeps it for `patience_s`.
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
        self._had = holder is not None and all(
            holder.get(key) == self._me[key] for key in ("pid", "began", "boot")
        )
        while not self._had and self._register_file.update(self._begin).preparer != self._me:
            if time.monotonic() > deadline:
                raise FolderError(
                    f"{self._folder}: another windlass has been preparing this study for long\n  hint: try again later"
                )
            time.sleep(0.05)

    def _begin(self, register: Register) -> Optional[Register]:
        other = register.preparer
        if (
            other is not None
            and is_alive(other) is not False
            and time.time() - other["since"] < _PREPARING_S
        ):
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


class FileLock:
    """A lock that is a file: of several processes one makes it. `mark` is written into it and tells holders apart.

    A holder on another machine is taken for dead when its file was not touched for `silent_s`. With `is_watched` that
    time is counted by our own clock from when we saw the file first, for holders that touch it (`beat`) and processes
    that wait for them; else by the clock of the file system. Should two hold the lock after all, because one was silent
    for too long, neither notices: what the lock guards must bear that it is done twice.
    """

    def __init__(
        self, path: str, mark: Mapping[str, Any], silent_s: float, is_watched: bool = False
    ) -> None:
        self._path = path
        self._me = json.dumps({**identity(), **mark})
        self._silent_s = silent_s
        self._is_watched = is_watched
        # The file's content, and when it was touched, as last seen.
        self._seen: Optional[Tuple[str, int]] = None
        self._seen_at = 0.0

    def take(self) -> bool:
        """Whether the lock is ours now. Takes it from the dead. Raises OSError where no file can be made."""
        return write_first(self._path, self._me) or (
            self._bury() and write_first(self._path, self._me)
        )

    def is_taken(self) -> bool:
        """Whether the process that the file names may be there."""
        text = self._read()
        return text is not None and self._may_live(text)

    def beat(self) -> None:
        """Show that the holder is there."""
        try:
            os.utime(self._path)
        except OSError:
            pass

    def release(self) -> None:
        """Give the lock up, if it is still ours."""
        if self._read() == self._me:
            remove_if_there(self._path)

    def _bury(self) -> bool:
        """Remove what a dead holder has left; False where it may live, or another process was faster."""
        seen = self._read()
        if seen is None:
            return True
        if self._may_live(seen):
            return False
        aside = f"{self._path}.{os.uname().nodename}-{os.getpid()}.old"
        try:
            os.rename(self._path, aside)
        except OSError:
            return not os.path.exists(self._path)
        if _read(aside) != seen:
            os.rename(aside, self._path)  # another process has just taken the place of the dead one
            return False
        remove_if_there(aside)
        return True

    def _may_live(self, text: str) -> bool:
        try:
            alive = is_alive(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            alive = None  # it is just being written
        if alive is not None:
            return alive
        if not self._is_watched:
            return seconds_silent(self._path) < self._silent_s
        try:
            touched = os.stat(self._path).st_mtime_ns
        except OSError:
            return True
        if (text, touched) != self._seen:
            self._seen, self._seen_at = (text, touched), time.monotonic()
        return time.monotonic() - self._seen_at <= self._silent_s

    def _read(self) -> Optional[str]:
        return _read(self._path)


def making_lock(path: str, token: str) -> FileLock:
    """The lock of a process that makes something slow that all want, such as an environment; the others wait for it."""
    return FileLock(path, {"token": token}, _MAKING_S, is_watched=True)


def _read(path: str) -> Optional[str]:
    """The content of a lock's file; None where there is none, or it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None
