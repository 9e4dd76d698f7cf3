"""Trials that start job steps with `srun`. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import List, Optional

from windlass.agent.child import Attempt
from windlass.agent.companions import Companions
from windlass.claims.strays import AGENT_VARIABLE, find_strays, program_of


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


def signal_ranks(agent: str, attempt: int, number: int) -> None:
    """Signal all processes of an attempt on this node, without those of `srun`."""
    of_attempt = set(find_strays("WINDLASS_ATTEMPT", str(attempt)))
    for pid in find_strays(AGENT_VARIABLE, agent):
        if pid in of_attempt and program_of(str(pid)) != "srun":
            try:
                os.kill(pid, number)
            except OSError:
                pass
