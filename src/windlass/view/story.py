"""What happened to a trial, in words."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.collect.attempts import AttemptStory
from windlass.journal.fold import TrialRecord
from windlass.view.progress import render_duration


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _how(cause: str | None, code: int | None, number: int | None, stage: str | None) -> str:
    text = cause or "?"
    if number:
        text += f" ({signal_name(number)})"
    elif code:
        text += f" (exit code {code})"
    return text + (f" in stage {stage}" if stage and cause != "done" else "")


def render_verdict(record: TrialRecord) -> str:
    """One line: state, cause, exit code or signal."""
    how = _how(record.cause, record.exit_code, record.signal, record.stage)
    return f"{record.state.value}: {how}" if record.cause else record.state.value


def render_attempts(stories: Sequence[AttemptStory], alive: Mapping[str, bool]) -> list[str]:
    """A line an attempt, in the order they began."""
    lines = []
    for count, story in enumerate(stories, 1):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(story.start))
        lines.append(f"attempt {count}  {when}  on {story.host or 'an unknown machine'}  {_ending(story, alive)}")
    return lines


def _ending(story: AttemptStory, alive: Mapping[str, bool]) -> str:
    end: dict[str, Any] | None = story.end
    if end is None:
        if alive.get(story.agent):
            return f"running for {render_duration(time.time() - story.start)}"
        return "lost: its agent ended without a word"
    text = (
        f"{_how(end['cause'], end.get('code'), end.get('sig'), end.get('stage'))} after {render_duration(end['dur'])}"
    )
    if end.get("rss_mb"):
        text += f", {end['rss_mb']:.0f} MB"
    return f"{text}; {end['note']}" if end.get("note") else text
