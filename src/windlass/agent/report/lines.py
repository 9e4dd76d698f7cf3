"""Cuts bytes into lines of bounded length. Python 3.9, standard library."""

from __future__ import annotations

from typing import List


class LineCutter:
    """Cuts what comes out of a pipe into lines. A line that is longer than any message is dropped."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""
        self._is_dropping = False
        self.dropped = 0  # bytes of such lines, as far as they were looked at

    def cut(self, data: bytes) -> List[bytes]:
        """The lines that are whole now, without those that are too long."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"" if self._is_dropping else self._rest + lines[0]
            self._rest, self._is_dropping = b"", False
        self._rest += rest
        if self._is_dropping or len(self._rest) > self._longest:
            self.dropped += len(self._rest)
            self._rest, self._is_dropping = b"", True
        whole = []
        for line in lines:
            if len(line) > self._longest:
                self.dropped += len(line)
            elif line:
                whole.append(line)
        return whole
