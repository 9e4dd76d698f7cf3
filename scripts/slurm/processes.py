"""Processes known for certain: a number is believed only together with the time its process was started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process of this machine, in this life of the machine."""

    name: str
    pid: int
    start_ticks: int
    boot: str

    @property
    def alive(self) -> bool:
        stat = read_stat(self.pid)
        return self.boot == read_boot() and stat is not None and stat.is_of(self)


@dataclass(frozen=True)
class Stat:
    """What /proc says of a process."""

    pid: int
    state: str
    parent: int
    start_ticks: int

    def is_of(self, process: Process) -> bool:
        return self.start_ticks == process.start_ticks and self.state not in "ZX"


def read_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_stat(pid: int) -> Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in brackets may hold blanks and brackets itself.
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(pid, fields[0], int(fields[1]), int(fields[19]))


def read_command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def read_all() -> Iterator[Stat]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))) is not None:
            yield stat


def make_process(name: str, pid: int) -> Process | None:
    """Nothing where the process has ended already."""
    stat = read_stat(pid)
    return None if stat is None else Process(name, pid, stat.start_ticks, read_boot())


def find_descendants(pid: int) -> list[Stat]:
    """Living processes below `pid`."""
    children: dict[int, list[Stat]] = {}
    for stat in read_all():
        children.setdefault(stat.parent, []).append(stat)
    found: list[Stat] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [stat.pid for stat in below]
    return [stat for stat in found if stat.state not in "ZX"]


def send_signal(pid: int, start_ticks: int, number: int) -> None:
    """Signal exactly this process: not another one that got its number later."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        stat = read_stat(pid)
        if stat is not None and stat.start_ticks == start_ticks:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def wait_gone(processes: list[Process], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while any(process.alive for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def end_below(process: Process, timeout_s: float = 30.0) -> None:
    """End everything below a process. It must adopt what its descendants leave behind, or nothing may detach itself."""
    deadline = time.monotonic() + timeout_s
    while process.alive and (below := find_descendants(process.pid)):
        for stat in below:
            send_signal(stat.pid, stat.start_ticks, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{process.name}: {[stat.pid for stat in below]} cannot be ended")
        time.sleep(0.01)


def end_tree(process: Process) -> None:
    """End everything below a process, then the process."""
    end_below(process)
    if process.alive:
        send_signal(process.pid, process.start_ticks, signal.SIGKILL)
        if not wait_gone([process], 30.0):
            raise TimeoutError(f"{process.name}: {process.pid} cannot be ended")


def write_processes(path: Path, processes: list[Process]) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps([asdict(process) for process in processes], indent=1))
    temporary.replace(path)


def read_processes(path: Path) -> list[Process]:
    try:
        return [Process(**fields) for fields in json.loads(path.read_text())]
    except FileNotFoundError:
        return []
