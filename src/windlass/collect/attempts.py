"""The story of one trial: every attempt that any agent made at it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.journal.read import journal_files, read_header, writer_of
from windlass.paths import StudyPaths


@dataclass(frozen=True)
class AttemptStory:
    agent: str
    host: str
    attempt: int
    start: float
    end: dict[str, Any] | None  # the journal's own words; None while it runs, or when its agent was killed
    code: dict[str, Any] | None = None  # what it was executed with; None where that was not recorded
    job: dict[str, Any] | None = None  # the job of Slurm's that it ran in


def started_from(stories: Sequence[AttemptStory]) -> str:
    """The checkpoint that the last attempt went on from; "" where there was none."""
    return str((stories[-1].end or {}).get("from") or "") if stories else ""


def read_attempts(paths: StudyPaths, number: int) -> list[AttemptStory]:
    """All attempts at a trial in the order they began. Reads every journal, but parses only the lines in question."""
    marks = (f'"i":{number},'.encode(), f'"i":{number}}}'.encode())
    stories = []
    for path in journal_files(paths.journal):
        starts: dict[int, dict[str, Any]] = {}
        ends: dict[int, dict[str, Any]] = {}
        with open(path, "rb") as file:
            for line in file:
                if not any(mark in line for mark in marks) or not line.endswith(b"\n"):
                    continue
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if event.get("i") == number and event.get("e") in ("start", "end"):
                    (starts if event["e"] == "start" else ends)[event["n"]] = event
        header = (read_header(path) or {}) if starts else {}
        for attempt, start in starts.items():
            host = str(header.get("host", ""))
            code, job = header.get("code"), header.get("job")
            stories.append(AttemptStory(writer_of(path), host, attempt, start["t"], ends.get(attempt), code, job))
    return sorted(stories, key=lambda story: story.start)
