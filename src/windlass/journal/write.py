"""Appends events to one journal file; one writer a file. Python 3.9, standard library."""

from __future__ import annotations

import errno
import json
import os
from typing import Any, Dict, List

from windlass.events import finite_number
from windlass.sealed import seal

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode

RESERVE_BYTES = 64 * 1024


class DiskFull(Exception):
    """There is no room left (or no quota) for the study's folder."""


def encode_event(event: Dict[str, Any]) -> str:
    """An event, or a part of one, as the journal has it. A figure that is no number is not known: null."""
    try:
        return _encode(event)
    except ValueError:
        return _encode(_without_endless(event))


def _without_endless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_endless(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_endless(one) for one in value]
    return finite_number(value) if isinstance(value, float) else value


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class AppendFile:
    """A file that only grows by whole records: a write that fails half way leaves no torn record behind."""

    def __init__(self, path: str, exclusive: bool = True) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0)
        self.path = path
        self._descriptor = os.open(path, flags, 0o666)
        self.size = os.fstat(self._descriptor).st_size

    def write(self, data: bytes) -> None:
        """All of `data` or nothing. Raises DiskFull when there is no room."""
        view = memoryview(data)
        written = 0
        try:
            while written < len(view):
                written += os.write(self._descriptor, view[written:])
        except OSError as error:
            if written:
                os.ftruncate(self._descriptor, self.size)
            if is_full(error):
                raise DiskFull(self.path) from error
            raise
        self.size += written

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def append_event(path: str, event: Dict[str, Any]) -> None:
    """Add one event to a journal whose writer has closed it. Nothing happens where that cannot be done."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, seal((encode_event(event) + "\n").encode("utf-8", "surrogateescape")))
        finally:
            os.close(descriptor)
    except OSError:
        pass


class JournalWriter:
    """Collects events and appends them together. What `flush` has returned for survives a kill of this process."""

    def __init__(self, path: str, header: Dict[str, Any], reserve_path: str = "") -> None:
        self._file = AppendFile(path)
        self._pending: List[str] = []
        self._reserve_path = reserve_path
        if reserve_path:
            with open(reserve_path, "wb") as reserve:
                reserve.write(b"\0" * RESERVE_BYTES)
        self.add(header)
        self.flush()
        self._file.sync()

    def add(self, event: Dict[str, Any]) -> None:
        self._pending.append(encode_event(event))

    def add_line(self, line: str) -> None:
        """An event already encoded, for the busiest kinds."""
        self._pending.append(line)

    def flush(self) -> None:
        """Append what was added. On a full disk nothing is lost: it stays pending, and DiskFull is raised."""
        if not self._pending:
            return
        lines = ("\n".join(self._pending) + "\n").encode("utf-8", "surrogateescape").splitlines(keepends=True)
        self._file.write(b"".join(map(seal, lines)))
        self._pending.clear()

    def flush_reserve(self) -> None:
        """Give up the reserved room so that the last records fit, then flush."""
        self._drop_reserve()
        self.flush()

    def sync(self) -> None:
        self._file.sync()

    def sync_quietly(self) -> None:
        """For a thread: whoever depends on it syncs again, and hears of errors then."""
        try:
            self.sync()
        except (OSError, ValueError):
            pass

    def close(self) -> None:
        self._drop_reserve()
        self._file.close()

    def _drop_reserve(self) -> None:
        if self._reserve_path:
            try:
                os.unlink(self._reserve_path)
            except OSError:
                pass
            self._reserve_path = ""
