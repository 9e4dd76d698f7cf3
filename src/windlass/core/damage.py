"""Reports damage of a study's folder on standard error, each kind once. The agent needs it: Python 3.9."""

from __future__ import annotations

import sys

_reported: set[str] = set()


def report_damage(path: str, problem: str, remedy: str, kind: str = "") -> None:
    """Print a warning that names the file, what is wrong with it and what to do.

    A second report of the same kind about the same path is not printed: the numbers in it may have changed, the news
    has not.
    """
    key = f"{path}\0{kind}"
    if key not in _reported:
        _reported.add(key)
        print(f"warning: {path}: {problem}\n  hint: {remedy}", file=sys.stderr, flush=True)


def has_reported(kind: str) -> bool:
    """Whether this command has reported damage of that kind."""
    return any(key.endswith(f"\0{kind}") for key in _reported)


def forget_reports() -> None:
    """A new command begins in this process: it reports everything that it finds."""
    _reported.clear()
