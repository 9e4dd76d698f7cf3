"""What agents found out for the rest of a study: memory that variants need, and whether MPS is to be trusted. Pure.

In the register: {"budgets": [{"variant": […], "gpu_mb": …, "memory_mb": …}], "mps_faults": n, "mps_off": bool,
"memory_kills": n}; the last is the number of agents that died with a job which ran out of memory.
Values only rise, so that it does not matter in which order agents say what they know. Python 3.9, standard library.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Sequence

MPS_FAULTS = 2  # so many, and the study goes on without MPS
_SIZES = ("gpu_mb", "memory_mb")


def variant_key(variant: Sequence[Any]) -> str:
    """A variant as text that can be compared: 1 and 1.0 are the same value of a setting."""
    whole = [
        int(value) if isinstance(value, float) and value.is_integer() else value
        for value in variant
    ]
    return json.dumps(whole, sort_keys=True, separators=(",", ":"))


def merge_learned(left: Mapping[str, Any], right: Mapping[str, Any]) -> Dict[str, Any]:
    """Both together: of each figure the larger one. What a later Windlass may have added is kept."""
    merged: Dict[str, Any] = {**left, **right}
    budgets = _merge_budgets([*left.get("budgets", []), *right.get("budgets", [])])
    if budgets:
        merged["budgets"] = budgets
    for name in ("mps_faults", "memory_kills"):
        most = max(left.get(name, 0), right.get(name, 0))
        if most:
            merged[name] = most
    if left.get("mps_off") or right.get("mps_off"):
        merged["mps_off"] = True
    return merged


def learn_budget(
    learned: Mapping[str, Any], variant: Sequence[Any], name: str, size_mb: float
) -> Dict[str, Any]:
    """`learned`, and that a trial of this variant needs so much of `gpu_mb` or `memory_mb`."""
    return merge_learned(learned, {"budgets": [{"variant": list(variant), name: size_mb}]})


def learn_fault(learned: Mapping[str, Any]) -> Dict[str, Any]:
    """`learned`, and one more fault that took neighbours along."""
    faults = learned.get("mps_faults", 0) + 1
    return merge_learned(learned, {"mps_faults": faults, "mps_off": faults >= MPS_FAULTS})


def learn_kills(learned: Mapping[str, Any], kills: int) -> Dict[str, Any]:
    """`learned`, and so many more agents that memory has ended."""
    return merge_learned(learned, {"memory_kills": learned.get("memory_kills", 0) + kills})


def _merge_budgets(budgets: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    found: Dict[str, Dict[str, Any]] = {}
    for budget in budgets:
        kept = found.setdefault(
            variant_key(budget["variant"]), {"variant": list(budget["variant"])}
        )
        for name in _SIZES:
            size = budget.get(name)
            if size is not None:
                kept[name] = max(size, kept.get(name, size))
    return list(found.values())
