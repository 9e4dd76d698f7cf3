"""Watches the first trials of an agent: where all of them fail alike, the study stops. Python 3.9."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Set

from windlass.agent.child import Attempt
from windlass.core.claims.first import is_going, report_failures, report_going
from windlass.core.ids import trial_id
from windlass.core.journal.reason import describe_failure, reason_key, shorten
from windlass.core.states import OUT_OF_MEMORY, STATE_OF, Cause, State

Learned = Dict[str, Any]
Learn = Callable[[Callable[[Learned], Learned]], Learned]
# Ends that a search has to reckon with: such a trial works, whatever it is worth.
_OUTCOMES = (Cause.DIVERGED, Cause.NO_PROGRESS)


class FirstTrials:
    """The first trials of one agent, one a slot, and those that fail after them.

    Once all of the first have failed alike, each failure is reported to the register, which adds up those of all
    agents. A trial that is done, that has reported a metric, or that fails otherwise is reported as well, and then the
    watch is over. A trial that ran out of memory does not count: others may need less.

    `seed_name` is what trials of one setting differ in; None where the study has only one setting.
    """

    def __init__(
        self, agent: str, slots: int, learn: Learn, seed_name: Optional[str] = None
    ) -> None:
        self._agent = agent
        self._learn = learn
        self._seed_name = seed_name
        self._room = slots  # trials that still belong to the first
        self._open: Set[int] = set()  # the first ones that have not ended
        self._failed: Set[int] = set()
        self._settings: Set[str] = set()  # that those had
        self._key: Optional[str] = None
        self._reason = ""
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
        if STATE_OF[cause] is not State.FAILED and cause is not Cause.DONE:
            # Interrupted or cancelled: it says nothing about the others.
            self._open.discard(attempt.trial.number)
        elif cause is Cause.DONE or cause in _OUTCOMES or attempt.book:
            self._go_on()

    def failed(self, attempt: Attempt, cause: Cause, code: int, number: int) -> None:
        """A trial has failed for good, with this exit code or signal."""
        if self._over:
            return
        self._open.discard(attempt.trial.number)
        if cause not in OUT_OF_MEMORY:
            stage = attempt.stage if len(attempt.trial.stages) > 1 else 0
            key = f"{cause.value}/{code}/{number}/{stage}/{reason_key(attempt.why)}"
            if self._key not in (None, key):
                self._go_on()
                return
            self._key = key
            self._reason = describe_failure(cause.value, code, number, shorten(attempt.why))
            self._failed.add(attempt.trial.number)
            if self._seed_name is not None:
                self._settings.add(setting_name(attempt.trial.settings, self._seed_name))
        if self._failed and not self._open:
            self._report()

    def _report(self) -> None:
        count, key, reason = len(self._failed), str(self._key), self._reason
        settings = None if self._seed_name is None else self._settings
        self._news = self._learn(
            lambda learned: report_failures(learned, self._agent, count, key, reason, settings)
        )
        self._over = is_going(self._news)

    def _go_on(self) -> None:
        self._over = True
        self._news = self._learn(report_going)


def setting_name(settings: Mapping[str, Any], seed_name: str) -> str:
    """A name that trials share where only their seed, or the count of their repetition, differs."""
    apart = {seed_name}
    if "task" in settings and apart.union(settings) == {"task", "repeat", seed_name}:
        apart.add("repeat")  # a line of a list of commands that stands there again
    return trial_id({name: value for name, value in settings.items() if name not in apart}, "")
