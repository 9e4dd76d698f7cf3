"""Follows the jobs of a study: whether they are there, what they wait for, and how they ended."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from windlass.collect.look import TimeLeftReader
from windlass.collect.submissions import Submission, read_submissions
from windlass.core.claims.client import client_name
from windlass.core.claims.first import find_stop
from windlass.core.claims.recover import recover
from windlass.core.claims.register import RegisterFile
from windlass.core.lock import StudyLock
from windlass.core.paths import StudyPaths
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import read_last_queue, read_queue
from windlass.core.queue.states import ENDED, JobState
from windlass.model import Submitted
from windlass.places.slurm.control import send_cancel
from windlass.places.slurm.submission import agents_may_be_there, present_states
from windlass.slurm.accounting import fetch_records
from windlass.slurm.reasons import explain_reason

_ENDING_S = 3.0  # that the last jobs are given to end before the scheduler is asked
_QUEUE_S = 10.0  # between questions to the scheduler
_MOST_ENDING = 3  # answers that a job is still ending
_STOPPING_S = 10.0  # that a cancelled job is waited for
_OUT_OF_MEMORY = re.compile(r"exceeded .*memory limit|oom.?kill|out of memory", re.IGNORECASE)


class JobAgents:
    """The jobs of a study. They go on without the command that follows them."""

    poll_s = 0.5  # This looks at files only; the scheduler is asked every 10 s at most.

    def __init__(self, paths: StudyPaths, submitted: Submitted) -> None:
        self.submitted = submitted
        self.left_s = TimeLeftReader(paths)
        self._paths = paths
        self._is_left = False
        self._next_look: float | None = None  # None: the study is under way
        self._pause_s = _ENDING_S
        self._ending = 0

    def wait(self, patience_s: float) -> int | None:
        """0 once the trials are through, or no agent is left, and all jobs are over.

        What the scheduler reports of the jobs is final then. A job that is only ending is not waited for longer than
        half a minute: a dead node can keep it so for hours.
        """
        if self._is_left:
            return 0
        if self._next_look is None:
            if study_is_under_way(self._paths):
                time.sleep(patience_s)
                return None
            end_idle_jobs(self._paths)
            self._next_look = time.monotonic() + self._pause_s
        left_s = self._next_look - time.monotonic()
        if left_s > 0:
            time.sleep(min(left_s, patience_s))
            return None
        return 0 if self._are_over() else None

    def _are_over(self) -> bool:
        """Whether the agents' jobs are over. A job that is ending counts as there for some looks only."""
        states = present_states(self._paths, self._pause_s)
        self._pause_s = _QUEUE_S
        self._next_look = time.monotonic() + self._pause_s
        if JobState.ENDING in states:
            self._ending += 1
        is_ending = JobState.ENDING in states and self._ending <= _MOST_ENDING
        return JobState.RUNNING not in states and not is_ending

    def look(self) -> tuple[bool, str]:
        """As the queue has it. Without an answer of the scheduler, the jobs are still there."""
        ours = self._own_submissions()
        queue = read_queue(self._paths.queue, ask)
        if queue is None or any(one.is_newer_than(queue.asked) for one in ours):
            return False, ""
        rows = [
            row for one in ours for row in queue.with_comment(one.comment) if row.state not in ENDED
        ]
        waits = all(row.state is JobState.WAITING for row in rows)
        reason = next((row.reason for row in rows if row.reason), "") if waits else ""
        return not rows, explain_reason(reason) if reason else ""

    def owns(self, header: Mapping[str, Any]) -> bool:
        return (header.get("job") or {}).get("sub") in {one.id for one in self._own_submissions()}

    def _own_submissions(self) -> list[Submission]:
        return [one for one in read_submissions(self._paths) if one.job in self.submitted.jobs]

    def explain_end(self) -> tuple[str, bool]:
        """How the first job ended, from the queue or accounting, and whether it ran out of memory."""
        job = self.submitted.jobs[0]
        queue = read_queue(self._paths.queue, ask)
        found = [
            (row.state, row.state_name) for row in (queue.rows_of(job) if queue is not None else ())
        ]
        found = found or [
            (record.state, record.state_name) for record in fetch_records([job], ask) or ()
        ]
        state, word = found[0] if found else (JobState.UNKNOWN, "it is not in the queue any more")
        complaint = next((line for line in self._read_log(job) if _OUT_OF_MEMORY.search(line)), "")
        cause = f" ({complaint.rpartition('error: ')[2].strip()})" if complaint else ""
        return f"job {job} ended: {word}{cause}", state is JobState.OUT_OF_MEMORY or bool(complaint)

    def _read_log(self, job: int) -> list[str]:
        """What Slurm itself has written to the log of the job."""
        name = f"{os.path.basename(self._paths.folder)}_{job}_0.out"
        try:
            with open(
                os.path.join(self._paths.hpc_outputs, name), encoding="utf-8", errors="replace"
            ) as file:
                return [line for line in file if "slurmstepd" in line]
        except OSError:
            return []

    def interrupt(self, times: int, running: int) -> str:
        """Ctrl-C ends the following, not the jobs."""
        self._is_left = True
        return (
            "the jobs go on; `windlass status` shows how far they are, `windlass cancel` ends them"
        )

    def stop(self) -> str:
        """Cancel the jobs, and wait for a while until they are gone."""
        self._is_left = True
        jobs = ", ".join(map(str, self.submitted.jobs))
        problem = send_cancel([str(job) for job in self.submitted.jobs], only_waiting=False)
        if problem is not None:
            return f"job {jobs} could not be cancelled: {problem}"
        deadline = time.monotonic() + _STOPPING_S
        while agents_may_be_there(self._paths, self.poll_s) and time.monotonic() < deadline:
            time.sleep(self.poll_s)
        return ""

    def complaints(self) -> str:
        return ""  # What jobs print is in their logs.

    def close(self) -> None:
        pass


def study_is_under_way(paths: StudyPaths) -> bool:
    """Whether a trial is open and an agent waits or runs for it. Without an answer of the scheduler: it is."""
    register_file = RegisterFile(paths.claims, client_name())
    register = register_file.read()
    if not register.held and (not register.todo or find_stop(register.learned) is not None):
        return False
    if agents_may_be_there(paths):
        return True
    recovered = recover(paths, register_file)
    register = register_file.read()
    return bool(register.held) and not recovered.dead


def end_idle_jobs(paths: StudyPaths) -> None:
    """Cancel jobs that wait although nothing is left for them: they would wait in the queue for nothing."""
    register_file = RegisterFile(paths.claims, client_name())
    with StudyLock(register_file, paths.folder):
        register = register_file.read()
        jobs = [str(one.job) for one in read_submissions(paths) if one.job is not None]
        queue = read_last_queue(paths.queue)
        rows = queue.rows if queue is not None else ()
        waiting = {str(row.array) for row in rows if row.state is JobState.WAITING}
        if not register.held and (not register.todo or find_stop(register.learned) is not None):
            send_cancel([job for job in jobs if job in waiting], only_waiting=True)
