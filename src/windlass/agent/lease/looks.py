"""How often an agent looks at the register, and what it knows of it. Python 3.9, standard library.

Hundreds of agents share one metadata server, so each of them looks seldom. An agent without trials looks soon after it
has run out of them and then ever more rarely, because the longer nothing happened the less likely something is to
happen in the next second. One with trials looks often enough to stop those that the user cancels, more rarely where
many agents share the register. Most looks find that nothing has changed, from the time at which the folder of the
register was last changed. Changes that are made on this machine are noticed at once, see agent/lease/nudge.py.
"""

from __future__ import annotations

import os
import random
import select
import time
from typing import Callable, Optional, Tuple

from windlass.agent.lease.nudge import read_nudges, watch_folder
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.fileclock import estimate_file_clock
from windlass.core.paths import StudyPaths

BUSY_S = 2.0  # between two looks of an agent with trials
BUSY_CHANGED_S = 5.0  # after a look that found changes, which takes more calls
BUSY_MOST_S = 15.0  # what `windlass cancel` promises
_EACH_AGENT_S = 0.05  # that many agents share a register makes each of them look more rarely
IDLE_FIRST_S = 0.5
IDLE_MOST_S = 24.0
# At most this part of the lease: trials of the dead are taken up soon after it is over.
_IDLE_LEASES = 0.08
_JITTER = 0.2  # so that agents which began together do not look together
# The register is read this often, whatever its folder's time says.
_TRUST_BUSY_S, _TRUST_IDLE_S = 60.0, 600.0
_GRANULE_S = 2.0  # some file systems keep times in whole or even seconds
_NUDGES = 8.0  # looks that changes on this machine may cause in a short while
_NUDGE_BUSY_S, _NUDGE_IDLE_S = 4.0, 30.0  # and how long it takes until one more may
_RETRY_S = 0.5  # between two attempts to claim trials while own trials end


class Pace:
    """The time between looks. Pure but for chance."""

    def __init__(self, lease_s: float, chance: Callable[[], float] = random.random) -> None:
        self._idle_most_s = max(IDLE_FIRST_S, min(IDLE_MOST_S, _IDLE_LEASES * lease_s))
        self._idle_s = IDLE_FIRST_S
        self._chance = chance

    def begin_anew(self) -> None:
        """There was something to do: look soon once there is nothing."""
        self._idle_s = IDLE_FIRST_S

    def idle_s(self) -> float:
        """Until the next look of an agent without trials: twice as long each time."""
        pause_s, self._idle_s = self._idle_s, min(2 * self._idle_s, self._idle_most_s)
        return self._spread_s(pause_s)

    def busy_s(self, changed: bool, agents: int) -> float:
        """Until the next look of an agent with trials."""
        self.begin_anew()
        pause_s = (BUSY_CHANGED_S if changed else BUSY_S) + _EACH_AGENT_S * agents
        return min(BUSY_MOST_S, self._spread_s(pause_s))

    def _spread_s(self, pause_s: float) -> float:
        return pause_s * (1.0 - _JITTER + 2 * _JITTER * self._chance())


class _Glance:
    """Tells with three calls that a folder is as it was. It is opened because NFS asks the server then."""

    def __init__(self, folder: str, clock_prefix: str) -> None:
        self._folder = folder
        self._clock_prefix = clock_prefix
        self._seen: Optional[Tuple[int, int]] = None
        self._is_certain = False

    def is_changed(self) -> bool:
        """Whether a file may have come or gone since the last time. To be called before the folder is read."""
        try:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            self._seen = None
            return True  # reading it tells what is wrong
        stamp = (status.st_mtime_ns, status.st_ino)
        is_same = stamp == self._seen and self._is_certain
        self._seen = stamp
        # A change just after this moment may leave the time as it is, where times are coarse.
        self._is_certain = estimate_file_clock(self._clock_prefix) - status.st_mtime > _GRANULE_S
        return not is_same


