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
    PREEMPTED = "preempted"
    NODE = "node failed"
    DIVERGED = "diverged"
    STAGE_IN = "stage-in failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"  # Ctrl-C, or the launcher went away
    LOST = "agent lost"  # the agent ended without a word
    JOB_TIME = "job's time up"  # told before the end of the job's time, and not done by then
    AGAIN = "another turn"  # it asked for one with its exit code
    NO_PROGRESS = "no progress"  # two turns, and nothing to show for them
    NEIGHBOUR = "neighbour's fault"  # another trial on its GPU took down the MPS server that both used
    FOLDER = "folder out of reach"  # its agent could not write there, so that others may begin the trial
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
    Cause.STAGE_IN: State.FAILED,
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
