"""Random interleavings of agents on a simulated file system: nothing is lost, nothing is held twice.

Each agent is a thread, and only one of them runs at a time: at every file-system call it stops, and the test's own
random numbers decide who goes on. So each seed is one interleaving, which can be repeated. The file system shows old
listings, loses answers, and removes nothing by itself; agents are killed between two calls. The code is the real one.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import types
from collections.abc import Callable

import pytest

from windlass.agent.claim import Claimer
from windlass.core.claims import combine, register, states
from windlass.core.claims import ranges as rs
from windlass.core.claims.disk import Content, Disk
from windlass.core.claims.register import Register, RegisterFile, parse_state
from windlass.core.paths import StudyPaths

TOTAL = 40
STEPS = 20_000  # more than any of these takes: a limit for one that hangs


class Killed(BaseException):
    """Ends the thread of an agent that was killed."""


class Server:
    """The files as they are, and the history of states that were in force."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files: dict[str, Content] = {}
        self.steps = 0
        self.newest: Register | None = None
        self.number = 0
        self.wrong: AssertionError | None = None  # the first of the rules below that was broken
        self.applied: set[str] = set()  # tokens of requests that are part of a state

    def added(self, name: str) -> None:
        """A name was made. Where it is the next number, the state is in force, and must be right."""
        if not name.isdigit() or int(name) <= self.number:
            return
        assert int(name) == self.number + 1, "a number was left out"
        state = parse_state(self.files[name].data)
        assert state is not None
        places = [state.todo, state.ended, *state.held.values()]
        assert rs.normalise(pair for place in places for pair in place) == [(0, TOTAL)], (
            "a trial is lost"
        )
        assert sum(map(rs.count, places)) == TOTAL, "a trial is in two places"
        before = set() if self.newest is None else set(self.newest.served)
        fresh = set(state.served) - before
        assert not fresh & self.applied and len(set(state.served)) == len(state.served), (
            "a request was applied twice"
        )
        self.applied |= fresh
        self.newest, self.number = state, int(name)


class Client(Disk):
    """The file system as one agent's machine shows it."""

    def __init__(self, server: Server, step: Callable[[], None], oldest: int) -> None:
        self._server, self._step, self._oldest = server, step, oldest
        self._listing: tuple[int, list[str]] | None = None

    def list_names(self, folder: str) -> list[str]:
        self._step()
        if self._listing is None or self._server.steps - self._listing[0] > self._oldest:
            self._listing = (self._server.steps, list(self._server.files))
        return list(self._listing[1])

    def read(self, path: str) -> Content | None:
        self._step()
        return self._server.files.get(os.path.basename(path))

    def write(self, path: str, data: bytes) -> None:
        self._step()
        self._add(path, Content(data, float(self._server.steps)))

    def touch(self, path: str) -> None:
        self._step()
        self._add(path, Content(b"", float(self._server.steps)))

    def _add(self, path: str, content: Content) -> None:
        assert os.path.basename(path) not in self._server.files
        self._server.files[os.path.basename(path)] = content
        self._listing = None  # a client forgets its listing when it changes the folder itself
        try:
            self._server.added(os.path.basename(path))
        except AssertionError as error:
            self._server.wrong = self._server.wrong or error

    def link(self, source: str, target: str, data: bytes) -> bool:
        self._step()
        self._listing = None
        if os.path.basename(target) in self._server.files:
            return False
        if self._server.chance.random() < 0.05:
            raise OSError(errno.EIO, "not made")
        self._add(target, self._server.files[os.path.basename(source)])
        if self._server.chance.random() < 0.05:
            raise OSError(errno.EIO, "made, but the answer was lost")
        return (
            self._server.chance.random() > 0.1
        )  # False: made, and answered as if the name had been taken

    def remove(self, path: str) -> None:
        self._step()
        self._server.files.pop(os.path.basename(path), None)
        self._listing = None

    def written(self, path: str) -> float | None:
        self._step()
        found = self._server.files.get(os.path.basename(path))
        return None if found is None else found.written


