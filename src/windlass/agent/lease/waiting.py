"""Whether an agent that has nothing to do stays, and how it finds trials that come back. Python 3.9."""

from __future__ import annotations

from typing import Optional

from windlass.agent.claim import Claimer
from windlass.agent.interrupt import Limits
from windlass.agent.lease.looks import Looks
from windlass.agent.lease.others import Others
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.claims.watch import HolderWatch
from windlass.core.paths import StudyPaths

_HERE_S = 1.0  # how often processes of this machine that hold trials are looked at, which costs no call on the folder


class Waiting:
    """Judges once a look whether trials may still come. Between two looks the agent stays."""

    def __init__(
        self,
        paths: StudyPaths,
        agent: str,
        claimer: Claimer,
        looks: Looks,
        limits: Limits,
        linger: bool,
    ):
        self._agent = agent
        self._claimer = claimer
        self.looks = looks
        self._limits = limits
        self._linger = linger  # whether to wait for whatever other agents hold
        self._register_file = RegisterFile(paths.claims, agent)
        self._holders = HolderWatch(paths, agent)
        self._judged_at = -1.0
        self.others: Optional[Others] = None  # where they, and this agent, are jobs that will end

    def until(self, now: float) -> float:
        """When to judge again."""
        return (
            min(self.looks.next_at, now + _HERE_S)
            if self._holders.has_one_here
            else self.looks.next_at
        )

    def may_continue(self, now: float, longest_s: Optional[float]) -> bool:
        """Whether to stay with nothing under way. `longest_s` is what the longest trial of this agent took."""
        is_gone = self._holders.is_one_gone_here()
        # A look that is older than the last claim does not show which agent holds what since.
        self.looks.look(now, idle=True, anew=is_gone or self.looks.is_older_than_claim())
        if self._judged_at == self.looks.looked_at:
            return True
        self._judged_at = self.looks.looked_at
        register = self.looks.register
        if register is not None and self._is_worth_staying(register, now, longest_s):
            return True
        # Asked last: what its holder has given back meanwhile is there now.
        self.looks.look(now, idle=True, anew=True)
        return self.looks.register is not None and self._claimer.may_take(self.looks.register)

    def _is_worth_staying(self, register: Register, now: float, longest_s: Optional[float]) -> bool:
        recovered = self._holders.recover(register.held, self._register_file, now)
        if recovered.dead:
            self.looks.look(now, idle=True, anew=True)
            return True
        # A job that is gone without a goodbye: its trials will be ours when its lease is over.
        if recovered.suspects:
            return True
        if self._linger and any(
            held for agent, held in register.held.items() if agent != self._agent
        ):
            return True
        return self.others is not None and self.others.are_waited_for(
            register.held, self._limits, longest_s
        )
