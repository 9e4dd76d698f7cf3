"""Warns in the terminal of an interactive job in which nothing runs any more. Executed on the node, beside the shell.

    python idle.py SECONDS HELD

It is a child of the shell and ends with it.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from windlass.core.units import render_about

_LOOK_S = 1.0  # how soon it notices that the shell has ended
_BUSY_SHARE = 0.02  # of one core: an idle shell, tmux or notebook server takes less
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Idleness:
    """How long nothing has run, look by look."""

    def __init__(self, now: float, cpu_s: dict[int, float]) -> None:
        self._since = self._looked = now
        self._cpu_s = cpu_s

    def look(self, now: float, cpu_s: dict[int, float], typed: float) -> float:
        """Seconds since something ran or was typed. `cpu_s`: processor time of each process; `typed`: seconds ago."""
        used_s = sum(max(0.0, spent - self._cpu_s.get(pid, 0.0)) for pid, spent in cpu_s.items())
        if used_s > _BUSY_SHARE * (now - self._looked):
            self._since = now
        self._since = max(self._since, now - typed)
        self._looked, self._cpu_s = now, cpu_s
        return now - self._since


def read_cpu_times(job: str) -> dict[int, float]:
    """Processor time of all processes of this job on this node, but for this one."""
    mark = f"SLURM_JOB_ID={job}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            spent = _read_cpu_s(int(name), mark)
            if spent is not None:
                found[int(name)] = spent
    return found


def _read_cpu_s(pid: int, mark: bytes) -> float | None:
    """The processor time of a process of this job; None for other processes and those that have ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if mark not in file.read().split(b"\0"):
                return None
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    arguments = text[text.rindex(b")") + 2 :].split()
    # utime, stime, and those of children that have ended: a compiler or a short script leaves nothing else behind.
    return sum(int(word) for word in arguments[11:15]) / _TICKS_PER_S


def _typed_ago(descriptor: int) -> float:
    """Seconds since something was typed in this terminal."""
    try:
        return max(0.0, time.time() - os.fstat(descriptor).st_atime)
    except OSError:
        return float("inf")


def main(limit_s: float, held: str) -> None:
    """Watch an interactive job until its shell ends, and warn in its terminal each time nothing ran for `limit_s`.

    `held` names what the job holds. Signals of the keyboard are ignored: they are meant for the shell.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setpgid(0, 0)  # what is typed is meant for the shell
    job, shell, terminal = os.environ.get("SLURM_JOB_ID", ""), os.getppid(), sys.stderr.fileno()
    idleness = Idleness(time.monotonic(), read_cpu_times(job))
    every_s, warned_s = min(60.0, limit_s / 3), 0.0
    next_look = time.monotonic() + every_s
    while os.getppid() == shell:
        time.sleep(min(_LOOK_S, every_s))
        now = time.monotonic()
        if now < next_look:
            continue
        next_look = now + every_s
        idle_s = idleness.look(now, read_cpu_times(job), _typed_ago(terminal))
        if idle_s < every_s:
            warned_s = 0.0
        if idle_s >= warned_s + limit_s:
            warned_s = idle_s
            minutes = render_about(idle_s)
            text = f"windlass: nothing has run here for {minutes}; job {job} holds {held} until you `exit`"
            os.write(terminal, f"\r\n{text}\r\n".encode())


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
