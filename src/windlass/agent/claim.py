"""Which trials this agent takes, and how many at a time. Python 3.9, standard library."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, Callable, Collection, Deque, Dict, List, Optional, Set

from windlass.agent.child import Trial
from windlass.claims import ranges as rs
from windlass.claims.first import Stop, find_stop, needs_another_setting
from windlass.claims.ranges import Ranges
from windlass.claims.register import Register, RegisterFile
from windlass.journal.write import DiskFull
from windlass.paths import StudyPaths
from windlass.trialfile import TrialFile

_BLOCK_S = 4.0  # a block should last about so long: what dies with an agent is little, and claiming costs nothing
_READ_AHEAD = 256


def block_size(free: int, rate_per_s: float, previous: int, left: int, agents: int) -> int:
    """How many trials to take now: enough for the free slots, more where trials are short, fewer towards the end."""
    wanted = max(free, min(int(rate_per_s * _BLOCK_S), 4 * max(previous, 1)))
    fair = max(free, left // (2 * max(agents, 1)))
    return max(1, min(wanted, fair, left))


class TrialQueue:
    """Trials taken but not yet started. Reads their lines a few at a time, so memory stays flat."""

    def __init__(self, trials: TrialFile) -> None:
        self._trials = trials
        self._ranges: Ranges = []
        self._ready: Deque[Trial] = deque()
        self._again: Deque[Trial] = deque()
        self.retries_first: Callable[[], bool] = lambda: False  # whether retries come before trials that are new

    def __bool__(self) -> bool:
        return bool(self._ready or self._ranges or self._again)

    def push(self, ranges: Ranges) -> None:
        self._ranges.extend(ranges)

    def push_again(self, trial: Trial) -> None:
        """A trial to be tried once more, behind the others unless `retries_first`."""
        self._again.append(trial)

    def pop(self) -> Optional[Trial]:
        for trial in self.window(1):
            self.remove(trial)
            return trial
        return None

    def _read_ahead(self) -> None:
        block, self._ranges = rs.take(self._ranges, _READ_AHEAD)
        for first, stop in block:
            self._ready.extend(Trial(number, line) for number, line in self._trials.iterate_lines(first, stop))

    def window(self, count: int) -> List[Trial]:
        """The first so many, in the order in which `pop` would give them."""
        if len(self._ready) < count and self._ranges:
            self._read_ahead()
        queues = (self._again, self._ready) if self.retries_first() else (self._ready, self._again)
        return list(itertools.islice(itertools.chain(*queues), count))

    def remove(self, trial: Trial) -> None:
        """Take one of the window."""
        (self._ready if trial in self._ready else self._again).remove(trial)

    def rest(self) -> Ranges:
        waiting = [trial.number for trial in (*self._ready, *self._again)]
        return rs.union(rs.normalise(self._ranges), rs.from_numbers(waiting))

    def drop(self, cancelled: Ranges) -> None:
        self._ranges = rs.subtract(rs.normalise(self._ranges), cancelled)
        for queue in (self._ready, self._again):
            for trial in [trial for trial in queue if rs.contains(cancelled, trial.number)]:
                queue.remove(trial)

    def clear(self) -> None:
        self._ranges = []
        self._ready.clear()
        self._again.clear()


class Claimer:
    """Takes blocks from the register for one agent and gives back what it did not finish."""

    def __init__(self, paths: StudyPaths, agent: str) -> None:
        self._agent = agent
        self._register = RegisterFile(paths.claims, agent)
        self._previous = 0

    def take(self, free: int, rate_per_s: float, busy: Set[int]) -> Ranges:
        """Take a block; `busy` are the trials this agent still executes, all others it held are finished."""
        taken: Ranges = []

        def change(register: Register) -> Optional[Register]:
            taken.clear()
            holding = rs.from_numbers(busy)
            if self.may_take(register):
                left, agents = rs.count(register.todo), len(set(register.held) | {self._agent})
                if needs_another_setting(register.learned):
                    # All that failed had one setting. Trials of one stand together: the last ones have another.
                    register.todo, block = rs.take(register.todo, max(0, left - free))
                else:
                    wanted = block_size(free, rate_per_s, self._previous, left, agents)
                    block, register.todo = rs.take(register.todo, wanted)
                taken.extend(block)
                holding = rs.union(holding, block)
            elif register.held.get(self._agent, []) == holding:
                return None
            # Also with nothing to take: others wait for as long as we hold what we have finished.
            register.held[self._agent] = holding
            if not holding:
                del register.held[self._agent]
            return register

        self._register.update(change)
        self._previous = rs.count(taken)
        return taken

    def nothing_left(self) -> bool:
        """Whether all trials are through: nobody's work is open, and nobody has any that could come back."""
        register = self._register.read()
        return not register.todo and not register.held

    def stop(self) -> Optional[Stop]:
        """Why no trial of the study is to begin; None where trials may."""
        return find_stop(self._register.read().learned)

    def may_take(self, register: Register) -> bool:
        """Whether a trial is up for taking in this state of the register."""
        is_open = bool(register.todo) and find_stop(register.learned) is None
        return is_open and not register.is_beyond_throttle(self._agent)

    def learned(self) -> Dict[str, Any]:
        return self._register.read().learned

    def learn(self, change: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Dict[str, Any]:
        """Have all agents know what this one found out. Returns what is known then."""

        def apply(register: Register) -> Optional[Register]:
            before, register.learned = register.learned, change(register.learned)
            return None if register.learned == before else register

        return self._register.update(apply).learned

    def learn_if_possible(self, change: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Dict[str, Any]:
        """The same; where the folder cannot be written to, only this agent knows it, and others will find out."""
        try:
            return self.learn(change)
        except (DiskFull, OSError):
            return change({})

    def give_back(self, unfinished: Ranges, busy: Collection[int] = ()) -> Ranges:
        """This agent holds nothing any more but the trials of `busy`, and `unfinished` is everybody's again.

        Returns what is nobody's, because it was cancelled meanwhile.
        """

        def change(register: Register) -> Optional[Register]:
            if register.held.pop(self._agent, None) is None:
                return None
            if busy:
                register.held[self._agent] = rs.from_numbers(busy)
            register.todo = rs.union(register.todo, rs.subtract(unfinished, register.cancelled))
            return register

        return rs.intersect(unfinished, self._register.update(change).cancelled)
