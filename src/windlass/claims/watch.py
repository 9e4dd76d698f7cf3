"""Finds agents that died while they held trials, with few calls on the shared folder. Python 3.9, standard library.

For an agent that waits: it would otherwise look at the journals of all others again and again. A process on the same
machine is looked at whenever one asks, which costs no call on the shared folder. An agent elsewhere that wrote at some
moment cannot be taken for dead before its lease is over, so its journal is looked at once in a lease. In addition each
look asks about one agent in a job that may have missed a beat, because the scheduler may know that its job has ended.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional

from windlass.claims.alive import is_alive, missed_beat_s, same_kernel
from windlass.claims.coroner import Coroner, Fate, read_lease_s
from windlass.claims.ranges import Ranges
from windlass.claims.recover import Recovered, take_back
from windlass.claims.register import RegisterFile
from windlass.journal.read import read_header
from windlass.paths import StudyPaths

_AT_ONCE = 16  # journals at most that one look reads: there may be hundreds


class _Holder:
    """What is known of an agent that holds trials. Moments are those of the caller's clock."""

    def __init__(self, header: Optional[Mapping[str, Any]], now: float) -> None:
        self.header = header
        self.fate = Fate.ALIVE
        self.looked_at = -math.inf  # when its journal was last looked at
        self.due_at = now  # when its lease may be over
        self.early_at = now  # when the scheduler may be asked about its job


class HolderWatch:
    """Remembers when each agent that holds trials was last known to be alive."""

    def __init__(self, paths: StudyPaths, own: str) -> None:
        self._paths = paths
        self._own = own
        self._lease_s = read_lease_s(paths)
        self._coroner = Coroner(paths)
        self._holders: Dict[str, _Holder] = {}

    def is_one_gone_here(self) -> bool:
        """Whether a process of this machine that held trials is gone. Makes no call on the shared folder."""
        return any(
            holder.header is not None and is_alive(holder.header) is False
            for holder in self._holders.values()
            if holder.header is not None and same_kernel(holder.header)
        )

    @property
    def has_one_here(self) -> bool:
        """Whether a process of this machine holds trials."""
        return any(holder.header is not None and same_kernel(holder.header) for holder in self._holders.values())

    def recover(self, held: Mapping[str, Ranges], register_file: RegisterFile, now: float) -> Recovered:
        """Give what dead agents held back to everybody. `held` is as the register has it, `now` is of any clock."""
        self._learn(held, now)
        for agent in self._choose(now):
            self._judge(agent, self._holders[agent], now)
        dead = [agent for agent, holder in self._holders.items() if holder.fate is Fate.DEAD]
        suspects = [agent for agent, holder in self._holders.items() if holder.fate is Fate.SUSPECT]
        if dead:
            take_back(self._paths, register_file, {agent: held[agent] for agent in dead}, self._coroner)
            for agent in dead:
                del self._holders[agent]
        return Recovered(dead, suspects)

    def _learn(self, held: Mapping[str, Ranges], now: float) -> None:
        """Forget agents that hold nothing any more, and read the headers of new ones, a few at a time."""
        self._holders = {agent: holder for agent, holder in self._holders.items() if held.get(agent)}
        new = [agent for agent, ranges in held.items() if ranges and agent != self._own and agent not in self._holders]
        for agent in new[:_AT_ONCE]:
            self._holders[agent] = _Holder(read_header(self._paths.journal_of(agent)), now)

    def _choose(self, now: float) -> List[str]:
        """Whom to look at now: processes of this machine, those whose lease may be over, and one that may be gone."""
        here, due, early = [], [], []
        for agent, holder in self._holders.items():
            if holder.header is not None and is_alive(holder.header) is not None:
                here.append(agent)
            elif now >= holder.due_at:
                due.append(agent)
            elif now >= holder.early_at:
                early.append(agent)
        due.sort(key=lambda agent: self._holders[agent].due_at)
        early.sort(key=lambda agent: self._holders[agent].looked_at)
        return [*here, *due[:_AT_ONCE], *early[:1]]

    def _judge(self, agent: str, holder: _Holder, now: float) -> None:
        if holder.header is None:
            holder.header = read_header(self._paths.journal_of(agent))  # it may have been written only in part before
        self._coroner.silent_s = 0.0
        holder.fate = self._coroner.fate(agent, holder.header)
        holder.looked_at = now
        silent_s, missed_s = self._coroner.silent_s, missed_beat_s(self._lease_s)
        if silent_s > self._lease_s or holder.header is None:
            holder.due_at = now + missed_s  # alive all the same, as far as one knows: ask again from time to time
        else:
            holder.due_at = now + self._lease_s - silent_s
        in_job = holder.header is not None and holder.header.get("job")
        holder.early_at = now + max(missed_s - silent_s, missed_s / 2) if in_job else math.inf
