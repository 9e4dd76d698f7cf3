"""On which kinds of file systems a trial's open files lie, and how much of them it has gone through. Python 3.9.

The kernel counts a process's bytes in all, not by file system. What is seen here are files that were open when we
looked, and how far in they were: at least so much was read or written there.
"""

from __future__ import annotations

import os
import stat
from typing import Dict, Iterable, Optional, Set, Tuple

# Those that are shared by machines. fuse may be either; on clusters it mostly is.
_SHARED = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cifs",
    "smb",
    "glusterfs",
    "panfs",
    "9p",
    "afs",
    "fuse",
)
_MOST_FILES = 256  # of one process
_MB = 1024 * 1024


class OpenFiles:
    """The files of one trial, look by look."""

    def __init__(self, kinds: Optional[Dict[int, str]] = None) -> None:
        self._kinds = read_mounts() if kinds is None else kinds  # device number → kind
        # Device and inode → how far in, and the kind.
        self._read_to: Dict[Tuple[int, int], Tuple[int, str]] = {}

    def look(self, pids: Iterable[int]) -> None:
        for pid in pids:
            folder = f"/proc/{pid}/fd"
            try:
                numbers = os.listdir(folder)[:_MOST_FILES]
            except OSError:
                continue
            for number in numbers:
                self._look_at(pid, number)

    def _look_at(self, pid: int, number: str) -> None:
        try:
            found = os.stat(f"/proc/{pid}/fd/{number}")
            kind = self._kinds.get(found.st_dev, "")
            if not stat.S_ISREG(found.st_mode) or not is_shared(kind):
                return
            with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:
                position = int(file.readline().split()[1])
        except (OSError, ValueError, IndexError):
            return
        key = (found.st_dev, found.st_ino)
        known = self._read_to.get(key, (0, kind))[0]
        self._read_to[key] = (max(known, position), kind)

    @property
    def kinds(self) -> Set[str]:
        return {kind for _, kind in self._read_to.values()}

    @property
    def shared_mb(self) -> float:
        return sum(position for position, _ in self._read_to.values()) / _MB


def is_shared(kind: str) -> bool:
    return kind.startswith(_SHARED)


def read_mounts() -> Dict[int, str]:
    """Device number → kind of file system."""
    kinds: Dict[int, str] = {}
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                major, _, minor = before.split(" ")[2].partition(":")
                kinds[os.makedev(int(major), int(minor))] = after.split(" ", 1)[0]
    except (OSError, ValueError, IndexError):
        pass
    return kinds
