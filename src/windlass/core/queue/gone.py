"""Whether the job that an agent lives in is over. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import enum
from typing import Any, Dict, Mapping, Optional

from windlass.core.queue.rows import Queue
from windlass.core.queue.states import OVER, JobState
from windlass.core.states import Cause

_CLOCKS_S = 5.0  # how far clocks of one cluster may be apart


class Gone(enum.Enum):
    """What the queue says of an agent's processes."""

    NO = "no"  # its job runs
    YES = "yes"  # certainly
    PERHAPS = "perhaps"  # its job ends, failed with its node, is to be started again, or is not listed any more
    UNKNOWN = "unknown"  # nobody answered


def job_gone(job: Mapping[str, Any], queue: Optional[Queue], since: Optional[float] = None) -> Gone:
    """Whether the processes of an agent's `job` are gone, by this answer. `since` is the time of the agent's header.

    A job that is started again keeps its number; `since` tells the agent of its first start from that of its second.
    """
    if queue is None:
        return Gone.UNKNOWN
    array, task, own = _number(job.get("array")), _number(job.get("task")), _number(job.get("id"))
    if own is None and array is None:
        return Gone.UNKNOWN
    row = queue.row_of(array if array is not None else own or 0, task, own)
    if row is None:
        return Gone.PERHAPS
    if row.state is JobState.UNKNOWN:
        return Gone.UNKNOWN
    if since is not None and since > queue.asked:
        # The answer is older than the agent and may tell of the job's start before this one.
        return Gone.NO if row.state is JobState.RUNNING else Gone.UNKNOWN
    if since is not None and row.start is not None and row.start > since + _CLOCKS_S:
        return Gone.PERHAPS  # this is a later start of the same job
    if row.state in OVER:
        return Gone.YES
    return Gone.NO if row.state in (JobState.RUNNING, JobState.SUSPENDED) else Gone.PERHAPS


# How the scheduler says that a job ended → the cause of trials whose agent ended with it, and could not record it.
CAUSES: Dict[JobState, Cause] = {
    JobState.OUT_OF_MEMORY: Cause.HOST_MEMORY,
    JobState.PREEMPTED: Cause.PREEMPTED,
    JobState.NODE_FAILED: Cause.NODE,
}


def find_cause(
    job: Mapping[str, Any], queue: Optional[Queue], since: Optional[float] = None
) -> Cause:
    """Why the scheduler ended this start of a job, as the cause of its trials. LOST where it does not say."""
    if queue is None or job_gone(job, queue, since) not in (Gone.YES, Gone.PERHAPS):
        return Cause.LOST
    array, task, own = _number(job.get("array")), _number(job.get("task")), _number(job.get("id"))
    row = queue.row_of(array if array is not None else own or 0, task, own)
    is_later = (
        row is not None
        and since is not None
        and row.start is not None
        and row.start > since + _CLOCKS_S
    )
    return Cause.LOST if row is None or is_later else CAUSES.get(row.state, Cause.LOST)


def _number(value: Any) -> Optional[int]:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None
