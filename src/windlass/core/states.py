"""The states a trial can be in and the causes an attempt can end with. The agent needs it: Python 3.9."""

from __future__ import annotations

import enum
from typing import Dict


class State(str, enum.Enum):
    """What a trial is doing now."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class Cause(str, enum.Enum):
    """Why an attempt ended; decides what happens next."""

    DONE = "done"
    FAILED = "failed"  # non-zero exit code
    KILLED = "killed"  # by a signal that was not ours
    HOST_MEMORY = "host out of memory"
    GPU_MEMORY = "gpu out of memory"
    TIME = "time limit"
    PREEMPTED = "preempted"  # Slurm ended the job before its time, and put it back or gave its node to another
    NODE = "node failed"  # a node of the job went down, or nothing is heard of it any more
    DIVERGED = "diverged"
    STAGE_IN = "stage-in failed"  # the node could not give the trial a working folder
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # Ctrl-C, or the launcher went away
    LOST = "agent lost"  # the agent ended without a goodbye
    JOB_TIME = "job's time up"  # notified before the end of the job's time, and not done by then
    AGAIN = "another turn"  # it asked for one with its exit code
    NO_PROGRESS = "no progress"  # two sessions without a new checkpoint or a higher step
    # Another trial on its GPU took down the MPS server that both used.
    NEIGHBOUR = "neighbour's fault"
    # Its agent could not write there, so that others may begin the trial.
    FOLDER = "folder out of reach"
    TAKEN = "taken over"  # another agent has the trial, because this one seemed to be dead


OUT_OF_MEMORY = (Cause.HOST_MEMORY, Cause.GPU_MEMORY)

STATE_OF: Dict[Cause, State] = {
    Cause.DONE: State.DONE,
    Cause.FAILED: State.FAILED,
    Cause.KILLED: State.FAILED,
    Cause.HOST_MEMORY: State.FAILED,
    Cause.GPU_MEMORY: State.FAILED,
    Cause.TIME: State.FAILED,
    Cause.PREEMPTED: State.INTERRUPTED,
    Cause.NODE: State.INTERRUPTED,
    Cause.DIVERGED: State.FAILED,
    Cause.STAGE_IN: State.INTERRUPTED,
    Cause.CANCELLED: State.CANCELLED,
    Cause.STOPPED: State.INTERRUPTED,
    Cause.LOST: State.INTERRUPTED,
    Cause.JOB_TIME: State.INTERRUPTED,
    Cause.AGAIN: State.INTERRUPTED,
    Cause.NO_PROGRESS: State.FAILED,
    Cause.NEIGHBOUR: State.INTERRUPTED,
    Cause.FOLDER: State.INTERRUPTED,
    Cause.TAKEN: State.INTERRUPTED,
}

# A retry after these would meet the same end, was not wanted, or is given without being asked for.
NEVER_RETRIED = frozenset(
    {
        Cause.DONE,
        Cause.DIVERGED,
        Cause.CANCELLED,
        Cause.STOPPED,
        Cause.JOB_TIME,
        Cause.AGAIN,
        Cause.NO_PROGRESS,
        Cause.NEIGHBOUR,
        Cause.FOLDER,
        Cause.TAKEN,
    }
)
