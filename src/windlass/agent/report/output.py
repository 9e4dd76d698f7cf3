"""Keeps the output of all trials in one growing file, with an index that says which trial wrote what. Python 3.9."""

from __future__ import annotations

import os
from typing import Callable, List, Optional

from windlass.core.journal.pieces import PIECE, render_piece
from windlass.core.journal.write import AppendFile, DiskFull

_FLUSH_S = 0.1
_FLUSH_BYTES = 256 * 1024
_TAIL_BYTES = 1024 * 1024
_LINE_BYTES = 64 * 1024
_LAST_BYTES = 4096
_KEPT_BYTES = 64 << 20  # of output in memory while the folder is out of reach

LineReader = Callable[[bytes], None]


class OutputLog:
    """The two files of one agent. Made when the first byte comes: silent trials leave no file."""

    def __init__(self, log_path: str, index_path: str) -> None:
        self._paths = (log_path, index_path)
        self._agent = os.path.basename(log_path)[: -len(".log")]
        self._log: Optional[AppendFile] = None
        self._index: Optional[AppendFile] = None
        self._data: List[bytes] = []
        self._pieces: List[bytes] = []
        self._end = 0
        self.dirty: List[Stream] = []
        self._flushed_at = 0.0

    def add(self, data: bytes, number: int, attempt: int, stream: int, now: float) -> None:
        self._data.append(data)
        self._pieces.append(
            render_piece(self._agent, self._end, now, number, attempt, stream, data)
        )
        self._end += len(data)

    def due_in_s(self, now: float) -> Optional[float]:
        """When `flush` wants to be called; None when nothing waits."""
        if not self.dirty and not self._data:
            return None
        return max(0.0, self._flushed_at + _FLUSH_S - now)

    def flush(self, now: float, force: bool = False) -> None:
        """Write what is due: the bytes first, then the index, so that no piece points beyond the end."""
        if force or now - self._flushed_at >= _FLUSH_S:
            for stream in self.dirty:
                stream.emit(now)
            self.dirty = [stream for stream in self.dirty if stream.unfinished]
            self._flushed_at = now
        if not self._pieces:
            return
        if self._log is None or self._index is None:
            # The names are this agent's own. A file that is there is of an earlier try whose success was not reported.
            self._log = self._log or AppendFile(self._paths[0], exclusive=False, filler=b" ")
            self._index = AppendFile(self._paths[1], exclusive=False, filler=bytes(PIECE.size))
        # Joined and cleared first: output that does not fit on a full disk is given up, the journal is not.
        data, pieces = b"".join(self._data), b"".join(self._pieces)
        self._data.clear()
        self._pieces.clear()
        try:
            if data:
                self._log.write(data)
                data = b""
            self._index.write(pieces)
        except OSError:
            if len(data) <= _KEPT_BYTES:  # the folder is out of reach, perhaps not for long
                self._data[:], self._pieces[:] = ([data] if data else []), [pieces]
            self._end = self._log.size + sum(map(len, self._data))
            raise
        except DiskFull:
            self._end = self._log.size
            raise

    def close(self) -> None:
        if self._log is not None and self._index is not None:
            self._log.close()
            self._index.close()


