"""The checklist as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.check.item import Item

_WORDS = {"pass": "PASS", "fail": "FAIL", "skipped": "skip"}


def render_checklist(items: Sequence[Item]) -> str:
    """An item a line, with what to do below those that failed."""
    width = max(len(item.name) for item in items)
    lines = []
    for item in items:
        lines.append(f"{_WORDS[item.verdict]}  {item.name:<{width}}  {item.why}")
        indent = " " * (width + 8)
        lines += [f"{indent}{place}" for place in item.places[1:6]]
        if item.todo:
            lines.append(f"{indent}→ {item.todo}")
    failed = sum(item.verdict == "fail" for item in items)
    lines.append(f"{failed} of {len(items)} to mend" if failed else "ready")
    return "\n".join(lines)


def checklist_to_json(items: Sequence[Item], ready: bool) -> dict[str, Any]:
    return {"ready": ready, "items": [{**asdict(item), "places": list(item.places)} for item in items]}
