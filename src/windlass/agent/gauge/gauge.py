"""What each attempt uses while it is under way: memory, GPU, cores, progress. Python 3.9, standard library.

One look at all trials at a time. How often follows from what a look costs, so that measuring stays below a hundredth
of one core; trials that are over before the first look are known by what the kernel says of them at their end.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Set

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig
from windlass.agent.gauge.meter import Meter, Sample
from windlass.agent.gauge.nodes import NodeUse, add_up, read_node_use
from windlass.agent.gauge.nvml import Nvml, NvmlError
from windlass.agent.gauge.peaks import Peaks
from windlass.agent.report.progress import Estimate, Progress, Rate
from windlass.core.journal.events import finite_number

_FIRST_S = 0.3
_EVERY_S = 2.0
_SHARE = 0.007  # of one core
_MB = 1024 * 1024


class AttemptGauge:
    """What is known of one attempt."""

    def __init__(self, config: AgentConfig, attempt: Attempt) -> None:
        self.peaks = Peaks()
        self.rate = Rate(attempt.started)
        self.progress = Progress(config.progress_pattern)
        self.steps = _steps(config.progress_steps, attempt.trial.settings)
        self.concurrency = 1  # the most trials on its device at a time, itself included
        self.elsewhere: Dict[str, NodeUse] = {}  # node → what it takes there, by its companion
        self._reserved_mb: Dict[int, float] = {}  # process → what the framework in it has reserved

    @property
    def total(self) -> Optional[float]:
        return self.steps if self.steps is not None else self.progress.total

    def read(self, line: bytes) -> None:
        """A line of output: does it tell of a step?"""
        seen = self.progress.read(line)
        if seen is not None:
            self.rate.add(time.monotonic(), seen.step, by_clock=self.progress.is_bar)

    def tell(self, when: float, step: Optional[float], of: Optional[float]) -> None:
        """windlass.log reported a step, at a moment of the monotonic clock."""
        seen = None if step is None else self.progress.tell(step, of)
        if seen is not None:
            self.rate.add(when, seen.step)

    def take_report(self, message: Dict[str, Any]) -> None:
        """From the framework in one of its processes, or from the companion on another node."""
        try:
            if "used" in message:
                self.elsewhere[str(message["node"])] = read_node_use(message["used"])
                return
            self._reserved_mb[int(message["pid"])] = float(message["reserved_mb"])
        except (KeyError, TypeError, ValueError):
            pass  # not from us

    @property
    def framework_mb(self) -> Optional[float]:
        """What the frameworks in it have reserved of the GPU's memory, by their own account."""
        return round(sum(self._reserved_mb.values()), 1) if self._reserved_mb else None

    def remaining_s(self) -> Optional[Estimate]:
        return None if self.total is None else self.rate.remaining_s(self.total, time.monotonic())

    def to_json(self, attempt: Attempt) -> Dict[str, Any]:
        """For the record of its end; what is not known is left out. Empty where nothing was seen."""
        peaks, last = self.peaks, self.peaks.last
        if last is None and self.rate.first_step_s is None and attempt.ranks is None:
            return {}
        use: Dict[str, Any] = {"k": self.concurrency}
        lasted_s = max(attempt.ended - attempt.started, 1e-6)
        cpu_s = max(attempt.cpu_s, last.cpu_s if last is not None else 0.0)
        use["cores"] = round(cpu_s / lasted_s, 2)
        if last is not None:
            use["mem_mb"] = round(peaks.memory_peak_mb(attempt.rss_mb), 1)
            use["mem_src"] = peaks.memory_source
            use["read_mb"] = round(last.read_bytes / _MB, 1)
            use["written_mb"] = round(last.written_bytes / _MB, 1)
        if peaks.gpu_memory.count:
            use["gpu_mb"] = round(peaks.gpu_memory.peak, 1)
            use["gpu_src"] = peaks.gpu_source
        if peaks.gpu_percent is not None:
            use["gpu_pct"] = round(peaks.gpu_percent, 1)
        if attempt.ranks is not None or self.elsewhere:
            ended = attempt.ranks.ended if attempt.ranks is not None else {}
            use.update(add_up(peaks, self.elsewhere, ended, lasted_s))
        if self.rate.first_step_s is not None:
            use["first_s"] = round(self.rate.first_step_s, 3)
        if self.rate.per_s is not None:
            use["rate"] = _rounded(self.rate.per_s)
        if self.total is not None:
            use["steps"] = self.total
        return use

    def live(self) -> Dict[str, Any]:
        """For the beat: where it is, and what it takes now."""
        message: Dict[str, Any] = {}
        if self.rate.step:
            left = self.remaining_s()
            message["p"] = [
                self.rate.step,
                self.total,
                None if left is None else round(left.middle, 1),
            ]
        last = self.peaks.last
        if last is not None:
            message["mem"] = round(
                last.memory_mb + sum(use.now_mb for use in self.elsewhere.values())
            )
            if last.gpu_memory_mb is not None:
                message["gpu"] = round(last.gpu_memory_mb)
            if last.gpu_percent is not None:
                message["pct"] = round(last.gpu_percent)
        return message


