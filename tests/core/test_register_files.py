"""The register where file systems differ: old listings, lost answers, no hard links, slow changes."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_claims import study
from windlass.agent.claim import Claimer
from windlass.core.claims import ranges as rs
from windlass.core.claims import states
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.paths import StudyPaths

TOTAL = 100


def begin(paths: StudyPaths) -> RegisterFile:
    """A register with trials that nobody has."""
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(TOTAL, [(0, TOTAL)], [(0, TOTAL)], {}, []))
    return register_file


def count_on(register_file: RegisterFile, times: int) -> None:
    """Make so many changes."""

    def change(register: Register) -> Register:
        register.throttle = (register.throttle or 1000) + 1
        return register

    for _ in range(times):
        register_file.update(change)


def assert_complete(register: Register) -> None:
    """Every trial is in exactly one place."""
    places = [register.todo, register.ended, *register.held.values()]
    assert rs.normalise(pair for place in places for pair in place) == [(0, TOTAL)]
    assert sum(rs.count(place) for place in places) == TOTAL


class OldListing:
    """A folder of which this machine may have an old listing, as clients of network file systems do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: str, refreshes: bool) -> None:
        self.names: list[str] | None = None  # what is listed in place of what is there
        real_listdir, real_open = os.listdir, os.open

        def listdir(path: Any = ".") -> list[str]:
            return (
                real_listdir(path)
                if self.names is None or str(path) != folder
                else list(self.names)
            )

        def opening(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if refreshes and flags & os.O_CREAT and str(path).startswith(folder):
                self.names = (
                    None  # a client makes its listing anew once it has changed the folder itself
                )
            return real_open(path, flags, *more, **named)

        monkeypatch.setattr(os, "listdir", listdir)
        monkeypatch.setattr(os, "open", opening)


@pytest.mark.parametrize(
    ("changes", "refreshes"), [(3, False), (12, False), (150, False), (250, True)]
)
def test_old_listing_does_not_hide_the_newest_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int, refreshes: bool
) -> None:
    """NFS shows a listing that is up to a minute old, while a file that is opened by its name is there."""
    if refreshes:
        monkeypatch.setattr(
            states, "LANDMARKS", 1
        )  # as if so many changes were made that no landmark was left
    paths = study(tmp_path)
    writer = begin(paths)
    listing = OldListing(monkeypatch, paths.claims, refreshes)
    count_on(writer, 10)
    before = os.listdir(paths.claims)
    count_on(writer, changes)
    expected = writer.read().throttle
    listing.names = before
    assert RegisterFile(paths.claims, "reader").read().throttle == expected
    listing.names = before
    assert Claimer(paths, "agent").take(4, 0.0, set()) == [(0, 4)]
    listing.names = None
    register = writer.read()
    assert_complete(register)
    assert register.held == {"agent": [(0, 4)]} and register.throttle == expected


def test_states_are_kept_by_age_and_by_number(tmp_path: Path) -> None:
    paths = study(tmp_path)
    register_file = begin(paths)
    count_on(register_file, 40)
    numbers = sorted(int(name) for name in os.listdir(paths.claims))
    assert numbers == list(range(1, 42)), "all are younger than listings may be old"
    count_on(register_file, 200)
    numbers = sorted(int(name) for name in os.listdir(paths.claims))
    assert numbers == [64, 128, *range(241 - states.MOST + 1, 242)], (
        "the newest, and every 64th before them"
    )
    for number in numbers:
        long_ago = os.stat(paths.claims).st_mtime - 2 * states.LISTED_S + number / 1000
        os.utime(register_file.states.path(number), (long_ago, long_ago))
    count_on(RegisterFile(paths.claims, "later"), 40)
    numbers = sorted(int(name) for name in os.listdir(paths.claims))
    assert len(numbers) <= 41 and numbers[-40:] == list(range(242, 282)), (
        "four old ones go with each change"
    )


@pytest.mark.parametrize("answer", [errno.EEXIST, errno.EIO])
def test_link_that_was_made_but_answered_otherwise_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    """NFS sends a request again when the answer was lost: the second one finds what the first one has made."""
    paths = study(tmp_path)
    register_file = begin(paths)
    claimer = Claimer(paths, "agent")
    first = claimer.take(4, 0.0, set())
    real_link, answers = os.link, [answer]

    def link(source: Any, target: Any, **named: Any) -> None:
        real_link(source, target, **named)
        if answers:
            raise OSError(answers.pop(), "as asked for by the test", target)

    monkeypatch.setattr(os, "link", link)
    second = claimer.take(4, 0.0, {3})
    register = register_file.read()
    assert_complete(register)
    assert (
        second == [(4, 8)] and register.held == {"agent": [(3, 8)]} and register.ended == [(0, 3)]
    )
    assert first == [(0, 4)] and not answers


@pytest.mark.parametrize("answer", [errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOSYS])
def test_race_without_hard_links_may_be_lost_with_eperm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    paths = study(tmp_path)
    quick, slow = begin(paths), RegisterFile(paths.claims, "slow")
    real_open = os.open

    def link(source: Any, target: Any, **named: Any) -> None:
        raise OSError(answer, "no hard links", target)

    def opening(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_EXCL and os.path.lexists(path):
            raise PermissionError(
                errno.EPERM, "as some file systems refuse a name that is taken", path
            )
        return real_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "open", opening)
    calls = []

    def change(register: Register) -> Register:
        calls.append(register.throttle)
        if len(calls) == 1:
            count_on(quick, 1)
        register.count += 1
        return register

    assert slow.update(change).count == TOTAL + 1
    assert len(calls) == 2 and quick.read().throttle == 1001

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_EXCL and os.path.basename(str(path)).isdigit():
            raise PermissionError(errno.EPERM, "the folder may not be written to", path)
        return real_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        count_on(slow, 1)


def test_slow_change_is_let_through(tmp_path: Path) -> None:
    """A command that reads journals while it changes the register would lose every race against agents."""
    paths = study(tmp_path)
    slow = begin(paths)
    wanted, made, ended = threading.Event(), threading.Event(), threading.Event()

    def be_quick() -> None:
        quick = RegisterFile(paths.claims, "quick")
        while wanted.wait(60) and not ended.is_set():
            wanted.clear()
            count_on(quick, 1)
            made.set()

    thread = threading.Thread(target=be_quick)
    thread.start()
    calls = []

    def change(register: Register) -> Register:
        calls.append(1)
        made.clear()
        wanted.set()
        made.wait(1.0)  # a quick change is made meanwhile, unless it waits for this one
        register.count += 1
        return register

    try:
        assert slow.update(change).count == TOTAL + 1
        assert made.wait(60), "the others go on afterwards"
    finally:
        ended.set()
        wanted.set()
        thread.join(60)
    assert len(calls) == 4, "three races were lost, then the others waited"
    assert not [name for name in os.listdir(paths.claims) if not name.isdigit()]
    assert slow.read().count == TOTAL + 1


def test_those_who_wait_do_not_wait_for_the_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = study(tmp_path)
    register_file = begin(paths)
    left = Path(paths.claims, "wait~client-killed~0123abcd")
    left.touch()
    monkeypatch.setattr("windlass.core.claims.states._WAIT_S", 0.2)
    count_on(register_file, 1)
    assert register_file.read().throttle == 1001 and not left.exists()
