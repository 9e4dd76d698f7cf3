"""The lock of a measurement: a file beside its folder names the client that measures the study."""

from __future__ import annotations

import os

from windlass.bundle.folder import folder_error
from windlass.core.claims.client import client_name
from windlass.core.errors import FolderError
from windlass.core.files import PART
from windlass.core.lock import FileLock

# And the study's name: the folder beside the study in which it is measured.
MEASURING = ".measuring-"
_MEASURER = ".measurer-"  # With the study's name after it, the file names the process that measures the study.
_PREPARING_S = 600.0  # after that, an agent or a job shows that a client on another machine is there, or it is dead


def lock_path(folder: str) -> str:
    """The file that names the client of a measurement in this folder."""
    return os.path.join(
        os.path.dirname(folder), _MEASURER + os.path.basename(folder).removeprefix(MEASURING)
    )


def measured_names(root: str) -> list[str]:
    """The names of studies of which a measurement is, or has left something, in this root."""
    try:
        found = os.listdir(root)
    except OSError:
        return []
    marks = (MEASURING, _MEASURER)
    found = [name for name in found if PART not in name]
    return sorted(
        {name.removeprefix(mark) for name in found for mark in marks if name.startswith(mark)}
    )


def is_taken(path: str) -> bool:
    """Whether the client that the file names may be there."""
    return _lock(path).is_taken()


def _lock(path: str) -> FileLock:
    return FileLock(path, {"client": client_name()}, _PREPARING_S)


def under_way_error(folder: str) -> FolderError:
    return FolderError(
        f"{folder}: another measurement of this study is under way\n  hint: wait for it"
    )


class MeasuringLock:
    """Held from before anything of a former measurement is removed until the outcome is there. Taken from the dead."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = _lock(lock_path(folder))

    def __enter__(self) -> None:
        try:
            os.makedirs(os.path.dirname(self._folder), exist_ok=True)
            is_ours = self._lock.take()
        except OSError as error:
            raise folder_error(error, self._folder) from error
        if not is_ours:
            raise under_way_error(self._folder)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
