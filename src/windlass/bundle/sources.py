"""Remembers which source files trials were executed with, so that a later run can tell which of them have changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping

from windlass.bundle.tree import list_code

_ENDINGS = (
    ".py",
    ".sh",
    ".r",
    ".jl",
    ".lua",
    ".c",
    ".cc",
    ".cpp",
    ".cu",
    ".h",
    ".hpp",
    ".pyx",
    ".rs",
    ".go",
    ".ipynb",
)
_MOST_LOOKED_AT = 5_000  # files of the project
_MOST = 500  # source files that are remembered
_MOST_BYTES = 1_000_000  # of one; a larger one is nothing that somebody wrote
_SHOWN = 3


def list_sources(project: str, excluded: Iterable[str]) -> dict[str, str]:
    """The project's source files, each with a hash of its content. Others may be what trials themselves write."""
    found: dict[str, str] = {}
    for file in list_code(os.path.abspath(project), excluded, _MOST_LOOKED_AT):
        if len(found) == _MOST:
            break
        if file.name.lower().endswith(_ENDINGS) and file.size <= _MOST_BYTES:
            try:
                with open(os.path.join(project, file.name), "rb") as content:
                    found[file.name] = hashlib.blake2b(
                        content.read(_MOST_BYTES), digest_size=6
                    ).hexdigest()
            except OSError:
                continue  # whoever needs it reports that
    return found


def find_changed_sources(before: Mapping[str, str] | None, now: Mapping[str, str]) -> list[str]:
    """Names of the files that have changed, a few of them; one that is new is of no use to trials until another is."""
    names = sorted(
        name for name, content in now.items() if before and before.get(name, content) != content
    )
    if len(names) <= _SHOWN:
        return names
    return [*names[: _SHOWN - 1], f"{len(names) - _SHOWN + 1} other source files"]
