"""Finds out whether a folder is fit for studies: what its file system promises, and how late another node sees it.

One process measures and another one answers, on another node if there is one. The one that answers is
`python -m windlass.agent.node.fitness FOLDER`. The two talk through two files in the folder, each with one writer,
which are opened anew for every look: a file that is opened by its name is looked up at the server also where listings
are cached.
Python 3.9, standard library.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from windlass.agent.gauge.filesystems import read_mounts

ASKED, ANSWERED = "asked", "answered"  # the two files
# Folders: new names to be seen in a listing; names that both link at the same time.
NAMES, RACES = "names", "races"
RACERS, ROUNDS = 4, 30
_SYNCS = 8
_LINES, _NAMES = 8, 4
_LONGEST_S = 15.0  # that a name or a line is waited for
_SLOW_S = 2.0  # after which one is enough
_POLL_S = 0.01
# For which nobody asks anything before the process that answers ends by itself.
_ANSWERING_S = 300.0


class Mailbox:
    """Two files: one that this process appends to, and one that it reads, each a JSON object a line."""

    def __init__(self, folder: str, own: str, other: str) -> None:
        self._own, self._other = os.path.join(folder, own), os.path.join(folder, other)
        self._read = 0
        self._waiting: List[Dict[str, Any]] = []  # read, and not taken yet

    def make(self) -> None:
        for path in (self._own, self._other):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def write(self, message: Dict[str, Any]) -> None:
        descriptor = os.open(self._own, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, (json.dumps(message) + "\n").encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> List[Dict[str, Any]]:
        """Whole lines that are new."""
        with open(self._other, "rb") as file:
            file.seek(self._read)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._read += end
        return [json.loads(line) for line in data[:end].splitlines()]

    def take(self, wanted: Callable[[Dict[str, Any]], bool]) -> Optional[Dict[str, Any]]:
        """The first message that is wanted. The others stay for later."""
        self._waiting += self.read()
        for place, message in enumerate(self._waiting):
            if wanted(message):
                return self._waiting.pop(place)
        return None


# -- what this machine finds by itself


def probe(folder: str) -> Dict[str, Any]:
    """What the file system of a folder does. The folder must be empty; it is left with files in it."""
    figures = os.statvfs(folder)
    counts_files = figures.f_files > 0
    return {
        "host": platform.node(),
        "file_system": read_mounts().get(os.stat(folder).st_dev, ""),
        "link": _race(folder, "link", _link),
        "exclusive": _race(folder, "exclusive", _create),
        "counts_links": _counts_links(folder),
        "fsync_s": _time_syncs(folder),
        "clock_ahead_s": clock_ahead_s(folder),
        "mkfifo": _try(lambda: os.mkfifo(os.path.join(folder, "fifo"))),
        "rename": _try(lambda: _replace(folder)),
        "free_bytes": figures.f_bavail * figures.f_frsize,
        "free_files": figures.f_favail if counts_files else None,
    }


def _try(call: Callable[[], Any]) -> str:
    """ "" if a call succeeds, else the system's reason."""
    try:
        call()
    except OSError as error:
        return str(error.strerror)
    return ""


def _replace(folder: str) -> None:
    """Put a file in the place of another, as plans are written."""
    paths = [os.path.join(folder, name) for name in ("replaced", "replacing")]
    for path in paths:
        with open(path, "wb") as file:
            file.write(b"x")
    os.replace(paths[1], paths[0])


def _link(own: str, target: str) -> bool:
    try:
        os.link(own, target)
    except FileExistsError:
        return False
    return True


def _create(_own: str, target: str) -> bool:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except (FileExistsError, PermissionError):
        if not os.path.exists(target):
            raise
        return False
    return True


def _race(folder: str, kind: str, take: Callable[[str, str], bool]) -> Dict[str, Any]:
    """Let several processes take the same names at the same moments. Each must be won by exactly one."""
    began = time.monotonic()
    problem = _try(
        lambda: take(_own_file(folder, kind, "first"), os.path.join(folder, f"{kind}-first"))
    )
    if problem:
        return {"problem": problem, "rounds": 0, "wrong": 0}
    gap_s = max(0.003, 2 * (time.monotonic() - began))
    start = time.monotonic() + 0.05 + gap_s
    readers = []
    for racer in range(RACERS):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _take_part(folder, kind, racer, take, start, gap_s, writer)
        os.close(writer)
        readers.append((pid, reader))
    won: List[int] = []
    failed = ""
    for pid, reader in readers:
        with os.fdopen(reader, "rb") as file:
            answer = json.loads(file.read() or b'{"won": [], "problem": "a process was killed"}')
        os.waitpid(pid, 0)
        won += answer["won"]
        failed = failed or answer["problem"]
    wrong = sum(won.count(turn) != 1 for turn in range(ROUNDS))
    return {"problem": failed, "rounds": ROUNDS, "wrong": 0 if failed else wrong}


