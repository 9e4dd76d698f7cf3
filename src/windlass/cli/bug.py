"""The last resort of the command line: an error that nobody foresaw is a bug of Windlass, with a report to attach."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence

from windlass import __version__
from windlass.core.journal.write import is_full
from windlass.patience import is_passing
from windlass.secrets import mask

EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h: an internal error


def report_error(error: BaseException, arguments: Sequence[str]) -> int:
    """Show an error that nobody has turned into one of ours, and return the exit code.

    What the system says about a file is shown as it is. All else is a bug: a report without secrets is written.
    """
    if isinstance(error, OSError) and (is_passing(error) or is_full(error)):
        what = _name_file(error)
        print(f"error: {what}: {error.strerror}", file=sys.stderr)
        remedy = (
            "make room there"
            if is_full(error)
            else "see whether its file system answers, for example with `ls`"
        )
        print(
            f"  hint: {remedy}, and run the command again; nothing is lost by that", file=sys.stderr
        )
        return 2
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
        print(f"error: {os.fsdecode(error.filename)}: {error.strerror}", file=sys.stderr)
        print(
            "  hint: see to it that this user can read and write it, and run the command again",
            file=sys.stderr,
        )
        return 2
    _report_bug(error, arguments)
    return EXIT_BUG


def _name_file(error: OSError) -> str:
    """The file that an error is about, as far as the system tells."""
    if isinstance(error.filename, (str, bytes)):
        return os.fsdecode(error.filename)
    return "a file could not be read or written to the end"


def _report_bug(error: BaseException, arguments: Sequence[str]) -> None:
    """Print one line about the bug and write a report to a file; where that fails, print the traceback instead."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" at {os.path.basename(frame.filename)}:{frame.lineno}" for frame in last)
    print(f"error: this is a bug in windlass: {type(error).__name__}{place}", file=sys.stderr)
    path = _write_report(render_report(error, arguments))
    if path:
        print(f"  a report was written to {path}", file=sys.stderr)
        print(
            "  hint: look through it and attach it to an issue of the project; nothing was sent",
            file=sys.stderr,
        )
    else:
        traceback.print_exception(error)


def render_report(error: BaseException, arguments: Sequence[str]) -> str:
    """Versions, the options that were used without their values, and where the error came from.

    Values of options and of local variables are left out. What looks like a secret in the message is masked.
    """
    options = [word.partition("=")[0] for word in arguments if word.startswith("-")]
    verb = next((word for word in arguments if not word.startswith("-")), "")
    lines = [
        f"windlass {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"time: {time.strftime('%Y-%m-%d %H:%M:%S %Z')}",
        f"verb: {verb[:40]}",
        f"options: {' '.join(options)}",
        "",
        "".join(traceback.format_exception(error)),
    ]
    return mask("\n".join(lines), os.environ)


def _write_report(text: str) -> str:
    """The path of the report, which only this user can read; "" where it cannot be written."""
    try:
        descriptor, path = tempfile.mkstemp(prefix="windlass-bug-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return ""
    return path
