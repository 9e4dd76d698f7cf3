"""Memory that the agent shares with its guard: when the folder last answered, and which processes are trials.

Neither of them needs the study's folder, a pipe or a system call to read and write it, so the guard sees what it needs
also while the agent is blocked in a call of the file system. Python 3.9, standard library.
"""

from __future__ import annotations

import mmap
import time
from typing import List, NamedTuple, Optional

# Fields of eight bytes each: those of the head, and behind it one row a slot.
_PROVED, _BUSY_SINCE, _FIRED, _PAUSES, _BEFORE_PAUSE, _HEAD = 0, 1, 2, 3, 4, 8
_PID, _FENCED, _ENDED, _ROW = 0, 1, 2, 4


def clock_s() -> float:
    """Seconds on a clock that goes on while the machine is suspended: others count that time as well."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Ended(NamedTuple):
    """What the guard has seen of a process while the agent could not look."""

    is_fenced: bool  # the guard ended it, because the folder was out of reach
    # On the monotonic clock: when it was found to have ended; None: it was not watched.
    when: Optional[float]


class FencePage:
    """One anonymous page, or a few. Each field is written by one process and read by the other."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        memory = memoryview(mmap.mmap(-1, 8 * (_HEAD + _ROW * max(1, slots))))
        self._seconds = memory.cast("d")
        self._numbers = memory.cast("q")
        self._seconds[_PROVED] = clock_s()

    # -- written by the agent

    @property
    def proved(self) -> float:
        """When the newest write was begun that is known to have reached the study's folder; see `clock_s`."""
        return self._seconds[_PROVED]

    def prove(self, began: float, pause_s: float) -> None:
        """A write that was begun then is safe. One that comes later than `pause_s` after the one before is a pause."""
        if began - self._seconds[_PROVED] > pause_s:
            self._seconds[_BEFORE_PAUSE] = self._seconds[_PROVED]
            self._numbers[_PAUSES] += 1
        self._seconds[_PROVED] = began

    @property
    def pauses(self) -> int:
        """How many pauses there have been."""
        return self._numbers[_PAUSES]

    @property
    def before_pause(self) -> float:
        """The last proof before the last pause."""
        return self._seconds[_BEFORE_PAUSE]

    @property
    def busy_since(self) -> float:
        """When the agent stopped waiting for events; 0 while it waits."""
        return self._seconds[_BUSY_SINCE]

    def set_busy(self, is_busy: bool) -> None:
        self._seconds[_BUSY_SINCE] = clock_s() if is_busy else 0.0

    def begin(self, slot: int, pid: int) -> None:
        """A process of this slot's trial runs. Slots beyond the table are found by their environment alone."""
        if slot < self._slots:
            row = _HEAD + _ROW * slot
            self._numbers[row + _FENCED] = 0
            self._seconds[row + _ENDED] = 0.0
            self._numbers[row + _PID] = pid

    def end(self, slot: int, pid: int) -> Ended:
        """It has ended and was reaped. Returns what the guard has seen of it."""
        row = _HEAD + _ROW * slot
        if slot >= self._slots or self._numbers[row + _PID] != pid:
            return Ended(False, None)
        self._numbers[row + _PID] = 0
        return Ended(bool(self._numbers[row + _FENCED]), self._seconds[row + _ENDED] or None)

    # -- written by the guard

    @property
    def fired(self) -> int:
        """How often the guard has ended the trials."""
        return self._numbers[_FIRED]

    def fire(self) -> None:
        self._numbers[_FIRED] += 1

    def running(self) -> List[int]:
        """Slots whose processes are not known to have ended."""
        rows = range(self._slots)
        return [
            slot
            for slot in rows
            if self._numbers[_HEAD + _ROW * slot + _PID]
            and not self._seconds[_HEAD + _ROW * slot + _ENDED]
        ]

    def pid_of(self, slot: int) -> int:
        return self._numbers[_HEAD + _ROW * slot + _PID]

    def mark_ended(self, slot: int, when: float) -> None:
        self._seconds[_HEAD + _ROW * slot + _ENDED] = when

    def mark_fenced(self, slot: int) -> bool:
        """The process of this slot is being ended by the guard. Returns whether that is new."""
        row = _HEAD + _ROW * slot
        is_new = not self._numbers[row + _FENCED]
        self._numbers[row + _FENCED] = 1
        return is_new
