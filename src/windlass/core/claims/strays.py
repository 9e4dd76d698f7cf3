"""Finds and ends processes that an agent left behind. Python 3.9, standard library.

Every process of a trial carries WINDLASS_AGENT in its environment, and so do its descendants, also those that moved
to a session of their own. That is how they are found when no process is left that knows their numbers.
"""

from __future__ import annotations

import os
import signal
import time
from typing import List, Set

AGENT_VARIABLE = "WINDLASS_AGENT"


def find_strays(variable: str, value: str, program: str = "") -> List[int]:
    """Living processes of this user whose environment, as they were started with it, has variable=value.

    With `program`, only those that execute it.
    """
    needle = f"{variable}={value}".encode()
    own = os.getpid()
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if not name.isdigit() or int(name) == own:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        is_ours = needle in environment and needle in environment.split(b"\0")
        if is_ours and (not program or program_of(name) == program):
            found.append(int(name))
    return found


def program_of(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def end_strays(
    variable: str, value: str, grace_s: float = 0.0, looks: int = 2, program: str = ""
) -> int:
    """Ask them to end, wait, then kill, until so many looks in a row find none. Returns how many there were.

    One look is enough for whoever knows that nothing is being started at this moment.
    """
    ended: Set[int] = set()
    deadline = time.monotonic() + grace_s
    clean = 0
    while True:
        strays = find_strays(variable, value, program)
        clean = 0 if strays else clean + 1
        if clean >= looks:
            return len(ended)
        for pid in strays:
            first_time = pid not in ended
            ended.add(pid)
            try:
                if time.monotonic() >= deadline:
                    os.kill(pid, signal.SIGKILL)
                elif first_time:
                    os.kill(pid, signal.SIGTERM)
            except OSError:
                pass
        # Between two looks a process may appear that was being started while its starter died.
        time.sleep(0.02)