class Stream:
    """One stream of one attempt on its way to the log."""

    def __init__(
        self,
        log: OutputLog,
        number: int,
        attempt: int,
        kind: int,
        limit: int,
        reader: Optional[LineReader],
    ) -> None:
        self._log = log
        self._number = number
        self._attempt = attempt
        self._kind = kind
        self._room = limit
        self._reader = reader
        self._waiting = bytearray()
        self._bar = b""  # the line that is being redrawn, without what was overwritten
        self._at_line_start = True
        self._next_redraw = 0.0
        self._redraw_gap_s = 1.0
        self._tail = bytearray()
        self._left_out = 0
        self._line = b""
        self._last = b""
        self.total_bytes = 0

    @property
    def unfinished(self) -> bool:
        return bool(self._bar)

    def tail(self) -> bytes:
        """The last bytes that came, for finding out why a trial failed."""
        return self._last

    def feed(self, data: bytes, now: float) -> None:
        self.total_bytes += len(data)
        self._last = (
            data[-_LAST_BYTES:] if len(data) >= _LAST_BYTES else (self._last + data)[-_LAST_BYTES:]
        )
        if self._reader is not None:
            self._read_lines(data)
        if not self._waiting and not self._bar:
            self._log.dirty.append(self)
        if self._bar or b"\r" in data:
            self._thin_out(data)
        else:
            self._waiting += data
        if len(self._waiting) > _FLUSH_BYTES:
            self._write(now)

    def _read_lines(self, data: bytes) -> None:
        assert self._reader is not None
        *lines, self._line = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if line:
                self._reader(line)
        if len(self._line) > _LINE_BYTES:
            self._line = self._line[-_LINE_BYTES:]

    def _thin_out(self, data: bytes) -> None:
        """Of a line redrawn with carriage returns, keep the last drawing."""
        *lines, last = (self._bar + data).split(b"\n")
        self._bar = b""
        for line in lines:
            self._add_line(line, b"\n")
        if b"\r" in last:
            text = last.rstrip(b"\r")
            drawn = text.rfind(b"\r")
            if drawn < 0:
                # The line goes on: what came of it before is not overwritten yet.
                self._waiting += text
                text = b""
            self._bar = b"\r" + text[drawn + 1 :] + last[len(last.rstrip(b"\r")) :][:1]
            if len(self._bar) > _LINE_BYTES:
                # No progress bar is that long: it is kept as it is, and what follows it is not read again and again.
                bar, self._bar = self._bar, b""
                self._add_line(bar, b"")
        else:
            self._add_line(last, b"")

    def _add_line(self, line: bytes, end: bytes) -> None:
        if line.endswith(b"\r"):
            line, end = line.rstrip(b"\r"), b"\r" + end
        drawn = line.rfind(b"\r")
        if drawn >= 0:
            line = line[drawn + 1 :]
            if not self._ends_line():
                line = b"\r" + line
        self._waiting += line + end

    def _ends_line(self) -> bool:
        return self._waiting.endswith(b"\n") if self._waiting else self._at_line_start

    def emit(self, now: float) -> None:
        """Hand what waits to the log; of a progress bar, a drawing now and then, ever more seldom."""
        bar = self._bar.strip(b"\r")
        if bar and now >= self._next_redraw:
            self._waiting += b"\r" + bar
            self._next_redraw = now + self._redraw_gap_s
            self._redraw_gap_s = min(60.0, self._redraw_gap_s * 1.5)
        self._write(now)

    def give_way(self, now: float) -> None:
        """Hand over what waits, because something comes on the other stream; a line that is redrawn stays."""
        self._write(now)

    def finish(self, now: float) -> None:
        """The stream has ended: everything goes to the log."""
        if self._reader is not None and self._line:
            self._reader(self._line)
        if self._bar:
            bar, self._bar = self._bar, b""
            self._add_line(bar, b"")
        self._write(now)
        if self._left_out:
            note = f"\n[windlass: {self._left_out - len(self._tail)} bytes left out here, output_limit]\n".encode()
            self._room = len(note) + len(self._tail)
            self._log.add(note + bytes(self._tail), self._number, self._attempt, self._kind, now)
            self._tail.clear()
            self._left_out = 0

    def _write(self, now: float) -> None:
        if not self._waiting:
            return
        data = bytes(self._waiting)
        self._waiting.clear()
        self._at_line_start = data.endswith(b"\n")
        if len(data) > self._room:
            rest = data[self._room :]
            self._left_out += len(rest)
            self._tail += rest
            del self._tail[:-_TAIL_BYTES]
            data = data[: self._room]
        self._room -= len(data)
        if data:
            self._log.add(data, self._number, self._attempt, self._kind, now)
