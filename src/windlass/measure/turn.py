"""Whose turn it is to measure a study: a file beside the folder of the measurement names the client."""

from __future__ import annotations

import json
import os

from windlass.bundle.folder import folder_error
from windlass.claims.alive import identity, is_alive, seconds_silent
from windlass.claims.client import client_name
from windlass.errors import FolderError

MEASURING = ".measuring-"  # and the study's name: the folder beside the study in which it is measured
_MEASURER = ".measurer-"  # and the study's name: who measures it
_PREPARING_S = 600.0  # after that, an agent or a job tells of a client on another machine, or it is dead


def turn_path(folder: str) -> str:
    """The file that names the client of a measurement in this folder."""
    return os.path.join(os.path.dirname(folder), _MEASURER + os.path.basename(folder).removeprefix(MEASURING))


def measured_names(root: str) -> list[str]:
    """The names of studies of which a measurement is, or has left something, in this root."""
    try:
        found = os.listdir(root)
    except OSError:
        return []
    marks = (MEASURING, _MEASURER)
    return sorted({name.removeprefix(mark) for name in found for mark in marks if name.startswith(mark)})


def is_taken(path: str) -> bool:
    """Whether the client that the file names may be there."""
    return _is_alive(path, _read(path))


def under_way_error(folder: str) -> FolderError:
    return FolderError(f"{folder}: another measurement of this study is under way\n  hint: wait for it")


class MeasuringTurn:
    """Held from before anything of a former measurement is removed until the outcome is there. Taken from the dead."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = turn_path(folder)
        self._me = json.dumps({**identity(), "client": client_name()})

    def __enter__(self) -> None:
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            taken = self._take() or (self._bury() and self._take())
        except OSError as error:
            raise folder_error(error, self._folder) from error
        if not taken:
            raise under_way_error(self._folder)

    def _take(self) -> bool:
        try:
            with open(self._path, "x", encoding="utf-8") as file:
                file.write(self._me)
        except FileExistsError:
            return False
        return True

    def _bury(self) -> bool:
        """Remove what a dead client has left; False where it lives, or somebody else was faster."""
        seen = _read(self._path)
        if _is_alive(self._path, seen):
            return False
        mine = f"{self._path}.{client_name()}"
        try:
            os.rename(self._path, mine)
        except FileNotFoundError:
            return True
        if _read(mine) != seen:
            os.rename(mine, self._path)  # another has just taken its place
            return False
        os.unlink(mine)
        return True

    def __exit__(self, *_: object) -> None:
        try:
            if _read(self._path) == self._me:
                os.unlink(self._path)
        except OSError:
            pass  # who comes next sees that we are gone


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _is_alive(path: str, text: str) -> bool:
    if not os.path.exists(path):
        return False
    try:
        alive = is_alive(json.loads(text))
    except (ValueError, KeyError):
        alive = None  # it is just being written
    return seconds_silent(path) < _PREPARING_S if alive is None else alive
