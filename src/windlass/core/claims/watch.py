"""Finds agents that died while they held trials, with few calls on the shared folder. Python 3.9, standard library.

For an agent that waits: it would otherwise look at the journals of all others again and again. A process on the same
machine is looked at whenever one asks, which costs no call on the shared folder. An agent elsewhere that wrote at some
moment cannot be taken for dead before its lease is over, so its journal is looked at once in a lease. An agent that
has claimed trials meanwhile was there to do so, which the register shows without a call. Beside hundreds of agents with
long trials the looks are fewer still: several agents that wait choose by chance, and so share the work. In addition
each look asks about one agent in a job that may have missed a beat, because the scheduler may know that its job has
ended.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional

from windlass.core.claims.alive import is_alive, missed_beat_s, same_kernel
from windlass.core.claims.coroner import Coroner, Fate, read_lease_s
from windlass.core.claims.disk import chance
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.recover import Recovered, take_back
from windlass.core.claims.register import RegisterFile
from windlass.core.journal.read import read_header
from windlass.core.paths import StudyPaths

_AT_ONCE = 16  # journals at most that one look reads: there may be hundreds
# Journals that are looked at again, on average, but at least _AT_ONCE in a lease.
_MOST_PER_S = 1 / 12


class _Holder:
    """What is known of an agent that holds trials. Moments are those of the caller's clock."""

    def __init__(self, header: Optional[Mapping[str, Any]], held: Ranges, now: float) -> None:
        self.header = header
        self.held = held
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
        self._allowed = float(_AT_ONCE)  # journals that may be looked at again now
        self._allowed_at = 0.0

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
        return any(
            holder.header is not None and same_kernel(holder.header)
            for holder in self._holders.values()
        )

    def recover(
        self, held: Mapping[str, Ranges], register_file: RegisterFile, now: float
    ) -> Recovered:
        """Give what dead agents held back to everybody. `held` is as the register has it, `now` is of any clock."""
        self._learn(held, now)
        for agent in self._choose(now):
            self._judge(agent, self._holders[agent], now)
        dead = [agent for agent, holder in self._holders.items() if holder.fate is Fate.DEAD]
        suspects = [agent for agent, holder in self._holders.items() if holder.fate is Fate.SUSPECT]
        if dead:
            take_back(
                self._paths, register_file, {agent: held[agent] for agent in dead}, self._coroner
            )
            for agent in dead:
                del self._holders[agent]
        return Recovered(dead, suspects)

    def _learn(self, held: Mapping[str, Ranges], now: float) -> None:
        """Forget agents that hold nothing any more, and read the headers of new ones, a few at a time."""
        self._holders = {
            agent: holder for agent, holder in self._holders.items() if held.get(agent)
        }
        for agent, holder in self._holders.items():
            if holder.held != held[agent]:
                # It has claimed trials. This only puts off the next look, so a request that was applied late does no
                # harm. An agent whose lease may be over already is looked at all the same.
                holder.held = held[agent]
                if now < holder.due_at:
                    holder.due_at = now + self._lease_s
        new = [
            agent
            for agent, ranges in held.items()
            if ranges and agent != self._own and agent not in self._holders
        ]
        for agent in new[:_AT_ONCE]:
            self._holders[agent] = _Holder(
                read_header(self._paths.journal_of(agent)), held[agent], now
            )

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
        new = [agent for agent in due if self._holders[agent].looked_at == -math.inf]
        again = self._ration(
            [agent for agent in due if self._holders[agent].looked_at > -math.inf], now
        )
        early.sort(key=lambda agent: self._holders[agent].looked_at)
        return [*here, *new[:_AT_ONCE], *again, *early[:1]]

    def _ration(self, due: List[str], now: float) -> List[str]:
        """As many of those that are due as may be looked at now."""
        rate = max(_MOST_PER_S, _AT_ONCE / self._lease_s)
        self._allowed = min(_AT_ONCE, self._allowed + max(0.0, now - self._allowed_at) * rate)
        self._allowed_at = now
        chosen = sorted(due, key=lambda _: chance())[: int(self._allowed)]
        self._allowed -= len(chosen)
        return chosen

    def _judge(self, agent: str, holder: _Holder, now: float) -> None:
        if holder.header is None:
            # It may have been written only in part before.
            holder.header = read_header(self._paths.journal_of(agent))
        self._coroner.silent_s = 0.0
        holder.fate = self._coroner.fate(agent, holder.header)
        holder.looked_at = now
        silent_s, missed_s = self._coroner.silent_s, missed_beat_s(self._lease_s)
        if silent_s > self._lease_s or holder.header is None:
            # Alive all the same, as far as one knows: ask again from time to time.
            holder.due_at = now + missed_s
        else:
            holder.due_at = now + self._lease_s - silent_s
        in_job = holder.header is not None and holder.header.get("job")
        holder.early_at = now + max(missed_s - silent_s, missed_s / 2) if in_job else math.inf
