"""How far a study is, as text and as JSON."""

from __future__ import annotations

import time
from typing import Any

from windlass.collect.reconcile import FailureGroup, StudyView
from windlass.collect.timeleft import Hours, TimeLeft, elapsed_s, remaining_s
from windlass.core.counted import counted
from windlass.core.journal.records import TrialRecord
from windlass.core.states import Cause, State
from windlass.core.units import UNKNOWN, render_duration
from windlass.view.escapes import GREEN, RED, paint
from windlass.view.jobs import jobs_to_json, render_jobs, render_nobody
from windlass.view.numbers import render_amount
from windlass.view.table import render_cell
from windlass.view.trouble import find_trouble, is_settled

_ORDER = (
    State.DONE,
    State.RUNNING,
    State.WAITING,
    State.FAILED,
    State.INTERRUPTED,
    State.CANCELLED,
)
_SHOWN_RUNNING = 8
_SHOWN_NOTES = 5
_SHOWN_FAILURES = 8
_SHOWN_SETTINGS = 4
_SHOWN_SILENT = 5
_COLORS = {State.DONE: GREEN, State.FAILED: RED}


def view_to_json(view: StudyView) -> dict[str, Any]:
    """Stable keys: study, folder, trials, problem, counts, causes, failures, eta_s, time_left, spent, to_come, …"""
    now = time.time()
    trouble = find_trouble(view)
    return {
        "study": view.name,
        "folder": view.folder,
        "trials": view.total,
        "problem": None
        if trouble is None
        else {"reason": trouble.reason, "remedy": trouble.remedy},
        "counts": view.counts,
        "causes": view.causes,
        "failures": [_failure_to_json(group) for group in view.failures],
        "eta_s": None if view.eta_s is None else round(view.eta_s, 1),
        "time_left": _left_to_json(view.left),
        "spent": _hours_to_json(view.spent),
        "to_come": _hours_to_json(view.to_come),
        "running": [_running_to_json(record, now) for record in view.running],
        "agents": [
            {
                "id": agent.record.id,
                "host": agent.record.host,
                "slots": agent.record.slots,
                "alive": agent.alive,
                "silent_s": _rounded(agent.silent_s, 1),
                "running": agent.running,
                "reason": agent.record.reason or None,
                "job": agent.record.job,
            }
            for agent in view.agents
        ],
        "jobs": None if view.jobs is None else jobs_to_json(view.jobs),
        "notes": [note.text for note in view.notes],
        "damaged_lines": view.damaged_lines,
    }


def _failure_to_json(group: FailureGroup) -> dict[str, Any]:
    """Trials that failed alike, for `--json`."""
    return {
        "count": group.count,
        "reason": group.reason,
        "cause": group.cause,
        "settings": dict(group.settings),
        "trials": list(group.trials),
    }


def _running_to_json(record: TrialRecord, now: float) -> dict[str, Any]:
    """A trial under way for `--json`. Times are in seconds, sizes in megabytes."""
    progress = record.progress
    return {
        "number": record.number,
        "agent": record.agent,
        "attempts": record.attempts,
        "for_s": round(elapsed_s(record, now), 1),
        "step": record.step if record.step is not None or progress is None else progress.step,
        "steps": None if progress is None else progress.steps,
        "eta_s": _rounded(remaining_s(record, now), 1),
        "memory_mb": record.use.get("mem"),
        "gpu_mb": record.use.get("gpu"),
    }


def _left_to_json(left: TimeLeft | None) -> dict[str, Any] | None:
    """The estimate of the time left for `--json`; null where nothing is known yet."""
    if left is None:
        return None
    return {
        "seconds": _rounded(left.seconds, 1),
        "low_s": _rounded(left.low, 1),
        "high_s": _rounded(left.high, 1),
        "slot_h": _rounded(left.work_s / 3600, 4),
        "because": left.because or None,
    }


