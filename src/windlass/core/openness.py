"""Who may read a copy: never more users than may read what it was made from. Python 3.9, standard library."""

from __future__ import annotations

import os
import stat
from typing import Iterable, List

GROUP, OTHERS = stat.S_IRGRP, stat.S_IROTH
ANYBODY = GROUP | OTHERS
_ENTER = stat.S_IROTH | stat.S_IXOTH


def readers(status: os.stat_result, group: int) -> int:
    """Bits of a mode: whether the members of `group`, and all others, may read this file or what is in this folder.

    A file that belongs to another group is open to the members of `group` only if it is open to all.
    """
    needed = _ENTER if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
    open_to_all = status.st_mode & needed == needed
    open_to_group = status.st_gid == group and (status.st_mode >> 3) & needed == needed
    return (OTHERS if open_to_all else 0) | (GROUP if open_to_all or open_to_group else 0)


def readers_of_all(statuses: Iterable[os.stat_result], group: int) -> int:
    """The same for what all of these hold together, as an archive does."""
    bits = ANYBODY
    for status in statuses:
        bits &= readers(status, group)
        if not bits:
            break
    return bits


def statuses_above(path: str, levels: int) -> List[os.stat_result]:
    """Of the folders that a path is in, the innermost first and at most `levels`: who may enter them decides, too.

    A folder that can be entered appears as one that can be listed: that is not needed to read a file in it.
    """
    found = []
    folder = os.path.dirname(os.path.abspath(path))
    for _ in range(levels):
        status = os.stat(folder)
        enter = status.st_mode & (stat.S_IXGRP | stat.S_IXOTH)
        found.append(os.stat_result((status.st_mode | enter << 2, *status[1:])))
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    return found


def limit_readers(descriptor: int, bits: int) -> None:
    """Take the right to read an open file from those who are not in `bits`, before something is written to it."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    limited = mode & ~(ANYBODY & ~bits)
    if limited != mode:
        os.fchmod(descriptor, limited)


def private_opener(path: str, flags: int) -> int:
    """For open(): a new file can be read by its owner alone until somebody opens it to others."""
    return os.open(path, flags, 0o600)