class Gauges:
    """Measures the attempts of one agent."""

    def __init__(self, config: AgentConfig, agent: str, every_s: Optional[float] = None) -> None:
        self._config = config
        self._agent = agent
        self._every_s = every_s  # None: as often as is cheap
        self._meter: Optional[Meter] = None
        self._attempts: Dict[str, Attempt] = {}  # trial's id → what is looked at
        self._fresh: List[Attempt] = []
        self._next = 0.0
        self.nvml: Optional[Nvml] = None
        # Has an attempt measured on other nodes as well.
        self.spread: Callable[[Attempt], None] = lambda attempt: None
        self.problem = ""  # why there are no figures of the GPU, if there are none

    def open(self) -> None:
        """Once the agent's own helpers are forked: NVML must not be inherited."""
        if self._config.gpus:
            try:
                self.nvml = Nvml()
            except NvmlError as error:
                self.problem = str(error)
        self._meter = Meter(self._agent, self.nvml)

    def pace(self, every_s: Optional[float]) -> None:
        """Look so often from now on; None: as often as is cheap."""
        self._every_s = every_s

    def begin(self, attempt: Attempt) -> None:
        """Its process is there. What follows costs nothing for trials that are over in a moment."""
        if attempt.ranks is not None:
            self.of(attempt)
        self.spread(attempt)
        if not self._attempts and not self._fresh:
            self._next = max(self._next, time.monotonic() + (self._every_s or _FIRST_S))
        if self.nvml is not None:
            self._watch(attempt)  # before it touches the GPU
        elif attempt not in self._fresh:
            self._fresh.append(attempt)

    def _watch(self, attempt: Attempt) -> None:
        if self._meter is not None and attempt.pid:
            self._attempts[attempt.trial.id] = attempt
            self._meter.watch(
                attempt.trial.id,
                attempt.pid,
                attempt.slot.gpus or None,
                has_ranks=attempt.ranks is not None,
            )

    def end(self, attempt: Attempt) -> None:
        if self._attempts.pop(attempt.trial.id, None) is not None and self._meter is not None:
            self._meter.forget(attempt.trial.id)
        elif attempt in self._fresh:
            self._fresh.remove(attempt)

    def members(self, attempt: Attempt) -> Set[int]:
        """Its processes, as of the last look."""
        return self._meter.members(attempt.trial.id) if self._meter is not None else set()

    def due(self) -> Optional[float]:
        """When to look next; None while there is nothing to look at."""
        return self._next if self._attempts or self._fresh else None

    def look(self, now: float) -> bool:
        """Look at all of them, if it is time. Whether it was."""
        if self._meter is None or now < self._next or not (self._attempts or self._fresh):
            return False
        for attempt in self._fresh:
            self._watch(attempt)
        self._fresh.clear()
        began_s = time.thread_time()
        concurrency = self._count_by_device()
        for trial, sample in self._meter.sample().items():
            if trial in self._attempts:
                self._add(self._attempts[trial], sample, concurrency)
        cost_s = time.thread_time() - began_s
        self._next = now + (self._every_s or max(self._wanted_s(now), cost_s / _SHARE))
        return True

    def _wanted_s(self, now: float) -> float:
        """Young trials change most: look at them sooner."""
        youngest = max((attempt.started for attempt in self._attempts.values()), default=now)
        return min(_EVERY_S, max(_FIRST_S, (now - youngest) / 2))

    def _count_by_device(self) -> Dict[Optional[str], int]:
        count: Dict[Optional[str], int] = {}
        for attempt in self._attempts.values():
            count[attempt.slot.gpus] = count.get(attempt.slot.gpus, 0) + 1
        return count

    def _add(self, attempt: Attempt, sample: Sample, concurrency: Dict[Optional[str], int]) -> None:
        if not sample.processes:
            return  # it is over: what is left of it says nothing of its levels
        gauge = self.of(attempt)
        gauge.peaks.add(sample)
        gauge.concurrency = max(gauge.concurrency, concurrency.get(attempt.slot.gpus, 1))

    def of(self, attempt: Attempt) -> AttemptGauge:
        """Made when there is something to take down: most short trials never get one."""
        if attempt.gauge is None:
            attempt.gauge = AttemptGauge(self._config, attempt)
        gauge: AttemptGauge = attempt.gauge
        return gauge


def _steps(message: Any, settings: Dict[str, Any]) -> Optional[float]:
    """Steps in all as the study says them: a number, or the name of a setting in braces."""
    if isinstance(message, str):
        message = settings.get(message.strip("{}"))
    return None if isinstance(message, bool) else finite_number(message)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
