"""What the parts of an agent are made with, as values. Python 3.9, standard library."""

from __future__ import annotations

import select
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Protocol

from windlass.agent.claim import Claimer, TrialQueue
from windlass.agent.config import AgentConfig, Slot
from windlass.agent.gauge.gauge import Gauges
from windlass.agent.interrupt import Limits
from windlass.agent.keep.workplace import Workplace
from windlass.agent.lease.fence_page import FencePage
from windlass.agent.lease.reach import Reach
from windlass.agent.lease.waiting import Waiting
from windlass.agent.report.mailbox import Mailbox
from windlass.agent.warm.decide import Warming
from windlass.core.journal.write import JournalWriter
from windlass.core.paths import StudyPaths


@dataclass(frozen=True)
class Shared:
    """What all parts of one agent use."""

    agent: str  # its id
    config: AgentConfig
    paths: StudyPaths
    journal: JournalWriter
    poller: select.epoll
    limits: Limits


@dataclass(frozen=True)
class Equipment:
    """What an agent starts trials with."""

    slots: List[Slot]
    env: Dict[str, str]  # the variables that all trials get
    enter: Callable[[List[str]], List[str]]  # puts a command into the study's environment
    runtime_folder: str  # the agent's own, on the node
    gauges: Gauges
    page: FencePage
    warming: Optional[Warming] = None  # None: every trial starts an interpreter of its own
    workplace: Optional[Workplace] = None  # None: trials are executed in the project itself


@dataclass(frozen=True)
class Links:
    """What connects a loop with the register, with trials, and with the process that started the agent."""

    claimer: Claimer
    queue: TrialQueue
    waiting: Waiting
    mailbox: Mailbox
    reach: Reach
    launcher: Optional[int] = None  # a pipe whose other end is closed when that process ends


class Choice(Protocol):
    """Decides what begins in place of the register: a measurement."""

    pause_s: float  # how long it may be left alone

    @property
    def is_over(self) -> bool: ...

    def advance(self, now: float) -> None:
        """Begin and end trials."""

    def settle(self, code: int) -> int:
        """The exit code of the agent, where `code` is that of its trials."""

    def close(self) -> None: ...