class Agent:
    """A thread that claims and executes trials, one file-system call at a time."""

    def __init__(self, name: str, server: Server, oldest: int) -> None:
        self.name = name
        self.executed: list[int] = []
        self.is_over, self.is_killed = False, False
        self.until = 0  # It makes no step before.
        self.error: BaseException | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._disk = Client(server, self._step, oldest)
        self._server = server
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def claimer(self) -> Claimer:
        claimer = Claimer(StudyPaths("/nowhere"), self.name)
        claimer._register = RegisterFile("/nowhere/claims", self.name, self._disk)
        claimer._desk = combine.Desk(claimer._register)
        return claimer

    def _step(self) -> None:
        """Let the others go on. Nothing is done any more by one that was killed."""
        if threading.current_thread() is self._thread:
            if self.is_killed:
                raise Killed
            self._stopped.release()
            self._go.acquire()
            if self.is_killed:
                raise Killed

    def _main(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_over = True
        self._stopped.release()

    def _work(self) -> None:
        claimer = self.claimer()
        waiting: list[int] = []
        while len(self._server.applied) < 10**6:
            try:
                taken = list(rs.numbers(claimer.take(2, 0.0, set(waiting))))
            except OSError:
                continue  # a real agent has patience with these
            waiting += taken
            if not waiting and claimer.nothing_left():
                return
            keep = len(waiting) // 2 if self._server.chance.random() < 0.3 else 0
            while (
                len(waiting) > keep
            ):  # no file-system call: a kill comes before or after all of these
                self.executed.append(waiting.pop(0))
            if self._server.chance.random() < 0.1:
                self._give_back(claimer, waiting)

    def _give_back(self, claimer: Claimer, waiting: list[int]) -> None:
        """Until it has succeeded: after an error it is not known whether these trials are still its own."""
        while waiting:
            try:
                claimer.give_back(rs.from_numbers(waiting))
                waiting.clear()
            except OSError:
                continue

    def advance(self) -> None:
        self._go.release()
        self._stopped.acquire()

    def kill(self) -> None:
        self.is_killed = True
        self.advance()


def take_back(agent: Agent) -> Callable[[Register], Register | None]:
    def change(state: Register) -> Register | None:
        if agent.name not in state.held:
            return None
        left = rs.subtract(state.held.pop(agent.name), rs.from_numbers(agent.executed))
        state.todo = rs.union(state.todo, left)
        return state

    return change


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """States are removed early, and waiting takes no time, so that short runs reach all branches."""
    monkeypatch.setattr(states, "MOST", 8)
    monkeypatch.setattr(states, "FEWEST", 3)
    monkeypatch.setattr(states, "LISTED_S", 400.0)  # in steps, as are all times here
    monkeypatch.setattr(combine, "FEW", 1)
    monkeypatch.setattr(combine, "_KEPT_SERVED", 2)
    monkeypatch.setattr(combine, "_FORGOTTEN", 8)
    no_time = types.SimpleNamespace(sleep=lambda _: None, monotonic=lambda: 0.0)
    for module in (states, combine, register):
        monkeypatch.setattr(module, "time", no_time)


@pytest.mark.parametrize("seed", range(60))
def test_random_interleavings(seed: int, small_limits: None) -> None:
    server = Server(seed)
    first = RegisterFile("/nowhere/claims", "test", Client(server, lambda: None, 0))
    server.files["00000001"] = _first_state()
    server.added("00000001")
    oldest = server.chance.choice(
        [0, 30, 300]
    )  # how old a listing may be, in steps of all agents together
    agents = [
        Agent(f"a{number}", server, oldest) for number in range(server.chance.choice([2, 5, 9]))
    ]
    killable = len(agents) // 2
    while any(not agent.is_over for agent in agents):
        server.steps += 1
        assert server.steps < STEPS, "they do not come to an end"
        working = [agent for agent in agents if not agent.is_over]
        chosen = server.chance.choice(
            [agent for agent in working if agent.until <= server.steps] or working
        )
        if server.chance.random() < 0.01:
            chosen.until = server.steps + server.chance.choice(
                [100, 1000]
            )  # so slow that its number is one of the past
        if killable and server.chance.random() < 0.003:
            killable -= 1
            chosen.kill()
        else:
            chosen.advance()
        if server.wrong is not None or chosen.error is not None:
            raise server.wrong or chosen.error or AssertionError
        if server.steps % 50 == 0:
            for agent in agents:
                if agent.is_killed:
                    _repeat(first, take_back(agent))
    assert server.newest is not None
    assert server.newest.todo == [] and not server.newest.held
    assert sorted(number for agent in agents for number in agent.executed) == list(range(TOTAL))
    assert len([name for name in server.files if name.isdigit()]) <= 8 + states.LANDMARKS


def _first_state() -> Content:
    state = Register(TOTAL, [(0, TOTAL)], [(0, TOTAL)], {}, [], tokens=["first"])
    return Content(register.render_state(state), 0.0)


def _repeat(register_file: RegisterFile, change: Callable[[Register], Register | None]) -> None:
    while True:
        try:
            register_file.update(change)
            return
        except OSError:
            continue
