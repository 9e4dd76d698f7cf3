"""Looks at a study's jobs: what was submitted, one answer of the queue for all, and accounting where it is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windlass.collect.jobview import JobsView, array_of, is_ours, view_jobs
from windlass.collect.locate import list_studies
from windlass.collect.submissions import Submission, read_submissions
from windlass.collect.unbegun import add_outputs, is_unbegun
from windlass.core.journal.read import read_headers
from windlass.core.journal.records import AgentRecord
from windlass.core.paths import StudyPaths
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import Queue, read_last_queue, read_queue
from windlass.slurm.accounting import JobRecord, fetch_records

_JOB = re.compile(r"([0-9]{1,18})(?:_([0-9]{1,18}))?\Z")


def look_at_jobs(
    paths: StudyPaths, agents: Sequence[AgentRecord], *, accounting: bool | None = None
) -> JobsView | None:
    """The study's jobs; None where it has none, and then nobody is asked.

    `accounting` True asks sacct about all jobs, False never; None asks only about those that the queue has forgotten
    and whose agents did not end in order.
    """
    submissions = read_submissions(paths)
    if not submissions:
        return None
    answer = read_queue(paths.queue, ask)
    queue = answer if answer is not None else read_last_queue(paths.queue)
    jobs = tuple(view_jobs(submissions, agents, queue))
    arrays = _arrays_to_ask_for(submissions, agents, queue, accounting)
    if accounting is None:
        # The queue does not tell the exit code of a job, which an agent that never began has not recorded either.
        unsure = {
            job.array
            for job in jobs
            if is_unbegun(job) or (job.source != "squeue" and not job.agent_ended)
        }
        arrays = [array for array in arrays if array in unsure]
    records: list[JobRecord] | None = fetch_records(arrays, ask) if arrays else None
    if records:
        jobs = tuple(view_jobs(submissions, agents, queue, records))
    if answer is not None:
        jobs = add_outputs(jobs, paths)
    return JobsView(
        submissions=tuple(submissions),
        jobs=jobs,
        asked=None if queue is None else queue.asked,
        answered=answer is not None,
        accounting=None if not arrays else records is not None,
        throttles=_throttles(submissions, queue),
    )


def _arrays_to_ask_for(
    submissions: Sequence[Submission],
    agents: Sequence[AgentRecord],
    queue: Queue | None,
    accounting: bool | None,
) -> list[int]:
    """The arrays that accounting is asked about; none where it must not be asked."""
    if accounting is False:
        return []
    arrays = (
        array_of(submission, queue, agents)
        for submission in submissions
        if submission.refused is None
    )
    return [array for array in arrays if array is not None]


def _throttles(submissions: Sequence[Submission], queue: Queue | None) -> dict[int, int]:
    """For each array how many of its jobs may run at a time, as the queue reports it now."""
    found: dict[int, int] = {}
    for submission in submissions:
        if submission.is_chain:
            continue
        for row in (
            queue.rows_of(submission.job)
            if queue is not None and submission.job is not None
            else ()
        ):
            if row.throttle is not None and is_ours(row, submission):
                found[row.array] = row.throttle
    return found


def parse_job(text: str) -> tuple[int, int | None] | None:
    """The number and the task of ``123`` or ``123_4``; None for anything else."""
    found = _JOB.match(text)
    return None if found is None else (int(found[1]), None if found[2] is None else int(found[2]))


def find_job(text: str, roots: Sequence[str]) -> tuple[StudyPaths, int, int | None] | None:
    """The study that a job belongs to, with its array and task; a task's own job number is found too."""
    wanted = parse_job(text)
    if wanted is None:
        return None
    number, task = wanted
    for folder in list_studies(roots):
        paths = StudyPaths(folder)
        submissions = read_submissions(paths)
        if any(submission.job == number for submission in submissions):
            return paths, number, task
        if submissions and task is None:
            found = _find_own_number(paths, submissions, number)
            if found is not None:
                return (paths, *found)
    return None


def _find_own_number(
    paths: StudyPaths, submissions: Sequence[Submission], number: int
) -> tuple[int, int | None] | None:
    """The array and task of a job by its own number, from journals or the queue; None where neither has it."""
    for header in read_headers(paths.journal):
        job = header.get("job")
        if isinstance(job, dict) and job.get("id") == number:
            return int(job["array"]), job.get("task")
    queue = read_queue(paths.queue, ask)
    for row in queue.rows if queue is not None else ():
        if row.id == number and any(is_ours(row, submission) for submission in submissions):
            return row.array, row.task
    return None
