"""Slurm's state names for what a job is doing, each with its meaning for us. The agent needs it: Python 3.9."""

from __future__ import annotations

import enum
from typing import Dict, FrozenSet


class JobState(str, enum.Enum):
    """What a job is doing, as far as it matters to us."""

    WAITING = "waiting"  # none of its processes was started, or it is to be started again
    SUSPENDED = "suspended"
    RUNNING = "running"
    ENDING = "ending"  # its processes are asked to end, or its node cleans up
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    PREEMPTED = "preempted"
    NODE_FAILED = "node failed"
    OUT_OF_MEMORY = "out of memory"
    UNKNOWN = "unknown"


# The processes are certainly gone. A failed node is not among them: where only slurmd died, the job's processes go on.
OVER: FrozenSet[JobState] = frozenset(
    {
        JobState.DONE,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMED_OUT,
        JobState.PREEMPTED,
        JobState.OUT_OF_MEMORY,
    }
)
# The scheduler will not run it any further.
ENDED: FrozenSet[JobState] = OVER | {JobState.NODE_FAILED}

# A job is in one of these; every one of Slurm 22.05 to 25.05.
_BASE: Dict[str, JobState] = {
    "PENDING": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "COMPLETED": JobState.DONE,
    "CANCELLED": JobState.CANCELLED,
    "FAILED": JobState.FAILED,
    "TIMEOUT": JobState.TIMED_OUT,
    "NODE_FAIL": JobState.NODE_FAILED,
    "PREEMPTED": JobState.PREEMPTED,
    "BOOT_FAIL": JobState.NODE_FAILED,
    "DEADLINE": JobState.TIMED_OUT,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
}
# These flags come on top of it, or instead of it. In a list the first of them that is there decides.
_FLAGS: Dict[str, JobState] = {
    "COMPLETING": JobState.ENDING,
    "STAGE_OUT": JobState.ENDING,
    "SIGNALING": JobState.ENDING,
    "REVOKED": JobState.UNKNOWN,  # another cluster of the federation runs it; this one knows no more
    "CONFIGURING": JobState.WAITING,
    "POWER_UP_NODE": JobState.WAITING,
    "REQUEUED": JobState.WAITING,
    "REQUEUE_FED": JobState.WAITING,
    "REQUEUE_HOLD": JobState.WAITING,
    "SPECIAL_EXIT": JobState.WAITING,
    "RESV_DEL_HOLD": JobState.WAITING,
    "EXPEDITING": JobState.WAITING,
    "STOPPED": JobState.SUSPENDED,
    "RESIZING": JobState.RUNNING,
}
# These tell of something that happened on the way; the state beside them holds.
_REMARKS: Dict[str, JobState] = {
    "LAUNCH_FAILED": JobState.WAITING,
    "RECONFIG_FAIL": JobState.WAITING,
    "GETENV_FAILED": JobState.UNKNOWN,
    "UPDATE_DB": JobState.UNKNOWN,
}
JOB_STATES: Dict[str, JobState] = {**_BASE, **_FLAGS, **_REMARKS}
COMPACT_STATES: Dict[str, JobState] = {
    code: JOB_STATES[word]
    for code, word in {
        "BF": "BOOT_FAIL",
        "CA": "CANCELLED",
        "CD": "COMPLETED",
        "CF": "CONFIGURING",
        "CG": "COMPLETING",
        "DL": "DEADLINE",
        "F": "FAILED",
        "NF": "NODE_FAIL",
        "OOM": "OUT_OF_MEMORY",
        "PD": "PENDING",
        "PR": "PREEMPTED",
        "R": "RUNNING",
        "RD": "RESV_DEL_HOLD",
        "RF": "REQUEUE_FED",
        "RH": "REQUEUE_HOLD",
        "RQ": "REQUEUED",
        "RS": "RESIZING",
        "RV": "REVOKED",
        "S": "SUSPENDED",
        "SE": "SPECIAL_EXIT",
        "SI": "SIGNALING",
        "SO": "STAGE_OUT",
        "ST": "STOPPED",
        "TO": "TIMEOUT",
    }.items()
}


def parse_job_state(text: str) -> JobState:
    """What a state name of Slurm means, or a list of them such as ``COMPLETED,REQUEUED``.

    A name that is in no table is UNKNOWN, never a success.
    """
    names = [
        part.split()[0].rstrip("+").upper()
        for part in text.replace("+", ",").split(",")
        if part.strip()
    ]
    if len(names) == 1:
        return JOB_STATES.get(names[0]) or COMPACT_STATES.get(names[0], JobState.UNKNOWN)
    if not names or any(name not in JOB_STATES for name in names):
        return JobState.UNKNOWN
    for flag, state in _FLAGS.items():
        if flag in names and flag != "RESIZING":
            return state
    base = [_BASE[name] for name in names if name in _BASE]
    return base[0] if base else JobState.UNKNOWN
