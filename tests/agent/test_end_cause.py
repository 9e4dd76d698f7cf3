"""Why the scheduler ends a job before its time, and the cause that its trials get."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from windlass.agent.node.job_end import EndCause
from windlass.core.states import STATE_OF, Cause, State

JOB = {"id": 14, "array": 12, "task": 2, "restart": 1, "node": "n1", "sub": "s"}


@pytest.mark.parametrize(
    "about, node, cause",
    [
        ("JobId=14 JobState=COMPLETING Restarts=1 PreemptTime=None", "allocated", Cause.STOPPED),
        ("JobId=14 JobState=COMPLETING Restarts=2", "mixed", Cause.PREEMPTED),
        (
            "JobId=14 JobState=RUNNING Restarts=1 PreemptTime=2026-01-01T00:00:00",
            "mixed",
            Cause.PREEMPTED,
        ),
        ("JobId=14 JobState=PENDING Restarts=2", "down*", Cause.NODE),
        (None, None, Cause.STOPPED),
        ("slurm_load_jobs error: Invalid job id specified", "idle", Cause.STOPPED),
    ],
)
def test_what_the_scheduler_answers(about: str | None, node: str | None, cause: Cause) -> None:
    def ask(words: Sequence[str], env: Mapping[str, str]) -> str | None:
        return about if words[0] == "scontrol" else node

    end = EndCause(JOB, ask)
    assert end.find() is Cause.STOPPED, "nobody has been told to end"
    end.begin()
    assert end.find() is cause
    assert STATE_OF[cause] is State.INTERRUPTED


def test_a_scheduler_that_does_not_answer_holds_nothing_up() -> None:
    end = EndCause(JOB, lambda words, env: time.sleep(5))  # type: ignore[func-returns-value]
    end.begin()
    began = time.monotonic()
    assert end.find() is Cause.STOPPED
    assert time.monotonic() - began < 3
