"""windlass throttle: how many of a study's jobs may run at a time."""

from __future__ import annotations

import json

import click

from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study, name_of
from windlass.collect.jobs import look_at_jobs
from windlass.collect.jobview import JobsView, JobView
from windlass.collect.look import read_register
from windlass.core.counted import counted
from windlass.core.errors import SchedulerError, input_error
from windlass.core.paths import StudyPaths
from windlass.core.queue.queue import forget_queue
from windlass.core.queue.states import JobState
from windlass.places.slurm.control import send_throttle
from windlass.todo import set_throttle


@click.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[STUDY] N")
@folder_option
@json_option
def command(arguments: tuple[str, ...], folder: str | None, as_json: bool) -> None:
    """Let N of the study's jobs run at a time; 0 lifts the limit.

    Where more than N run already, the latest of them take no more trials: they end when those that they have begun are
    done, and the others go on. Where the study is several arrays, they share N. The limit holds until the study has no
    job left. The jobs of a chain always follow one another.
    """
    *named, number = arguments
    if not number.isdecimal() or len(named) > 1:
        raise input_error(
            f"a study and a number are wanted, not {' '.join(arguments)!r}",
            "windlass throttle STUDY 5",
        )
    limit = int(number)
    paths = find_study(named[0] if named else None, folder)
    view = look_at_jobs(paths, (), accounting=False)
    if view is not None and not view.answered:
        raise SchedulerError(
            "the scheduler does not answer\n  hint: nothing was changed; try again later"
        )
    single = _find_single_jobs(paths, view)
    running = sum(job.state is JobState.RUNNING for job in single)
    waiting = sorted(
        {job.array for job in single if job.state is JobState.WAITING and job.array is not None}
    )
    shares = share(limit, len(waiting))
    raised = _apply(paths, limit, dict(zip(waiting, shares, strict=True)))
    ending = max(0, running - limit) if limit else 0
    if as_json:
        arrays = dict(zip(map(str, waiting), shares, strict=True))
        print(
            json.dumps(
                {"study": paths.folder, "limit": limit, "throttle": arrays, "ending": ending}
            )
        )
        return
    text = (
        f"at most {counted(max(limit, sum(shares)), 'job')} at a time"
        if limit
        else "any number of jobs at a time"
    )
    if ending:
        text += f"; {ending} of the {running} that run end after the trials they have begun"
    print(f"{name_of(paths)}: {text}")
    if raised and not waiting:
        print(
            "jobs that a lower limit has ended do not come back by themselves: `windlass run` submits them again"
        )


def _find_single_jobs(paths: StudyPaths, view: JobsView | None) -> list[JobView]:
    """Jobs of the study that wait or run and belong to no chain. Raises InputError where there are none."""
    chains = set() if view is None else {one.id for one in view.submissions if one.is_chain}
    jobs = (
        [] if view is None else [*view.in_state(JobState.WAITING), *view.in_state(JobState.RUNNING)]
    )
    single = [job for job in jobs if job.array is not None and job.submission not in chains]
    if not single and jobs:
        raise input_error(
            f"what {paths.folder} has are jobs of a chain: each goes on where the one before was",
            "`windlass run --agents N` has more chains side by side",
        )
    if not single:
        raise input_error(
            f"no job of {paths.folder} waits or runs", "`windlass run` submits what is missing"
        )
    return single


def _apply(paths: StudyPaths, limit: int, arrays: dict[int, int]) -> bool:
    """Set the limit of agents and those of Slurm, in the order in which no job starts only to find itself too many.

    Return whether a limit that was in force has been raised or lifted.
    """
    before = read_register(paths).throttle
    raised = before is not None and (limit == 0 or limit > before)
    if raised:
        set_throttle(paths, limit)
    answers = {array: send_throttle(array, part) for array, part in arrays.items()}
    forget_queue(paths.queue)
    problems = [
        f"job {array}: {problem}" for array, problem in answers.items() if problem is not None
    ]
    if problems:
        raise SchedulerError(
            "\n".join(problems) + "\n  hint: the jobs that wait keep their limit; try again later"
        )
    if not raised:
        set_throttle(paths, limit)
    return raised


def share(limit: int, arrays: int) -> list[int]:
    """The limit of each of several arrays: equal parts, the first ones larger, none less than one."""
    if limit == 0:
        return [0] * arrays
    return [max(1, limit // arrays + (place < limit % arrays)) for place in range(arrays)]
