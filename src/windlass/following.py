"""Follows agents until their study is through: one loop for every place and every command."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, Protocol

from windlass.bundle.folder import folder_error
from windlass.collect.follow import Follower
from windlass.core.claims.client import client_name
from windlass.core.claims.recover import recover
from windlass.core.claims.register import RegisterFile
from windlass.core.counted import counted
from windlass.core.errors import AgentError, FolderError, OutOfReach
from windlass.core.journal.write import DiskFull
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.patience import ending_early, forget_outage
from windlass.places.base import Agents

_AGENT_FULL, _AGENT_REFUSED, _AGENT_OUTDATED = 5, 2, 6  # exit codes of agents
_MOST_PAUSE_S = 2.0
_DEATHS_WITHOUT_PROGRESS = 3


class Shows(Protocol):
    """What is shown while agents are followed."""

    def progress(
        self, follower: Follower, total: int, left_s: Callable[[], float | None] | None = None
    ) -> None: ...

    def say(self, text: str) -> None: ...


class Interrupts:
    """Counts Ctrl-C while agents are followed; a signal that asks this process to end counts as two.

    With `only_ctrl_c`, such a signal ends this process as usual: agents that run elsewhere go on without it.
    """

    def __init__(self, only_ctrl_c: bool) -> None:
        self.count = 0
        self._signals = (
            (signal.SIGINT,) if only_ctrl_c else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        )
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in self._signals:
            self._old[number] = signal.signal(number, self._count)
        return self

    def _count(self, number: int, _frame: object) -> None:
        self.count += 1 if number == signal.SIGINT else 2

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)


def wait_for_end(agents: Agents, look: Callable[[], bool] | None = None) -> int:
    """Wait until the agents have ended. `look` is called again and again until it returns True.

    Returns the exit code that is true of all agents. Whoever calls this closes them.
    """
    while (code := agents.wait(agents.poll_s)) is None:
        if look is not None and look():
            look = None
    return code


class Following:
    """The agents of one study, from their start to the end of its trials."""

    def __init__(
        self,
        paths: StudyPaths,
        follower: Follower,
        total: int,
        shows: Shows,
        only_ctrl_c: bool,
        stops: bool,
    ) -> None:
        """With `stops`, the first Ctrl-C ends the agents at once, wherever they are."""
        self._paths = paths
        self._follower = follower
        self._total = total
        self._shows = shows
        self._interrupts = Interrupts(only_ctrl_c)
        self._stops = stops

    def see_through(self, agents: Agents | None, start: Callable[[], Agents | None]) -> bool:
        """Follow the agents, and others from `start` where they do not finish. Returns whether the user interrupted.

        An agent that was killed, or that ended because code or settings have changed, is followed by another one.
        Raises AgentError where agents are killed again and again, FolderError where they cannot work in the folder.
        """
        deaths = 0
        interrupts, shows = self._interrupts, self._shows
        with interrupts, ending_early(lambda: interrupts.count > 1):
            while agents is not None:
                ended_before = self._follower.ended
                code = self._follow_one(agents)
                if code == _AGENT_OUTDATED and not interrupts.count:
                    shows.say(
                        "the code or the settings have changed: another agent goes on with them as they are now"
                    )
                elif interrupts.count or code >= 0:
                    break
                else:
                    deaths = 1 if self._follower.ended > ended_before else deaths + 1
                    self._take_back(code, deaths)
                agents = start()
            return interrupts.count > 0

    def _follow_one(self, agents: Agents) -> int:
        """Follow one set of agents to its end and return its exit code.

        Raises FolderError where the agent could not work in the folder, or had no room there.
        """
        try:
            code = self._wait(agents)
            complaints = agents.complaints().strip()
        finally:
            agents.close()
        if code == _AGENT_FULL:
            raise folder_error(DiskFull(self._paths.folder), self._paths.folder)
        if code == _AGENT_REFUSED:
            raise FolderError(complaints or f"the agent could not work in {self._paths.folder}")
        if complaints:
            self._shows.say(complaints)
        return code

    def _wait(self, agents: Agents) -> int:
        """Wait until the agents have ended, show progress, and pass Ctrl-C on. Returns their exit code.

        Pauses grow with the time that a look takes, so that large studies do not spend it on looking.
        """
        heard = 0
        pause_s = agents.poll_s
        while True:
            code = self._wait_a_little(agents, pause_s, heard)
            began = time.monotonic()
            has_news = self._update(heard, is_last=code is not None)
            if has_news or code is not None or agents.left_s is not None:
                self._shows.progress(self._follower, self._total, agents.left_s)
            count = self._interrupts.count  # Read once: another Ctrl-C may come at any moment.
            if count > heard:
                self._pass_on(agents, 1 if heard == 0 and count == 1 else 2)
                heard = count
            if code is not None:
                return code
            # Looking must stay cheap next to what is looked at.
            pause_s = min(_MOST_PAUSE_S, max(agents.poll_s, 20 * (time.monotonic() - began)))

    def _wait_a_little(self, agents: Agents, pause_s: float, heard: int) -> int | None:
        """Ctrl-C must get through also while the folder is out of reach."""
        try:
            with ending_early(lambda: self._interrupts.count > heard):
                return agents.wait(pause_s)
        except OutOfReach:
            if self._interrupts.count == heard:
                raise
            return None

    def _update(self, heard: int, is_last: bool) -> bool:
        """Read what is new in the journals. While an agent is there, a folder out of reach is not the end.

        The agent has patience of its own, and how long it lasts is for the agent to decide.
        """
        try:
            with ending_early(lambda: self._interrupts.count > heard):
                has_news = self._follower.update()
        except OutOfReach:
            if is_last:
                raise
            return False
        forget_outage()
        return has_news

    def _pass_on(self, agents: Agents, times: int) -> None:
        """Pass Ctrl-C on to the agents, which decide what the `times`-th one means, and show their answer."""
        text = (
            agents.stop()
            if self._stops
            else agents.interrupt(times, self._follower.count(State.RUNNING))
        )
        if text:
            self._shows.say(text)

    def _take_back(self, code: int, deaths: int) -> None:
        """An agent was killed by a signal that was not ours: what it held is taken back."""
        if deaths >= _DEATHS_WITHOUT_PROGRESS:
            times = counted(deaths, "time")
            raise AgentError(
                f"the agent was killed by signal {-code} {times} without finishing a trial"
            )
        recover(self._paths, RegisterFile(self._paths.claims, client_name()))
        self._shows.say(f"the agent was killed by signal {-code}; another one goes on")
