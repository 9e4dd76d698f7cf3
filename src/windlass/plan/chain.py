"""Work that is longer than a job: a chain of jobs, each going on where the one before it was told to stop. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Chain:
    units: int
    unit_s: int  # how long each of its jobs is


def plan_chain(whole_s: float, unit_s: float, limit_s: float | None) -> Chain | None:
    """So many units that their time is at least the whole; None where one job does."""
    longest_s = min(unit_s, limit_s if limit_s is not None else math.inf)
    if whole_s <= longest_s:
        return None
    unit = max(60, int(longest_s // 60) * 60)  # Slurm counts in minutes
    return Chain(math.ceil(whole_s / unit), unit)
