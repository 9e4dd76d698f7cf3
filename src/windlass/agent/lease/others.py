"""Whether trials that other agents hold may come back in time for this agent. Python 3.9, standard library."""

from __future__ import annotations

import math
import os
import time
from typing import Dict, Mapping, Optional

from windlass.agent.interrupt import Limits, wall_of
from windlass.core.claims import ranges as rs
from windlass.core.claims.alive import clock_shift_s
from windlass.core.claims.ranges import Ranges
from windlass.core.journal.events import Header, Started, decode_event
from windlass.core.journal.read import JournalReader
from windlass.core.paths import StudyPaths

_SOON_S = 60.0  # waiting for a trial that should end within this time costs little, whatever becomes of it
# A trial that takes longer than twice its time and this is not waited for any more.
_OVERDUE_S = 120.0
_LEAST_IDLE_S = 600.0  # an agent may idle as long as one trial takes, and at least this long


class _Holder:
    """What the journal of another agent tells: when its job's notice is due, and when its trials began."""

    def __init__(self, path: str) -> None:
        self._reader = JournalReader(path)
        self._size = -1
        self._shift_s = 0.0  # between the clock of its machine and ours
        self.notice = math.inf
        self.ends = math.inf
        self.began: Dict[int, float] = {}

    def update(self) -> bool:
        """Read what is new; a single call on the file system where nothing is. Returns whether something was."""
        try:
            size = os.stat(self._reader.path).st_size
        except OSError:
            return False
        if size == self._size:
            return False
        self._size = size
        while True:
            events = self._reader.read()
            for event in map(decode_event, events):
                if isinstance(event, Header) and event.is_agent:
                    self._shift_s = clock_shift_s(event.fields, os.path.dirname(self._reader.path))
                    self.notice = event.notice + self._shift_s
                    self.ends = event.ends + self._shift_s
                elif isinstance(event, Started):
                    self.began[event.number] = event.t + self._shift_s
            if not events or self._reader.offset >= size:
                return True


class Others:
    """Judges, for an agent with nothing to do, whether it is worth its while to stay.

    A trial comes back when its agent's job ends before the trial does. That can be foreseen from the time at which the
    trial began, the time that trials take, and the end of that job. Anything else that brings trials back (a node that
    fails, a preemption) cannot be foreseen, and a GPU should not idle for hours in case it happens.
    """

    def __init__(self, paths: StudyPaths, own: str) -> None:
        self._paths = paths
        self._own = own
        self._holders: Dict[str, _Holder] = {}
        self._reason = ""  # the agent whose trials were worth waiting for at the last look

    def are_waited_for(
        self, held: Mapping[str, Ranges], limits: Limits, longest_s: Optional[float]
    ) -> bool:
        """Whether an agent with these limits, whose longest trial took `longest_s`, stays for what others hold."""
        now = time.time()
        trial_s = (
            max(limits.trial_time_s, limits.usual_s or 0.0) if limits.trial_time_s else longest_s
        )
        return self.may_come_back(
            held, now, wall_of(limits.latest_begin), trial_s, limits.resumable
        )

    def may_come_back(
        self,
        held: Mapping[str, Ranges],
        now: float,
        latest: float,
        trial_s: Optional[float],
        resumable: bool,
    ) -> bool:
        """`now` and `latest`, after which this agent begins no trial, are Unix times.

        `trial_s` is what one trial takes; None: not known. Those that are `resumable` are left to the jobs that follow.
        """
        if now > latest:
            return False

        def is_worth_waiting(holder: _Holder, ranges: Ranges) -> bool:
            foresees = None if resumable else holder
            return any(
                _is_worth_waiting(holder.began.get(number, now), now, latest, trial_s, foresees)
                for number in rs.numbers(ranges)
            )

        # First the one that was worth it before: while it is, nothing is read.
        for agent in sorted(held, key=lambda agent: agent != self._reason):
            if agent == self._own or not held[agent]:
                continue
            holder = self._holders.get(agent)
            if holder is None:
                holder = self._holders[agent] = _Holder(self._paths.journal_of(agent))
            if any(number not in holder.began for number in rs.numbers(held[agent])):
                holder.update()  # one that begins later will be overdue later
            if is_worth_waiting(holder, held[agent]) or (
                holder.update() and is_worth_waiting(holder, held[agent])
            ):
                self._reason = agent
                return True
        return False


def _is_worth_waiting(
    began: float, now: float, latest: float, trial_s: Optional[float], holder: Optional[_Holder]
) -> bool:
    if trial_s is not None:
        expected = began + trial_s
        if expected - now <= _SOON_S:
            return now <= began + 2 * trial_s + _OVERDUE_S
        if holder is not None and expected <= holder.notice:
            return False  # it will be done in time
    if holder is None or holder.ends > latest:
        return False
    return holder.ends - now <= max(trial_s or 0.0, _LEAST_IDLE_S)
