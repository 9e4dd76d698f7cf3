"""A ticket for a support desk as one text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

from windlass.collect.jobview import JobView
from windlass.collect.ticket import Ticket, TrialFacts
from windlass.core.queue.states import JobState
from windlass.core.units import render_duration, render_mb
from windlass.slurm.reasons import explain_reason
from windlass.view.story import render_attempts


def render_ticket(ticket: Ticket, support: Sequence[str] = ()) -> str:
    """Sections with a heading each; what is not known is left out. `support`: where the site wants to be asked."""
    parts = [
        ("What happened", _what(ticket)),
        ("Where and when", _where(ticket.job)),
        (
            "What was tried",
            []
            if ticket.trial is None
            else render_attempts(ticket.trial.attempts, ticket.trial.stages, {}),
        ),
        ("Traceback", ticket.trial.traceback.splitlines() if ticket.trial is not None else []),
        ("Its last lines", ticket.trial.output.splitlines() if ticket.trial is not None else []),
        (f"Slurm's log ({ticket.log_file})", ticket.log.splitlines()),
        ("To see it again", _reproduce(ticket)),
        (
            "What the job asked for",
            [f"{key}: {_plain(value)}" for key, value in ticket.request.items()],
        ),
        ("Batch script", ticket.script.splitlines()),
        ("Versions and place", _place(ticket)),
        ("Where to send this", list(support)),
    ]
    lines = []
    for heading, body in parts:
        if body:
            lines += [heading, *("  " + line for line in body), ""]
    return "\n".join(lines)


def _what(ticket: Ticket) -> list[str]:
    """What failed: the trial with its error, and the job."""
    lines = []
    trial, job = ticket.trial, ticket.job
    if trial is not None:
        lines.append(
            f"trial {trial.number} ({trial.id}) of the study {ticket.study}: {_ending(trial)}"
        )
        if trial.traceback:
            lines.append(f"error: {trial.traceback.splitlines()[-1]}")
    if job is not None:
        lines.append(f"job {job.name}: {_job_ending(job)}")
    return lines


def _ending(trial: TrialFacts) -> str:
    """How the last attempt of a trial ended, in one line."""
    if not trial.attempts:
        return "it has not started"
    end = trial.attempts[-1].end
    if end is None:
        return "it runs, or its agent ended without a message"
    text = str(end.get("cause", "?"))
    if end.get("sig"):
        text += f", signal {end['sig']}"
    elif end.get("code") is not None:
        text += f", exit code {end['code']}"
    return text + (f" ({end['note']})" if end.get("note") else "")


def _job_ending(job: JobView) -> str:
    """How a job ended, or why it waits, with Slurm's own name of its state."""
    text = f"{job.state.value}" + (f" (Slurm: {job.slurm_state})" if job.slurm_state else "")
    if job.exit_code is not None:
        text += f", exit code {job.exit_code}"
    if job.signal:
        text += f", signal {job.signal}"
    reason = explain_reason(job.reason)
    return f"{text}; {reason}" if reason and job.state is JobState.WAITING else text


def _where(job: JobView | None) -> list[str]:
    """Where and when the job ran, and how much memory it used at most."""
    if job is None:
        return []
    own = f" (own number {job.id})" if job.id is not None and job.id != job.array else ""
    lines = [f"job number: {job.name}{own}", f"node: {job.node or 'none yet'}"]
    if job.start is not None:
        lines.append(
            f"{'expected ' if job.state is JobState.WAITING else ''}start: {_moment(job.start)}"
        )
    if job.end is not None:
        lines.append(f"end: {_moment(job.end)}")
    if job.elapsed_s is not None:
        lines.append(f"elapsed: {render_duration(job.elapsed_s)}")
    if job.max_rss_mb is not None:
        lines.append(f"most memory: {render_mb(job.max_rss_mb)}")
    return lines


def _reproduce(ticket: Ticket) -> list[str]:
    return [] if ticket.trial is None else list(ticket.trial.by_hand)


def _place(ticket: Ticket) -> Iterable[str]:
    lines = [f"{name}: {text}" for name, text in ticket.versions.items()]
    if ticket.site:
        lines.append(f"site: {ticket.site}")
    return [*lines, f"folder: {ticket.folder}"]


def _moment(t: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(t))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
