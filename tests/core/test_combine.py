"""Claims of many agents: requests that others apply, each once, also with agents that are killed or of former code."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import HERE
from tests.conftest import wait_for
from tests.core.test_claims import number_sets, study
from tests.core.test_register_files import TOTAL, assert_complete, begin
from windlass.agent.claim import Claimer
from windlass.core.claims import combine
from windlass.core.claims import ranges as rs
from windlass.core.claims.combine import remove_requests
from windlass.core.claims.register import Register, RegisterFile, parse_state, render_state
from windlass.core.claims.requests import Request, ask_for_trials, parse_request, serve_all
from windlass.core.paths import StudyPaths

FORMER = HERE / "data" / "claims-before-requests.zip"
# An agent of the code before there were requests. Its arguments: archive, folder, name, log, gate.
FORMER_AGENT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from windlass.agent.claim import Claimer
from windlass.core.claims.ranges import numbers
from windlass.core.paths import StudyPaths
import windlass
assert windlass.__file__.startswith(sys.argv[1]), windlass.__file__
claimer = Claimer(StudyPaths(sys.argv[2]), sys.argv[3])
log = open(sys.argv[4], "ab", buffering=0)
while True:
    taken = claimer.take(2, 0.0, set())
    if not taken:
        break
    for number in numbers(taken):
        log.write(b"%d\\n" % number)
    while not os.path.exists(sys.argv[5]):
        time.sleep(0.01)
"""


