"""What one trial needs, from watching it alone: figures, what bounds it, and what is odd about it. Python 3.9."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from windlass.agent.child import Attempt, Trial
from windlass.agent.gauge.gauge import AttemptGauge
from windlass.agent.gauge.nodes import add_up
from windlass.agent.gauge.peaks import Level
from windlass.agent.report.progress import Estimate

_MB = 1024 * 1024
_GROWS_MB_PER_MIN = 20.0
_GROWS_SHARE_PER_MIN = 0.03
_GROWS_MB = 2.0  # within what was seen: less is noise
_FEWEST_LOOKS = 3  # before it is reported that a trial never touched its GPU


UNTOUCHED = "it was given a GPU and never touched it"


def growing_mb_per_min(level: Level) -> Optional[float]:
    """How fast it still grows; None where it has levelled out, or too little was seen to tell."""
    slope = level.late_slope_per_min()
    if slope is None or level.levelled(0.005):
        return None
    least = max(_GROWS_MB_PER_MIN, level.peak * _GROWS_SHARE_PER_MIN)
    return round(slope, 1) if slope >= least and level.late_growth() >= _GROWS_MB else None


def render_probe(
    attempt: Attempt, ended: bool, cores: int, variants: List[str], wants_gpu: bool
) -> Dict[str, Any]:
    """One probe of measured.json; its shape is in windlass/measured.py."""
    gauge: AttemptGauge = attempt.gauge
    peaks, last = gauge.peaks, gauge.peaks.last
    settings = attempt.trial.settings
    ran_s = attempt.ended - attempt.started
    steps = gauge.total if gauge.total is not None else (gauge.rate.step or None) if ended else None
    step_s = gauge.rate.step_s()
    probe: Dict[str, Any] = {
        "trial": attempt.trial.id,
        "settings": settings,
        "variant": [settings.get(name) for name in variants],
        "ran_s": round(ran_s, 2),
        "ended": ended,
        # Before its first step a trial may still be about to begin: that it is level says nothing then.
        "levelled": ended or (peaks.levelled() and gauge.rate.first_step_s is not None),
        "growing_mb_per_min": None if ended else growing_mb_per_min(peaks.memory),
        "gpu_growing_mb_per_min": None if ended else growing_mb_per_min(peaks.gpu_memory),
        "gpu_mb": round(peaks.gpu_memory.peak, 1) if peaks.gpu_memory.count else None,
        "gpu_source": peaks.gpu_source,
        "framework_mb": gauge.framework_mb,
        "gpu_percent": None
        if peaks.gpu_percent is None
        else round(peaks.gpu_percent_lately or 0.0, 1),
        "memory_mb": round(peaks.memory_peak_mb(attempt.rss_mb), 1),
        "memory_source": peaks.memory_source or "rss",
        "cores": round(peaks.cores_lately or attempt.cpu_s / max(ran_s, 1e-3), 2),
        "first_step_s": _round(gauge.rate.first_step_s),
        "startup_s": _round(gauge.rate.startup_s),
        "step_s": None if step_s is None else [float(f"{value:.4g}") for value in step_s],
        "steps": steps,
        "time_s": _whole_s(gauge, ended, ran_s, steps, step_s),
    }
    if last is not None:
        probe.update(
            read_mb=round(last.read_bytes / _MB, 1),
            written_mb=round(last.written_bytes / _MB, 1),
            disk_read_mb=round(last.disk_read_bytes / _MB, 1),
            disk_written_mb=round(last.disk_written_bytes / _MB, 1),
        )
    if attempt.ranks is not None or gauge.elsewhere:
        probe.update(_of_ranks(gauge, attempt, ran_s))
    probe["bound_by"] = bound_by(gauge, cores)
    probe["says"] = _oddities(probe, wants_gpu and peaks.gpu_memory.count >= _FEWEST_LOOKS)
    uneven = gauge.rate.uneven_period()
    if uneven is not None:
        probe["says"].append(
            f"its progress is reported every {uneven[0]:g} to {uneven[1]:g} steps, so the time left is a guess: "
            "report after a fixed number of updates, not after episodes, whose length varies"
        )
    if not ended and attempt.cause is None and probe["first_step_s"] is None:
        probe["says"].append(
            f"neither a step nor its end was seen in {ran_s:.0f} s: it may need more later; "
            "windlass.log(step=…) or a longer --trial-limit would tell"
        )
    return probe


def _of_ranks(gauge: AttemptGauge, attempt: Attempt, ran_s: float) -> Dict[str, Any]:
    """What the largest rank takes, and all nodes together; the other figures are of the agent's own node."""
    ended = attempt.ranks.ended if attempt.ranks is not None else {}
    used = add_up(gauge.peaks, gauge.elsewhere, ended, max(ran_s, 1e-3))
    names = ("ranks", "rank_mb", "rank_cores", "rank_gpu_mb")
    found: Dict[str, Any] = {name: used[name] for name in names if name in used}
    if gauge.elsewhere:
        found["all_nodes_mb"] = used["mem_mb"]
    return found


