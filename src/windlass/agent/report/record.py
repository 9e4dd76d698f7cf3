"""How the journal tells of an attempt's begin and end. Python 3.9, standard library."""

from __future__ import annotations

from typing import Any, Dict

from windlass.agent.child import Attempt
from windlass.core.journal.events import ID_LETTERS
from windlass.core.journal.reason import shorten
from windlass.core.journal.write import encode_event
from windlass.core.states import Cause


def render_start(attempt: Attempt) -> str:
    """The journal's line, with the beginning of the trial's id: a number alone may come to mean another trial."""
    trial = attempt.trial
    return (
        f'{{"e":"start","t":{attempt.started_wall:.3f},"i":{trial.number},"n":{attempt.attempt},'
        f'"s":{attempt.slot.number},"id":"{trial.id[:ID_LETTERS]}"}}'
    )


def render_end(attempt: Attempt, cause: Cause, code: int, number: int) -> str:
    """The journal's line, written out by hand: this is the busiest place of all."""
    wall, duration_s = attempt.started_wall, attempt.ended - attempt.started
    line = (
        f'{{"e":"end","t":{wall + duration_s:.3f},"i":{attempt.trial.number},"n":{attempt.attempt},'
        f'"cause":"{cause.value}","code":{code},"start":{wall:.3f},"dur":{duration_s:.4f},'
        f'"cpu_s":{attempt.cpu_s:.3f},"rss_mb":{attempt.rss_mb:.1f}'
    )
    more: Dict[str, Any] = {}
    if number:
        more["sig"] = number
    if attempt.trial.round:
        more["round"] = attempt.trial.round
    if attempt.streams:
        more["out"] = sum(stream.total_bytes for stream in attempt.streams.values())
    if attempt.book:
        more["m"] = attempt.book.to_json()
    if attempt.book.step is not None:
        more["step"] = attempt.book.step
    if len(attempt.trial.stages) > 1:
        more["stage"] = attempt.trial.stages[attempt.stage][0]
        more["stage_s"] = [round(seconds, 3) for seconds in attempt.stage_s]
    if attempt.out_s is not None:
        more["out_s"] = round(attempt.out_s, 3)
    if attempt.checkpoint:
        more["from"] = attempt.checkpoint
    use: Dict[str, Any] = attempt.gauge.to_json(attempt) if attempt.gauge is not None else {}
    if attempt.late_s:
        use["late_s"] = round(attempt.late_s, 1)
    if attempt.before_s:
        use["before_s"] = round(attempt.before_s, 3)
    if use:
        more["use"] = use
    if attempt.lost_at is not None:
        more["lost"] = round(wall + attempt.lost_at - attempt.started, 3)
    first = attempt.ranks.first_failure() if attempt.ranks is not None else None
    if first is not None:
        more["rank"] = [first[0], first[1]["node"]]  # that failed first
    if attempt.why:
        more["why"] = shorten(attempt.why)
    if attempt.note or attempt.remarks:
        more["note"] = "; ".join(filter(None, (attempt.note, *attempt.remarks)))
    return f"{line},{encode_event(more)[1:]}" if more else line + "}"
