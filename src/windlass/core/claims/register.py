"""Who may execute which trial: one register, changed by compare-and-swap with nothing but link(). Python 3.9.

The register's whole content is in the file of the highest number in ``claims/``. To change it, a process reads number
n and links its new content as n + 1; the file system lets exactly one process do that, so everybody else reads again
and tries anew. No locks, no server, and the number of files does not depend on the number of trials: old files are
removed, a margin behind the newest.

A process may be so slow that its number n + 1 has been used and removed when it links it, and an answer of link() may
be lost on the way. So every state carries the tokens of the changes that led to it: a change is in force if, and only
if, the newest state has its token. That is looked up before a change is made again, whatever link() answered.

A state is on disk before it gets its number, and has a checksum. Where the newest is damaged all the same, the newest
that is whole counts. A process that only reads leaves the damaged one where it is. One that makes a change moves it
aside first, so that there is again a newest state n whose successor n + 1 exactly one process can link. It does so only
with a file whose content was read and is damaged, and that nobody has written to for some seconds: an error of the
network or of permissions is raised instead, because another process may well be able to read the file.

Agents that claim trials do not compete for the next number where there are many of them: see core/claims/combine.py.
"""

from __future__ import annotations

import gc
import json
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from windlass.core.claims import ranges as rs
from windlass.core.claims.alive import seconds_silent
from windlass.core.claims.disk import Disk, chance
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.states import Look, Precedence, States, StatesLost, highest
from windlass.core.damage import report_damage
from windlass.core.errors import FolderError
from windlass.core.journal.write import DiskFull, is_full
from windlass.core.sealed import seal, unseal

REGISTER_VERSION = 1
# Without hard links a state gets its number before its content: its writer has so long.
_WRITING_S = 5.0
_READ_S = 1.0  # that a reader waits for it
# As many changes as others may make while a process looks whether its own is in force.
_KEPT_TOKENS = 256
_SERVED, _ROUNDS = "served", "rounds"

Rounds = Dict[int, Ranges]  # round → trials; see `Register.rounds`


class RegisterVersionError(FolderError):
    """The register was written by a newer Windlass."""


class RegisterLost(FolderError):
    """The folder has trials, and no state of the register can be read. `windlass run` rebuilds it."""


class Overtaken(FolderError):
    """It cannot be known whether a change is in force. Whoever made it must end without touching the register again.

    Then the others take it for dead and take back whatever it may hold, which is right in both cases.
    """


