"""Notices at once what processes of this machine change in a folder, without a call on it. Python 3.9, Linux.

The kernel reports changes that were made through it (inotify). On a network file system it knows nothing of those made
elsewhere, so whoever uses this looks at the folder from time to time as well.
"""

from __future__ import annotations

import os
import struct
from typing import Optional

_IN_CREATE, _IN_MOVED_TO, _IN_Q_OVERFLOW = 0x100, 0x80, 0x4000
_HEAD = struct.Struct("iIII")
_EVENT_BYTES = 64 << 10


def watch_folder(folder: str) -> Optional[int]:
    """A descriptor that can be read whenever a file appears in the folder; None where the kernel offers none."""
    import ctypes  # takes some milliseconds, which an agent without anything to wait for does not spend

    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor = int(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor < 0:
            return None  # the user's other programs may have used up the number that is allowed
        if (
            library.inotify_add_watch(descriptor, os.fsencode(folder), _IN_CREATE | _IN_MOVED_TO)
            < 0
        ):
            os.close(descriptor)
            return None
    except (OSError, AttributeError):
        return None
    return descriptor


def read_nudges(descriptor: int) -> bool:
    """Whether a file whose name is a number has appeared since the last time, or too many files to be listed."""
    try:
        events = os.read(descriptor, _EVENT_BYTES)
    except BlockingIOError:
        return False
    offset, found = 0, False
    while offset + _HEAD.size <= len(events):
        _, mask, _, length = _HEAD.unpack_from(events, offset)
        name = events[offset + _HEAD.size : offset + _HEAD.size + length].rstrip(b"\0")
        found = found or name.isdigit() or bool(mask & _IN_Q_OVERFLOW)
        offset += _HEAD.size + length
    return found
