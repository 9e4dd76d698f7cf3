"""Packs the data of a study into archives, once for each content."""

from __future__ import annotations

from typing import Any

from windlass.model import Plan


def pack_data(plan: Plan) -> list[dict[str, Any]]:
    """What plan.json says of the data: one entry for each archive."""
    return []
