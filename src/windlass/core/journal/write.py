"""Appends events to one journal file; one writer a file. Python 3.9, standard library."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from typing import Any, Dict, List

from windlass.core.journal.events import finite_number
from windlass.core.sealed import seal

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
    """A file that only grows by whole records: a write that fails half way leaves no torn record behind.

    After any error but a full disk the descriptor may be worthless, and so may be what was written through it: a
    network file system may report only now that an earlier write did not arrive, and the handles of a server that was
    started anew are stale. So the file is opened again before the next write, and brought to the length that it should
    have. With `remembers`, what has not been synced is compared then, and written again where it is not there;
    otherwise `filler` stands where bytes are missing. One thread may write while another one syncs.
    """

    def __init__(
        self, path: str, exclusive: bool = True, remembers: bool = False, filler: bytes = b"\n"
    ) -> None:
        flags = (
            os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0)
        )
        self.path = path
        self._descriptor = os.open(path, flags, 0o666)
        self.size = os.fstat(self._descriptor).st_size
        self._filler = filler
        self._remembers = remembers
        self._unsynced: List[bytes] = []
        self._synced = self.size
        self._is_doubtful = False
        self._lock = threading.RLock()

    def write(self, data: bytes) -> None:
        """All of `data` or nothing. Raises DiskFull when there is no room."""
        with self._lock:
            if self._is_doubtful:
                self._reopen()
            self._append(data)
            self.size += len(data)
            if self._remembers:
                self._unsynced.append(data)

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        written = 0
        try:
            while written < len(view):
                written += os.write(self._descriptor, view[written:])
        except OSError as error:
            self._is_doubtful = not is_full(error)
            if written:
                try:
                    os.ftruncate(self._descriptor, self.size)
                except OSError:
                    # The torn record is cut off when the file is opened again.
                    self._is_doubtful = True
            if is_full(error):
                raise DiskFull(self.path) from error
            raise

    def _reopen(self) -> None:
        """Have a descriptor that works, of a file that holds what was written before. Raises OSError, DiskFull."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        # The number stays the same: another thread may be about to sync it.
        os.dup2(descriptor, self._descriptor, inheritable=False)
        os.close(descriptor)
        missing = b"".join(self._unsynced)
        if not self._remembers:
            actual = os.fstat(self._descriptor).st_size
            if actual > self.size:
                os.ftruncate(self._descriptor, self.size)
            missing = self._filler * ((self.size - actual) // len(self._filler))
        elif self._read_from(self._synced) == missing:
            missing = b""
        else:
            os.ftruncate(self._descriptor, self._synced)
        if missing:
            self._append(missing)
        os.fsync(self._descriptor)
        self._unsynced.clear()
        self._synced = self.size
        self._is_doubtful = False

    def _read_from(self, offset: int) -> bytes:
        pieces: List[bytes] = []
        while True:
            piece = os.pread(self._descriptor, 1 << 20, offset)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            offset += len(piece)

    def sync(self) -> None:
        """What was written before this call is on the disk, or on the server, when it returns."""
        with self._lock:
            if self._is_doubtful:
                self._reopen()
            size, count = self.size, len(self._unsynced)
        try:
            os.fsync(self._descriptor)
        except OSError:
            self._is_doubtful = True
            raise
        with self._lock:
            if size > self._synced:
                del self._unsynced[:count]
                self._synced = size

    def clear(self) -> None:
        """Remove all that the file holds."""
        os.ftruncate(self._descriptor, 0)
        self.size = self._synced = 0

    def touch(self) -> None:
        """Show others that the writer is there where there is no room for a record."""
        os.utime(self._descriptor)
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def append_event(path: str, event: Dict[str, Any]) -> None:
    """Add one event to a journal whose writer has closed it. Nothing happens where that cannot be done."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(
                descriptor, seal((encode_event(event) + "\n").encode("utf-8", "surrogateescape"))
            )
        finally:
            os.close(descriptor)
    except OSError:
        pass


class JournalWriter:
    """Collects events and appends them together. What `flush` has returned for survives a kill of this process."""

    def __init__(
        self, path: str, header: Dict[str, Any], reserve_path: str = "", is_new: bool = True
    ) -> None:
        """`is_new`: the file must not be there yet. Without it, what an earlier try has left there is removed."""
        self._file = AppendFile(path, exclusive=is_new, remembers=True)
        if not is_new:
            self._file.clear()
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
        lines = (
            ("\n".join(self._pending) + "\n")
            .encode("utf-8", "surrogateescape")
            .splitlines(keepends=True)
        )
        self._file.write(b"".join(map(seal, lines)))
        self._pending.clear()

    def flush_reserve(self) -> None:
        """Give up the reserved room so that the last records fit, then flush."""
        self._drop_reserve()
        self.flush()

    def sync(self) -> None:
        self._file.sync()

    def beat(self) -> None:
        """Append an empty beat now, past what is pending, and sync it. A thread beside the writer's may call this."""
        try:
            self._file.write(
                seal((encode_event({"e": "beat", "t": round(time.time(), 3)}) + "\n").encode())
            )
        except DiskFull:
            self._file.touch()
        self._file.sync()

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
