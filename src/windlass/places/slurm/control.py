"""Changes what waits in the queue: ends jobs, and says how many of an array may run at a time."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.processes import Answer, ask

_PATIENCE_S = 60.0


def send_cancel(jobs: Sequence[str], *, only_waiting: bool) -> str | None:
    """End these jobs, arrays or tasks and no others; None, or what went wrong.

    With `only_waiting`, tasks that have started in the meantime go on. A job that has ended already is no error.
    """
    if not jobs:
        return None
    state = ["--state=PENDING"] if only_waiting else []
    answer = ask(["scancel", *state, *jobs], _PATIENCE_S)
    return None if answer.ok or _all_ended(answer) else _what_went_wrong(answer)


def send_throttle(array: int, limit: int) -> str | None:
    """Let `limit` tasks of the array run at a time, 0 for any number; None, or what went wrong.

    Once tasks have ended while others wait, scontrol fails and has a line for each group of tasks: those that have
    ended, and "No error" for those that it changed.
    """
    answer = ask(
        ["scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={limit}"], _PATIENCE_S
    )
    return None if answer.ok or _all_ended(answer) else _what_went_wrong(answer)


_HARMLESS = ("Invalid job id", "already completing or completed", "already finished", ": No error")


def _all_ended(answer: Answer) -> bool:
    """Whether a command failed only because jobs that it named have ended; the others have been changed."""
    lines = [line for line in f"{answer.text}\n{answer.errors}".splitlines() if line.strip()]
    return bool(lines) and all(any(text in line for text in _HARMLESS) for line in lines)


def _what_went_wrong(answer: Answer) -> str:
    """The error messages of scancel, each once."""
    lines = [
        line.removeprefix("scancel: error: ").strip()
        for line in answer.errors.splitlines()
        if line.strip()
    ]
    return "; ".join(dict.fromkeys(lines)) or f"exit code {answer.code}"
