"""The checklist as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.check.item import Item
from windlass.check.ladder import RungResult
from windlass.core.units import render_duration
from windlass.view.table import pad, render_columns

_VERDICTS = {"pass": "PASS", "fail": "FAIL", "skipped": "skip"}
_RUNG_VERDICTS = {
    "held": "PASS",
    "held before": "PASS",
    "not held": "FAIL",
    "interrupted": "FAIL",
    "not begun": "skip",
}


def render_checklist(items: Sequence[Item]) -> str:
    """An item a line, with what to do below those that failed."""
    rows = [(_VERDICTS[item.verdict], item.name, item.why) for item in items]
    indent = " " * (max(len(item.name) for item in items) + 8)
    lines = []
    for item, line in zip(items, render_columns(rows), strict=True):
        lines.append(line)
        lines += [f"{indent}{place}" for place in item.places[1:6]]
        if item.todo:
            lines.append(f"{indent}→ {item.todo}")
    failed = sum(item.verdict == "fail" for item in items)
    lines.append(f"{failed} of {len(items)} to mend" if failed else "ready")
    return "\n".join(lines)


def render_rung(result: RungResult, width: int, study: str) -> str:
    """A rung as one line, and for one that did not hold what to look at."""
    took = (
        f", {render_duration(result.seconds)}"
        if result.seconds is not None and result.seconds >= 1
        else ""
    )
    # Rungs are shown one by one, so the width of their names is given.
    head = f"{_RUNG_VERDICTS[result.verdict]}  {pad(result.name, width)}  "
    if result.verdict == "not begun":
        return f"{head}not begun (expected {result.expect})"
    lines = [f"{head}{result.verdict}: {result.why} (expected {result.expect}){took}"]
    if result.verdict == "not held":
        lines.append(f"{' ' * (width + 8)}→ windlass logs {study} {result.number}")
    return "\n".join(lines)


def ladder_to_json(results: Sequence[RungResult], study: str, folder: str) -> dict[str, Any]:
    """The ladder for `--json`, with stable keys. `held` is true only if every rung held."""
    held = all(result.verdict in ("held", "held before") for result in results)
    return {
        "held": held,
        "study": study,
        "folder": folder,
        "rungs": [asdict(result) for result in results],
    }


def checklist_to_json(items: Sequence[Item], ready: bool) -> dict[str, Any]:
    """The checklist for `--json`, with stable keys."""
    return {
        "ready": ready,
        "items": [{**asdict(item), "places": list(item.places)} for item in items],
    }
