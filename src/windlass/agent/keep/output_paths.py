"""Which paths of a project a study's `outputs:` mean. Python 3.9, standard library."""

from __future__ import annotations

import enum
import fnmatch
import os
import re
from typing import List, Sequence

_PLACEHOLDER = re.compile(r"\{[^{}]*\}|\$\w+|\$\{\w+\}")


class Meant(enum.Enum):
    """What the patterns say of a path."""

    NO = "no"
    ABOVE = "above"  # something below it may be an output
    YES = "yes"


class OutputPaths:
    """The patterns of a study, relative to its project. Placeholders stand for any value."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [parts for parts in map(_components, patterns) if parts]

    def meaning(self, name: str) -> Meant:
        """`name` is relative to the project. A folder stands for all that is in it."""
        parts = name.split(os.sep)
        found = Meant.NO
        for pattern in self._patterns:
            shared = min(len(parts), len(pattern))
            if not all(map(fnmatch.fnmatchcase, parts[:shared], pattern[:shared])):
                continue
            if len(parts) >= len(pattern):
                return Meant.YES
            if pattern[len(parts) - 1] != "**":
                found = Meant.ABOVE
        return found


def _components(pattern: str) -> List[str]:
    """A pattern as folder names; nothing where it leads out of the project."""
    if pattern.startswith(("/", "$", "~")):
        return []
    parts = os.path.normpath(_PLACEHOLDER.sub("*", pattern)).split(os.sep)
    return [] if parts[0] == os.pardir else parts
