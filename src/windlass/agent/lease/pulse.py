"""A thread that proves to the guard, again and again, that the study's folder can be written to. Python 3.9.

A write that the kernel has accepted proves nothing on a network file system: only a sync that has returned does. It can
take long, so it is not the loop's to wait for. The loop writes beats; where it is late, because it is busy with
something else, this thread writes one itself, so that nobody takes an agent for dead that is merely busy.
"""

from __future__ import annotations

import threading
from typing import Callable, Optional

from windlass.agent.lease.fence_page import FencePage, clock_s
from windlass.core.claims.alive import beat_s, fence_s
from windlass.core.journal.write import DiskFull, JournalWriter

_RETRY_S = 0.5  # after an error, or a quarter of a beat where that is shorter


def pause_s(lease_s: float) -> float:
    """Proofs that are further apart than this are a pause: then the register is read before anything else is done."""
    return fence_s(lease_s) / 2


class Pulse:
    """Runs from `start` to `close`. `on_proof` is called by its thread with the age of each proof in seconds."""

    def __init__(self, journal: JournalWriter, page: FencePage, lease_s: float) -> None:
        self._journal = journal
        self._page = page
        self._lease_s = lease_s
        self._beat_s = beat_s(lease_s)
        self._changed = threading.Condition()
        self._interval_s = self._beat_s  # between beats of the loop
        # When the loop began to write the beat that is to be synced.
        self._written: Optional[float] = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self.on_proof: Callable[[float], None] = lambda age_s: None

    def start(self) -> None:
        self._thread.start()

    def sync_soon(self, began: float, interval_s: float) -> None:
        """The loop has written a beat, and had begun to do so at `began` (see `clock_s`). The next is due then."""
        with self._changed:
            self._written, self._interval_s = began, interval_s
            self._changed.notify()

    def close(self) -> None:
        """Write no more. A thread that is blocked by the file system is left behind."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        left_s = self._page.proved + fence_s(self._lease_s) - clock_s()
        self._thread.join(timeout=max(0.1, left_s))

    def _run(self) -> None:
        failing = False
        while True:
            with self._changed:
                if self._written is None and not self._is_closed:
                    late_s = self._interval_s + self._beat_s / 2
                    self._changed.wait(min(_RETRY_S, self._beat_s / 4) if failing else late_s)
                began, self._written = self._written, None
                if self._is_closed:
                    return
            try:
                if began is None or failing:
                    began = clock_s()
                    self._journal.beat()
                else:
                    self._journal.sync()
                failing = False
            except (OSError, ValueError, DiskFull):
                failing = True
                continue
            self._page.prove(began, pause_s(self._lease_s))
            self.on_proof(clock_s() - began)
