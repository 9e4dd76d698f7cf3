"""Work that is longer than a job: a chain of jobs, each going on where the one before it was told to stop. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Chain:
    units: int
    unit_s: int  # how long each of its jobs is


def plan_chain(
    whole_s: float,
    unit_s: float,
    limit_s: float | None,
    around_s: Callable[[float], float] = lambda job_s: 0.0,
) -> Chain | None:
    """So many units that the trials' time in them is at least the whole; None where one job does.

    `around_s` tells of a job of some length how much of it passes before its trials begin and after their notice.
    """
    longest_s = min(unit_s, limit_s if limit_s is not None else math.inf)
    if whole_s <= longest_s and (limit_s is None or whole_s + around_s(longest_s) <= limit_s):
        return None
    unit = max(60, int(longest_s // 60) * 60)  # Slurm counts in minutes
    return Chain(math.ceil(whole_s / (unit - around_s(unit))), unit)
