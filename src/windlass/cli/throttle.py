"""windlass throttle: how many of a study's jobs may run at a time."""

from __future__ import annotations

import json

import click

from windlass.cli.options import find_study, folder_option, json_option
from windlass.collect.jobs import look_at_jobs
from windlass.errors import SchedulerError, input_error
from windlass.launch.control import send_throttle
from windlass.slurm.queue import forget_queue
from windlass.slurm.states import JobState


@click.command()
@click.argument("limit", type=click.IntRange(0), metavar="N")
@click.argument("study", required=False)
@folder_option
@json_option
def command(limit: int, study: str | None, folder: str | None, as_json: bool) -> None:
    """Let N of the study's jobs run at a time; 0 lifts the limit. Those that run already go on.

    Where the study is several arrays, they share N. The jobs of a chain always follow one another.
    """
    paths = find_study(study, folder)
    view = look_at_jobs(paths, (), accounting=False)
    if view is not None and not view.answered:
        raise SchedulerError("the scheduler does not answer\n  hint: nothing was changed; try again later")
    jobs = [] if view is None else view.in_state(JobState.WAITING)
    chains = set() if view is None else {one.id for one in view.submissions if one.is_chain}
    waiting = sorted({job.array for job in jobs if job.array is not None and job.submission not in chains})
    if not waiting and jobs:
        raise input_error(
            f"what waits of {paths.folder} are jobs of a chain: each goes on where the one before was",
            "`windlass run --agents N` has more chains side by side",
        )
    if not waiting:
        raise input_error(f"no job of {paths.folder} waits", "`windlass run` submits what is missing")
    shares = share(limit, len(waiting))
    for array, part in zip(waiting, shares, strict=True):
        problem = send_throttle(array, part)
        if problem is not None:
            raise SchedulerError(f"job {array}: {problem}")
    forget_queue(paths.queue)
    if as_json:
        print(json.dumps({"study": paths.folder, "throttle": dict(zip(map(str, waiting), shares, strict=True))}))
    elif limit:
        print(f"at most {sum(shares)} jobs at a time: {', '.join(str(array) for array in waiting)}")
    else:
        print(f"any number of jobs at a time: {', '.join(str(array) for array in waiting)}")


def share(limit: int, arrays: int) -> list[int]:
    """The limit of each of several arrays: equal parts, the first ones larger, none less than one."""
    if limit == 0:
        return [0] * arrays
    return [max(1, limit // arrays + (place < limit % arrays)) for place in range(arrays)]
