"""A second process that ends the trials when the agent cannot. Python 3.9, standard library.

The guard holds the reading end of a pipe whose writing end only the agent has. When the agent dies, of whatever
cause, the guard reads the end of file, ends everything that the agent had started, and goes.

The guard also holds the clock. An agent whose folder hangs is blocked in a call of the file system, and others may
begin its trials once its lease is over. The guard never touches the folder: it reads from memory when the agent's last
write is known to have arrived, and ends the trials well before the lease is over where that was too long ago.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Dict, NamedTuple, Optional, Tuple

from windlass.agent.lease.fence_page import FencePage, clock_s
from windlass.agent.node.sweep import release_folder, salvage
from windlass.core.claims.alive import beat_s, fence_patience_s, fence_s
from windlass.core.claims.strays import AGENT_VARIABLE, end_strays, find_strays, program_of

_LOOK_S = 1.0
_FENCED_LOOK_S = 0.25
_STRAYS_S = 2.0  # between looks through all processes while the folder is out of reach
_UNSEEN_S = 2.0  # an agent that is busy for longer does not see when its trials end
_SPARED = "nvidia-cuda-mps"  # daemons that hold no trial; the agent ends them itself


class FenceRule(NamedTuple):
    """How long the guard waits, and how it ends trials."""

    lease_s: float
    grace_s: float  # between the polite signal and SIGKILL
    stop_signal: int

    @property
    def patience_s(self) -> float:
        """How long trials have to end by themselves: they must be gone well before the lease is over."""
        return min(self.grace_s, fence_patience_s(self.lease_s))


def start_guard(
    agent: str,
    runtime_folder: str,
    page: Optional[FencePage] = None,
    rule: Optional[FenceRule] = None,
) -> Tuple[int, int]:
    """Fork the guard. Returns its process number and the descriptor whose closing sets it off."""
    reading, writing = os.pipe()
    agent_pid = os.getpid()
    pid = os.fork()
    if pid:
        os.close(reading)
        return pid, writing
    status = 1
    try:
        os.close(writing)
        _watch(agent, agent_pid, runtime_folder, reading, page, rule)
        status = 0
    finally:
        os._exit(status)


def _watch(
    agent: str,
    agent_pid: int,
    runtime_folder: str,
    reading: int,
    page: Optional[FencePage],
    rule: Optional[FenceRule],
) -> None:
    os.setsid()
    # The agent's working folder may be on the file system that hangs.
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    _release_descriptors(reading)
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    fence = Fence(agent, page, rule) if page is not None and rule is not None else None
    while not poller.poll(None if fence is None else 1000 * fence.look()):
        pass
    ended_in_order = os.read(reading, 1) == b"q"
    if not ended_in_order:
        end_strays(AGENT_VARIABLE, agent)
        local = os.environ.get("SLURM_TMPDIR", "")
        if local and local != runtime_folder:
            salvage(local)
        # Where there is no time for that any more, the next agent on this node does it.
        release_folder(runtime_folder)


class Fence:
    """Ends the trials of an agent whose writes do not arrive, and goes on doing so until one does."""

    def __init__(self, agent: str, page: FencePage, rule: FenceRule) -> None:
        self._agent = agent
        self._page = page
        self._rule = rule
        self._limit_s = fence_s(rule.lease_s)
        self._looked = clock_s()
        self._is_closed = False
        # When the trials are ended, where this process itself has been stopped; 0: not.
        self._closing_at = 0.0
        self._kill_at = 0.0
        self._next_strays = 0.0
        self._asked: Dict[int, bool] = {}  # strays that got a polite signal

    def look(self) -> float:
        """Do what is due. Returns after how many seconds to look again."""
        now = clock_s()
        page = self._page
        was_stopped = now - self._looked > _LOOK_S + self._limit_s / 2
        self._looked = now
        proved = page.proved
        silent_s = now - proved
        if silent_s <= self._limit_s:
            self._is_closed, self._closing_at = False, 0.0
        elif not self._is_closed:
            # Where everything on the node was stopped, trials too (a suspended job or machine), the agent goes on as
            # well, and finds out at once whether the trials are still its own. They need not end if they are.
            if was_stopped:
                self._closing_at = now + max(_LOOK_S, beat_s(self._rule.lease_s))
            if now >= self._closing_at:
                self._close(now)
        is_busy = 0.0 < page.busy_since < now - _UNSEEN_S
        if is_busy or self._is_closed or silent_s > 2.5 * beat_s(self._rule.lease_s):
            self._note_ends()
        if self._is_closed:
            self._end_trials(now)
        return _FENCED_LOOK_S if self._is_closed or self._closing_at else _LOOK_S

    def _close(self, now: float) -> None:
        self._is_closed = True
        self._page.fire()
        self._kill_at = now + self._rule.patience_s
        self._next_strays = 0.0
        self._asked.clear()

    def _note_ends(self) -> None:
        """Record when trials ended: the agent may see it much later."""
        for slot in self._page.running():
            if not _is_running(self._page.pid_of(slot)):
                self._page.mark_ended(slot, time.monotonic())

    def _end_trials(self, now: float) -> None:
        """First those whose numbers are known, which needs nothing that could hang; then whatever they started."""
        number = signal.SIGKILL if now >= self._kill_at else self._rule.stop_signal
        for slot in self._page.running():
            pid = self._page.pid_of(slot)
            is_new = self._page.mark_fenced(slot)
            if is_new or number == signal.SIGKILL:
                _send(pid, number, group=True)
        if now < self._next_strays:
            return
        self._next_strays = now + (_STRAYS_S if self._asked else _FENCED_LOOK_S)
        for pid in find_strays(AGENT_VARIABLE, self._agent):
            if program_of(str(pid)).startswith(_SPARED):
                continue
            if number == signal.SIGKILL or pid not in self._asked:
                _send(
                    pid, signal.SIGKILL if number == signal.SIGKILL else signal.SIGTERM, group=False
                )
            self._asked[pid] = True


def _send(pid: int, number: int, group: bool) -> None:
    for one in (number, signal.SIGCONT):
        try:
            (os.killpg if group else os.kill)(pid, one)
        except OSError:
            return


def _is_running(pid: int) -> bool:
    """Whether a process is there that has not ended. Its state alone is read: other files of /proc may block."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _release_descriptors(kept: int) -> None:
    """Hold on to nothing of the agent's: a pipe to the launcher kept open here would hide the agent's death."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, 1024)


def release_guard(pid: int, writing: int) -> None:
    """The agent has cleaned up itself: the guard may go."""
    try:
        os.write(writing, b"q")
        os.close(writing)
        os.waitpid(pid, 0)
    except OSError:
        pass