class Register:
    """One state of the register. Every trial is in at most one of `todo` and `held`."""

    def __init__(
        self,
        count: int,
        current: Ranges,
        todo: Ranges,
        held: Dict[str, Ranges],
        cancelled: Ranges,
        preparer: Optional[Dict[str, Any]] = None,
        tokens: Optional[List[str]] = None,
        learned: Optional[Dict[str, Any]] = None,
        throttle: Optional[int] = None,
        ended: Optional[Ranges] = None,
        leaving: Optional[List[str]] = None,
        served: Optional[List[str]] = None,
        rounds: Optional[Rounds] = None,
    ) -> None:
        self.count = count  # trials that exist in trials.jsonl
        self.current = current  # those that the study as it stands now consists of
        self.todo = todo  # nobody's: to be taken
        self.held = held  # agent → what it may execute
        self.cancelled = cancelled  # whoever executes one of these stops it
        self.preparer = preparer  # the one process that may add trials now
        self.tokens = tokens or []  # of the changes that led here, the newest first
        self.throttle = throttle  # how many agents may hold trials; None: any number
        # Agents with former code, which take no more trials: `throttle` is of the others.
        self.leaving = leaving or []
        # Let go of by the agents that held them: a journal tells how each of them ended.
        self.ended = ended or []
        # What agents found out for the rest of the study; see core/claims/learned.py.
        self.learned = learned or {}
        # Tokens of requests that have been applied, the newest first; see core/claims/requests.py.
        self.served = served or []
        # How often a trial came back to the list after it had ended or been cancelled; those that never did are absent.
        self.rounds = rounds or {}

    @classmethod
    def empty(cls) -> Register:
        return cls(0, [], [], {}, [])

    def copy(self) -> Register:
        """A state to be changed. Ranges are shared with this one: they are replaced as a whole, never changed."""
        return Register(
            self.count,
            self.current,
            self.todo,
            dict(self.held),
            self.cancelled,
            self.preparer,
            self.tokens,
            self.learned,
            self.throttle,
            self.ended,
            list(self.leaving),
            self.served,
            dict(self.rounds),
        )

    def is_beyond_throttle(self, agent: str) -> bool:
        """Whether this agent is to take no more trials. The agents that began first stay."""
        if self.throttle is None:
            return False
        earlier = [other for other in self.held if other < agent and other not in self.leaving]
        return len(earlier) >= self.throttle

    def held_ranges(self) -> Ranges:
        return rs.normalise(pair for held in self.held.values() for pair in held)

    def to_json(self) -> Dict[str, Any]:
        """The state as it is written; `from_json` reads it. Agents of earlier versions can read it as well."""
        # Agents of earlier versions, which may share the register, keep what they do not know only inside `learned`.
        learned = {**self.learned, _SERVED: self.served} if self.served else self.learned
        if self.rounds:
            learned = {**learned, _ROUNDS: sorted(self.rounds.items())}
        more: Dict[str, Any] = {"learned": learned} if learned else {}
        more["ended"] = self.ended
        if self.throttle is not None:
            more["throttle"] = self.throttle
        if self.leaving:
            more["leaving"] = self.leaving
        return {
            "v": REGISTER_VERSION,
            "count": self.count,
            "current": self.current,
            "todo": self.todo,
            "held": self.held,
            "cancelled": self.cancelled,
            "preparer": self.preparer,
            "tokens": self.tokens,
            **more,
        }

    @classmethod
    def from_json(cls, data: Dict[str, Any]) -> Register:
        """The state that `to_json` wrote, by this version or an earlier one.

        Raises RegisterVersionError for one of a later version, and KeyError or TypeError where it is damaged.
        """
        if data["v"] > REGISTER_VERSION:
            raise RegisterVersionError(
                f"the claims are of version {data['v']}, this Windlass reads up to {REGISTER_VERSION}; upgrade windlass"
            )
        learned = dict(data.get("learned") or {})  # not in registers of the first days
        served = learned.pop(_SERVED, None)
        rounds = {
            number: rs.normalise(trials) for number, trials in learned.pop(_ROUNDS, None) or ()
        }
        return cls(
            data["count"],
            rs.normalise(data["current"]),
            rs.normalise(data["todo"]),
            _read_held(data["held"]),
            rs.normalise(data["cancelled"]),
            data["preparer"],
            data["tokens"],
            learned,
            data.get("throttle"),
            rs.normalise(data.get("ended") or []),
            data.get("leaving"),
            served,
            rounds,
        )

    def follow(self, before: Register) -> None:
        """Work out what follows from `before`, the state that this one replaces.

        A trial has `ended` if it is held no more, nor open, nor cancelled. A trial that is open again after that, or
        after it was cancelled, begins another round.
        """
        let_go = rs.subtract(before.held_ranges(), self.cancelled)
        is_open = rs.union(self.todo, self.held_ranges())
        self.ended = rs.subtract(rs.union(before.ended, let_go), is_open)
        was_open = rs.union(before.todo, before.held_ranges())
        settled = rs.subtract(rs.union(before.ended, before.cancelled), was_open)
        self.rounds = _begin_rounds(before.rounds, rs.intersect(settled, is_open))


def _begin_rounds(rounds: Rounds, reopened: Ranges) -> Rounds:
    """`rounds` with one more for each of these trials."""
    if not reopened:
        return rounds
    result: Rounds = {}
    first = reopened  # those that have no round yet
    for number, trials in rounds.items():
        first = rs.subtract(first, trials)
        for target, part in (
            (number, rs.subtract(trials, reopened)),
            (number + 1, rs.intersect(trials, reopened)),
        ):
            result[target] = rs.union(result.get(target, []), part)
    result[1] = rs.union(result.get(1, []), first)
    return {number: trials for number, trials in result.items() if trials}


class State(NamedTuple):
    """The newest state that is whole, and the look at the folder that has found it."""

    look: Look
    register: Register


