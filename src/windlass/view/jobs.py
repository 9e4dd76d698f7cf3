"""A study's jobs in words: how many do what, and the few that are worth a line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from windlass.collect.jobview import LIVE, JobsView, JobView
from windlass.core.counted import counted
from windlass.core.queue.states import JobState
from windlass.core.units import render_duration
from windlass.slurm.reasons import explain_reason, will_never_start

_SHOWN = 10
_OUTPUT_CHARACTERS = 400
_RECENT_S = 3.0  # an older answer is shown with its age
_BAD = (
    JobState.FAILED,
    JobState.TIMED_OUT,
    JobState.OUT_OF_MEMORY,
    JobState.NODE_FAILED,
    JobState.PREEMPTED,
    JobState.CANCELLED,
)
_ORDER = (
    JobState.RUNNING,
    JobState.ENDING,
    JobState.SUSPENDED,
    JobState.WAITING,
    *_BAD,
    JobState.UNKNOWN,
)


def render_clock(t: float | None, now: float | None = None) -> str:
    """A time of day, with the date where it is not today."""
    if t is None:
        return "–"
    moment, today = time.localtime(t), time.localtime(now)
    return time.strftime("%H:%M" if moment[:3] == today[:3] else "%Y-%m-%d %H:%M", moment)


def render_answer(view: JobsView) -> str:
    """How old the scheduler's answer is, where it is old enough to matter; otherwise nothing."""
    if view.answered:
        age_s = time.time() - (view.asked or 0.0)
        return f"as of {render_duration(age_s)} ago" if age_s >= _RECENT_S else ""
    if view.asked is None:
        return "the scheduler does not answer"
    return f"as of {render_clock(view.asked)}; the scheduler does not answer"


def render_counts(view: JobsView) -> str:
    """One line such as ``12 jobs: 3 running, 9 waiting (throttle 3)``."""
    counts = Counter(_state_name(job) for job in view.jobs)
    names = ["running", "waiting", *(state.value for state in _ORDER), "done", "ended"]
    parts = []
    for name in dict.fromkeys(names):
        if not counts[name]:
            continue
        throttle = sum(view.throttles.values()) if name == "waiting" else 0
        parts.append(f"{counts[name]} {name}" + (f" (throttle {throttle})" if throttle else ""))
    return f"{counted(len(view.jobs), 'job')}: {', '.join(parts)}" if parts else "no jobs"


def render_jobs(view: JobsView, only: tuple[int, int | None] | None = None) -> list[str]:
    """A line for all, then those under way, those waiting (alike ones together) and those that ended badly."""
    answer = render_answer(view)
    lines = [render_counts(view) + (f" ({answer})" if answer else "")]
    jobs = [job for job in view.jobs if only is None or _is_meant(job, only)]
    groups = _groups(jobs, every=only is not None)
    lines += ["  " + _render_group(group) for group in groups[:_SHOWN]]
    if len(groups) > _SHOWN:
        left = sum(len(group) for group in groups[_SHOWN:])
        lines.append(f"  … and {left} more: `windlass history`")
    for submission in view.submissions:
        if submission.refused is not None and submission is view.submissions[-1]:
            lines.append(f"  refused at {render_clock(submission.time)}: {submission.refused}")
    return lines


def render_nobody(view: JobsView | None) -> str:
    """Why no agent is at work, and what would change that."""
    if view is None:
        return "no agent is at work: `windlass run` goes on"
    if view.in_state(JobState.RUNNING):
        return "an agent is about to begin: its job has started"
    waiting = len(view.in_state(JobState.WAITING))
    if waiting:
        return f"no agent is at work yet: {counted(waiting, 'job waits', 'jobs wait')} in the queue"
    if not view.answered:
        return "no agent was heard of lately, and the scheduler does not answer"
    return "no agent is at work: `windlass run` goes on"


def render_output(job: JobView) -> str:
    """The end of what a job printed that ended before its agent began, in one line."""
    text = "; ".join(job.output.splitlines())
    return text if len(text) <= _OUTPUT_CHARACTERS else "… " + text[-_OUTPUT_CHARACTERS:].lstrip()


def render_wait(view: JobsView) -> list[str]:
    """Why jobs that wait do so: a line for each reason."""
    groups = _groups(view.in_state(JobState.WAITING), every=False)
    return [_render_group(group) for group in groups[:_SHOWN]]


