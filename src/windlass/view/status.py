"""How far a study is, as text and as JSON."""

from __future__ import annotations

import time
from typing import Any

from windlass.collect.reconcile import StudyView
from windlass.states import Cause, State
from windlass.view.jobs import jobs_to_json, render_jobs, render_nobody
from windlass.view.progress import render_duration

_ORDER = (State.DONE, State.RUNNING, State.WAITING, State.FAILED, State.INTERRUPTED, State.CANCELLED)
_SHOWN_RUNNING = 8
_SHOWN_NOTES = 5


def view_to_json(view: StudyView) -> dict[str, Any]:
    """Stable keys: study, folder, trials, counts, causes, eta_s, running, agents, jobs, notes, damaged_lines."""
    now = time.time()
    return {
        "study": view.name,
        "folder": view.folder,
        "trials": view.total,
        "counts": view.counts,
        "causes": view.causes,
        "eta_s": None if view.eta_s is None else round(view.eta_s, 1),
        "running": [
            {
                "number": record.number,
                "agent": record.agent,
                "attempts": record.attempts,
                "for_s": round(now - (record.start or record.since), 1),
                "step": record.step,
            }
            for record in view.running
        ],
        "agents": [
            {
                "id": agent.record.id,
                "host": agent.record.host,
                "slots": agent.record.slots,
                "alive": agent.alive,
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


def _counts(view: StudyView) -> str:
    return "   ".join(f"{state.value} {view.counts[state.value]}" for state in _ORDER if view.counts[state.value])


_REMEDIES = {Cause.JOB_TIME.value: "a longer `needs: {time: …}`, or `checkpoint:` to go on where they were"}


def _causes(view: StudyView) -> list[str]:
    remedies = {cause: f" ({remedy})" for cause, remedy in _REMEDIES.items()}
    return [f"  {count} × {cause}{remedies.get(cause, '')}" for cause, count in view.causes.items()]


def render_status(view: StudyView, only: tuple[int, int | None] | None = None) -> str:
    """The study in a few lines; `only` names the job, and the task, that was asked for."""
    lines = [f"{view.name}   {view.total} trials   {view.folder}", f"  {_counts(view) or 'no trials'}"]
    alive = [agent for agent in view.agents if agent.alive]
    if alive:
        slots = sum(agent.record.slots for agent in alive)
        hosts = ", ".join(sorted({agent.record.host for agent in alive}))
        lines.append(f"  {len(alive)} agent(s), {slots} slots on {hosts}; time left {render_duration(view.eta_s)}")
    elif view.counts[State.WAITING.value] or view.counts[State.INTERRUPTED.value]:
        lines.append(f"  {render_nobody(view.jobs)}")
    lines += _suspects(view)
    if view.jobs is not None:
        lines += ["  " + line for line in render_jobs(view.jobs, only)]
    for record in view.running[:_SHOWN_RUNNING]:
        step = "" if record.step is None else f", step {record.step:g}"
        lines.append(
            f"  trial {record.number} runs for {render_duration(time.time() - (record.start or record.since))}{step}"
        )
    if len(view.running) > _SHOWN_RUNNING:
        lines.append(f"  … and {len(view.running) - _SHOWN_RUNNING} more")
    if view.causes:
        lines += ["did not end well:", *_causes(view), "  see `windlass logs --failed`"]
    notes = list(dict.fromkeys(note.text for note in view.notes))
    lines += [f"note: {text}" for text in notes[-_SHOWN_NOTES:]]
    if view.damaged_lines:
        lines.append(f"warning: {view.damaged_lines} journal line(s) could not be read and were left out")
    return "\n".join(lines)


def _suspects(view: StudyView) -> list[str]:
    """A word about agents whose jobs are over and that may live all the same."""
    suspects = [agent for agent in view.agents if agent.alive is None and not agent.record.ended]
    if not suspects:
        return []
    running = sum(agent.running for agent in suspects)
    names = ", ".join(sorted({agent.record.host for agent in suspects}))
    return [f"  {len(suspects)} agent(s) on {names} silent, jobs over: {running} trial(s) wait until that is certain"]


def render_end(view: StudyView) -> str:
    """The last words of a run."""
    text = f"{view.name}: {_counts(view)} of {view.total}"
    if view.causes:
        text += "\n" + "\n".join([*_causes(view), "  see `windlass logs --failed`"])
    return text
