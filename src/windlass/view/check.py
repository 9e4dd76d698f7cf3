"""The checklist as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.check.item import Item
from windlass.check.ladder import RungResult
from windlass.view.progress import render_duration

_WORDS = {"pass": "PASS", "fail": "FAIL", "skipped": "skip"}
_RUNG_WORDS = {"held": "PASS", "held before": "PASS", "not held": "FAIL", "interrupted": "FAIL", "not begun": "skip"}


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


def render_rung(result: RungResult, width: int, study: str) -> str:
    """A rung as one line, and for one that did not hold what to look at."""
    took = f", {render_duration(result.seconds)}" if result.seconds is not None and result.seconds >= 1 else ""
    head = f"{_RUNG_WORDS[result.verdict]}  {result.name:<{width}}  "
    if result.verdict == "not begun":
        return f"{head}not begun (expected {result.expect})"
    lines = [f"{head}{result.verdict}: {result.why} (expected {result.expect}){took}"]
    if result.verdict == "not held":
        lines.append(f"{' ' * (width + 8)}→ windlass logs {result.number} --study {study}")
    return "\n".join(lines)


def ladder_to_json(results: Sequence[RungResult], study: str, folder: str) -> dict[str, Any]:
    held = all(result.verdict in ("held", "held before") for result in results)
    return {"held": held, "study": study, "folder": folder, "rungs": [asdict(result) for result in results]}


def checklist_to_json(items: Sequence[Item], ready: bool) -> dict[str, Any]:
    return {"ready": ready, "items": [{**asdict(item), "places": list(item.places)} for item in items]}
