"""The register: ranges, compare-and-swap by many processes, recovery from the dead."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.agent.claim import Claimer
from windlass.agent.lease.guard import FenceRule
from windlass.core.claims import alive
from windlass.core.claims import ranges as rs
from windlass.core.claims.recover import recover
from windlass.core.claims.register import (
    Attempt,
    Overtaken,
    Register,
    RegisterFile,
    RegisterLost,
    RegisterVersionError,
)
from windlass.core.claims.requests import block_size, wanted_block
from windlass.core.damage import forget_reports
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.journal.write import JournalWriter
from windlass.core.paths import StudyPaths

number_sets = st.sets(st.integers(0, 60))


def as_set(ranges: rs.Ranges) -> set[int]:
    return set(rs.numbers(ranges))


@given(number_sets, number_sets, st.integers(0, 80))
def test_ranges_are_sets(left: set[int], right: set[int], wanted: int) -> None:
    a, b = rs.from_numbers(left), rs.from_numbers(right)
    assert as_set(a) == left and rs.count(a) == len(left)
    assert as_set(rs.union(a, b)) == left | right
    assert as_set(rs.subtract(a, b)) == left - right
    assert as_set(rs.intersect(a, b)) == left & right
    taken, rest = rs.take(a, wanted)
    assert as_set(taken) == set(sorted(left)[:wanted]) and as_set(rest) == left - as_set(taken)
    assert all(rs.contains(a, number) == (number in left) for number in range(62))
    for ranges in (rs.union(a, b), rs.subtract(a, b)):
        assert all(first[1] < second[0] for first, second in itertools.pairwise(ranges)), (
            "not normalised"
        )


def take_one_by_one(folder: str, who: str, total: int) -> list[int]:
    """Takes numbers until none is left."""
    register_file = RegisterFile(folder, who)
    mine: list[int] = []
    while True:
        got: list[int] = []

        def change(register: Register, got: list[int] = got) -> Register | None:
            got.clear()
            if not register.todo:
                return None
            taken, register.todo = rs.take(register.todo, 1 + len(register.todo) % 2)
            got.extend(rs.numbers(taken))
            return register

        register_file.update(change)
        if not got:
            return mine
        mine += got


def test_many_processes_take_each_number_once(tmp_path: Path) -> None:
    total = 200
    RegisterFile(str(tmp_path), "maker").update(
        lambda r: Register(total, [(0, total)], [(0, total)], {}, [])
    )
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        shares = pool.starmap(take_one_by_one, [(str(tmp_path), f"p{k}", total) for k in range(4)])
    assert sorted(number for share in shares for number in share) == list(range(total))
    assert len(list(tmp_path.iterdir())) < 100, "old states are not removed"


def test_a_slow_process_cannot_win_with_a_number_of_the_past(tmp_path: Path) -> None:
    slow, quick = RegisterFile(str(tmp_path), "slow"), RegisterFile(str(tmp_path), "quick")
    quick.update(lambda r: Register(9, [(0, 9)], [(0, 9)], {}, []))
    calls = []

    def slow_change(register: Register) -> Register:
        calls.append(list(register.todo))
        if len(calls) == 1:
            for _ in range(
                80
            ):  # meanwhile the others go on so far that the slow one's number is free again

                def change(other: Register) -> Register:
                    other.count += 1
                    return other

                quick.update(change)
        register.todo = []
        return register

    slow.update(slow_change)
    assert len(calls) == 2
    after = quick.read()
    assert after.count == 89 and after.todo == []


def test_a_change_that_so_many_followed_is_not_guessed_about(tmp_path: Path) -> None:
    register_file = RegisterFile(str(tmp_path), "x")

    def change(register: Register) -> Register:
        register.count += 1
        return register

    for _ in range(300):
        register_file.update(change)
    newest = register_file.find_newest()
    with pytest.raises(Overtaken, match="run again"):
        register_file.is_in_force(Attempt(2, "not there"), newest)
    assert not register_file.is_in_force(Attempt(299, "not there"), newest), (
        "few followed: it is not in force"
    )
    assert register_file.is_in_force(Attempt(299, newest.register.tokens[1]), newest)


def test_newer_register_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00000001").write_text(json.dumps({"v": 99}))
    with pytest.raises(RegisterVersionError, match="upgrade"):
        RegisterFile(str(tmp_path), "x").read()


@given(
    st.integers(1, 64),
    st.floats(0, 5000),
    st.integers(0, 5000),
    st.integers(1, 10**6),
    st.integers(1, 200),
)
def test_blocks(free: int, rate: float, previous: int, left: int, agents: int) -> None:
    size = block_size(free, wanted_block(free, rate, previous), left, agents)
    assert 1 <= size <= left
    assert size <= max(free, left // (2 * agents)), (
        "towards the end blocks shrink to what the slots take"
    )
    if rate < 0.1:
        assert size <= free, "long trials are not hoarded"


def study(tmp_path: Path) -> StudyPaths:
    paths = StudyPaths(str(tmp_path))
    for folder in paths.folders():
        os.makedirs(folder, exist_ok=True)
    return paths


def write_agent(
    paths: StudyPaths, agent: str, events: list[dict[str, object]], **header: object
) -> None:
    first = {
        "e": "agent",
        "t": 1.0,
        "v": JOURNAL_VERSION,
        "id": agent,
        **alive.identity(),
        "slots": 1,
        **header,
    }
    writer = JournalWriter(paths.journal_of(agent), first)
    for event in events:
        writer.add(event)
    writer.flush()
    writer.close()


def test_recover_gives_back_what_a_dead_agent_had_not_finished(tmp_path: Path) -> None:
    paths = study(tmp_path)
    end = {"e": "end", "t": 2.0, "n": 0, "cause": "failed", "code": 1}
    events: list[dict[str, object]] = [
        {**end, "i": 3},
        {**end, "i": 4},
        {"e": "again", "t": 3.0, "i": 4, "n": 0},
    ]
    write_agent(paths, "dead", events, pid=2**22 - 1, began="1")
    write_agent(paths, "living", [])
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(
        lambda r: Register(
            10, [(0, 10)], [(9, 10)], {"dead": [(3, 7)], "living": [(0, 3)]}, [(6, 7)]
        )
    )
    assert recover(paths, register_file).dead == ["dead"]
    after = register_file.read()
    assert after.held == {"living": [(0, 3)]}
    assert after.todo == [(4, 6), (9, 10)], "3 had ended, 4 was to be tried again, 6 was cancelled"


def test_an_agent_of_another_machine_is_dead_after_its_lease(tmp_path: Path) -> None:
    paths = study(tmp_path)
    write_agent(paths, "far", [], host="elsewhere", machine="other", boot="other")
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(2, [(0, 2)], [], {"far": [(0, 2)]}, []))
    assert recover(paths, register_file).dead == []
    long_ago = time.time() - alive.LEASE_S - 10
    os.utime(paths.journal_of("far"), (long_ago, long_ago))
    assert recover(paths, register_file).dead == ["far"]
    assert register_file.read().todo == [(0, 2)]


def test_who_is_alive() -> None:
    me = alive.identity()
    assert alive.is_alive(me) is True
    assert alive.is_alive({**me, "began": "1"}) is False, "the number was given to another process"
    assert alive.is_alive({**me, "boot": "0" * 36}) is False, "this machine was started anew"
    assert alive.is_alive({**me, "host": "elsewhere", "boot": "x"}) is None
    assert alive.beat_s(60) < alive.fence_s(60) < 60


def test_trials_of_an_agent_without_its_folder_are_gone_before_others_may_begin_them() -> None:
    """Syncs may take half of the lease all the same. 3.25 s are the guard's looks, see docs/architecture.md."""
    for lease_s in (15.0, 60.0, 300.0, 3600.0):
        patience_s = FenceRule(lease_s, 3600.0, signal.SIGTERM).patience_s
        assert alive.fence_s(lease_s) >= lease_s / 2
        assert lease_s - alive.fence_s(lease_s) - patience_s - 3.25 >= max(2.75, 0.18 * lease_s)