def jobs_to_json(view: JobsView) -> dict[str, Any]:
    """Stable keys: asked, answered, accounting, submissions, jobs."""
    return {
        "asked": view.asked,
        "answered": view.answered,
        "accounting": view.accounting,
        "submissions": [
            {
                "id": submission.id,
                "time": submission.time,
                "agents": submission.agents,
                "job": submission.job,
                "refused": submission.refused,
            }
            for submission in view.submissions
        ],
        "jobs": [job_to_json(job) for job in view.jobs],
    }


def job_to_json(job: JobView) -> dict[str, Any]:
    """One job; `reason` is Slurm's name of it and `because` explains that in a sentence."""
    return {
        "job": job.name,
        "id": job.id,
        "submission": job.submission,
        "state": _state_name(job),
        "slurm_state": job.slurm_state or None,
        "reason": job.reason or None,
        "because": explain_reason(job.reason) or None,
        "node": job.node or None,
        "start": job.start,
        "end": job.end,
        "time_left_s": job.time_left_s,
        "elapsed_s": job.elapsed_s,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "max_rss_mb": None if job.max_rss_mb is None else round(job.max_rss_mb, 1),
        "agent": job.agent or None,
        "source": job.source or None,
    }


def _state_name(job: JobView) -> str:
    """The job's state; an agent that ended in order is known to have ended, though not with which exit code."""
    return "ended" if job.state is JobState.UNKNOWN and job.agent_ended else job.state.value


def _is_meant(job: JobView, only: tuple[int, int | None]) -> bool:
    return job.array == only[0] and only[1] in (None, job.task)


def _groups(jobs: Sequence[JobView], every: bool) -> list[list[JobView]]:
    """Jobs to show, in the order of interest; tasks of an array that wait for the same reason stand together."""
    rank = {state: place for place, state in enumerate(_ORDER)}
    groups: dict[object, list[JobView]] = {}
    for job in jobs:
        ended_in_order = job.state is JobState.DONE or _state_name(job) == "ended"
        if ended_in_order and not every:
            continue
        alike = (
            job.state in (JobState.WAITING, JobState.UNKNOWN, JobState.CANCELLED) and not job.agent
        )
        start = job.start if job.state is JobState.WAITING else None
        key = (job.array, job.state, job.reason, start) if alike else (job.submission, job.task)
        groups.setdefault(key, []).append(job)
    return sorted(groups.values(), key=lambda group: rank.get(group[0].state, len(rank)))


def _name(group: Sequence[JobView]) -> str:
    """The name of jobs that are shown together, in Slurm's notation: `123_4`, `123_[0-7]`, `123_[0,3,9,…]`."""
    if len(group) == 1:
        return group[0].name
    tasks = sorted(job.task for job in group)
    if tasks[-1] - tasks[0] + 1 == len(tasks):
        return f"{group[0].array}_[{tasks[0]}-{tasks[-1]}]"
    shown = ",".join(map(str, tasks[:4])) + (",…" if len(tasks) > 4 else "")
    return f"{group[0].array}_[{shown}]"


def _render_group(group: Sequence[JobView]) -> str:
    """Jobs in the same state as one line. The facts are those of the first job."""
    job = group[0]
    parts = [_state_name(job)]
    if job.node:
        parts.append(f"on {job.node}")
    if job.state in LIVE and job.time_left_s is not None:
        parts.append(f"{render_duration(job.time_left_s)} left")
    if job.elapsed_s is not None and job.state not in LIVE:
        parts.append(f"after {render_duration(job.elapsed_s)}")
    if job.signal:
        parts.append(f"signal {job.signal}")
    elif job.exit_code:
        parts.append(f"exit code {job.exit_code}")
    if job.state is JobState.UNKNOWN and not job.agent_ended:
        parts.append(_unknown(job))
    text = f"{_name(group)}  {'  '.join(parts)}"
    if job.state is JobState.WAITING:
        reason = explain_reason(job.reason)
        text += f": {reason}" if reason else ""
        if job.start is not None and not will_never_start(job.reason):
            text += f"; expected to start {render_clock(job.start)}"
    return text


def _unknown(job: JobView) -> str:
    """What can be said of a job that neither the queue nor accounting knows."""
    if job.array is None:
        return "nobody knows whether the scheduler took it; `windlass run` finds out"
    if job.slurm_state:
        return f"Slurm calls it {job.slurm_state}"
    return (
        "the scheduler does not know it any more" if job.agent else "the scheduler does not list it"
    )