@pytest.fixture
def always_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim goes through a file, also among few agents."""
    monkeypatch.setattr(combine, "FEW", -1)


def put_request(paths: StudyPaths, request: Request) -> Path:
    path = Path(paths.claims, request.name())
    path.touch()
    return path


def requests_in(paths: StudyPaths) -> list[str]:
    return [name for name in os.listdir(paths.claims) if name.startswith("request~")]


@given(number_sets, st.one_of(st.none(), number_sets), st.integers(0, 99), st.integers(0, 10**6))
def test_names_carry_requests(
    finished: set[int], kept: set[int] | None, free: int, wanted: int
) -> None:
    ranges = None if kept is None else rs.from_numbers(kept)
    request = Request(
        "20260101-000000-a1b2c3", "0123456789ab", free, wanted, rs.from_numbers(finished), ranges
    )
    assert parse_request(request.name()) == request
    assert request.fits() == (len(request.name()) <= 240)
    assert not request._replace(agent="a~b").fits() and not request._replace(agent="a/b").fits()


@pytest.mark.parametrize(
    "name",
    ["00000012", "request~", "request~a~b~c~d~e", "request~a~b~1~2~x", ".a-b.tmp", "wait~a~b"],
)
def test_other_names_are_no_requests(name: str) -> None:
    assert parse_request(name) is None


@given(
    st.lists(
        st.tuples(number_sets, st.one_of(st.none(), number_sets), st.integers(0, 9)), max_size=6
    ),
    number_sets,
)
def test_requests_lose_no_trial(
    steps: list[tuple[set[int], set[int] | None, int]], cancelled: set[int]
) -> None:
    """Whatever agents ask for; and what is remembered as ended is what plain changes would remember."""
    everything = [(0, 61)]
    held = {"a": rs.from_numbers(range(10)), "b": rs.from_numbers(range(30, 33))}
    todo = rs.subtract(
        rs.subtract(everything, held["a"]), rs.union(held["b"], rs.from_numbers(cancelled))
    )
    register = Register(61, everything, todo, held, rs.from_numbers(cancelled))
    for position, (finished, kept, wanted) in enumerate(steps):
        before = register.copy()
        kept_ranges = None if kept is None else rs.from_numbers(kept)
        agent = "ab"[position % 2]
        request = Request(agent, str(position), 1, wanted, rs.from_numbers(finished), kept_ranges)
        serve_all(register, [request], 0)
        worked_out = register.copy()
        worked_out.follow(before)
        assert worked_out.ended == register.ended
        places = [register.todo, register.ended, *register.held.values()]
        gone = rs.subtract(everything, rs.normalise(pair for place in places for pair in place))
        assert not rs.subtract(gone, register.cancelled)
        assert sum(map(rs.count, places)) == rs.count(
            rs.normalise(pair for place in places for pair in place)
        )
        again = register.copy()
        serve_all(again, [request._replace(token="again", wanted=0, kept=kept_ranges)], 0)
        again.served = register.served
        if kept is not None:
            assert again.to_json() == register.to_json(), "giving back twice is giving back once"


def test_applying_many_requests_takes_less_than_reading_the_state() -> None:
    """With 3,000 agents: what one agent does for all must not grow with the square of their number."""
    count = 3000
    held = {
        f"20260101-000000-{number:06x}": [(10 * number, 10 * number + 10)]
        for number in range(count)
    }
    ended = [(number, number + 5) for number in range(40 * count, 70 * count, 10)]
    register = Register(
        80 * count, [(0, 80 * count)], [(10 * count, 40 * count)], held, [], ended=ended
    )
    data = render_state(register)
    requests = [Request(agent, agent[-6:], 0, 10, held[agent]) for agent in sorted(held)[::40]]

    def seconds(step: Callable[[], object]) -> float:
        """The shortest of several times, because other programs may want the processor."""
        times = []
        for _ in range(7):
            began = time.process_time()
            step()
            times.append(time.process_time() - began)
        return min(times)

    apply_s = seconds(lambda: serve_all(register.copy(), requests, 128))
    assert apply_s < seconds(lambda: parse_state(data))


def test_request_is_applied_once_however_often_it_is_listed(
    tmp_path: Path, always_together: None
) -> None:
    paths = study(tmp_path)
    register_file = begin(paths)
    left = put_request(paths, ask_for_trials("slow", 3, 0.0, 0, []))
    claimer = Claimer(paths, "quick")
    assert rs.count(claimer.take(1, 0.0, set())) == 1
    assert rs.count(register_file.read().held["slow"]) == 3
    for _ in range(20):
        claimer.take(1, 0.0, set())
    assert rs.count(register_file.read().held["slow"]) == 3 and left.exists()
    assert_complete(register_file.read())


def test_requests_of_the_dead_are_removed_and_remembered_until_then(
    tmp_path: Path, always_together: None
) -> None:
    register = Register(TOTAL, [(0, TOTAL)], [(0, TOTAL)], {}, [])
    left = ask_for_trials("dead", 1, 0.0, 0, [])
    serve_all(register, [left], 8)
    for _ in range(30):
        serve_all(register, [left, ask_for_trials("living", 0, 0.0, 0, [])], 8)
    assert (
        left.token in register.served
        and len(register.served) <= 10
        and rs.count(register.held["dead"]) == 1
    )
    paths = study(tmp_path)
    register_file = begin(paths)
    path = put_request(paths, left)
    claimer = Claimer(paths, "living")
    for _ in range(combine._FORGOTTEN + 3):
        claimer.take(1, 0.0, set())
    assert not path.exists(), "nobody removes it but those who see it"
    assert rs.count(register_file.read().held["dead"]) == 1
    others = put_request(paths, ask_for_trials("other", 1, 0.0, 0, []))
    put_request(paths, left)
    remove_requests(register_file, ["dead"])
    assert requests_in(paths) == [others.name]


def test_trials_that_an_agent_did_not_hear_of_are_executed(
    tmp_path: Path, always_together: None
) -> None:
    """An answer was lost, or the request was applied a second time: nothing is held for nothing."""
    paths = study(tmp_path)
    register_file = begin(paths)
    claimer = Claimer(paths, "agent")
    assert claimer.take(2, 0.0, set()) == [(0, 2)]
    put_request(paths, ask_for_trials("agent", 3, 0.0, 0, [(0, 1)]))
    Claimer(paths, "other").take(1, 0.0, set())
    unheard = rs.subtract(register_file.read().held["agent"], [(0, 2)])
    assert rs.count(unheard) == 3
    assert rs.intersect(claimer.take(1, 0.0, {1}), unheard) == unheard
    assert not requests_in(paths), "an agent removes the requests that it made before"
    put_request(paths, ask_for_trials("agent", 3, 0.0, 0, []))
    Claimer(paths, "third").take(1, 0.0, set())
    claimer.give_back([(1, 2)])
    register = register_file.read()
    assert "agent" not in register.held and rs.contains(register.todo, 1)
    assert_complete(register)


def test_agent_hears_what_others_have_taken_from_it(tmp_path: Path) -> None:
    """It was silent for so long that it was taken for dead: it must neither hold nor give back what others have."""
    paths = study(tmp_path)
    register_file = begin(paths)
    claimer = Claimer(paths, "agent")
    assert claimer.take(4, 0.0, set()) == [(0, 4)] and claimer.still_held() == [(0, 4)]

    def take_over(register: Register) -> Register:
        del register.held["agent"]
        register.held["other"] = [(0, 2)]
        register.todo = rs.union(register.todo, [(2, 4)])
        return register

    register_file.update(take_over)
    assert claimer.still_held() == []
    assert claimer.take(1, 0.0, {0, 1, 2}) == [], "it got 2 once more, which it is executing"
    assert claimer.lost == [(0, 2)]
    assert register_file.read().held == {"agent": [(2, 3)], "other": [(0, 2)]}
    claimer.give_back([(0, 4)])
    register = register_file.read()
    assert register.held == {"other": [(0, 2)]}, "what the other one executes is not everybody's"
    assert_complete(register)


def test_nothing_is_written_where_there_is_nothing_to_take(
    tmp_path: Path, always_together: None
) -> None:
    paths = study(tmp_path)
    register_file = begin(paths)
    claimer = Claimer(paths, "agent")
    assert claimer.take(1, 0.0, set()) == [(0, 1)]
    register_file.update(lambda r: Register(TOTAL, r.current, [], r.held, [(1, TOTAL)]))
    number = register_file.newest_number()
    assert claimer.take(1, 0.0, {0}) == []
    assert register_file.newest_number() == number and not requests_in(paths)


def execute(folder: str, agent: str, log: str, together: bool, gate: str = "/") -> None:
    """An agent: executing a trial is to write down its number. After the first block it waits for a file, `gate`."""
    combine.FEW = -1 if together else 10**9  # type: ignore[misc]
    claimer = Claimer(StudyPaths(folder), agent)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        taken = claimer.take(2, 0.0, set())
        if not taken and claimer.nothing_left():
            return
        for number in rs.numbers(taken):
            os.write(descriptor, b"%d\n" % number)
        time.sleep(0.01)
        while not os.path.exists(gate):
            time.sleep(0.01)


def logged(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def take_back(register_file: RegisterFile, agent: str, log: Path) -> None:
    """What recovery does for an agent that is dead."""

    def change(register: Register) -> Register:
        left = rs.subtract(register.held.pop(agent, []), rs.from_numbers(logged(log)))
        register.todo = rs.union(register.todo, left)
        return register

    register_file.update(change)
    remove_requests(register_file, [agent])


def test_many_agents_and_kills(tmp_path: Path) -> None:
    """Each trial is executed exactly once, although agents are killed at any moment of a claim."""
    paths = study(tmp_path / "study")
    total = 2000
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(total, [(0, total)], [(0, total)], {}, []))
    context = multiprocessing.get_context("fork")
    chance = random.Random(7)
    processes: dict[str, Any] = {}
    logs = {f"agent{number}": tmp_path / f"{number}.log" for number in range(24)}

    def start(agent: str) -> None:
        together = int(agent[5:]) % 4 != 0  # some make their changes alone
        process = context.Process(
            target=execute, args=(paths.folder, agent, str(logs[agent]), together)
        )
        process.start()
        processes[agent] = process

    for agent in list(logs)[:12]:
        start(agent)
    dead: list[str] = []
    for following in list(logs)[12:]:
        progress = sum(len(logged(log)) for log in logs.values())
        wait_for(
            lambda so_far=progress: (
                sum(len(logged(log)) for log in logs.values()) >= min(so_far + 5, total)
            )
        )
        victim = chance.choice([agent for agent in processes if agent not in dead])
        process = processes[victim]
        process.kill()
        process.join(60)
        dead.append(victim)
        take_back(register_file, victim, logs[victim])
        start(following)

    def take_back_again() -> bool:
        """A request of one that was killed may have been applied after the first look."""
        for agent in dead:
            if register_file.read().held.get(agent):
                take_back(register_file, agent, logs[agent])
        return not any(process.is_alive() for process in processes.values())

    wait_for(take_back_again)
    killed = [agent for agent in dead if processes[agent].exitcode == -signal.SIGKILL]
    assert len(killed) > len(dead) / 2, "too few were at work when they were killed"
    executed = sorted(number for log in logs.values() for number in logged(log))
    assert executed == list(range(total))
    register = register_file.read()
    assert register.todo == [] and register.held == {} and register.ended == [(0, total)]


def test_agents_of_former_code_share_the_register(tmp_path: Path) -> None:
    """Jobs that were submitted before an upgrade go on beside later ones."""
    paths = study(tmp_path / "study")
    total = 300
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(total, [(0, total)], [(0, total)], {}, []))
    gate = tmp_path / "gate"
    logs = [tmp_path / f"{number}.log" for number in range(6)]
    words = [sys.executable, "-c", FORMER_AGENT, str(FORMER), paths.folder]
    former = [subprocess.Popen([*words, f"former{k}", str(logs[k]), str(gate)]) for k in range(2)]
    context = multiprocessing.get_context("fork")
    later = []
    for k in range(2, 6):
        later.append(
            context.Process(
                target=execute, args=(paths.folder, f"later{k}", str(logs[k]), k != 2, str(gate))
            )
        )
        later[-1].start()
    wait_for(lambda: all(logged(log) for log in logs))  # all six have something, and none may go on
    gate.touch()
    assert [one.wait(180) for one in former] == [0, 0]
    for process in later:
        process.join(180)
    assert [process.exitcode for process in later] == [0] * 4
    assert sorted(number for log in logs for number in logged(log)) == list(range(total))
