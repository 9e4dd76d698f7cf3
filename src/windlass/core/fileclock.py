"""The clock of a file system, which all machines that share it see alike. Python 3.9, standard library.

Clocks of machines may differ by minutes, and the times of files on a network file system are its server's. So the age
of a file is set by the server's clock, which is read from a small file that is made and removed. That takes four
calls, so the difference to a clock of this machine is remembered.
"""

from __future__ import annotations

import os
import time

_KEPT_S = 600.0  # Clocks drift apart by some milliseconds in this time.
# Folder → the file system's time less ours, and when that was seen.
_ahead_of_us: dict[str, tuple[float, float]] = {}


def read_file_clock(prefix: str) -> float:
    """The time by the clock of a file system; `prefix` begins the path of the file that is made to find out.

    By the clock of this machine where no file can be made there.
    """
    probe = f"{prefix}clock-{os.uname().nodename}-{os.getpid()}"
    try:
        with open(probe, "wb"):
            pass
        now = os.stat(probe).st_mtime
        os.unlink(probe)
    except OSError:
        return time.time()
    since_boot = _since_boot()
    _ahead_of_us[os.path.dirname(prefix)] = (now - since_boot, since_boot)
    return now


def estimate_file_clock(prefix: str) -> float:
    """The same without a call on the file system, from what was found within the last ten minutes.

    Somebody may set the server's clock meanwhile. Before an agent is taken for dead, `read_file_clock` is asked.
    """
    ahead_s, seen = _ahead_of_us.get(os.path.dirname(prefix), (0.0, 0.0))
    since_boot = _since_boot()
    if not seen or since_boot - seen > _KEPT_S:
        return read_file_clock(prefix)
    return since_boot + ahead_s


def _since_boot() -> float:
    """A clock that nobody sets, and that goes on while the machine is suspended."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.monotonic()