class Attempt(NamedTuple):
    """A change of which it is not known yet whether it is in force."""

    number: int
    token: str


class RegisterFile:
    """Reads and changes the register of one study's folder."""

    def __init__(self, folder: str, who: str, disk: Optional[Disk] = None) -> None:
        self._folder = folder
        self._who = who
        self.states = States(folder, who, disk)
        self.precedence = Precedence(self.states, who)
        self._seen = 0
        self.agents = 0  # how many held trials when this object last read the register

    def newest_number(self) -> int:
        """The number of the newest state; 0 when there is none yet. One directory listing."""
        return highest(self._list_names())

    def _list_names(self) -> List[str]:
        try:
            return self.states.list_names()
        except StatesLost as error:
            raise self._lost(str(error)) from error

    def _lost(self, problem: str) -> RegisterLost:
        remedy = "`windlass run` with the study file rebuilds it from trials.jsonl and the journals"
        return RegisterLost(
            f"{self._folder}: the register of trials cannot be read ({problem})\n  hint: {remedy}"
        )

    def read(self, fresh: bool = False) -> Register:
        """The newest state that is whole. Raises RegisterLost where there is none although there are trials.

        A network file system may show a state that is up to a minute old, because of what it remembers of the folder.
        With `fresh` it is made to forget that first, at the price of two calls.
        """
        if fresh:
            self.states.refresh()
        return self.find_newest().register

    def find_newest(self, to_change: bool = False) -> State:
        """The newest whole state; with `to_change`, no damaged state has a higher number."""
        deadline = time.monotonic() + _READ_S
        while True:
            look = self._look()
            if not look.number:
                self._check_new()
                return State(look, Register.empty())
            register = parse_state(look.content.data)
            if register is not None:
                self._remember(look.number, register)
                return State(look, register)
            path = self.states.path(look.number)
            # A file system without link() shows a state half written: look again, unless it stays so.
            if os.path.exists(path):
                is_final = seconds_silent(path) > _WRITING_S
                if is_final or (not to_change and time.monotonic() > deadline):
                    older = self._find_older(look)
                    if not to_change:
                        self._remember(look.number, older.register)
                        return older
                    self._set_aside(path)
            time.sleep(0.005)

    def _look(self) -> Look:
        try:
            return self.states.look()
        except StatesLost as error:
            raise self._lost(str(error)) from error

    def _remember(self, number: int, register: Register) -> None:
        self._seen, self.agents = number, len(register.held)

    def _check_new(self) -> None:
        """Raise RegisterLost where the register is empty although the folder has trials."""
        trials = os.path.join(os.path.dirname(os.path.abspath(self._folder)), "trials.jsonl")
        if os.path.exists(trials) and os.path.getsize(trials):
            raise self._lost("it has no file")

    def _find_older(self, look: Look) -> State:
        """The newest whole state before the newest one, which is damaged."""
        for number in look.numbers()[1:]:
            content = self.states.read(number)
            register = None if content is None else parse_state(content.data)
            if content is not None and register is not None:
                problem = f"this state of the register is damaged; the one before it, {number:08d}, counts"
                remedy = "nothing to do: trials that were handed out just before may be executed once more"
                report_damage(self.states.path(look.number), problem, remedy)
                return State(look._replace(number=number, content=content), register)
        raise self._lost("none of its files is whole")

    def _set_aside(self, path: str) -> None:
        """Take the number from a damaged state, and give it back if it turns out to be whole after all."""
        aside = os.path.join(self._folder, f".damaged-{os.path.basename(path)}-{self._who}")
        try:
            os.rename(path, aside)
            content = self.states.disk.read(aside)
            if content is not None and parse_state(content.data) is not None:
                os.link(aside, path)
        except OSError:
            pass  # another process was sooner

    def begin_anew(self, register: Register) -> None:
        """Write a first state where none is whole. Another process may be sooner: then its state counts."""
        try:
            number = self.newest_number()
        except RegisterLost:
            os.makedirs(self._folder, exist_ok=True)
            number = 0
        self._put(number + 1, register, os.urandom(4).hex())

    def update(self, change: Callable[[Register], Optional[Register]]) -> Register:
        """Apply `change` to the newest state, atomically; it may be called several times.

        `change` returns the new state, or None to leave things as they are. Returns the state that holds afterwards.
        Raises Overtaken where it cannot be known whether the change is in force.
        """
        try:
            return self._update(change)
        finally:
            self.precedence.end()

    def _update(self, change: Callable[[Register], Optional[Register]]) -> Register:
        attempt: Optional[Attempt] = None
        lost = 0
        while True:
            state = self.find_newest(to_change=True)
            if attempt is not None and self.is_in_force(attempt, state):
                return state.register
            if self.precedence.wait(state.look.names):
                continue
            changed = change(state.register.copy())
            if changed is None:
                return state.register
            changed.follow(state.register)
            attempt = Attempt(state.look.number + 1, os.urandom(4).hex())
            if self.swap(state, changed, attempt):
                return changed
            lost += 1
            self.precedence.note_loss(lost)
            wait_after_loss(lost)

    def swap(self, state: State, changed: Register, attempt: Attempt) -> bool:
        """Put `changed` in the place of `state`. False where that is not known to have happened: look again then."""
        changed.tokens = [attempt.token, *state.register.tokens[: _KEPT_TOKENS - 1]]
        if not self._put(attempt.number, changed, attempt.token):
            return False
        # This process has changed the folder, so this listing is a new one. Our number is nobody else's. Where it is
        # the highest, our state is the newest one.
        names = self._list_names()
        if highest(names) != attempt.number:
            newest = self.find_newest()
            if attempt.token not in newest.register.tokens:
                if newest.look.number - attempt.number < len(newest.register.tokens):
                    # The number was one of the past. Nobody else has it, and nobody takes it for the newest state.
                    self.states.disk.remove(self.states.path(attempt.number))
                return False
        self._remember(attempt.number, changed)
        self.states.remove_old(
            Look(names, attempt.number, state.look.content, True), state.look.content.written
        )
        return True

    def is_in_force(self, attempt: Attempt, state: State) -> bool:
        """Whether the change is part of the newest state. Raises Overtaken where its tokens do not reach back so far.

        A number that another process has in its hands settles the matter as well: then the change has lost.
        """
        register = state.register
        if attempt.token in register.tokens:
            return True
        if state.look.number - attempt.number < len(register.tokens):
            return False
        content = self.states.read(attempt.number)
        there = None if content is None else parse_state(content.data)
        if there is not None and attempt.token not in there.tokens[:1]:
            return False
        text = f"{self._folder}: overtaken by {state.look.number - attempt.number} changes while making one"
        raise Overtaken(f"{text}\n  hint: run again; nothing is lost")

    def _put(self, number: int, register: Register, token: str) -> bool:
        try:
            return self.states.put(number, render_state(register), token)
        except OSError as error:
            if is_full(error):
                raise DiskFull(self._folder) from error
            raise


