"""What plan.json says that results need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.errors import FolderError
from windlass.model import Metric
from windlass.paths import StudyPaths
from windlass.planfile import load_plan


@dataclass(frozen=True)
class PlannedFacts:
    """The study's name, its metric, which parameter is the seed, and which metrics are read from output, and how."""

    name: str
    metric: Metric | None
    seed_name: str
    patterns: Mapping[str, str | None] = field(default_factory=dict)  # metric → regular expression; None: as usual


def read_plan(paths: StudyPaths) -> dict[str, Any]:
    """What plan.json holds; nothing where there is none or it cannot be read."""
    try:
        return load_plan(paths.plan)
    except FolderError:
        return {}


def read_facts(paths: StudyPaths) -> PlannedFacts:
    plan = load_plan(paths.plan)
    metric = Metric(plan["metric"], plan["goal"]) if plan["metric"] else None
    return PlannedFacts(plan["name"], metric, plan["seed_name"], dict(plan["metrics"]))
