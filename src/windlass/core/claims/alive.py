"""Is the process that wrote a journal still there? Python 3.9, standard library."""

from __future__ import annotations

import functools
import os
import time
from typing import Any, Dict, Mapping, Optional

from windlass.core.fileclock import estimate_file_clock, read_file_clock

LEASE_S = 300.0  # an agent on another machine, silent for so long, is taken for dead, unless the plan says otherwise
_SAME_CLOCK_S = 1.0  # clocks that differ by less are taken for the same
_WORST_CLOCK_S = 1e10  # no clock is that wrong; more is damage


def beat_s(lease_s: float) -> float:
    """An agent with trials writes to its journal at least this often."""
    return lease_s / 15


def idle_beat_s(lease_s: float) -> float:
    """An agent without trials writes this often: nobody waits for what it holds, but commands show that it is there."""
    return lease_s / 6


def missed_beat_s(lease_s: float) -> float:
    """An agent with trials that has not written for so long has missed a beat: the scheduler is asked about its job."""
    return 1.5 * beat_s(lease_s)


def fence_s(lease_s: float) -> float:
    """An agent that could not write for so long stops its trials. See `fence_patience_s` for the rest of the lease."""
    return lease_s * 0.5


def fence_patience_s(lease_s: float) -> float:
    """So long do these trials have, at most, to end by themselves.

    With `fence_s` it is 0.6 of the lease. The guard needs up to 3.25 s more, for its looks and for processes that left
    their group. Of a lease of 15 s, 2.75 s are left then before others may begin the trials, of 5 minutes 117 s: longer
    than a client of NFS may show an old time of the journal (60 s).
    """
    return lease_s * 0.1


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


@functools.lru_cache(maxsize=None)
def this_machine() -> Dict[str, str]:
    """What tells this machine, its boot and its process numbers from others."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    host = os.uname().nodename
    return {
        "host": host,
        "machine": _read("/etc/machine-id") or host,
        "boot": _read("/proc/sys/kernel/random/boot_id") + namespace,
    }


def process_began(pid: int) -> Optional[str]:
    """When a process began, in the kernel's own unit; None when there is none, "" where that cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # A zombie still has its number but will never act again.
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


def identity() -> Dict[str, Any]:
    """Names this very process, for headers and lock files."""
    return {**this_machine(), "pid": os.getpid(), "began": process_began(os.getpid())}


def same_kernel(header: Mapping[str, Any]) -> bool:
    """Whether that process shares our process numbers, so that we can look at it and at its children."""
    return (
        header.get("boot") == this_machine()["boot"]
        and header.get("host") == this_machine()["host"]
    )


def is_alive(header: Mapping[str, Any]) -> Optional[bool]:
    """True or False where this machine can tell; None for a process on another machine."""
    if same_kernel(header):
        return bool(process_began(int(header["pid"])) == header["began"])
    here = this_machine()
    same_machine = header.get("machine") == here["machine"] and header.get("host") == here["host"]
    if same_machine and header.get("boot", "")[:36] != here["boot"][:36]:
        return False  # this machine has been started anew since
    return None


def clock_ahead_s(header: Mapping[str, Any]) -> Optional[float]:
    """By how much the file system's clock was ahead of the writer's when a journal began; None: not recorded."""
    ahead_s = header.get("clock_s")
    if (
        not isinstance(ahead_s, (int, float))
        or isinstance(ahead_s, bool)
        or not abs(ahead_s) < _WORST_CLOCK_S
    ):
        return None
    return float(ahead_s)


def began_by_file_clock(header: Mapping[str, Any]) -> Optional[float]:
    """When a journal began, by the file system's clock, where its writer recorded how that differs from its own."""
    began = header.get("t")
    return None if began is None else float(began) + (clock_ahead_s(header) or 0.0)


def clock_shift_s(header: Mapping[str, Any], folder: str) -> float:
    """What to add to the times in a journal to have them by the clock of this machine. `folder` is that of journals.

    0 for a writer on this machine, for one of an earlier version, and where the clocks agree to a second.
    """
    ahead_s, here = clock_ahead_s(header), this_machine()
    if ahead_s is None or (
        header.get("machine") == here["machine"] and header.get("host") == here["host"]
    ):
        return 0.0
    shift_s = ahead_s - file_clock_ahead_s(folder)
    return shift_s if abs(shift_s) >= _SAME_CLOCK_S else 0.0


def file_clock_ahead_s(folder: str) -> float:
    """By how much the clock of a folder's file system is ahead of this machine's."""
    return estimate_file_clock(os.path.join(folder, ".")) - time.time()


def seconds_silent(path: str) -> float:
    """How long ago a file was last written, by the file system's own clock, which is read anew."""
    return _age_s(path, read_file_clock(_probe_prefix(path)))


def about_seconds_silent(path: str) -> float:
    """The same with a single call on the file system, from what is remembered of its clock."""
    return _age_s(path, estimate_file_clock(_probe_prefix(path)))


def _probe_prefix(path: str) -> str:
    return os.path.join(os.path.dirname(path), ".")


def _age_s(path: str, now: float) -> float:
    try:
        return max(0.0, now - os.stat(path).st_mtime)
    except OSError:
        return 0.0