def render_state(register: Register) -> bytes:
    """A state as the bytes of a file."""
    # A state never contains itself. Looking whether it does takes a third of the time.
    return seal(
        json.dumps(register.to_json(), separators=(",", ":"), check_circular=False).encode()
    )


def parse_state(data: bytes) -> Optional[Register]:
    """The state in the bytes of a file; None where they are damaged."""
    content = unseal(data)
    collecting = gc.isenabled()
    gc.disable()  # There are no cycles in a state; with thousands of agents looking for some doubles the time.
    try:
        return None if content is None else Register.from_json(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    finally:
        if collecting:
            gc.enable()


def _read_held(data: Dict[str, List[List[int]]]) -> Dict[str, Ranges]:
    """What each agent holds. With thousands of agents this is most of what a state consists of."""
    held: Dict[str, Ranges] = {}
    for agent, pairs in data.items():
        if len(pairs) == 1:
            ((first, stop),) = pairs
            held[agent] = [(first, stop)] if first < stop else []
        else:
            held[agent] = rs.from_pairs(pairs)
    return held


def wait_after_loss(lost: int) -> None:
    """Wait before a change is made again: by chance, and longer the more often it has lost."""
    time.sleep(chance() * min(1.0, 0.02 * 2 ** min(lost, 10)))
