"""The story of one trial: every attempt that any agent made at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.collect.trial_ids import Moved, TrialIds, renumber
from windlass.core.claims.alive import clock_shift_s
from windlass.core.journal.events import Cleaned, Ended, Ranges, Ready, Started, decode_event
from windlass.core.journal.read import (
    JournalReader,
    for_each,
    is_of_client,
    journal_files,
    parse_line,
    read_header,
    writer_of,
)
from windlass.core.journal.records import Span, SpanFields, overlapped_s
from windlass.core.paths import StudyPaths
from windlass.core.sealed import unseal


@dataclass(frozen=True)
class AttemptStory:
    """One attempt at a trial, as the journal of its agent recorded it."""

    agent: str
    host: str
    attempt: int
    start: float  # by the clock of this machine
    # The journal's event; None while it runs, or when its agent was killed.
    end: Mapping[str, Any] | None
    # What it was executed with; None where that was not recorded.
    code: dict[str, Any] | None = None
    job: dict[str, Any] | None = None  # the job of Slurm's that it ran in
    # Steps of its agent's stage-in, in seconds.
    stage_in: dict[str, float] = field(default_factory=dict)
    clean_up_s: float | None = None  # that its agent took for it in the end

    def times(self, stages: Sequence[str]) -> list[tuple[str, float]]:
        """What came in which order, in seconds: stage-in, each of these stages, stage-out, clean-up."""
        found = [(f"stage-in of {name}", seconds) for name, seconds in self.stage_in.items()]
        end = self.end or {}
        spent = end.get("stage_s") or ([end["dur"]] if len(stages) == 1 and "dur" in end else [])
        found += [(name, seconds) for name, seconds in zip(stages, spent, strict=False)]
        found += [("stage-out", end["out_s"])] if end.get("out_s") is not None else []
        return [*found, ("clean-up", self.clean_up_s)] if self.clean_up_s is not None else found

    @property
    def span(self) -> SpanFields | None:
        """When it began and ended; None while it runs, and where its end is not recorded."""
        seconds = None if self.end is None else self.end.get("dur")
        return (
            (self.start, self.start + seconds, self.agent, self.attempt)
            if isinstance(seconds, float)
            else None
        )


def overlapping(stories: Sequence[AttemptStory]) -> float:
    """For how long attempts of different agents were under way at the same time, as far as their ends are recorded."""
    return overlapped_s([Span(*story.span) for story in stories if story.span is not None])


def started_from(stories: Sequence[AttemptStory]) -> str:
    """The checkpoint that the last attempt went on from; "" where there was none."""
    return str((stories[-1].end or {}).get("from") or "") if stories else ""


def read_attempts(paths: StudyPaths, number: int) -> list[AttemptStory]:
    """All attempts at a trial in the order they began. Reads every journal, but parses only the lines in question.

    Attempts at another trial that had the same number are left out.
    """
    ids = TrialIds(paths)
    stories = []
    journals = journal_files(paths.journal)
    for path, events in zip(
        journals, for_each(lambda path: _events_of(path, number, ids), journals), strict=True
    ):
        starts: dict[int, Started] = {}
        ends: dict[int, Mapping[str, Any]] = {}
        stage_in: Mapping[str, float] = {}
        clean_up_s: float | None = None
        for event in map(decode_event, events):
            if isinstance(event, Ready):
                stage_in = event.in_s
            elif isinstance(event, Cleaned):
                clean_up_s = event.seconds
            elif isinstance(event, Started) and event.number == number:
                starts[event.attempt] = event
            elif isinstance(event, Ended) and event.number == number:
                ends[event.attempt] = event.fields
        header = (read_header(path) or {}) if starts else {}
        for attempt, start in starts.items():
            end = ends.get(attempt)
            stories.append(
                AttemptStory(
                    agent=str(header.get("id") or writer_of(path)),
                    host=str(header.get("host", "")),
                    attempt=attempt,
                    start=start.t + clock_shift_s(header, paths.journal),
                    end=end,
                    code=header.get("code"),
                    job=header.get("job"),
                    stage_in=dict(stage_in),
                    clean_up_s=clean_up_s,
                )
            )
    return sorted(stories, key=lambda story: story.start)


def read_retries(paths: StudyPaths) -> dict[int, float]:
    """When the user last put each trial back with `windlass retry`; those that never were are not there."""
    latest: dict[int, float] = {}
    ids = TrialIds(paths)
    for path in journal_files(paths.journal):
        if not is_of_client(path):
            continue
        for event in map(decode_event, renumber(ids, Moved(), JournalReader(path).read())):
            if isinstance(event, Ranges) and event.is_retry:
                for first, stop in event.ranges:
                    latest.update(
                        (number, max(event.t, latest.get(number, 0.0)))
                        for number in range(first, stop)
                    )
    return latest


def _events_of(path: str, number: int, ids: TrialIds) -> list[Mapping[str, Any]]:
    """The events of a journal about one trial, also under numbers that it had before, and about its agent."""
    beginning = ids.beginning(number)
    marks = _marks(number)
    if beginning:
        of_trial = map(decode_event, _events(path, (b'"id":"%s"' % beginning.encode(),)))
        for former in {event.number for event in of_trial if isinstance(event, Started)}:
            marks += _marks(former) if former != number else ()
    return renumber(ids, Moved(), _events(path, marks))


def _marks(number: int) -> tuple[bytes, ...]:
    return f'"i":{number},'.encode(), f'"i":{number}}}'.encode()


def _events(path: str, marks: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """The events of a journal that hold one of the marks, and those that tell of the agent's own work."""
    with open(path, "rb") as file:
        for line in file:
            content = unseal(line)
            if content is None or not content.endswith(b"\n"):
                continue
            of_agent = content.startswith((b'{"e":"ready"', b'{"e":"cleaned"'))
            if of_agent or any(mark in content for mark in marks):
                event = parse_line(content.decode("utf-8", "surrogateescape"))
                if event is not None:
                    yield event
