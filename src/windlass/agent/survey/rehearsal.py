"""What all trials of one agent take together, reported until it has levelled out: `run --rehearse`. Python 3.9."""

from __future__ import annotations

import math
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig
from windlass.agent.gauge.cgroup import read_cgroup, read_free_mb, read_text
from windlass.agent.gauge.nvml import Device, NvmlError
from windlass.agent.gauge.peaks import Level
from windlass.agent.report.progress import Estimate
from windlass.agent.runner import Runner
from windlass.core.journal.write import JournalWriter

# Of five minutes, which are the default; of less, accordingly less.
_LOOK_S = 1.0
_TELL_S = 3.0
_SURE_S = 10.0  # of watching, once all trials have made a step
_UNSURE_S = 30.0  # where nobody tells of steps: to load libraries and data may take as long
_LIKELY = 3  # samples before a slope is worth mentioning
_LEVEL_SHARE = 0.02
_NOISE_MB = 2.0
_MB = 1024 * 1024


class _Gpu(NamedTuple):
    """The device with the least room."""

    used_mb: float
    total_mb: float


class Rehearsal:
    """Watches one agent from the outside of its trials. Client code decides what follows from it."""

    def __init__(
        self, config: AgentConfig, runner: Runner, journal: JournalWriter, slots: int
    ) -> None:
        self._limit_s = config.rehearse_s or 0.0
        self._sure_s = min(_SURE_S, self._limit_s / 3)
        self._unsure_s = min(_UNSURE_S, self._limit_s / 2)
        self._tell_s = min(_TELL_S, self._limit_s / 10)
        self._gpus = config.gpus
        self._expects_steps = bool(config.progress_pattern) or config.progress_steps is not None
        self._runner = runner
        self._journal = journal
        self._slots = slots
        self._devices: Optional[List[Device]] = None
        self._began: Optional[float] = None
        # When all slots were busy, or, later, when all in them had made a step.
        self._since: Optional[float] = None
        self._stepping = False
        self._memory, self._gpu = Level(), Level()  # since then
        self._peak_mb = self._gpu_peak_mb = 0.0
        self._last: Dict[str, Any] = {}
        self._next_report = 0.0
        self._levelled = False
        self._over = False
        runner.gauges.pace(min(_LOOK_S, max(0.25, self._limit_s / 30)))

    def look(self, now: float) -> None:
        """The gauges have just looked at all trials."""
        if self._over:
            return
        live = [one for one in self._runner.attempts.values() if one not in self._runner.ended]
        seen = [one for one in live if one.gauge is not None and one.gauge.peaks.last is not None]
        if not seen:
            return
        if self._began is None:
            self._began = now
        self._begin_phase(now, seen, len(seen) == len(live))
        memory_mb = sum(one.gauge.peaks.last.memory_mb for one in seen) + _read_own_mb(
            {one.pid for one in live}
        )
        gpu = self._read_gpu()
        self._add(now, memory_mb, gpu)
        levelled = self._has_levelled(now)
        grows = [_growing(self._memory), _growing(self._gpu)]
        # With something still growing, whoever decides may want to see more of it.
        over = now - self._began >= self._limit_s or (levelled and grows == [None, None])
        if now >= self._next_report or levelled != self._levelled or over:
            self._levelled, self._next_report = levelled, now + self._tell_s
            times = _times(seen, now)
            self._last = {
                "trials": len(live),
                "slots": self._slots,
                "since_s": round(now - self._began, 1),
                "mem_mb": round(memory_mb, 1),
                "mem_peak_mb": round(self._peak_mb, 1),
                "most_mb": _round(_read_most_mb(memory_mb)),
                "gpu_mb": round(self._gpu_peak_mb, 1) if gpu is not None else None,
                "gpu_total_mb": _round(gpu.total_mb if gpu is not None else None),
                "levelled": levelled,
                "growing_mb_per_min": grows[0],
                "gpu_growing_mb_per_min": grows[1],
                "left_s": times[0],
                "trial_s": times[1],
            }
            self._tell(over)
        if over:
            self._end()

    def close(self) -> None:
        """The agent ends. What was seen up to now is all there is."""
        if not self._over and self._last:
            self._last.update(trials=0, mem_peak_mb=round(self._peak_mb, 1))
            self._tell(True)
            self._end()

    def _tell(self, last: bool) -> None:
        self._journal.add({"e": "level", "t": round(time.time(), 3), **self._last, "last": last})

    def _end(self) -> None:
        self._over = True
        self._runner.gauges.pace(None)

    def _begin_phase(self, now: float, seen: List[Attempt], all_seen: bool) -> None:
        """What comes before all trials are at work says nothing of how they go on."""
        stepping = self._runner.finished > 0 or all(
            one.gauge.rate.first_step_s is not None for one in seen
        )
        if all_seen and (self._since is None or (stepping and not self._stepping)):
            self._since, self._stepping = now, stepping
            self._memory, self._gpu = Level(), Level()

    def _add(self, now: float, memory_mb: float, gpu: Optional[_Gpu]) -> None:
        self._memory.add(now, memory_mb)
        self._peak_mb = max(self._peak_mb, memory_mb)
        if gpu is not None:
            self._gpu.add(now, gpu.used_mb)
            self._gpu_peak_mb = max(self._gpu_peak_mb, gpu.used_mb)

    def _has_levelled(self, now: float) -> bool:
        if self._since is None:
            return False
        wanted_s = (
            self._sure_s if self._stepping else math.inf if self._expects_steps else self._unsure_s
        )
        levels = [self._memory] + ([self._gpu] if self._gpu.count else [])
        return now - self._since >= wanted_s and all(_is_level(level) for level in levels)

    def _read_gpu(self) -> Optional[_Gpu]:
        nvml = self._runner.gauges.nvml
        if nvml is None:
            return None
        try:
            if self._devices is None:
                self._devices = nvml.find(",".join(self._gpus))
            read = [nvml.memory(device) for device in self._devices]
        except NvmlError:
            return None
        if not read:
            return None
        total, used = min(read, key=lambda one: one[0] - one[1])
        return _Gpu(used / _MB, total / _MB)


