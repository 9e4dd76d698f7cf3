"""Whether the job that an agent lives in is over. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import enum
from typing import Any, Mapping, Optional

from windlass.slurm.rows import Queue
from windlass.slurm.states import OVER, JobState

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


def ran_out_of_memory(job: Mapping[str, Any], queue: Optional[Queue], since: Optional[float] = None) -> bool:
    """Whether the scheduler ended this start of a job because its memory ran out. False where it does not say."""
    if queue is None or job_gone(job, queue, since) is not Gone.YES:
        return False
    array, task, own = _number(job.get("array")), _number(job.get("task")), _number(job.get("id"))
    row = queue.row_of(array if array is not None else own or 0, task, own)
    return row is not None and row.state is JobState.OUT_OF_MEMORY


def _number(value: Any) -> Optional[int]:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None
