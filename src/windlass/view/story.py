"""What happened to a trial, in words."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.collect.attempts import AttemptStory
from windlass.collect.ran import job_name
from windlass.core.ids import settings_as_given
from windlass.core.journal.code import render_code
from windlass.core.journal.records import TrialRecord
from windlass.core.units import render_duration, render_mb
from windlass.secrets import mask_row

_MOST_NAMED = 8  # trials in one line
_RULE = "the last one whose agent held the trial when it ended"
_AGENT_MB = 100.0  # the agent itself takes less


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _how(cause: str | None, code: int | None, number: int | None, stage: str | None) -> str:
    """How an attempt ended: its cause, with the signal or exit code, and the stage that failed."""
    text = cause or "?"
    if number:
        text += f" ({signal_name(number)})"
    elif code:
        text += f" (exit code {code})"
    return text + (f" in stage {stage}" if stage and cause != "done" else "")


def render_verdict(record: TrialRecord) -> str:
    """One line: state, cause, exit code or signal."""
    how = _how(record.cause, record.exit_code, record.signal, record.stage)
    if not record.cause:
        return record.state.value
    return how if record.cause == record.state.value else f"{record.state.value}: {how}"


def render_failed(failed: Sequence[tuple[Mapping[str, Any], TrialRecord]]) -> list[str]:
    """A line for each trial that failed: its settings, the cause, and what its agent noted."""
    lines = []
    for trial, record in failed:
        settings = " ".join(
            f"{name}={value}" for name, value in mask_row(settings_as_given(trial)).items()
        )
        how = _how(record.cause, record.exit_code, record.signal, record.stage)
        lines.append(f"trial {record.number} ({settings}): {record.note or record.why or how}")
    return lines


def render_failure(
    trial: Mapping[str, Any],
    record: TrialRecord,
    place: Mapping[str, Any],
    code: Mapping[str, Any] | None,
    last_line: str,
) -> list[str]:
    """A trial that failed: its parameters, why, where, and where its output is. `place` is from collect/ran.py."""
    settings = ", ".join(
        f"{name}={value}" for name, value in mask_row(settings_as_given(trial)).items()
    )
    how = _how(record.cause, record.exit_code, record.signal, record.stage)
    if record.duration_s is not None:
        how += f" after {render_duration(record.duration_s)}"
    how += f", attempt {record.attempts}" if record.attempts > 1 else ""
    job = (
        f"job {place['ran.job']} on {place['ran.node']}"
        if place.get("ran.job")
        else f"on {place.get('ran.node')}"
    )
    lines = [f"trial {record.number}  {trial['id']}  {settings}", f"  {how}"]
    lines += [f"  {record.note}"] if record.note else []
    if record.why and not record.why.endswith(last_line):
        lines.append(f"  {record.why}")
    lines += [f"  last line: {last_line}"] if last_line else []
    lines.append(f"  {job}" + (f", code: {render_code(code)}" if code else ""))
    lines.append(f"  output: `windlass logs {record.number}`, in {place.get('ran.output')}")
    return (
        [*lines, f"  log of the job: {place['ran.job_log']}"] if place.get("ran.job_log") else lines
    )


def render_attempts(
    stories: Sequence[AttemptStory], stages: Sequence[str], alive: Mapping[str, bool]
) -> list[str]:
    """A few lines for each attempt, in the order they began. `stages` are the names of the trial's stages."""
    lines = []
    for count, story in enumerate(stories, 1):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(story.start))
        job = job_name(story.job or {})
        where = (story.job or {}).get("node") or story.host or "an unknown machine"
        where += f", job {job}" if job else ""
        lines.append(f"attempt {count}  {when}  on {where}  {_ending(story, alive)}")
        if story.code:
            lines.append(f"  code: {render_code(story.code)}")
        times = ", ".join(
            f"{name} {render_duration(seconds)}" for name, seconds in story.times(stages)
        )
        if times:
            lines.append(f"  times: {times}")
    return lines


def render_overlap(
    stories: Sequence[AttemptStory], overlapped_s: float, record: TrialRecord | None
) -> list[str]:
    """That agents executed a trial at the same time, and whose attempt counts; nothing where they did not."""
    if not overlapped_s:
        return []
    text = f"attempts of different agents overlapped for {render_duration(overlapped_s)}"
    for count, story in enumerate(stories, 1):
        if record is not None and (story.agent, story.attempt) == (record.agent, record.attempt):
            return [f"{text}: attempt {count} counts, {_RULE}"]
    return [f"{text}; none of them counts yet"]


def render_overlaps(records: Iterable[TrialRecord]) -> list[str]:
    """One line about all trials that agents executed at the same time; nothing where there are none."""
    found = [record for record in records if record.overlapped_s]
    if not found:
        return []
    first = ", ".join(str(record.number) for record in found[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    word = "trial" if len(found) == 1 else "trials"
    return [
        f"note: {word} {first}{more}: attempts of different agents overlapped. Shown is, of those that are done, "
        f"{_RULE}; `windlass explain {found[0].number}` has them all"
    ]


def _memory_mb(end: Mapping[str, Any]) -> float | None:
    """As sampled; else the kernel's figure, where it is more than what every process has that the agent starts."""
    sampled: float | None = (end.get("use") or {}).get("mem_mb")
    if sampled is not None:
        return sampled
    return end["rss_mb"] if end.get("rss_mb", 0.0) > _AGENT_MB else None


def _render_ranks(use: Mapping[str, Any]) -> str:
    """Beside the memory of a trial with a launcher: how much of it the largest rank and node took."""
    if not use.get("ranks") or not use.get("rank_mb"):
        return ""
    parts = [f"{render_mb(use['rank_mb'])} for the largest rank"]
    if use.get("node_mb"):
        parts.append(f"{render_mb(use['node_mb'])} on the node with most")
    return f" in {use['ranks']} ranks ({', '.join(parts)})"


def _ending(story: AttemptStory, alive: Mapping[str, bool]) -> str:
    """How an attempt ended, how long it took and how much memory it used; for one under way, how long it has run."""
    end = story.end
    if end is None:
        if alive.get(story.agent):
            return f"running for {render_duration(time.time() - story.start)}"
        return "lost: its agent ended without a message"
    how = _how(end["cause"], end.get("code"), end.get("sig"), end.get("stage"))
    text = f"{how} after {render_duration(end['dur'])}"
    if (end.get("use") or {}).get("late_s"):
        text += f" (its end was noticed up to {render_duration(end['use']['late_s'])} late)"
    if "lost" in end:
        text += "; another agent had taken the trial over"
    memory_mb = _memory_mb(end)
    if memory_mb is not None:
        text += f", {render_mb(memory_mb)}{_render_ranks(end.get('use') or {})}"
    return f"{text}; {end['note']}" if end.get("note") else text
