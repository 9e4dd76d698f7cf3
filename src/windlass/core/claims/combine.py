"""How many agents claim trials at the same time: one of them makes one change for all. Python 3.9.

Each change of the register writes it anew, and of those that try at the same moment one succeeds. With a thousand
agents nearly all attempts would be in vain. So where there are many, an agent puts its request into the folder, as the
name of an empty file, and waits for a random time. Then it looks at the newest state. Mostly another agent has applied
the request by then. If not, the agent applies all requests that the listing shows in one change. The state remembers
which requests have been applied.

With r requests a second and waits of up to d seconds, about sqrt(r / d) changes a second are made: ten for a thousand
agents that claim every 20 s.
"""

from __future__ import annotations

import os
import time
from typing import Collection, Optional

from windlass.core.claims.disk import chance
from windlass.core.claims.register import Attempt, Register, RegisterFile, State, wait_after_loss
from windlass.core.claims.requests import Request, is_idle, parse_requests, serve_all
from windlass.core.journal.write import DiskFull, is_full

FEW = 16  # agents: so few make their changes one by one, which takes fewer calls
_LOSSES = 2  # races that an agent loses before it puts its request into the folder, also among few
_WAIT_S_AN_AGENT = 0.0005
_SHORTEST_WAIT_S = 0.01
_USUAL_WAIT_S = 1.0  # at most, however many agents there are
_LONGEST_WAIT_S = 10.0  # after lost races
# Times as long as a lost attempt took: where those take long, fewer are to be made.
_WAIT_AN_ATTEMPT = 8
_KEPT_SERVED = 128  # tokens of requests that a state remembers although their files are gone
# Requests that were served since: a file that is still there by then has lost its owner.
_FORGOTTEN = 64


class Desk:
    """Has the requests of one agent applied to the register."""

    def __init__(self, register_file: RegisterFile) -> None:
        self._file = register_file
        self._folder = register_file.states.folder
        self._disk = register_file.states.disk
        self._waiting = 0  # requests that the last listing showed
        # A request waits up to so long before this agent looks; grows with lost races.
        self._limit_s = 0.0
        self.lost = 0  # races that this agent has lost since it began; benchmarks read it

    def settle(self, request: Request) -> Register:
        """Have a request applied, by this process or by another one. Returns a state that it is part of.

        After an error a request that says the same can be made: see core/claims/requests.py.
        """
        may_wait = request.fits()
        if not may_wait or self._file.agents <= FEW:
            register = self._settle_alone(request, _LOSSES if may_wait else None)
            if register is not None:
                return register
        elif not request.finished:
            # It may well be that there is nothing to take: that is seen without a request.
            register = self._file.read()
            if is_idle(register, request):
                return register
        return self._settle_together(request)

    def _settle_alone(self, request: Request, limit: Optional[int]) -> Optional[Register]:
        """With no file but the state that this process makes. Gives up after `limit` lost races and returns None."""
        lost = 0
        while limit is None or lost < limit:
            state = self._look(request)
            if limit is not None and self._file.agents > FEW:
                return None  # There are more by now.
            register = self._try(state, request)
            if register is not None:
                return register
            lost += 1
            wait_after_loss(lost)
        return None

    def _settle_together(self, request: Request) -> Register:
        """With a file that shows the request to all others."""
        path = os.path.join(self._folder, request.name())
        try:
            self._disk.touch(path)
        except OSError as error:
            if is_full(error):
                raise DiskFull(self._folder) from error
            raise
        try:
            while True:
                self._limit_s = max(self._limit_s, self._usual_wait_s())
                time.sleep(chance() * self._limit_s)
                began = time.monotonic()
                register = self._try(self._look(request), request)
                if register is not None:
                    self._limit_s /= 2
                    return register
                # Where a machine or its storage is overloaded, attempts take long, and more of them would take longer.
                took_s = time.monotonic() - began
                self._limit_s = min(
                    _LONGEST_WAIT_S, max(2 * self._limit_s, _WAIT_AN_ATTEMPT * took_s)
                )
        finally:
            self._disk.remove(path)

    def _usual_wait_s(self) -> float:
        crowd = max(self._file.agents, self._waiting)
        return min(_USUAL_WAIT_S, max(_SHORTEST_WAIT_S, crowd * _WAIT_S_AN_AGENT))

    def _look(self, request: Request) -> State:
        """The newest state, once nobody asks this process to wait, or once the request has been applied."""
        while True:
            state = self._file.find_newest(to_change=True)
            if request.token in state.register.served or not self._file.precedence.wait(
                state.look.names
            ):
                return state

    def _try(self, state: State, request: Request) -> Optional[Register]:
        """Apply the request if that has not happened yet. None where another process was sooner."""
        if request.token in state.register.served or is_idle(state.register, request):
            return state.register
        changed = self._apply(state, request)
        if self._file.swap(state, changed, Attempt(state.look.number + 1, os.urandom(4).hex())):
            self._sweep(state, request)
            return changed
        self.lost += 1
        return None

    def _apply(self, state: State, request: Request) -> Register:
        """The state with this request and all others that wait."""
        changed = state.register.copy()
        if not state.look.is_listed:
            # A listing that is older than the state shows requests which have been applied, removed and forgotten
            # since, and lacks others: neither can be applied by it, nor can tokens be forgotten.
            serve_all(changed, [request], len(changed.served))
            return changed
        listed = parse_requests(state.look.names).values()
        self._waiting = len(listed)
        others = [other for other in listed if other.agent != request.agent]
        serve_all(changed, [*others, request], _KEPT_SERVED)
        return changed

    def _sweep(self, state: State, own: Request) -> None:
        """Remove requests that were applied long ago, whose makers have been killed, and former ones of this agent."""
        forgotten = set(state.register.served[_FORGOTTEN:])
        for name, request in parse_requests(state.look.names).items():
            is_former = request.agent == own.agent and request.token != own.token
            if is_former or request.token in forgotten:
                self._disk.remove(os.path.join(self._folder, name))


def remove_requests(register_file: RegisterFile, agents: Collection[str]) -> None:
    """Remove the requests of agents that are gone. One that is applied all the same is taken back like any claim."""
    states = register_file.states
    for name, request in parse_requests(states.list_names()).items():
        if request.agent in agents:
            states.disk.remove(os.path.join(states.folder, name))
