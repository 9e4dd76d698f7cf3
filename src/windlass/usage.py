"""What real attempts of a study used. Frozen values; they touch nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_CORE_NOISE = 0.1
EVIDENCE = 3  # trials that must be done before their figures count


@dataclass(frozen=True)
class VariantUse:
    """Trials that agree in the settings that matter. None: not known of any of them."""

    variant: tuple[Any, ...]  # values of the study's `variants`
    done: int
    memory_mb: float | None = None  # highest peak of any attempt, also of one that failed
    gpu_mb: float | None = None
    cores: float | None = None  # 90th percentile
    # Median, 90th percentile and longest of those that are done.
    time_s: tuple[float, float, float] | None = None

    @property
    def is_evidence(self) -> bool:
        return self.done >= EVIDENCE


@dataclass(frozen=True)
class Usage:
    """All that the journals tell of what a study's trials used."""

    attempts: int  # that ended and told something
    done: int
    variants: tuple[VariantUse, ...]
    k: int | None  # the company that most of them had: so many trials at a time on one device
    gpu_percent: float | None  # median
    overall: VariantUse
    setup_s: float | None = None  # the longest that an agent took until its first trial could begin

    @property
    def is_evidence(self) -> bool:
        return self.done >= EVIDENCE

    def of(self, variant: tuple[Any, ...]) -> VariantUse | None:
        """What trials of this variant used; None where none has ended."""
        return next((use for use in self.variants if use.variant == variant), None)


def whole_cores(cores: float) -> int:
    """Cores to ask for where so many were used: a little more than whole ones is no reason for another."""
    return max(1, math.ceil(cores - _CORE_NOISE))
