"""Warnings of `windlass run`, each shown once a study: one that is repeated on every call is no longer read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

from windlass.core.counted import counted

_FILE = "warnings.txt"  # in the study's folder, one a line


class KnownWarnings:
    """Shows what was not shown at the last run of the study in `folder`, and says how many warnings still hold."""

    def __init__(self, folder: str, say: Callable[[str], None]) -> None:
        self._path = os.path.join(folder, _FILE)
        self._say = say
        self._met: list[str] = []
        try:
            with open(self._path, encoding="utf-8") as file:
                self._before = set(file.read().splitlines())
        except (OSError, UnicodeDecodeError):
            self._before = set()

    def show(self, warnings: Iterable[str]) -> None:
        """Show the warnings that this study has not shown before, each once."""
        fresh = [
            text
            for text in dict.fromkeys(" ".join(text.split()) for text in warnings)
            if text not in self._met
        ]
        self._met += fresh
        for text in fresh:
            if text not in self._before:
                self._say(f"warning: {text}")

    def remember(self) -> None:
        """The study's folder is there: write down what was shown. A folder that is full keeps nobody from running."""
        held = sum(text in self._before for text in self._met)
        if held:
            what = counted(held, "warning is the same", "warnings are the same")
            self._say(f"{what} as at the last run; see {self._path}")
        if set(self._met) == self._before:
            return
        with contextlib.suppress(OSError), open(self._path, "w", encoding="utf-8") as file:
            file.writelines(f"{text}\n" for text in self._met)