def test_recover_gives_back_what_was_interrupted_and_not_yet_given_back(tmp_path: Path) -> None:
    """The agent was killed between the record of the end and letting go of the trial."""
    paths = study(tmp_path)
    end = {"e": "end", "t": 2.0, "n": 0, "code": 0}
    events: list[dict[str, object]] = [
        {**end, "i": 0, "cause": "stopped"},
        {**end, "i": 1, "cause": "done"},
    ]
    write_agent(paths, "dead", events, pid=2**22 - 1, began="1")
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(2, [(0, 2)], [], {"dead": [(0, 2)]}, []))
    assert recover(paths, register_file).dead == ["dead"]
    assert register_file.read().todo == [(0, 1)]


def age(path: Path) -> None:
    """As if it had been written a while ago."""
    os.utime(path, (time.time() - 60, time.time() - 60))


@pytest.mark.parametrize("damage", ["empty", "torn", "flipped", "wrong type", "folder"])
def test_damaged_newest_state_gives_way_to_the_one_before(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_reports()
    paths = study(tmp_path)
    register_file = RegisterFile(paths.claims, "test")
    for count in (10, 20):
        register_file.update(lambda r, n=count: Register(n, [(0, n)], [(5, n)], {}, []))  # type: ignore[misc]
    newest = Path(paths.claims) / f"{register_file.newest_number():08d}"
    whole = newest.read_bytes()
    newest.unlink()
    if damage == "folder":
        newest.mkdir()
    else:
        contents = {
            "empty": b"",
            "torn": whole[:40],
            "flipped": whole.replace(b"20", b"90"),
            "wrong type": b"[1]",
        }
        newest.write_bytes(contents[damage])
    age(newest)
    assert register_file.read().count == 10
    assert newest.exists(), "a reader changes nothing"
    assert f"{newest}: this state of the register is damaged" in capsys.readouterr().err

    def give(register: Register) -> Register:
        register.todo = rs.union(register.todo, [(0, 2)])
        return register

    assert register_file.update(give).todo == [(0, 2), (5, 10)]
    assert RegisterFile(paths.claims, "other").read().todo == [(0, 2), (5, 10)]
    for path in Path(paths.claims).glob("0*"):
        path.write_bytes(b"")
        age(path)
    Path(paths.trials).write_text("{}\n")
    with pytest.raises(
        RegisterLost, match=r"claims: .*none of its files is whole.*\n.*windlass run"
    ):
        register_file.update(give)


def test_state_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    """Without hard links a state gets its number first; taking it for damaged would lose the change."""
    paths = study(tmp_path)
    register_file = RegisterFile(paths.claims, "slow")
    register_file.update(lambda r: Register(10, [(0, 10)], [(0, 10)], {}, []))
    number = register_file.newest_number() + 1
    newest = Path(paths.claims) / f"{number:08d}"
    newest.write_bytes(b"")
    assert RegisterFile(paths.claims, "reader").read().todo == [(0, 10)]
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        other = pool.apply_async(take_one_by_one, (paths.claims, "other", 10))
        register = Register(10, [(0, 10)], [(4, 10)], {"slow": [(0, 4)]}, [], tokens=["mine"])
        newest.write_bytes(json.dumps(register.to_json()).encode())
        assert sorted(other.get(120)) == list(range(4, 10))


def test_register_remembers_what_has_ended(tmp_path: Path) -> None:
    paths = study(tmp_path)
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(10, [(0, 10)], [(0, 10)], {}, []))
    claimer = Claimer(paths, "agent")
    assert claimer.take(4, 0.0, set()) == [(0, 4)]
    assert claimer.take(1, 0.0, {3}) == [(4, 5)]
    assert register_file.read().ended == [(0, 3)]
    claimer.give_back([(3, 4)])
    assert register_file.read().ended == [(0, 3), (4, 5)]

    def retry(register: Register) -> Register:
        register.todo = rs.union(register.todo, [(1, 2)])
        return register

    assert register_file.update(retry).ended == [(0, 1), (2, 3), (4, 5)]
    old = {key: value for key, value in register_file.read().to_json().items() if key != "ended"}
    assert Register.from_json(old).ended == [], "registers of earlier versions do not have it"


