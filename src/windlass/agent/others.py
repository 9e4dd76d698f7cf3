"""Whether trials that other agents hold may come back in time for this agent. Python 3.9, standard library."""

from __future__ import annotations

import math
import time
from typing import Dict, Mapping, Optional

from windlass.agent.interrupt import Limits, wall_of
from windlass.claims import ranges as rs
from windlass.claims.ranges import Ranges
from windlass.journal.read import JournalReader
from windlass.paths import StudyPaths

_SOON_S = 60.0  # waiting for a trial that should end within this time costs little, whatever becomes of it
_OVERDUE_S = 120.0  # a trial that takes longer than twice its time and this is not waited for any more
_LEAST_IDLE_S = 600.0  # an agent may idle as long as one trial takes, and at least this long


class _Holder:
    """What the journal of another agent tells: when its job's notice is due, and when its trials began."""

    def __init__(self, path: str) -> None:
        self._reader = JournalReader(path)
        self.notice = math.inf
        self.ends = math.inf
        self.began: Dict[int, float] = {}

    def update(self) -> None:
        while True:
            events = self._reader.read()
            if not events:
                return
            for event in events:
                kind = event.get("e")
                if kind == "agent":
                    self.notice = float(event.get("notice") or math.inf)
                    self.ends = float(event.get("ends") or math.inf)
                elif kind == "start":
                    self.began[event["i"]] = event["t"]


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

    def are_waited_for(self, held: Mapping[str, Ranges], limits: Limits, longest_s: Optional[float]) -> bool:
        """Whether an agent with these limits, whose longest trial took `longest_s`, stays for what others hold."""
        now = time.time()
        trial_s = max(limits.trial_time_s, limits.usual_s or 0.0) if limits.trial_time_s else longest_s
        return self.may_come_back(held, now, wall_of(limits.latest_begin), trial_s, limits.resumable)

    def may_come_back(
        self, held: Mapping[str, Ranges], now: float, latest: float, trial_s: Optional[float], resumable: bool
    ) -> bool:
        """`now` and `latest`, after which this agent begins no trial, are Unix times.

        `trial_s` is what one trial takes; None: not known. Those that are `resumable` are left to the jobs that follow.
        """
        if now > latest:
            return False
        for agent, ranges in held.items():
            if agent == self._own or not ranges:
                continue
            holder = self._holders.get(agent)
            if holder is None:
                holder = self._holders[agent] = _Holder(self._paths.journal_of(agent))
            holder.update()
            for number in rs.numbers(ranges):
                began = holder.began.get(number, now)
                if _is_worth_waiting(began, now, latest, trial_s, None if resumable else holder):
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
