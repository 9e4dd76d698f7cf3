"""The pipe through which trials report to the agent: kept in place and read in bounded pieces. Python 3.9."""

from __future__ import annotations

import os
import select
import stat
from typing import Any, Callable, Dict

from windlass.agent.report.metrics import Message, MessageReader

_READ_BYTES = 1 << 16
# As much as a pipe may hold: what a trial wrote before it ended has been read after so many bytes, whoever writes more.
PIPE_BYTES = 1 << 20


class Mailbox:
    """A FIFO at a path that all trials of an agent know.

    A trial, or a program that removes old temporary files, may remove it. It is then made anew, and what was opened
    before is read on. One trial that writes without end, or writes what is no message, cannot keep the agent from its
    work: a read takes a bounded number of bytes, and no line is longer than a message can be.
    """

    def __init__(
        self,
        path: str,
        deliver: Callable[[Message], None],
        deliver_report: Callable[[Dict[str, Any]], None],
        note: Callable[[str], None],
    ) -> None:
        self._path = path
        self._note = note
        self._deliver = (deliver, deliver_report)
        self._readers: Dict[int, MessageReader] = {}  # by descriptor, the newest last
        self._poller: Any = None
        self._open()

    def watch(self, poller: select.epoll) -> None:
        """Have the poller tell when something has come."""
        self._poller = poller
        for descriptor in self._readers:
            poller.register(descriptor, select.EPOLLIN)

    def owns(self, descriptor: int) -> bool:
        return descriptor in self._readers

    def read(self) -> None:
        """Take what has come: all that was there when this was called, and not much more."""
        for descriptor, reader in list(self._readers.items()):
            left = PIPE_BYTES
            try:
                while left > 0:
                    data = os.read(descriptor, _READ_BYTES)
                    left -= len(data)
                    reader.feed(data)
            except BlockingIOError:
                pass

    def restore(self) -> None:
        """Make the pipe anew if something has removed it, or has put something else in its place. One `stat`."""
        newest = list(self._readers)[-1]
        try:
            found, own = os.lstat(self._path), os.fstat(newest)
            if (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev):
                return
        except OSError:
            pass
        try:
            _make_way(self._path)
            self._open()
        except OSError as error:
            self._note(f"windlass.log does not reach the agent: {self._path}: {error.strerror}")
            return
        self._note(
            f"the pipe of windlass.log, {self._path}, was removed or replaced and has been made anew; "
            "metrics that trials reported meanwhile may be missing"
        )

    def _open(self) -> None:
        if not _is_pipe(self._path):
            os.mkfifo(self._path, 0o600)
        # Open at both ends, so that the pipe outlives its writers.
        descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._readers[descriptor] = MessageReader(*self._deliver, self._note)
        if self._poller is not None:
            self._poller.register(descriptor, select.EPOLLIN)


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:
        return False


def _make_way(path: str) -> None:
    """Have the folder of `path`, and nothing at `path`."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if os.path.lexists(path):
        os.rename(path, f"{path}.replaced-{os.urandom(3).hex()}")
