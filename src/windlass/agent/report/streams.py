"""The agent's own output and errors, which must not end it. Python 3.9, standard library.

In a job both are a file on the shared folder. While that is out of reach, also the message which says so cannot be
written.
"""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO


class LossyFile(io.FileIO):
    """Counts what cannot be written as written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(memoryview(data).cast("B"))


def make_lossy(stream: TextIO) -> TextIO:
    """The same stream without errors; what cannot be written is lost."""
    raw = LossyFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def outlive_output() -> None:
    """From now on no `print` of this process fails because of the file it writes to."""
    output, errors = sys.__stdout__, sys.__stderr__
    if output is not None and errors is not None and sys.stdout is output and sys.stderr is errors:
        sys.stdout, sys.stderr = make_lossy(output), make_lossy(errors)
