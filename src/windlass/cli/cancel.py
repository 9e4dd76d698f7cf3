"""windlass cancel: take trials off the list, stop them, and end jobs that have nothing left to do."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from windlass.cli.options import confirm, folder_option, json_option, yes_option
from windlass.cli.studies import find_study_and_trials, name_of, study_and_trials
from windlass.collect.index import open_index
from windlass.collect.jobs import look_at_jobs, parse_job
from windlass.collect.jobview import LIVE, JobsView
from windlass.collect.trials import find_trials
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.counted import counted
from windlass.core.errors import input_error
from windlass.core.paths import StudyPaths
from windlass.core.queue.queue import forget_queue
from windlass.core.queue.states import JobState
from windlass.places.slurm.control import send_cancel
from windlass.todo import cancel_trials


@click.command()
@study_and_trials("[STUDY] [TRIAL]...")
@click.option(
    "--pending",
    is_flag=True,
    help="Cancel only what has not started: trials that wait, and jobs that wait.",
)
@click.option(
    "--except",
    "spared",
    multiple=True,
    metavar="TRIAL",
    help="Cancel all trials but this one; may be repeated.",
)
@click.option(
    "--job",
    "jobs",
    multiple=True,
    metavar="JOB",
    help="End this job (123) or task (123_4) of the study; may be repeated.",
)
@folder_option
@yes_option
@json_option
def command(
    arguments: tuple[str, ...],
    study: str | None,
    pending: bool,
    spared: tuple[str, ...],
    jobs: tuple[str, ...],
    folder: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Take trials off the list and stop those under way: those named (number or id), or all of the study.

    Jobs of the study that wait are ended when no trial is left for them. Agents at work notice it within 15 s and
    end by themselves.
    Nothing else of yours in the queue is touched.
    """
    paths, trials = find_study_and_trials(arguments, study, folder)
    if jobs:
        if trials or spared or pending:
            raise input_error("either jobs or trials, not both", "leave one of them out")
        return _show(paths, 0, _end_named(paths, jobs), as_json)
    register = RegisterFile(paths.claims, "reader").read()
    chosen = _choose(paths, register, trials, spared, pending)
    if not trials:
        what = "waiting" if pending else "open"
        confirm(
            f"cancel {counted(rs.count(chosen), what + ' trial')} of {paths.folder}, and jobs that wait for them?",
            yes,
        )
    cancelled = rs.count(cancel_trials(paths, chosen))
    left = RegisterFile(paths.claims, "reader").read().todo
    ended = Ended() if trials or left else _end_waiting(paths)
    return _show(paths, cancelled, ended, as_json, stopping=not pending)


@dataclass(frozen=True)
class Ended:
    """The jobs that were ended, as the scheduler was asked to; `problem` where it could not be."""

    jobs: tuple[str, ...] = ()
    count: int = 0
    problem: str = ""


def _choose(
    paths: StudyPaths,
    register: Register,
    trials: tuple[str, ...],
    spared: tuple[str, ...],
    pending: bool,
) -> Ranges:
    """The trials to cancel; of all but named ones, only those that are open."""
    if trials and spared:
        raise input_error("either trials, or all except some, not both", "leave one of them out")
    if trials:
        chosen = rs.from_numbers(find_trials(trials, paths, register.count))
    else:
        kept = rs.from_numbers(find_trials(spared, paths, register.count))
        open_trials = rs.union(register.todo, register.held_ranges())
        chosen = rs.subtract(rs.intersect(open_trials, register.current), kept)
    return rs.intersect(chosen, register.todo) if pending else chosen


def _look(paths: StudyPaths) -> JobsView | None:
    with open_index(paths) as index:
        return look_at_jobs(paths, index.agents(), accounting=False)


def _end_waiting(paths: StudyPaths) -> Ended:
    """End the study's jobs that have not started. One scancel for all."""
    view = _look(paths)
    if view is None:
        return Ended()
    if not view.answered:
        unsure = [job for job in view.jobs if not job.over]
        return Ended(problem="the scheduler does not answer") if unsure else Ended()
    waiting = {job.array: 0 for job in view.jobs if job.state is JobState.WAITING}
    for job in view.in_state(JobState.WAITING):
        waiting[job.array] += 1
    arrays = tuple(str(array) for array in waiting)
    problem = send_cancel(arrays, only_waiting=True)
    return Ended(problem=problem) if problem else Ended(arrays, sum(waiting.values()))


def _end_named(paths: StudyPaths, names: tuple[str, ...]) -> Ended:
    """Cancel the jobs that the user named, each checked to be the study's own.

    Raises InputError for a job that neither waits nor runs here.
    """
    view = _look(paths)
    live = [] if view is None else [job for job in view.jobs if job.state in LIVE]
    chosen: list[str] = []
    for name in names:
        wanted = parse_job(name)
        found = [
            job.name
            for job in live
            if wanted is not None
            and wanted[0] in (job.array, job.id)
            and wanted[1] in (None, job.task)
        ]
        if not found and view is not None and not view.answered:
            return Ended(problem="the scheduler does not answer")
        if not found:
            hint = f"waiting or running: {', '.join(job.name for job in live[:8]) or 'none'}"
            raise input_error(f"{name_of(paths)} has no job {name} that waits or runs", hint)
        chosen += found
    problem = send_cancel(chosen, only_waiting=False)
    return Ended(problem=problem) if problem else Ended(tuple(chosen), len(chosen))


def _show(
    paths: StudyPaths, cancelled: int, ended: Ended, as_json: bool, stopping: bool = True
) -> int:
    """Show how many trials were cancelled and which jobs were ended. Returns the exit code."""
    if ended.jobs:
        forget_queue(paths.queue)
    if as_json:
        report = {
            "study": paths.folder,
            "cancelled": cancelled,
            "jobs": list(ended.jobs),
            "jobs_ended": ended.count,
        }
        print(json.dumps({**report, "problem": ended.problem or None}))
    else:
        # Agents look at the register at least this often: BUSY_MOST_S of agent/lease/looks.py.
        under_way = (
            "; agents notice it within 15 s and stop those under way"
            if cancelled and stopping
            else ""
        )
        print(
            f"{name_of(paths)}: {counted(cancelled, 'trial is', 'trials are')} cancelled{under_way}"
        )
        if ended.count:
            print(f"{counted(ended.count, 'job')} ended: {', '.join(ended.jobs)}")
        if ended.problem:
            again = "the trials are cancelled all the same; run this again to end the jobs"
            click.echo(
                f"error: jobs could not be ended: {ended.problem}\n  hint: {again}", err=True
            )
    return 1 if ended.problem else 0
