"""Freezes the project as it is now into one archive in the study's folder."""

from __future__ import annotations

from typing import Any

from windlass.model import Plan
from windlass.paths import StudyPaths


def freeze_code(plan: Plan, paths: StudyPaths) -> dict[str, Any] | None:
    """What plan.json says of the code; None where trials are executed in the project itself."""
    return None