class Looks:
    """What one agent knows of the register. Moments are those of the monotonic clock."""

    def __init__(
        self, paths: StudyPaths, agent: str, lease_s: float, may_take: Callable[[Register], bool]
    ) -> None:
        """`may_take` tells of a state of the register whether this agent could claim a trial."""
        self._may_take = may_take
        self._file = RegisterFile(paths.claims, agent)
        self._folder = paths.claims
        self._glance = _Glance(paths.claims, os.path.join(paths.journal, "."))
        self._pace = Pace(lease_s)
        self.register: Optional[Register] = None
        # When the next look is due; claims read the register meanwhile.
        self.next_at = time.monotonic() + BUSY_S
        self.looked_at = 0.0
        self.reads = 0  # how often the register was read
        self._read_at = 0.0
        # When nothing was to be had, and how many had ended by then.
        self._refused: Optional[Tuple[float, int]] = None
        self._nudges: Optional[int] = None
        self._nudged = False
        self._credit = _NUDGES

    # -- looking

    def look(self, now: float, idle: bool, anew: bool = False) -> bool:
        """Look if that is due; `anew`: read the register in any case. Returns whether it was read."""
        if now < self.next_at and not anew:
            return False
        trust_s = _TRUST_IDLE_S if idle else _TRUST_BUSY_S
        is_changed = self._glance.is_changed() or self._nudged or self.register is None
        must_read = is_changed or anew or now - self._read_at > trust_s
        if must_read:
            self.register = self._file.read()
            self._read_at = now
            self.reads += 1
            if self._may_take(self.register):
                self._refused = None
        self._nudged = False
        self._credit = min(
            _NUDGES,
            self._credit + (now - self.looked_at) / (_NUDGE_IDLE_S if idle else _NUDGE_BUSY_S),
        )
        self.looked_at = now
        agents = len(self.register.held) if self.register is not None else 0
        self.next_at = now + (self._pace.idle_s() if idle else self._pace.busy_s(must_read, agents))
        return must_read

    # -- claiming

    def claimed(self, now: float, got_some: bool, ended: int) -> None:
        """Trials were asked for. `ended` is how many trials had ended here by then."""
        self._refused = None if got_some else (now, ended)
        if got_some:
            self._pace.begin_anew()
        if self._nudges is not None:
            read_nudges(self._nudges)  # what we changed ourselves is no news

    def claim_failed(self, now: float) -> None:
        """The folder could not be written to: ask again soon."""
        self._refused = (now, -1)

    def claim_at(self, ended: int) -> float:
        """When to ask for trials: now, later because none were to be had, or whenever a look finds some."""
        if self._refused is None:
            return 0.0
        since, had_ended = self._refused
        # To let go of those that have ended since: others may wait for them.
        return self.next_at if ended == had_ended else min(self.next_at, since + _RETRY_S)

    def is_older_than_claim(self) -> bool:
        """Whether the register was read before trials were last asked for in vain."""
        return self._refused is not None and self._read_at <= self._refused[0]

    def should_claim(self, now: float, idle: bool, ended: int) -> bool:
        """Whether to ask for trials now; looks at the register if that is due."""
        if self._refused is not None:
            since, had_ended = self._refused
            if ended == had_ended or now < since + _RETRY_S:
                self.look(now, idle)
                return self._refused is None
        return True

    # -- changes made on this machine

    def watch(self, poller: select.epoll) -> None:
        """Have changes that are made on this machine wake the agent."""
        self._nudges = watch_folder(self._folder)
        if self._nudges is not None:
            poller.register(self._nudges, select.EPOLLIN)

    def owns(self, descriptor: int) -> bool:
        return descriptor == self._nudges

    def heed(self, now: float) -> None:
        """Something was changed on this machine: look soon, unless that happens all the time."""
        if self._nudges is None or not read_nudges(self._nudges):
            return
        self._nudged = True
        if self._credit >= 1.0 and self.next_at > now:
            self._credit -= 1.0
            self.next_at = now
