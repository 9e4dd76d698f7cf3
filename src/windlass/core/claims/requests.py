"""What an agent asks of the register, small enough to be the name of an empty file. Pure, Python 3.9.

A request says which trials the agent has finished with and what it wants: more trials, or to give back what it has not
begun. It never says what the agent holds. So a request that is applied twice, or whose answer the agent never sees,
loses nothing: the second time there is nothing left to let go of, and trials that the agent gets beyond those it asked
for are its own all the same, which it sees with its next request.
"""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, NamedTuple, Optional

from windlass.core.claims import ranges as rs
from windlass.core.claims.first import find_stop, needs_another_setting
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.register import Register

_PREFIX = "request"
_SEPARATOR = "~"
_NAME_BYTES = 240  # what every file system takes as a name, less a margin
_NOTHING_KEPT = "-"
_BLOCK_S = 4.0  # a block should last about so long: what dies with an agent is little, and claiming costs nothing


class Request(NamedTuple):
    """One request of one agent. `kept` is None in a claim; otherwise all but these trials is given back."""

    agent: str
    token: str  # no other request has it
    free: int
    wanted: int
    finished: Ranges
    kept: Optional[Ranges] = None

    def name(self) -> str:
        """The request as the name of a file."""
        kept = [] if self.kept is None else [_render(self.kept) or _NOTHING_KEPT]
        parts = [
            self.agent,
            self.token,
            str(self.free),
            str(self.wanted),
            _render(self.finished),
            *kept,
        ]
        return _SEPARATOR.join([_PREFIX, *parts])

    def fits(self) -> bool:
        """Whether the name is short enough for a file, and can be read again."""
        name = self.name()
        return (
            len(os.fsencode(name)) <= _NAME_BYTES
            and "/" not in name
            and parse_request(name) == self
        )


def ask_for_trials(
    agent: str, free: int, rate_per_s: float, previous: int, finished: Ranges
) -> Request:
    return Request(agent, _new_token(), free, wanted_block(free, rate_per_s, previous), finished)


def ask_to_give_back(agent: str, finished: Ranges, kept: Ranges) -> Request:
    return Request(agent, _new_token(), 0, 0, finished, kept)


def _new_token() -> str:
    return os.urandom(6).hex()


def _render(ranges: Ranges) -> str:
    """`3+2,9` for 3, 4 and 9."""
    return ",".join(
        str(first) if stop == first + 1 else f"{first}+{stop - first}" for first, stop in ranges
    )


def _parse_ranges(text: str) -> Ranges:
    pairs = [item.partition("+") for item in text.split(",") if item]
    return rs.normalise((int(first), int(first) + int(count or 1)) for first, _, count in pairs)


def parse_request(name: str) -> Optional[Request]:
    """The request that a file's name carries; None for other files."""
    parts = name.split(_SEPARATOR)
    if parts[0] != _PREFIX or len(parts) not in (6, 7):
        return None
    try:
        kept = None if len(parts) == 6 else _parse_ranges(parts[6].replace(_NOTHING_KEPT, ""))
        return Request(
            parts[1], parts[2], int(parts[3]), int(parts[4]), _parse_ranges(parts[5]), kept
        )
    except ValueError:
        return None


def parse_requests(names: Iterable[str]) -> Dict[str, Request]:
    """The requests among the names in a folder: name → request."""
    found = ((name, parse_request(name)) for name in names if name.startswith(_PREFIX + _SEPARATOR))
    return {name: request for name, request in found if request is not None}


def wanted_block(free: int, rate_per_s: float, previous: int) -> int:
    """How many trials an agent can use: enough for the free slots, more where trials are short."""
    return max(free, min(int(rate_per_s * _BLOCK_S), 4 * max(previous, 1)))


def block_size(free: int, wanted: int, left: int, agents: int) -> int:
    """How many of those to hand out: fewer towards the end, so that all agents have something to do."""
    fair = max(free, left // (2 * max(agents, 1)))
    return max(1, min(wanted, fair, left))


def may_take(register: Register, agent: str) -> bool:
    """Whether a trial is up for taking by this agent."""
    is_open = bool(register.todo) and find_stop(register.learned) is None
    return is_open and not register.is_beyond_throttle(agent)


def is_idle(register: Register, request: Request) -> bool:
    """Whether a request would change nothing."""
    mine = register.held.get(request.agent, [])
    if rs.intersect(mine, request.finished):
        return False
    if request.kept is not None:
        return not rs.subtract(mine, request.kept)
    return not may_take(register, request.agent)


def _serve(register: Register, request: Request) -> Ranges:
    """Apply a request to `todo` and `held`. Returns what is to be added to `ended`."""
    mine = register.held.get(request.agent, [])
    holds = rs.subtract(mine, request.finished)
    if request.kept is not None:
        kept = rs.intersect(holds, request.kept)
        back = rs.subtract(rs.subtract(holds, kept), register.cancelled)
        register.todo = rs.union(register.todo, back)
    else:
        kept = (
            rs.union(holds, _take_block(register, request))
            if may_take(register, request.agent)
            else holds
        )
    if kept == mine:
        return []
    register.held[request.agent] = kept
    if not kept:
        del register.held[request.agent]
    return rs.subtract(rs.intersect(mine, request.finished), register.cancelled)


def _take_block(register: Register, request: Request) -> Ranges:
    """Take trials off the list of those to be done."""
    left, agents = (
        rs.count(register.todo),
        len(register.held) + (request.agent not in register.held),
    )
    if needs_another_setting(register.learned):
        # All that failed had one setting. Trials of one stand together: the last ones have another.
        register.todo, block = rs.take(register.todo, max(0, left - request.free))
    else:
        block, register.todo = rs.take(
            register.todo, block_size(request.free, request.wanted, left, agents)
        )
    return block


def serve_all(register: Register, requests: Iterable[Request], kept_tokens: int) -> List[Request]:
    """Apply the requests that this state has not been given yet. Returns those.

    The state remembers the tokens of the last `kept_tokens` requests, and of all that are still among `requests`.
    """
    listed = list(requests)
    served = set(register.served)
    # By token, which is random: agents whose names sort first have no advantage where few trials are left.
    applied = [
        request
        for request in sorted(listed, key=lambda one: one.token)
        if request.token not in served
    ]
    # `ended` may have thousands of ranges, so it is worked out once for all requests.
    ended = [pair for request in applied for pair in _serve(register, request)]
    changed = {request.agent: register.held.get(request.agent, []) for request in applied}
    held = rs.normalise(pair for ranges in changed.values() for pair in ranges)
    register.ended = rs.subtract(rs.union(register.ended, ended), held)
    present = {request.token for request in listed}
    old = [
        token
        for index, token in enumerate(register.served)
        if index < kept_tokens or token in present
    ]
    register.served = [*(request.token for request in applied), *old]
    return applied