def _take_part(
    folder: str,
    kind: str,
    racer: int,
    take: Callable[[str, str], bool],
    start: float,
    gap_s: float,
    writer: int,
) -> None:
    """In a forked process: try each name at its moment, and tell which were won. Never returns."""
    answer: Dict[str, Any] = {"won": [], "problem": ""}
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        own = _own_file(folder, kind, str(racer))
        for number in range(ROUNDS):
            time.sleep(max(0.0, start + number * gap_s - time.monotonic()))
            if take(own, os.path.join(folder, f"{kind}-{number}")):
                answer["won"].append(number)
    except OSError as error:
        answer["problem"] = str(error.strerror)
    finally:
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)


def _own_file(folder: str, kind: str, process: str) -> str:
    path = os.path.join(folder, f"{kind}-of-{process}")
    with open(path, "wb") as file:
        file.write(b"x")
    return path


def _counts_links(folder: str) -> Optional[bool]:
    """Whether a file with two names is shown as such; None where there are no hard links."""
    own = _own_file(folder, "count", "me")
    try:
        os.link(own, own + "-too")
    except OSError:
        return None
    return os.stat(own).st_nlink == 2


def _time_syncs(folder: str) -> Dict[str, Any]:
    took: List[float] = []
    try:
        with open(os.path.join(folder, "sync"), "ab") as file:
            for _ in range(_SYNCS):
                file.write(bytes(4096))
                file.flush()
                began = time.monotonic()
                os.fsync(file.fileno())
                took.append(time.monotonic() - began)
    except OSError as error:
        return {"problem": str(error.strerror), "median": None, "longest": None}
    return {"problem": "", **_sum_up(took)}


def _sum_up(took: Sequence[float]) -> Dict[str, float]:
    return {"median": round(statistics.median(took), 4), "longest": round(max(took), 4)}


def clock_ahead_s(folder: str) -> float:
    """By how much the file system's clock is ahead of this machine's: the time that a new file gets."""
    path = os.path.join(folder, f"clock-{platform.node()}-{os.getpid()}")
    before = time.time()
    with open(path, "wb") as file:
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
    after = time.time()
    found = os.stat(path).st_mtime
    # A file system may round its times down, at worst to whole seconds: within these bounds nothing is wrong.
    if before - 1.0 <= found <= after:
        return 0.0
    return round(found - (before + after) / 2, 3)


# -- the two sides


def ask(folder: str, patience_s: float, is_there: Callable[[], bool]) -> Optional[Dict[str, Any]]:
    """Measure together with the process that answers; None where it does not come, or `is_there` says that it cannot.

    Times are halves of round trips: they need no clock that both sides share. The other's clock is compared as NTP
    does it, with the round trip as the uncertainty.
    """
    box = Mailbox(folder, ASKED, ANSWERED)
    hello = _await(box, lambda message: message["e"] == "hello", patience_s, is_there)
    if hello is None:
        return None
    lines, ahead = _time_lines(box)
    late: Dict[str, Any] = {**hello, "lines_s": lines, "clock_ahead_s": ahead}
    if lines["longest"] is not None:
        late["listings_s"] = _time_names(box, folder, lines["median"])
        late["race"] = _race_other(box, folder)
    box.write({"e": "end"})
    return late


def _await(
    box: Mailbox,
    wanted: Callable[[Dict[str, Any]], bool],
    patience_s: float,
    is_there: Callable[[], bool] = bool,
) -> Optional[Dict[str, Any]]:
    """The first message that is wanted; None if none has come in time."""
    began, looked = time.monotonic(), time.monotonic()
    while time.monotonic() - began < patience_s:
        message = box.take(wanted)
        if message is not None:
            return message
        if is_there is not bool and time.monotonic() - looked > 1.0:
            looked = time.monotonic()
            if not is_there():
                return None
        time.sleep(_POLL_S)
    return None


