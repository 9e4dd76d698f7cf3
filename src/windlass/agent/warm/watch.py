"""Reads what warm interpreters report about the trials that they start. Python 3.9, standard library."""

from __future__ import annotations

import select
from typing import Callable, Dict, List, Union

from windlass.agent.child import Attempt
from windlass.agent.runner import Runner
from windlass.agent.warm.starts import Ended, Gone, Learned, Ready, Refused, Started, WarmServer
from windlass.core.states import Cause


class WarmLoss:
    """A warm interpreter that ended or refused its work."""

    def __init__(self, event: Union[Refused, Gone], waiting: List[Attempt], is_error: bool) -> None:
        self.reason: str = event.reason
        self.waiting = waiting  # attempts that it had started or was about to start; none of them runs any more
        self.is_error = is_error  # the user named the modules to load, and that cannot be done


class WarmWatch:
    """The descriptors of an agent's warm interpreters."""

    def __init__(
        self,
        poller: select.epoll,
        runner: Runner,
        note: Callable[[str], None],
        lost: Callable[[WarmLoss], None],
    ) -> None:
        self._poller = poller
        self._runner = runner
        self._note = note
        self._lost = lost  # called for an interpreter that serves no longer
        self._servers: Dict[int, WarmServer] = {}

    def owns(self, descriptor: int) -> bool:
        return descriptor in self._servers

    def update(self) -> None:
        """Watch the interpreters that were started since the last call, and let go of those that were ended."""
        warming = self._runner.warming
        if warming is None:
            return
        for server in warming.closed:
            self._servers.pop(server.fileno(), None)
            self._poller.unregister(server.fileno())
            server.close()
        warming.closed.clear()
        for server in warming.opened:
            self._servers[server.fileno()] = server
            self._poller.register(server.fileno(), select.EPOLLIN)
        warming.opened.clear()

    def read(self, descriptor: int) -> None:
        """Pass on what an interpreter reports."""
        server = self._servers[descriptor]
        for event in server.read():
            if isinstance(event, Started):
                self._runner.warm_started(event.token, event.pid)
            elif isinstance(event, Ended):
                self._runner.warm_ended(event.token, event.status, event.max_rss_kb, event.cpu_s)
            elif isinstance(event, (Refused, Gone)):
                self._lost(self._lose(descriptor, server, event))
                return
            elif isinstance(event, (Ready, Learned)):
                for note in event.notes:
                    self._note(note)

    def _lose(self, descriptor: int, server: WarmServer, event: Union[Refused, Gone]) -> WarmLoss:
        self._poller.unregister(descriptor)
        del self._servers[descriptor]
        warming = self._runner.warming
        assert warming is not None
        waiting = self._runner.warm_lost()
        # One that the guard has ended with its trials was no worse than any other: the next trial starts another.
        is_fenced = any(attempt.cause is Cause.FOLDER for attempt in self._runner.ended)
        warming.forget(server, event.reason, for_good=not is_fenced)
        server.close()
        return WarmLoss(event, waiting, isinstance(event, Refused) and warming.explicit)