def _hours_to_json(hours: Hours) -> dict[str, Any]:
    return {"gpu_h": _rounded(hours.gpu_h, 4), "core_h": _rounded(hours.core_h, 4)}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def render_left(left: TimeLeft | None) -> str:
    """``12 min 30 s (10 min to 15 min)``; the range where it says more than the middle."""
    if left is None or left.seconds is None:
        return UNKNOWN
    text = render_duration(round(left.seconds))
    if left.low is None or left.high is None:
        return text
    low, high = render_duration(round(left.low)), render_duration(round(left.high))
    return text if low == high else f"{text} ({low} to {high})"


def render_hours(view: StudyView) -> str:
    """GPU-hours spent and to come; core-hours of studies without GPUs; nothing where neither is known."""
    for word, spent, to_come in (
        ("GPU-hours", view.spent.gpu_h, view.to_come.gpu_h),
        ("core-hours", view.spent.core_h, view.to_come.core_h),
    ):
        if spent or to_come:
            parts = [f"{render_amount(spent or 0.0)} spent"]
            if to_come:
                about = "about " if to_come >= 0.01 else ""
                parts.append(f"{about}{render_amount(to_come)} to come")
            return f"{word}: {', '.join(parts)}"
    return ""


def _render_running(record: TrialRecord, now: float) -> str:
    """A trial under way in one line: how long it has run, its step, and the time left."""
    parts = [f"trial {record.number} runs for {render_duration(elapsed_s(record, now))}"]
    progress = record.progress
    step = record.step if record.step is not None or progress is None else progress.step
    if step is not None:
        of_all = "" if progress is None or progress.steps is None else f" of {progress.steps:g}"
        parts.append(f"step {step:g}{of_all}")
    left_s = remaining_s(record, now)
    if left_s is not None:
        parts.append(f"{render_duration(left_s)} left")
    return ", ".join(parts)


def _counts(view: StudyView, color: bool) -> str:
    shown = [state for state in _ORDER if view.counts[state.value]]
    paints = _COLORS if color else {}
    return "   ".join(
        paint(f"{state.value} {view.counts[state.value]}", paints.get(state, "")) for state in shown
    )


_REMEDIES = {
    Cause.JOB_TIME.value: "a longer `needs: {time: …}`; with `checkpoint:` they go on where they were"
}


def _causes(view: StudyView, color: bool) -> list[str]:
    """Why trials did not end well: failures by their reasons, where these are known, and all else by its cause."""
    remedies = {cause: f" ({remedy})" for cause, remedy in _REMEDIES.items()}
    lines = [
        paint(f"  {render_failures(group)}", RED if color else "")
        for group in view.failures[:_SHOWN_FAILURES]
    ]
    left = sum(group.count for group in view.failures[_SHOWN_FAILURES:])
    if left:
        lines.append(f"  … and {left} more, for other reasons")
    known = {group.cause for group in view.failures}
    others = {cause: count for cause, count in view.causes.items() if cause not in known}
    return [
        *lines,
        *(f"  {count} × {cause}{remedies.get(cause, '')}" for cause, count in others.items()),
    ]


def render_failures(group: FailureGroup) -> str:
    """``12 × RuntimeError: loss exploded (all with lr=8)``"""
    more = [] if group.is_same else ["numbers differ"]
    pairs = list(group.settings.items())[:_SHOWN_SETTINGS]
    settings = ", ".join(f"{name}={render_cell(value)}" for name, value in pairs)
    if settings:
        more.append(settings if group.count == 1 else f"all with {settings}")
    return f"{group.count} × {render_cell(group.reason)}" + (
        f" ({'; '.join(more)})" if more else ""
    )


