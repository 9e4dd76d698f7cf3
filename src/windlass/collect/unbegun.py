"""Jobs that ended before their agent could begin: only what the job itself printed tells why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from windlass.collect.jobview import JobView
from windlass.core.paths import StudyPaths
from windlass.core.queue.states import JobState

_MOST_READ = 20  # files; the jobs that were submitted last
_BYTES = 4096
_LINES = 3
_OVER = (JobState.DONE, JobState.FAILED, JobState.OUT_OF_MEMORY)


def is_unbegun(job: JobView) -> bool:
    """Whether a job may have ended without an agent. One that nobody knows any more may also have been cancelled."""
    is_forgotten = job.state is JobState.UNKNOWN and not job.source
    return not job.agent and job.array is not None and (is_forgotten or job.state in _OVER)


def add_outputs(jobs: Sequence[JobView], paths: StudyPaths) -> tuple[JobView, ...]:
    """The same jobs; those whose agent never began have the path and the last lines of their own output.

    A job that is forgotten and has printed nothing stays as it is: it was probably cancelled while it waited.
    """
    found = list(jobs)
    places = [place for place, job in enumerate(jobs) if is_unbegun(job)]
    for place in places[-_MOST_READ:]:
        job = jobs[place]
        log = os.path.join(
            paths.hpc_outputs, f"{os.path.basename(paths.folder)}_{job.array}_{job.task}.out"
        )
        output = _read_end(log)
        if output or job.state is not JobState.UNKNOWN:
            found[place] = replace(job, log=log, output=output)
    return tuple(found)


def _read_end(path: str) -> str:
    """The last lines of a file that are not empty; "" where there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_LINES:])
