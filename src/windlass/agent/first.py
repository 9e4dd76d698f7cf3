"""Watches the first trials of an agent: where all of them fail alike, the study stops. Python 3.9."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Set

from windlass.agent.child import Attempt
from windlass.claims.first import is_going, report_failures, report_going
from windlass.journal.reason import describe_failure, reason_key, shorten
from windlass.states import STATE_OF, Cause, State

Learned = Dict[str, Any]
Learn = Callable[[Callable[[Learned], Learned]], Learned]
# Ends that a search has to reckon with: such a trial works, whatever it is worth.
_OUTCOMES = (Cause.DIVERGED, Cause.NO_PROGRESS)


class FirstTrials:
    """The first trials of one agent, one a slot, and those that fail after them.

    Once all of the first have failed alike, each failure is reported to the register, which adds up those of all
    agents. A trial that is done, or that fails otherwise, is reported as well, and then the watch is over.
    """

    def __init__(self, agent: str, slots: int, learn: Learn) -> None:
        self._agent = agent
        self._learn = learn
        self._room = slots  # trials that still belong to the first
        self._open: Set[int] = set()  # the first ones that have not ended
        self._failed: Set[int] = set()
        self._key: Optional[str] = None
        self._news: Optional[Learned] = None
        self._over = False

    def news(self) -> Optional[Learned]:
        """What is known of the whole study since the last report; None where nothing was reported since."""
        news, self._news = self._news, None
        return news

    @property
    def is_watching(self) -> bool:
        """Whether no trial here has shown yet that the study is worth going on with."""
        return not self._over

    def begun(self, number: int) -> None:
        """A trial has begun, perhaps for another time."""
        if self._room and number not in self._open | self._failed:
            self._room -= 1
            self._open.add(number)

    def ended(self, attempt: Attempt, cause: Cause) -> None:
        """An attempt has ended. One that failed may be tried again: `failed` follows where it is not."""
        if self._over:
            return
        if cause is Cause.DONE or cause in _OUTCOMES or (cause is Cause.TIME and attempt.book):
            self._go_on()
        elif STATE_OF[cause] is not State.FAILED:
            self._open.discard(attempt.trial.number)  # interrupted or cancelled: it says nothing about the others

    def failed(self, attempt: Attempt, cause: Cause, code: int, number: int) -> None:
        """A trial has failed for good, with this exit code or signal."""
        if self._over:
            return
        stage = attempt.stage if len(attempt.trial.stages) > 1 else 0
        key = f"{cause.value}/{code}/{number}/{stage}/{reason_key(attempt.why)}"
        if self._key not in (None, key):
            self._go_on()
            return
        self._key = key
        self._open.discard(attempt.trial.number)
        self._failed.add(attempt.trial.number)
        if not self._open:
            reason = describe_failure(cause.value, code, number, shorten(attempt.why))
            count = len(self._failed)
            self._news = self._learn(lambda learned: report_failures(learned, self._agent, count, key, reason))
            self._over = is_going(self._news)

    def _go_on(self) -> None:
        self._over = True
        self._news = self._learn(report_going)
