"""Reads what trials print: their pipes, from the poller to the output log. Python 3.9, standard library."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from typing import Callable, Deque, Dict, Optional, Tuple

from windlass.agent.child import Attempt
from windlass.agent.report.listen import Listener
from windlass.agent.report.output import OutputLog, Stream
from windlass.core.journal.pieces import STDERR, STDOUT

_READ_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20  # as much as a pipe may hold
_WATCH_AFTER_S = 0.005


class Pipes:
    """The pipes of all attempts under way."""

    def __init__(
        self, poller: select.epoll, output: OutputLog, listener: Listener, limit_bytes: int
    ) -> None:
        self._poller = poller
        self._output = output
        self._listener = listener
        self._limit_bytes = limit_bytes
        self._by_pipe: Dict[int, Attempt] = {}
        self._unwatched: Deque[Tuple[float, Attempt, int]] = deque()
        self._adopted: Dict[int, Callable[[], bool]] = {}

    def open(self, attempt: Attempt) -> Tuple[int, int]:
        """Make two pipes for an attempt. Returns the ends that its process writes to; close them after the start."""
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(out_read, False)
        os.set_blocking(err_read, False)
        attempt.ends = {out_read: STDOUT, err_read: STDERR}
        return out_write, err_write

    def expect(self, attempt: Attempt) -> None:
        """Its process was started: listen to it in a moment."""
        self._unwatched.append((time.monotonic() + _WATCH_AFTER_S, attempt, attempt.stage))

    def watch(self, now: float) -> Optional[float]:
        """Begin to listen to attempts that have lived for a moment; returns when there will be more of them.

        Most of the cost of a trial that ends at once would otherwise be listening to it: its output is read anyway
        when it has ended.
        """
        while self._unwatched and self._unwatched[0][0] <= now:
            _, attempt, stage = self._unwatched.popleft()
            # Its pipes may be others by now: those of a later stage, or of a start that had to be made again.
            for pipe in attempt.ends if attempt.stage == stage else ():
                if pipe not in self._by_pipe:
                    self._by_pipe[pipe] = attempt
                    self._poller.register(pipe, select.EPOLLIN)
        return self._unwatched[0][0] if self._unwatched else None

    def adopt(self, descriptor: int, read: Callable[[], bool]) -> None:
        """Watch a descriptor that is no trial's; `read` returns False when nothing will come any more."""
        self._adopted[descriptor] = read
        self._poller.register(descriptor, select.EPOLLIN)

    def owns(self, descriptor: int) -> bool:
        return descriptor in self._by_pipe or descriptor in self._adopted

    def read(self, pipe: int) -> None:
        """Read what there is at a pipe, without waiting. At its end the pipe is closed and forgotten."""
        if pipe in self._adopted:
            if not self._adopted[pipe]():
                del self._adopted[pipe]
                self._poller.unregister(pipe)
            return
        attempt = self._by_pipe.get(pipe)
        if attempt is None:
            return
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._feed(attempt, attempt.ends[pipe], data)
        else:
            del attempt.ends[pipe]
            self._close(pipe)

    def drain(self, attempt: Attempt) -> bool:
        """Read all that is there. True when something else still holds a pipe open."""
        held = False
        for pipe, kind in attempt.ends.items():
            left = _PIPE_BYTES
            try:
                while left > 0 and (data := os.read(pipe, _READ_BYTES)):
                    left -= len(data)
                    self._feed(attempt, kind, data)
                # Another process writes on and on: the rest is not the trial's.
                held = held or left <= 0
            except BlockingIOError:
                held = True
            self._close(pipe)
        attempt.ends = {}
        return held

    def _feed(self, attempt: Attempt, kind: int, data: bytes) -> None:
        """Keep what came. What came before it on the other stream goes to the log first, to stand before it there."""
        now = time.time()
        for other, stream in attempt.streams.items():
            if other != kind:
                stream.give_way(now)
        self._stream(attempt, kind).feed(data, now)

    def _stream(self, attempt: Attempt, kind: int) -> Stream:
        """Made for the first byte: most trials have nothing to say on one of the two."""
        stream = attempt.streams.get(kind)
        if stream is None:
            reader = self._listener.line_reader(attempt)
            stream = Stream(
                self._output, attempt.trial.number, attempt.attempt, kind, self._limit_bytes, reader
            )
            attempt.streams[kind] = stream
        return stream

    def _close(self, pipe: int) -> None:
        self._by_pipe.pop(pipe, None)
        os.close(pipe)  # which also takes it out of the poller
