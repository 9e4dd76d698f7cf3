"""What plan.json says that results need."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from windlass.model import Metric
from windlass.paths import StudyPaths


@dataclass(frozen=True)
class PlannedFacts:
    """The study's name, its metric, and which parameter is the seed."""

    name: str
    metric: Metric | None
    seed_name: str


def read_plan(paths: StudyPaths) -> dict[str, Any]:
    """What plan.json holds; nothing where there is none or it cannot be read."""
    try:
        with open(paths.plan, encoding="utf-8") as file:
            plan = json.load(file)
    except (OSError, ValueError):
        return {}
    return plan if isinstance(plan, dict) else {}


def read_facts(paths: StudyPaths) -> PlannedFacts:
    with open(paths.plan, encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    metric = Metric(plan["metric"], plan["goal"]) if plan["metric"] else None
    return PlannedFacts(plan["name"], metric, plan["seed_name"])