def test_register_counts_how_often_a_trial_came_back(tmp_path: Path) -> None:
    paths = study(tmp_path)
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(10, [(0, 10)], [(0, 9)], {}, [(9, 10)]))
    claimer = Claimer(paths, "agent")

    def execute(trials: int) -> dict[int, int]:
        """Take trials, give back the last of them, and end the others. Returns the rounds of all."""
        taken = claimer.take(trials, 0.0, set())
        assert rs.count(taken) == trials
        rounds = claimer.rounds
        claimer.give_back([(taken[-1][1] - 1, taken[-1][1])])
        return rounds

    def put_back(*trials: tuple[int, int]) -> dict[int, rs.Ranges]:
        def change(register: Register) -> Register:
            register.todo = rs.union(register.todo, list(trials))
            register.cancelled = rs.subtract(register.cancelled, list(trials))
            return register

        return register_file.update(change).rounds

    assert execute(6) == {} and put_back((5, 7)) == {}, (
        "trials that are open already have not ended"
    )
    assert "rounds" not in json.dumps(register_file.read().to_json()), (
        "the state of most studies does not grow"
    )
    assert put_back((1, 4), (9, 10)) == {1: [(1, 4), (9, 10)]}, "one was cancelled"
    assert execute(3) == {1: 1, 2: 1, 3: 1}
    assert put_back((0, 3)) == {1: [(0, 1), (3, 4), (9, 10)], 2: [(1, 3)]}, (
        "3 was given back: it had not ended"
    )
    state = register_file.read()
    assert Register.from_json(json.loads(json.dumps(state.to_json()))).rounds == state.rounds
    assert state.learned == {} and "rounds" in state.to_json()["learned"], (
        "agents of earlier versions keep it there"
    )
