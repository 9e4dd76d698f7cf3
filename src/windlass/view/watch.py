"""What trials do right now, from what their agents last reported: a table, and JSON."""

from __future__ import annotations

from typing import Any

from windlass.collect.reconcile import AgentView, StudyView
from windlass.collect.timeleft import elapsed_s, remaining_s
from windlass.core.journal.records import TrialRecord
from windlass.core.units import render_duration, render_mb
from windlass.view.status import render_left
from windlass.view.table import render_table


def running_in(
    view: StudyView, job: tuple[int, int | None] | None
) -> list[tuple[TrialRecord, AgentView]]:
    """Trials under way, each with its agent; only those of one job where that is meant."""
    agents = {agent.record.id: agent for agent in view.agents}
    pairs = [(record, agents[record.agent]) for record in view.running if record.agent in agents]
    return [pair for pair in pairs if job is None or _is_of(pair[1], job)]


def _is_of(agent: AgentView, job: tuple[int, int | None]) -> bool:
    job_facts = agent.record.job or {}
    return job_facts.get("array") == job[0] and job[1] in (None, job_facts.get("task"))


def name_of_job(agent: AgentView) -> str:
    """The job an agent is in, as Slurm's commands take it; empty where it is in none."""
    job_facts = agent.record.job
    if job_facts is None:
        return ""
    return str(job_facts.get("array")) + (
        "" if job_facts.get("task") is None else f"_{job_facts['task']}"
    )


def watch_to_json(
    view: StudyView, job: tuple[int, int | None] | None, now: float
) -> dict[str, Any]:
    """Stable keys: study, time, eta_s, running."""
    return {
        "study": view.name,
        "time": round(now, 1),
        "eta_s": None if view.eta_s is None else round(view.eta_s, 1),
        "running": [_to_json(record, agent, now) for record, agent in running_in(view, job)],
    }


def _to_json(record: TrialRecord, agent: AgentView, now: float) -> dict[str, Any]:
    progress, left_s = record.progress, remaining_s(record, now)
    return {
        "number": record.number,
        "job": name_of_job(agent) or None,
        "host": agent.record.host,
        "for_s": round(elapsed_s(record, now), 1),
        "step": record.step if progress is None else progress.step,
        "steps": None if progress is None else progress.steps,
        "eta_s": None if left_s is None else round(left_s, 1),
        "memory_mb": record.use.get("mem"),
        "gpu_mb": record.use.get("gpu"),
        "told_s_ago": None if record.told is None else round(now - record.told, 1),
    }


def render_watch(
    view: StudyView, job: tuple[int, int | None] | None, now: float, width: int | None
) -> str:
    """One look. Ends with a newline."""
    pairs = running_in(view, job)
    head = f"{view.name}   {len(pairs)} under way; time left {render_left(view.left)}"
    if not pairs:
        return f"{head}\n"
    rows = [_row(record, agent, now) for record, agent in pairs]
    shown = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    ages_s = [now - record.told for record, _ in pairs if record.told is not None]
    age = (
        f"as reported {render_duration(max(ages_s))} ago at most"
        if ages_s
        else "their agents have reported nothing yet"
    )
    deeper = (
        "; --deep asks the processes themselves"
        if any(agent.record.job for _, agent in pairs)
        else ""
    )
    return f"{head}\n{render_table(rows, shown, width=width)}{age}{deeper}\n"


def _row(record: TrialRecord, agent: AgentView, now: float) -> dict[str, Any]:
    progress = record.progress
    step = record.step if progress is None else progress.step
    of_all = "" if progress is None or progress.steps is None else f"/{progress.steps:g}"
    left_s = remaining_s(record, now)
    memory_mb, gpu_mb = record.use.get("mem"), record.use.get("gpu")
    return {
        "trial": record.number,
        "job": name_of_job(agent) or None,
        "host": agent.record.host,
        "for": render_duration(elapsed_s(record, now)),
        "step": None if step is None else f"{step:g}{of_all}",
        "left": None if left_s is None else render_duration(left_s),
        "memory": render_mb(memory_mb) if isinstance(memory_mb, (int, float)) else None,
        "GPU memory": render_mb(gpu_mb) if isinstance(gpu_mb, (int, float)) else None,
    }