def _is_level(level: Level) -> bool:
    return level.late_slope_per_min() is not None and level.late_growth() <= max(
        _NOISE_MB, level.peak * _LEVEL_SHARE
    )


def _growing(level: Level) -> Optional[float]:
    """How fast it grows; None where it does not, or too little was seen to tell."""
    if level.count < _LIKELY or level.late_growth() <= _NOISE_MB:
        return None
    slope = level.late_slope_per_min()
    return round(level.slope_per_min() if slope is None else slope, 1)


def _times(seen: List[Attempt], now: float) -> List[Any]:
    """Of the slowest trial: seconds left, and low, middle and high of the whole of it."""
    left_s: Optional[float] = None
    whole: Optional[Estimate] = None
    for one in seen:
        left = one.gauge.remaining_s()
        if left is not None:
            left_s = max(left_s or 0.0, left.middle)
            took_s = now - one.started
            this = Estimate(*(took_s + value for value in left))
            whole = this if whole is None or this.middle > whole.middle else whole
    return [_round(left_s), None if whole is None else [round(value, 1) for value in whole]]


def _round(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 1)


# -- the machine


def _read_own_mb(trials: Set[int]) -> float:
    """Of the agent and its helpers, warm interpreters above all: the job pays for them too."""
    own = os.getpid()
    children = read_text(f"/proc/{own}/task/{own}/children").split()
    return sum(
        _read_pss_mb(pid) for pid in [own, *(int(word) for word in children)] if pid not in trials
    )


def _read_pss_mb(pid: int) -> float:
    for line in read_text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _read_most_mb(used_mb: float) -> Optional[float]:
    """What this agent could have at most: what it has and what is free, or what its control group allows."""
    group = read_cgroup()
    limits = [group.limit_mb] if group is not None and group.limit_mb is not None else []
    free_mb = read_free_mb()
    if free_mb is not None:
        limits.append(used_mb + free_mb)
    return min(limits, default=None)
