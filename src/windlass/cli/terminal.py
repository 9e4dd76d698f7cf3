"""Standard output and standard error of every verb: nothing but text and our own colours passes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from windlass.view.escapes import OutputFilter, show


class SafeStream:
    """A text stream that escapes what a terminal would act on. All else is that of the stream below."""

    def __init__(self, stream: TextIO) -> None:
        self.exact = stream

    def write(self, text: str) -> int:
        self.exact.write(show(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exact, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """While this is entered, `print` and `click.echo` escape what is dangerous."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _wrap(before[0]), _wrap(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _wrap(stream: Any) -> Any:
    """The stream with escaping around it. It never fails for a character that the terminal does not have."""
    if stream is None or isinstance(stream, SafeStream):
        return stream
    if hasattr(stream, "reconfigure") and stream.errors == "strict":
        # A terminal that knows few characters is no reason to fail.
        stream.reconfigure(errors="backslashreplace")
    return SafeStream(stream)


def data_stream(stream: TextIO) -> TextIO:
    """Where data for another program goes: exactly as it is, unless it goes to a terminal."""
    if isinstance(stream, SafeStream) and not stream.isatty():
        return stream.exact
    return stream


class ProgramOutput:
    """Writes what programs printed: exactly as it is to a file or a pipe, filtered to a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._filter = OutputFilter() if stream.isatty() else None

    def write(self, data: bytes) -> None:
        self._send(data if self._filter is None else self._filter.feed(data))

    def close(self) -> None:
        if self._filter is not None:
            self._send(self._filter.end())

    def _send(self, data: bytes) -> None:
        if data:
            self._stream.buffer.write(data)
            self._stream.buffer.flush()
