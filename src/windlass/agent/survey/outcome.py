"""Judges the rounds of a survey: which concurrency level is best, and whether to trust the figures. Python 3.9."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional

from windlass.agent.gauge.nvml import Device
from windlass.agent.survey.concurrency import RoundResult
from windlass.core.knee import MPS, PLAIN, Point, choose, find_disturbed

_MB = 1024 * 1024


def point_of(result: RoundResult) -> Point:
    """A round as a point of the curve: trials an hour where they ended, else steps a second; 0.0 where it failed."""
    value = result["trials_per_h"] if result["trials_per_h"] is not None else result["rate"]
    one_s = result["trial_s"]
    if one_s is None and result["rate"]:
        one_s = result["k"] / result["rate"]
    return Point(result["mode"], result["k"], 0.0 if result["note"] else value or 0.0, one_s)


def render_round(result: RoundResult) -> str:
    """How much a round got done, for people."""
    if result["trials_per_h"] is not None:
        return f"{result['trials_per_h']:.0f} trials an hour"
    return f"{result['rate'] or 0.0:.1f} steps a second"


def choose_level(
    rounds: List[RoundResult], prefer: str, why_no_more: Mapping[str, str], has_device: bool
) -> Optional[Dict[str, Any]]:
    """The concurrency level that measured.json recommends, with its reason and its gain over one trial at a time.

    None where no round worked. `why_no_more` has, for each mode, why no higher level was tried; the reason cites it.
    """
    points = [point_of(result) for result in rounds]
    best = choose(points, prefer)
    if best is None:
        return None
    alone = next((point for point in points if point.k == 1 and point.value > 0), None)
    chosen = next(one for one in rounds if (one["mode"], one["k"]) == (best.mode, best.k))
    gain = slower = 1.0
    if alone is not None:
        gain = best.value / alone.value
        if alone.one_s and best.one_s:
            slower = best.one_s / alone.one_s
    names = {PLAIN: "without MPS" if has_device else "side by side", MPS: "with MPS"}
    others = [f"{name}: {why_no_more[mode]}" for mode, name in names.items() if mode in why_no_more]
    return {
        "k": best.k,
        "mode": best.mode,
        "because": f"{gain:.1f} × the trials an hour of one at a time ({'; '.join(others)})",
        "slowdown": round(max(1.0, slower), 3),
        "gain": round(gain, 3),
        "trials_per_h": chosen["trials_per_h"],
        "trial_s": chosen["trial_s"],
    }


def find_disturbance(points: List[Point]) -> str:
    """A warning where several trials did more than their number times what one did; "" where all is plausible."""
    strange = find_disturbed(points)
    if strange is None:
        return ""
    return (
        f"{strange.k} at a time did more than {strange.k} times as much as one: something else was at work "
        "while one was measured, so that neither its time nor the gain can be trusted; measure again"
    )


def render_device(device: Device, device_type: Any) -> Dict[str, Any]:
    """The GPU that was measured, as measured.json has it. `device_type` is the type that was requested, if any."""
    kind = "gpu"
    if device.is_slice:
        kind = "mig"
    elif os.environ.get("SLURM_SHARDS_ON_NODE"):
        kind = "shard"
    return {
        "name": device.name,
        "memory_mb": device.total_bytes // _MB,
        "kind": kind,
        "type": device_type,
    }
