"""What plan.json says that results need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_file
from windlass.model import Metric


@dataclass(frozen=True)
class PlannedFacts:
    """The study's name, its metric, which parameter is the seed, and which metrics are read from output, and how."""

    name: str
    metric: Metric | None
    seed_name: str
    # Metric → regular expression; None: as usual.
    patterns: Mapping[str, str | None] = field(default_factory=dict)


def read_facts(paths: StudyPaths) -> PlannedFacts:
    plan = read_plan_file(paths.plan)
    metric = Metric(plan.metric, plan.goal) if plan.metric else None
    return PlannedFacts(
        plan.name, metric, plan.seed_name, {str(name): regex for name, regex in plan.metrics}
    )