def render_status(
    view: StudyView, only: tuple[int, int | None] | None = None, color: bool = False
) -> str:
    """The study in a few lines; `only` names the job, and the task, that was asked for."""
    trouble = find_trouble(view)
    lines = [f"{view.name}: {trouble}"] if trouble is not None else []
    trials = counted(view.total, "trial")
    lines += [f"{view.name}   {trials}   {view.folder}", f"  {_counts(view, color) or 'no trials'}"]
    alive = [agent for agent in view.agents if agent.alive]
    if alive:
        slots = sum(agent.record.slots for agent in alive)
        hosts = ", ".join(sorted({agent.record.host for agent in alive}))
        lines.append(
            f"  {counted(len(alive), 'agent')}, {counted(slots, 'slot')} on {hosts}; time left {render_left(view.left)}"
        )
    elif trouble is None and (
        view.counts[State.WAITING.value] or view.counts[State.INTERRUPTED.value]
    ):
        lines.append(f"  {render_nobody(view.jobs)}")
    hours = render_hours(view)
    if hours:
        lines.append(f"  {hours}")
    lines += [*_suspects(view), *_silent(view)]
    if view.jobs is not None:
        lines += ["  " + line for line in render_jobs(view.jobs, only)]
    lines += [
        f"  {_render_running(record, time.time())}" for record in view.running[:_SHOWN_RUNNING]
    ]
    if len(view.running) > _SHOWN_RUNNING:
        lines.append(f"  … and {len(view.running) - _SHOWN_RUNNING} more")
    if view.causes:
        lines += ["did not end well:", *_causes(view, color), "  see `windlass logs --failed`"]
    shown = [note for note in view.notes if not note.routine and not is_settled(note, view)]
    notes = list(dict.fromkeys(note.text for note in shown))
    lines += [f"note: {text}" for text in notes[-_SHOWN_NOTES:]]
    if view.damaged_lines:
        lines.append(
            f"warning: left out {counted(view.damaged_lines, 'journal line')} that could not be read"
        )
    return "\n".join(lines)


def _suspects(view: StudyView) -> list[str]:
    """A line about agents whose jobs are over and that may live all the same."""
    suspects = [agent for agent in view.agents if agent.alive is None and not agent.record.ended]
    if not suspects:
        return []
    running = sum(agent.running for agent in suspects)
    names = ", ".join(sorted({agent.record.host for agent in suspects}))
    waits = counted(running, "trial waits", "trials wait")
    return [
        f"  {counted(len(suspects), 'agent')} on {names} silent, jobs over: {waits} until that is certain"
    ]


def _silent(view: StudyView) -> list[str]:
    """Agents that should have written by now and may be gone, though nobody can tell yet."""
    late = [agent for agent in view.agents if agent.alive and agent.is_late]
    after = f"after {render_duration(view.lease_s)} of silence its trials are taken up again"
    is_answered = view.jobs is not None and view.jobs.answered
    lines = [
        f"  agent on {agent.record.host} silent for {render_duration(agent.silent_s)}; "
        + ("its job runs" if agent.record.job and is_answered else after)
        for agent in late[:_SHOWN_SILENT]
    ]
    return (
        [*lines, f"  … and {len(late) - _SHOWN_SILENT} more"]
        if len(late) > _SHOWN_SILENT
        else lines
    )


def render_end(view: StudyView, color: bool = False) -> str:
    """The last lines of a run: what came of it, what to look at, and last of all what keeps it from going on."""
    trouble = find_trouble(view)
    lines = [f"{view.name}: {_counts(view, color)} of {view.total}", *_causes(view, color)]
    look_at = []
    if view.counts[State.FAILED.value] or view.counts[State.INTERRUPTED.value]:
        look_at.append(
            "`windlass logs --failed` shows the last lines of those that did not end well"
        )
    if trouble is None and (
        view.counts[State.WAITING.value] or view.counts[State.INTERRUPTED.value]
    ):
        look_at.append("`windlass status` shows what is missing, `windlass run` goes on with it")
    if view.counts[State.DONE.value]:
        look_at.append("`windlass results` shows what came out")
    lines += [f"  {text}" for text in look_at]
    if trouble is not None:
        lines += [
            paint(f"{view.name}: {trouble.reason}", RED if color else ""),
            f"  {trouble.remedy}",
        ]
    return "\n".join(lines)
