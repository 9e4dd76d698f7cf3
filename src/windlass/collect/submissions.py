"""What was handed to the scheduler, as the journals of the command line tell it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windlass.core.journal.events import Settled, Submitting, decode_event
from windlass.core.journal.read import JournalReader, read_header
from windlass.core.paths import StudyPaths

# The queue is asked by the file system's clock, a submission is noted by that of its machine.
_CLOCKS_S = 2.0


@dataclass(frozen=True)
class Submission:
    """One array of agents: meant to be submitted, then submitted or refused; neither while that is not known."""

    id: str
    time: float
    agents: int
    first: int  # number of its first agent among all of the study
    request: Mapping[str, Any]
    client: Mapping[str, Any]  # the process that submitted it
    job: int | None = None
    refused: str | None = None
    settled_at: float | None = None

    @property
    def settled(self) -> bool:
        return self.job is not None or self.refused is not None

    @property
    def is_chain(self) -> bool:
        """Whether its jobs follow one another, each going on where the one before was."""
        return int(self.request.get("units") or 1) > 1

    def is_newer_than(self, asked: float) -> bool:
        """Whether an answer of the queue may not know it: the scheduler had perhaps not taken it when it was asked."""
        return asked <= (self.time if self.settled_at is None else self.settled_at) + _CLOCKS_S

    @property
    def comment(self) -> str:
        """How the scheduler's records of it can be found."""
        return comment_of(self.id)


def comment_of(submission: str) -> str:
    return f"windlass:{submission}"


def read_submissions(paths: StudyPaths) -> list[Submission]:
    """All of a study's, the oldest first."""
    found: dict[str, Submission] = {}
    ends: list[Settled] = []
    for name in sorted(_client_journals(paths)):
        path = os.path.join(paths.journal, name)
        header = read_header(path) or {}
        for event in map(decode_event, _events(path)):
            if isinstance(event, Submitting):
                found[event.submission] = Submission(
                    event.submission, event.t, event.agents, event.first, event.request, header
                )
            elif isinstance(event, Settled):
                ends.append(event)
    for end in sorted(ends, key=lambda end: end.t):
        if end.submission in found:
            changes = {"refused": end.refused} if end.refused is not None else {"job": end.job}
            found[end.submission] = replace(found[end.submission], settled_at=end.t, **changes)
    return sorted(found.values(), key=lambda submission: submission.time)


def _client_journals(paths: StudyPaths) -> list[str]:
    """The names of the journals that commands wrote, as opposed to agents."""
    try:
        return [
            name
            for name in os.listdir(paths.journal)
            if name.startswith("client-") and name.endswith(".jsonl")
        ]
    except FileNotFoundError:
        return []


def _events(path: str) -> list[dict[str, Any]]:
    reader = JournalReader(path)
    events: list[dict[str, Any]] = []
    while more := reader.read():
        events += more
    return events