def _round(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 3)


def _whole_s(
    gauge: AttemptGauge,
    ended: bool,
    ran_s: float,
    steps: Optional[float],
    step_s: Optional[Estimate],
) -> Optional[List[float]]:
    """Low, middle, high of one whole trial."""
    if ended:
        return [round(ran_s, 2)] * 3
    startup_s = gauge.rate.startup_s
    if steps is None or step_s is None or startup_s is None:
        return None
    return [round(startup_s + steps * value, 2) for value in step_s]


def bound_by(gauge: AttemptGauge, cores: int) -> str:
    """What keeps a trial from going faster, in words."""
    peaks = gauge.peaks
    busy, percent = peaks.cores_lately, peaks.gpu_percent_lately
    if busy is None:
        return ""
    if percent is not None and percent >= 85:
        return "the GPU"
    reads_mb_s, from_disk = peaks.reading_mb_per_s()
    if reads_mb_s > 20 and busy < 0.7 * cores and (percent or 0.0) < 60:
        if peaks.workers > 1 and busy >= 1:
            return f"data loading: {peaks.workers} processes read {reads_mb_s:.0f} MB/s"
        if from_disk or busy < 0.6:
            return f"the disk: it reads {reads_mb_s:.0f} MB/s and waits"
    if busy >= 0.9 * cores:
        return "its cores" if cores > 1 else "its one core"
    if 0.8 <= busy <= 1.3:
        return "one core: the program itself, not the GPU" if percent is not None else "one core"
    if peaks.workers > 2 and busy > 1.3 and (percent or 0.0) < 60:
        return f"data loading: {peaks.workers} processes use {busy:.1f} cores while the GPU waits"
    if busy < 0.3 and (percent or 0.0) < 30:
        return "waiting: neither cores nor GPU are busy"
    return "nothing clearly: cores and GPU take turns" if percent is not None else "its own threads"


def _oddities(probe: Dict[str, Any], should_touch_gpu: bool) -> List[str]:
    says: List[str] = []
    for key, name in (("growing_mb_per_min", "memory"), ("gpu_growing_mb_per_min", "GPU memory")):
        if probe[key] is not None:
            says.append(
                f"{name} is still growing at {probe[key]:.0f} MB/min: the peak is not reached"
            )
    if should_touch_gpu and probe["gpu_mb"] == 0:
        says.append(UNTOUCHED)
    return says


def choose_other(
    failed: Trial,
    spare: Sequence[Trial],
    worked: Sequence[Trial],
    all_failed: Sequence[Trial],
    variants: Sequence[str],
) -> Optional[Trial]:
    """A trial of the same variant to measure in place of one that failed; None where there is none.

    It is as like the one that failed as can be, but for the setting that made it fail, where that is known: so it takes
    about as much, and it narrows down which setting that is.
    """
    alike = [one for one in spare if _values(one, variants) == _values(failed, variants)]
    doubtful = _doubtful(worked, all_failed, variants)
    culprit = doubtful if len(doubtful) == 1 else set()
    own = _pairs([failed], variants)

    def rank(one: Trial) -> Tuple[int, int]:
        pairs = _pairs([one], variants)
        return len(pairs & culprit), -len(pairs & own)

    return min(alike, key=rank, default=None)


def leave_out_failing(
    trials: Sequence[Trial],
    worked: Sequence[Trial],
    failed: Sequence[Trial],
    variants: Sequence[str],
) -> List[Trial]:
    """The trials without those that have a setting which only trials that failed had; all of them where none is left.

    What tells variants apart does not count: each of them is measured.
    """
    doubtful = _doubtful(worked, failed, variants)
    kept = [trial for trial in trials if not doubtful & _pairs([trial], variants)]
    return kept or list(trials)


def _doubtful(
    worked: Sequence[Trial], failed: Sequence[Trial], variants: Sequence[str]
) -> Set[Tuple[str, str]]:
    """Settings that may be why trials failed: those that all of them share, else those that any of them has."""
    sound = _pairs(worked, variants)
    shared = set.intersection(*[_pairs([trial], variants) for trial in failed]) if failed else set()
    return (shared - sound) or (_pairs(failed, variants) - sound)


def _pairs(trials: Sequence[Trial], but: Sequence[str]) -> Set[Tuple[str, str]]:
    return {
        (name, json.dumps(value, sort_keys=True))
        for trial in trials
        for name, value in trial.settings.items()
        if name not in but
    }


def _values(trial: Trial, names: Sequence[str]) -> List[Any]:
    return [trial.settings.get(name) for name in names]
