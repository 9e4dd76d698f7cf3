"""Reads journals, whole lines only, from where the last read ended. The agent needs it: Python 3.9."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, TypeVar

from windlass.core.errors import FolderError
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.sealed import unseal

_HEADER_BYTES = 64 << 10
THREADS = 16
_SLOW_S = 0.0002  # a call that takes longer waits for a network, not for this machine
_FIRST = 8  # calls in a row that show how long one takes

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class JournalVersionError(FolderError):
    """A journal was written by a newer Windlass than this one."""

    def __init__(self, path: str, version: Any) -> None:
        self.path = path
        self.version = version
        super().__init__(
            f"{path}: this journal has format version {version}, and this windlass reads up to version"
            f" {JOURNAL_VERSION}\n  hint: install a newer Windlass, as it was installed before"
        )


class JournalReader:
    """Reads one journal bit by bit. Opens it anew each time, so that a network filesystem shows what is new.

    A last line without its newline is left for later: its writer may be in the midst of it. A whole line that
    is not a JSON object, or that does not fit its checksum, is counted in `damaged` and passed over.
    """

    def __init__(self, path: str, offset: int = 0) -> None:
        self.path = path
        self.offset = offset  # bytes consumed so far: only whole lines
        self.damaged = 0
        # The file became shorter than `offset`, and reading began again at its start.
        self.restarted = False

    def read(self, limit_bytes: int = 16 << 20) -> List[Dict[str, Any]]:
        """The events of whole lines since the last time, from about `limit_bytes` at most; [] if none."""
        return self.take(self.fetch(limit_bytes))

    def take(self, block: bytes) -> List[Dict[str, Any]]:
        """The events of what `fetch` has returned, which now count as read."""
        if not block:
            return []
        whole = []
        for line in block.split(b"\n")[:-1]:
            content = unseal(line)
            if content is None:
                self.damaged += 1
            else:
                whole.append(content)
        events = self._parse(whole) if whole else []
        if self.offset == 0 and events:
            check_version(self.path, events[0])
        self.offset += len(block)
        return events

    def fetch(self, limit_bytes: int = 16 << 20, size: Optional[int] = None) -> bytes:
        """Whole lines from `offset` on; a line longer than the limit is read whole all the same.

        A caller that has just asked for the file's size passes it on: then the file is opened, read and closed, and
        nothing else is asked of the file system. Other threads may fetch from other journals meanwhile.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return self._fetch_from(descriptor, max(limit_bytes, 1), size)
        except OSError as error:
            raise FolderError(
                f"{self.path}: cannot be read ({error.strerror})\n  hint: move it away, or restore it from a backup"
            ) from error
        finally:
            os.close(descriptor)

    def _fetch_from(self, descriptor: int, wanted: int, known: Optional[int]) -> bytes:
        size = os.fstat(descriptor).st_size if known is None else known
        while True:
            if size < self.offset:
                self.offset, self.damaged, self.restarted = 0, 0, True
            expected = min(wanted, size - self.offset)
            block = _read_exactly(descriptor, expected, self.offset)
            if known is not None and len(block) < expected:  # it has become shorter since
                size, known = os.fstat(descriptor).st_size, None
                continue
            end = block.rfind(b"\n") + 1
            if end or wanted >= size - self.offset:
                return block[:end]
            wanted *= 2

    def _parse(self, lines: List[bytes]) -> List[Dict[str, Any]]:
        """All lines in one call of the parser, which is faster; one by one where that does not add up."""
        # A newline inside a JSON string is an error, so no damaged string can swallow its neighbour.
        # Bytes that are no text (a program printed them, and a note quotes it) do not damage the line.
        try:
            events = json.loads((b"[%s]" % b",\n".join(lines)).decode("utf-8", "surrogateescape"))
            if len(events) == len(lines) and set(map(type, events)) == {dict}:
                return list(events)
        except (ValueError, RecursionError):
            pass
        return self._parse_one_by_one([line.decode("utf-8", "surrogateescape") for line in lines])

    def _parse_one_by_one(self, lines: List[str]) -> List[Dict[str, Any]]:
        events = []
        for line in lines:
            event = parse_line(line)
            if event is not None:
                events.append(event)
            elif line.strip():
                self.damaged += 1
        return events


def parse_line(line: str) -> Optional[Dict[str, Any]]:
    """One line as an event, None when it is not a JSON object."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def check_version(path: str, header: Dict[str, Any]) -> None:
    """Raise JournalVersionError when the first line says that it needs a newer Windlass."""
    version = header.get("v", JOURNAL_VERSION)
    if not isinstance(version, int) or version > JOURNAL_VERSION:
        raise JournalVersionError(path, version)


def read_header(path: str) -> Optional[Dict[str, Any]]:
    """The first line of a journal; None where the file is missing or the line is not whole yet."""
    try:
        with open(path, "rb") as journal:
            line = journal.readline(_HEADER_BYTES)
    except FileNotFoundError:
        return None
    content = unseal(line) if line.endswith(b"\n") else None
    header = None if content is None else parse_line(content.decode("utf-8", "surrogateescape"))
    if header is not None:
        check_version(path, header)
    return header


def read_headers(folder: str) -> List[Dict[str, Any]]:
    """The first lines of all journals of a folder, in the order of their names; those that are not whole left out."""
    return [header for header in for_each(read_header, journal_files(folder)) if header is not None]


def journal_files(folder: str) -> List[str]:
    """The journals of a folder, sorted by name, which is by the time their writers began."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [os.path.join(folder, name) for name in sorted(names) if name.endswith(".jsonl")]


def is_of_client(path: str) -> bool:
    """Whether a command wrote the journal at this path, not an agent."""
    return writer_of(path).startswith("client-")


def writer_of(path: str) -> str:
    """The id of the writer of the journal at this path."""
    return os.path.basename(path)[: -len(".jsonl")]


def _read_exactly(descriptor: int, count: int, offset: int) -> bytes:
    """`count` bytes, fewer only where the file ends; a single read may stop short of that."""
    parts = []
    while count > 0:
        part = os.pread(descriptor, count, offset)
        if not part:
            break
        parts.append(part)
        count -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def for_each(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> List[_Result]:
    """What `function` returns for each item, in their order.

    A local disk answers at once, and threads would cost more than they save. On a network file system each call waits
    for a server, and 16 can wait at the same time.
    """
    results: List[_Result] = []
    while len(results) < len(items):
        began = time.perf_counter()
        some = items[len(results) : len(results) + _FIRST]
        results += map(function, some)
        if time.perf_counter() - began > _SLOW_S * len(some):
            break
    return results + _in_threads(function, items[len(results) :])


def _in_threads(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> List[_Result]:
    threads = min(THREADS, len(items))
    if threads < 2:
        return [function(item) for item in items]
    from concurrent.futures import (
        ThreadPoolExecutor,
    )  # brings many modules along, which a small study does not need

    with ThreadPoolExecutor(threads) as pool:
        parts = list(
            pool.map(lambda first: list(map(function, items[first::threads])), range(threads))
        )
    return [parts[place % threads][place // threads] for place in range(len(items))]
