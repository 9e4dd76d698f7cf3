"""Trials that start job steps with `srun`. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional

from windlass.agent.child import SHARED_STEPS, Attempt
from windlass.agent.node.companions import Companions
from windlass.core.claims.strays import AGENT_VARIABLE, find_strays, program_of
from windlass.launchers._task import RANK_VARIABLE

# What Slurm executes before each rank. A step is given all GPUs of the job, or the first ones where it asks for some:
# a trial has its own. Ranks with less than the trial's GPUs, as `--gpus-per-task=1` has it, get theirs in turn.
_TASK_PROLOG = """\
#!/bin/sh
[ "${WINDLASS_GPUS+set}" ] && [ "$CUDA_VISIBLE_DEVICES" ] || exit 0
IFS=,
set -- $CUDA_VISIBLE_DEVICES
wanted=$#
set -- $WINDLASS_GPUS
[ $wanted -lt $# ] || wanted=$#
first=$(($# ? SLURM_LOCALID * wanted % $# + 1 : 1))
echo "export CUDA_VISIBLE_DEVICES=$(echo "$WINDLASS_GPUS" | cut -d, -f$first-$((wanted ? first + wanted - 1 : 1)))"
"""


def share_job(folder: str, env: Mapping[str, str]) -> Dict[str, str]:
    """Variables for trials that share a job, so that a plain `srun` in one of them does not wait for the others.

    Without them a step takes all cores, memory and GPUs of the job, and steps run one after the other.
    """
    values = ("1", write_task_prolog(folder))
    return {name: value for name, value in zip(SHARED_STEPS, values) if name not in env}  # noqa: B905


def write_task_prolog(folder: str) -> str:
    path = os.path.join(folder, "task-prolog")
    with open(path, "w", encoding="ascii") as file:
        file.write(_TASK_PROLOG)
    os.chmod(path, 0o700)
    return path


def signal_steps(attempt: Attempt, agent: str, number: int, others: Optional[Companions]) -> bool:
    """Signal the processes of an attempt that starts job steps, on all nodes. False where it does not start any."""
    if not attempt.pid or not _starts_steps(attempt.pid):
        return False
    signal_ranks(agent, attempt.attempt, number)
    if others is not None:
        others.tell("signal", attempt=attempt.attempt, number=number)
    return True


def _starts_steps(pid: int) -> bool:
    """Whether a process, or one that it has started, is `srun`.

    A signal that ends `srun` makes Slurm kill all ranks at once: they would have no time to save anything.
    """
    pending = [pid]
    while pending:
        process = pending.pop()
        if program_of(str(process)) == "srun":
            return True
        pending += _children(process)
    return False


def _children(pid: int) -> List[int]:
    found: List[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found


# They serve the files of a container: a signal that ends them takes the program's pages away.
_BEHIND_CONTAINERS = frozenset({"squashfuse_ll", "squashfuse", "fuse2fs", "fuse-overlayfs"})


def signal_ranks(agent: str, attempt: int, number: int) -> None:
    """Signal the processes of an attempt on this node.

    With a launcher only its ranks are: torchrun and `srun` end all others when they are signalled themselves.
    """
    of_attempt = set(find_strays("WINDLASS_ATTEMPT", str(attempt)))
    mine = [pid for pid in find_strays(AGENT_VARIABLE, agent) if pid in of_attempt]
    ranks = [pid for pid in mine if _has_variable(pid, RANK_VARIABLE)]
    for pid in ranks or mine:
        if program_of(str(pid)) not in ("srun", *_BEHIND_CONTAINERS):
            try:
                os.kill(pid, number)
            except OSError:
                pass


def _has_variable(pid: int, name: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"\0{name}=".encode() in b"\0" + file.read()
    except OSError:
        return False