def _time_lines(box: Mailbox) -> Tuple[Dict[str, Any], Optional[Dict[str, float]]]:
    """How late appended lines are seen, and by how much the other's clock is ahead."""
    took: List[float] = []
    clocks: List[Tuple[float, float]] = []
    for number in range(_LINES):
        box.write({"e": "line", "n": number})
        wrote, began = time.time(), time.monotonic()
        answer = _await_numbered(box, "line", number)
        trip = time.monotonic() - began
        if answer is None:
            return {"median": None, "longest": None}, None
        took.append(trip / 2)
        clocks.append((trip, answer["t"] - (wrote + trip / 2)))
        if trip > _SLOW_S:
            break
    trip, ahead = min(clocks)
    return _sum_up(took), {"seconds": round(ahead, 3), "uncertain_s": round(trip / 2, 3)}


def _await_numbered(box: Mailbox, kind: str, number: int) -> Optional[Dict[str, Any]]:
    """The other's message of this kind and number; None where it does not come in time."""

    def fits(message: Dict[str, Any]) -> bool:
        return (message["e"], message.get("n")) == (kind, number)

    return _await(box, fits, _LONGEST_S)


def _time_names(box: Mailbox, folder: str, way_back_s: float) -> Dict[str, Any]:
    """How late a new name is in the other's listing, which it reads all the time."""
    took: List[float] = []
    for number in range(_NAMES):
        with open(os.path.join(folder, NAMES, str(number)), "wb"):
            pass
        began = time.monotonic()
        answer = _await_numbered(box, "name", number)
        if answer is None:
            return {"median": None, "longest": None, "more_than": _LONGEST_S}
        took.append(max(0.0, time.monotonic() - began - way_back_s))
        if took[-1] > _SLOW_S:
            break
    return _sum_up(took)


def _race_other(box: Mailbox, folder: str) -> Dict[str, Any]:
    """Both sides link the same names at about the same time. Each name must be won by exactly one."""
    box.write({"e": "race"})
    _await(box, lambda message: message["e"] == "ready", _LONGEST_S)
    own, problem = run_for_names(folder, "asking")
    answer = _await(box, lambda message: message["e"] == "won", _LONGEST_S)
    if answer is None or problem or answer["problem"]:
        return {
            "problem": problem or (answer["problem"] if answer else "no answer"),
            "rounds": 0,
            "wrong": 0,
        }
    wrong = sum((number in own) + (number in answer["won"]) != 1 for number in range(ROUNDS))
    return {"problem": "", "rounds": ROUNDS, "wrong": wrong}


def run_for_names(folder: str, process: str) -> Tuple[List[int], str]:
    """The numbers that this side has won, and why it could not take part."""
    take = (
        _link
        if not _try(lambda: _link(_own_file(folder, RACES, process), _own_name(folder, process)))
        else _create
    )
    won = []
    try:
        for number in range(ROUNDS):
            if take(
                os.path.join(folder, f"{RACES}-of-{process}"),
                os.path.join(folder, RACES, str(number)),
            ):
                won.append(number)
    except OSError as error:
        return won, str(error.strerror)
    return won, ""


def _own_name(folder: str, process: str) -> str:
    return os.path.join(folder, RACES, f"of-{process}")


def answer(folder: str) -> None:
    """Be the other side: answer whatever is asked, until the end is."""
    box = Mailbox(folder, ANSWERED, ASKED)
    kind = read_mounts().get(os.stat(folder).st_dev, "")
    file_clock = clock_ahead_s(folder)
    box.write(
        {
            "e": "hello",
            "host": platform.node(),
            "file_system": kind,
            "file_clock_ahead_s": file_clock,
        }
    )
    seen: set[str] = set()
    heard = time.monotonic()
    while time.monotonic() - heard < _ANSWERING_S:
        for name in sorted(set(os.listdir(os.path.join(folder, NAMES))) - seen):
            seen.add(name)
            box.write({"e": "name", "n": int(name)})
        for message in box.read():
            heard = time.monotonic()
            if message["e"] == "line":
                box.write({"e": "line", "n": message["n"], "t": time.time()})
            elif message["e"] == "race":
                box.write({"e": "ready"})
                won, problem = run_for_names(folder, "answering")
                box.write({"e": "won", "won": won, "problem": problem})
            elif message["e"] == "end":
                return
        time.sleep(_POLL_S)


def prepare(folder: str) -> None:
    """Make what both sides need in a new folder."""
    for name in (NAMES, RACES):
        os.mkdir(os.path.join(folder, name))
    Mailbox(folder, ASKED, ANSWERED).make()


if __name__ == "__main__":
    answer(sys.argv[1])
