"""Which trials this agent takes, and how many at a time. Python 3.9, standard library."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any, Callable, Collection, Deque, Dict, List, Optional, Set

from windlass.agent.child import Trial
from windlass.core.claims import ranges as rs
from windlass.core.claims.combine import Desk
from windlass.core.claims.first import Stop, find_stop
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.claims.requests import ask_for_trials, ask_to_give_back, may_take
from windlass.core.errors import FolderError
from windlass.core.journal.write import DiskFull
from windlass.core.passing import passing_error
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile

_READ_AHEAD = 256


class TrialQueue:
    """Trials taken but not yet started. Reads their lines a few at a time, so memory stays flat."""

    def __init__(self, trials: TrialFile) -> None:
        self._trials = trials
        self._ranges: Ranges = []
        self._rounds: Dict[int, int] = {}
        self._ready: Deque[Trial] = deque()
        self._again: Deque[Trial] = deque()
        # Whether retries come before trials that are new.
        self.retries_first: Callable[[], bool] = lambda: False

    def __bool__(self) -> bool:
        return bool(self._ready or self._ranges or self._again)

    def push(self, ranges: Ranges, rounds: Optional[Dict[int, int]] = None) -> None:
        """Add trials; `rounds` has those that came back to the list after they had ended, see `Register.rounds`."""
        self._ranges.extend(ranges)
        self._rounds.update(rounds or {})

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
            for number, line in self._trials.iterate_lines(first, stop):
                trial = Trial(number, line)
                trial.round = self._rounds.pop(number, 0)
                self._ready.append(trial)

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
    """Takes blocks from the register for one agent and gives back what it did not finish.

    The agent lets go of trials that it has finished, and never says what it holds: the register alone knows that.
    Trials may be its own without its knowledge, because an answer was lost: they come with its next block. Trials may
    be its own no more, because it did not write for so long that others took it for dead: see `lost`.
    """

    def __init__(self, paths: StudyPaths, agent: str) -> None:
        self._agent = agent
        self._register = RegisterFile(paths.claims, agent)
        self._desk = Desk(self._register)
        self._previous = 0
        self._known: Ranges = []  # what the register gave this agent when it last asked
        # Of the trials that `take` returned last, where that is not 0.
        self.rounds: Dict[int, int] = {}
        self.lost: Ranges = []  # trials under way at the last claim that the register no longer gives this agent

    def take(self, free: int, rate_per_s: float, busy: Set[int]) -> Ranges:
        """Take a block; `busy` are the trials this agent still executes, all others it held are finished.

        Returns the trials to execute in addition to those of `busy`. Afterwards `lost` has those of `busy` that other
        agents may be executing by now: whoever executes them here stops.
        """
        open_trials = rs.from_numbers(busy)
        finished = rs.subtract(self._known, open_trials)
        request = ask_for_trials(self._agent, free, rate_per_s, self._previous, finished)
        register = self._desk.settle(request)
        self._known = register.held.get(self._agent, [])
        # Also what it got without its knowledge. Of `finished` nothing is held, unless it was put back and taken anew.
        taken = rs.subtract(rs.subtract(self._known, open_trials), register.cancelled)
        self.lost = rs.subtract(open_trials, self._known)
        self.rounds = {
            number: count
            for count, trials in register.rounds.items()
            for number in rs.numbers(rs.intersect(taken, trials))
        }
        self._previous = rs.count(taken)
        return taken

    def still_held(self) -> Ranges:
        """Which trials the register gives this agent now; never an old state, whatever the file system remembers."""
        return self._register.read(fresh=True).held.get(self._agent, [])

    def reclaim(self, busy: Set[int]) -> Ranges:
        """To be called after a pause. Returns which of the trials this agent was busy with are still its own.

        A trial that was taken from it and that nobody has claimed since is its own again.
        """
        believed = rs.from_numbers(busy)
        held = self.still_held()
        if not rs.subtract(believed, held):
            return believed

        def change(register: Register) -> Optional[Register]:
            open_again = rs.intersect(believed, register.todo)
            if not open_again:
                return None
            register.todo = rs.subtract(register.todo, open_again)
            register.held[self._agent] = rs.union(register.held.get(self._agent, []), open_again)
            return register

        own = rs.intersect(believed, self._register.update(change).held.get(self._agent, []))
        # Only these are added: what the register gives this agent beyond them comes with its next claim.
        self._known = rs.union(self._known, own)
        return own

    def nothing_left(self) -> bool:
        """Whether all trials are through: nobody's work is open, and nobody has any that could come back."""
        register = self._register.read()
        return not register.todo and not register.held

    def stop(self) -> Optional[Stop]:
        """Why no trial of the study is to begin; None where trials may."""
        return find_stop(self._register.read().learned)

    def may_take(self, register: Register) -> bool:
        """Whether a trial is up for taking in this state of the register."""
        return may_take(register, self._agent)

    def learned(self) -> Dict[str, Any]:
        return self._register.read().learned

    def learn(self, change: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Dict[str, Any]:
        """Have all agents know what this one found out. Returns what is known then."""

        def apply(register: Register) -> Optional[Register]:
            before, register.learned = register.learned, change(register.learned)
            return None if register.learned == before else register

        return self._register.update(apply).learned

    def learn_if_possible(
        self, change: Callable[[Dict[str, Any]], Dict[str, Any]]
    ) -> Dict[str, Any]:
        """The same; where the folder cannot be written to, only this agent knows it, and others will find out."""
        try:
            return self.learn(change)
        except (DiskFull, OSError):
            return change({})
        except FolderError as error:
            if passing_error(error) is None:
                raise
            return change({})

    def give_back(self, unfinished: Ranges, busy: Collection[int] = ()) -> Ranges:
        """This agent holds nothing any more but the trials of `busy`, and `unfinished` is everybody's again.

        That is so only for trials that the register still gives this agent: others may be executing the rest.

        Returns what is nobody's, because it was cancelled meanwhile.
        """

        kept = rs.from_numbers(busy)
        finished = rs.subtract(self._known, rs.union(unfinished, kept))
        register = self._desk.settle(ask_to_give_back(self._agent, finished, kept))
        self._known = register.held.get(self._agent, [])
        if not register.todo and not register.held:
            self._register.states.tidy()  # the study is through: the number of its files is to stay small
        return rs.intersect(unfinished, register.cancelled)
