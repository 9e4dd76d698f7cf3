"""k trials side by side for a while: how many come through in an hour. Python 3.9, standard library.

Short trials are measured whole: what counts is how many are done, start-up and all. Of long ones a window of steps
tells the pace, and a trial's time follows from it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional

from windlass.agent.child import Attempt, Trial
from windlass.agent.gauge.nvml import Device, NvmlError
from windlass.agent.report.progress import Rate
from windlass.agent.runner import Runner
from windlass.core.states import Cause

_WINDOW_S = 3.0
_WHOLE_S = _WINDOW_S  # trials with no more work than that are measured whole
_LONGEST_WINDOW_S = 30.0
_POINTS = 4  # steps that a trial should show in a window
_PATIENCE = 6.0  # times what one alone takes
_LEAST_PATIENCE_S = 45.0
_MB = 1024 * 1024

RoundResult = Dict[str, Any]  # a Round of windlass/measured.py


class _Mark(NamedTuple):
    when: float
    step: float
    cpu_s: float


class Concurrency:
    """Keeps k trials going and measures them. `result` is what came of the last round."""

    def __init__(
        self,
        runner: Runner,
        trials: List[Trial],
        start: Callable[[Trial], Attempt],
        device: Optional[Device],
        probes: List[Dict[str, Any]],
        first: int,
    ) -> None:
        """`probes` are of trials like these; rounds begin with the trial of number `first`."""
        self._runner = runner
        self._trials = trials
        self._start = start
        self._device = device
        times = [probe["time_s"][1] for probe in probes if probe["time_s"]]
        self._alone_s = max(times, default=None)  # type: Optional[float]
        self._first_s = max((probe["first_step_s"] or 0.0 for probe in probes), default=0.0)
        self._steps = next((probe["steps"] for probe in probes if probe["steps"]), None)  # type: Optional[float]
        # Those whose end was not seen may take longer than they say.
        seen_whole = all(probe["ended"] for probe in probes if probe["time_s"])
        work_s = max(
            (
                probe["time_s"][1] - (probe["startup_s"] or 0.0)
                for probe in probes
                if probe["time_s"]
            ),
            default=0,
        )
        self._stepping = any(probe["step_s"] for probe in probes)  # else a rate is of whole trials
        self._whole = not self._stepping or (bool(times) and work_s <= _WHOLE_S and seen_whole)
        self._after_s = max((_after_s(probe) for probe in probes), default=0.0)
        self._first = first
        self.result: RoundResult = {}

    def round(self, mode: str, k: int, until: float) -> Iterator[None]:
        """One round. All of them begin together, as they do in a study; those of the round before have been ended."""
        self._percent: List[float] = []
        self._gpu_mb = self._memory_mb = 0.0
        self._new: List[Attempt] = []
        self._running: List[Attempt] = []
        self._full_since = 0.0
        # Every round with the same trials, which are alike: then rounds can be compared.
        self._next = self._first
        began = time.monotonic()
        alone_s = self._alone_s or _LEAST_PATIENCE_S
        within_s = max(
            _LEAST_PATIENCE_S, _PATIENCE * (2 * alone_s if self._whole else self._first_s)
        )
        deadline = min(began + within_s, until)
        note = yield from (
            self._whole_trials(k, deadline) if self._whole else self._steady_steps(k, deadline)
        )
        self.result.update(mode=mode, k=k, note=note)
        if self._device is not None:
            self.result["gpu_mb"] = round(self._gpu_mb, 1)
            self.result["gpu_percent"] = (
                round(sum(self._percent) / len(self._percent), 1) if self._percent else None
            )
        self.result["memory_mb"] = round(self._memory_mb, 1)

    # -- the two ways

    def _whole_trials(self, k: int, deadline: float) -> Generator[None, None, str]:
        """Until k have ended: the first of them alone would be the fastest."""
        ended: List[Attempt] = []
        cpu_s, cpu_at = 0.0, 0.0
        while len(ended) < k or time.monotonic() < self._full_since + _WINDOW_S:
            problem = self._refill(k)
            if problem:
                return self._nothing(problem)
            if self._full_since and not cpu_at:
                cpu_s, cpu_at = self._cpu_s(), time.monotonic()
            ended = [attempt for attempt in self._new if attempt.cause is Cause.DONE]
            if time.monotonic() > deadline:
                if not ended:
                    return self._nothing("no trial ended in time")
                break
            yield
        lasted = [attempt.ended - attempt.started for attempt in ended]
        trial_s = sum(lasted) / len(lasted)
        startups = _startups(ended)
        rates = [
            value
            for value in (attempt.gauge.rate.per_s for attempt in ended if attempt.gauge)
            if value
        ]
        if not self._stepping:
            rates = [1 / lasted_s for lasted_s in lasted if lasted_s > 0]
        passed_s = max(time.monotonic() - cpu_at, 1e-3)
        self.result = {
            "rate": round(sum(rates) / len(rates) * k, 3) if rates else None,
            "slowest": round(min(rates), 4) if rates else None,
            "startup_s": round(sum(startups) / len(startups), 3) if startups else None,
            "trial_s": round(trial_s, 3),
            "trials_per_h": round(k / trial_s * 3600, 1),
            "cores": round((self._cpu_s() - cpu_s) / passed_s, 2),
        }
        return ""

    def _steady_steps(self, k: int, deadline: float) -> Generator[None, None, str]:
        """Until all have made steps for a while together."""
        while not all(_is_stepping(attempt) for attempt in self._running) or len(self._running) < k:
            problem = self._refill(k)
            if problem:
                return self._nothing(problem)
            if time.monotonic() > deadline:
                waiting = sum(not _is_stepping(attempt) for attempt in self._running)
                return self._nothing(f"{waiting} of {k} had not made a step in time")
            yield
        marks = {attempt: _mark(attempt) for attempt in self._running}
        began = time.monotonic()
        while not self._window_is_over(began, marks, deadline):
            problem = self._refill(k)
            if problem:
                return self._nothing(problem)
            yield
        pace = [
            value for value in (_pace(attempt, mark) for attempt, mark in marks.items()) if value
        ]
        if not pace:
            return self._nothing("no steps were seen")
        each = sum(pace) / len(pace)
        startups = _startups(self._new)
        startup_s = sum(startups) / len(startups) if startups else None
        trial_s = (
            startup_s + self._steps / each + self._after_s
            if startup_s is not None and self._steps
            else None
        )
        cores = sum(_cpu_of(attempt) - mark.cpu_s for attempt, mark in marks.items()) / (
            time.monotonic() - began
        )
        self.result = {
            "rate": round(each * k, 3),
            "slowest": round(min(pace), 4),
            "startup_s": None if startup_s is None else round(startup_s, 3),
            "trial_s": None if trial_s is None else round(trial_s, 3),
            "trials_per_h": None if trial_s is None else round(k / trial_s * 3600, 2),
            "cores": round(cores, 2),
        }
        return ""

    def _window_is_over(self, began: float, marks: Dict[Attempt, _Mark], deadline: float) -> bool:
        passed_s = time.monotonic() - began
        if passed_s < _WINDOW_S:
            return False
        if passed_s > _LONGEST_WINDOW_S or time.monotonic() > deadline + _LONGEST_WINDOW_S:
            return True
        seen = sum(
            int(attempt.gauge.rate.count_since(mark.when)) for attempt, mark in marks.items()
        )
        return seen >= _POINTS * len(marks)

    # -- keeping k going

    def _refill(self, k: int) -> str:
        """Look at everything, and put new trials in the place of those that have ended. A problem, in words."""
        for attempt in [one for one in self._running if one.attempt not in self._runner.attempts]:
            self._running.remove(attempt)
            if attempt.cause is not Cause.DONE:
                return f"a trial ended early: {attempt.cause.value if attempt.cause is not None else 'unknown'}"
        while len(self._running) < k:
            attempt = self._start(self._free_trial())
            self._running.append(attempt)
            self._new.append(attempt)
        self._full_since = self._full_since or time.monotonic()
        self._look()
        return ""

    def _free_trial(self) -> Trial:
        busy = self._runner.busy
        while self._trials[self._next % len(self._trials)].number in busy:
            self._next += 1
        self._next += 1
        return self._trials[(self._next - 1) % len(self._trials)]

    def _look(self) -> None:
        gauges = [attempt.gauge for attempt in self._running if attempt.gauge is not None]
        samples = [gauge.peaks.last for gauge in gauges if gauge.peaks.last is not None]
        self._memory_mb = max(self._memory_mb, sum(sample.memory_mb for sample in samples))
        nvml = self._runner.gauges.nvml
        if self._device is None or nvml is None:
            return
        try:
            self._gpu_mb = max(self._gpu_mb, nvml.memory(self._device)[1] / _MB)
            rates = nvml.utilisation(self._device)
        except NvmlError:
            return
        if rates is not None:
            self._percent.append(float(rates.gpu))

    def _cpu_s(self) -> float:
        return sum(_cpu_of(attempt) for attempt in {*self._running, *self._new})

    def _nothing(self, note: str) -> str:
        empty = ("rate", "slowest", "startup_s", "trial_s", "trials_per_h", "cores")
        self.result = dict.fromkeys(empty)
        return note


def _after_s(probe: Dict[str, Any]) -> float:
    """What a trial took beyond its start and its steps: saving, and the end of its process."""
    if (
        not probe["ended"]
        or not probe["steps"]
        or not probe["step_s"]
        or probe["startup_s"] is None
    ):
        return 0.0
    after_s: float = probe["time_s"][1] - probe["startup_s"] - probe["steps"] * probe["step_s"][1]
    return max(0.0, after_s)


def _startups(attempts: List[Attempt]) -> List[float]:
    found = (attempt.gauge.rate.startup_s for attempt in attempts if attempt.gauge is not None)
    return [value for value in found if value is not None]


def _cpu_of(attempt: Attempt) -> float:
    last = attempt.gauge.peaks.last if attempt.gauge is not None else None
    return max(attempt.cpu_s, last.cpu_s if last is not None else 0.0)


def _is_stepping(attempt: Attempt) -> bool:
    return attempt.gauge is not None and attempt.gauge.rate.per_s is not None


def _mark(attempt: Attempt) -> _Mark:
    return _Mark(attempt.gauge.rate.newest_when or 0.0, attempt.gauge.rate.step, _cpu_of(attempt))


def _pace(attempt: Attempt, mark: _Mark) -> Optional[float]:
    """Steps a second since then; None where too little was seen."""
    rate: Rate = attempt.gauge.rate
    if rate.newest_when is None or rate.newest_when <= mark.when:
        return None
    return (rate.step - mark.step) / (rate.newest_when - mark.when)
