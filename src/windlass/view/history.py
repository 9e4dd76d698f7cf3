"""The submissions of a study and what became of their jobs, as tables. Of local studies, its agents."""

from __future__ import annotations

from typing import Any

from windlass.collect.jobview import JobView
from windlass.collect.reconcile import AgentView, StudyView
from windlass.collect.submissions import Submission
from windlass.core.counted import counted
from windlass.core.queue.states import JobState
from windlass.core.units import render_duration
from windlass.slurm.reasons import explain_reason
from windlass.view.jobs import job_to_json, render_answer, render_clock, render_output
from windlass.view.table import render_table

_NOTHING_LEFT = "nothing left"
_SHOWN = 50  # jobs of one submission


def history_to_json(view: StudyView) -> dict[str, Any]:
    """Stable keys: study, folder, accounting, submissions (each with its jobs), agents."""
    submissions = () if view.jobs is None else view.jobs.submissions
    return {
        "study": view.name,
        "folder": view.folder,
        "accounting": None if view.jobs is None else view.jobs.accounting,
        "submissions": [
            {
                "id": submission.id,
                "time": submission.time,
                "agents": submission.agents,
                "job": submission.job,
                "refused": submission.refused,
                "request": dict(submission.request),
                "jobs": [job_to_json(job) for job in _jobs_of(view, submission)],
            }
            for submission in submissions
        ],
        "agents": [
            {
                "id": agent.record.id,
                "host": agent.record.host,
                "job": agent.record.job,
                "start": agent.record.start,
                "last_seen": agent.record.last_seen,
                "alive": agent.alive,
                "reason": agent.record.reason or None,
            }
            for agent in view.agents
        ],
    }


def render_history(view: StudyView, width: int | None = None) -> str:
    """Text that ends with a newline."""
    lines = [f"{view.name}   {view.folder}"]
    text = ""
    if view.jobs is not None:
        answer = render_answer(view.jobs)
        lines += [f"  {answer}"] if answer else []
        if view.jobs.accounting is False:
            lines.append("  accounting does not answer; this is what the queue and the agents tell")
        for submission in view.jobs.submissions:
            text += _render_submission(view, submission, width)
    local = [agent for agent in view.agents if agent.record.job is None]
    if local:
        text += f"{counted(len(local), 'agent')} outside of jobs\n" + render_table(
            [_agent_row(a) for a in local], width=width
        )
    return (
        "\n".join(lines)
        + "\n"
        + (text or "  nothing was submitted and no agent has been at work\n")
    )


def _jobs_of(view: StudyView, submission: Submission) -> list[JobView]:
    return (
        [job for job in view.jobs.jobs if job.submission == submission.id]
        if view.jobs is not None
        else []
    )


def _render_submission(view: StudyView, submission: Submission, width: int | None) -> str:
    """One submission: a line on what was submitted and when, then a table of its first jobs."""
    what = "job ?" if submission.job is None else f"job {submission.job}"
    head = f"{render_clock(submission.time)}  {what}  {counted(submission.agents, 'agent')}"
    if submission.refused is not None:
        return f"{head}  refused: {submission.refused}\n"
    jobs = _jobs_of(view, submission)
    more = f"… and {len(jobs) - _SHOWN} more: --json has all\n" if len(jobs) > _SHOWN else ""
    return f"{head}\n" + render_table([_job_row(job) for job in jobs[:_SHOWN]], width=width) + more


def _job_row(job: JobView) -> dict[str, Any]:
    """A job as a row of the table, with the reason why it waits or how it ended."""
    facts = job_to_json(job)
    return {
        "job": job.name,
        "state": facts["state"],
        "node": job.node,
        "start": render_clock(job.start) if job.start is not None else "",
        "elapsed": render_duration(job.elapsed_s) if job.elapsed_s is not None else "",
        "exit": _exit(job),
        "memory_mb": facts["max_rss_mb"],
        "why": explain_reason(job.reason) if job.state is JobState.WAITING else _why_ended(job),
    }


def _why_ended(job: JobView) -> str:
    """The reason that its agent gave. One of an earlier version does not tell how many trials failed."""
    if job.log:
        return f"ended before its agent began: {render_output(job) or 'it printed nothing'} (the end of {job.log})"
    if job.state is JobState.FAILED and job.agent_reason == _NOTHING_LEFT and not job.agent_failed:
        return "some of its trials failed"
    return _say_why(job.agent_reason, job.agent_failed)


def _say_why(reason: str, failed: int) -> str:
    """An agent that saw all its trials through fails its job all the same where one of them failed."""
    if not failed:
        return reason
    text = f"{failed} of its trials failed"
    return text if reason == _NOTHING_LEFT else f"{text}; {reason}"


def _exit(job: JobView) -> str:
    if job.signal:
        return f"signal {job.signal}"
    return "" if job.exit_code is None else str(job.exit_code)


def _agent_row(agent: AgentView) -> dict[str, Any]:
    """An agent on this machine as a row of the table."""
    record = agent.record
    return {
        "agent": record.id,
        "host": record.host,
        "start": render_clock(record.start),
        "elapsed": render_duration(record.last_seen - record.start),
        "state": "at work" if agent.alive else "ended",
        "why": _say_why(record.reason, record.failed),
    }
