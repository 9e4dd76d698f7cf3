"""Measures a study on this node: a few trials alone, then more and more of them side by side. Python 3.9.

The survey is a script: a generator that starts and stops attempts and gives way until the next look. The loop
around it is the usual one, so trials are started, read and ended exactly as they will be later.
"""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from windlass.agent.child import Attempt, Trial
from windlass.agent.config import THREAD_VARIABLES, AgentConfig, Slot
from windlass.agent.gauge.cgroup import read_cgroup
from windlass.agent.gauge.filesystems import OpenFiles
from windlass.agent.gauge.nvml import Device, NvmlError
from windlass.agent.node.frameworks import ask_frameworks
from windlass.agent.runner import Runner
from windlass.agent.share.mps import Mps, why_not
from windlass.agent.survey.alone import (
    UNTOUCHED,
    choose_other,
    growing_mb_per_min,
    leave_out_failing,
    render_probe,
)
from windlass.agent.survey.concurrency import Concurrency, RoundResult
from windlass.agent.survey.outcome import (
    choose_level,
    find_disturbance,
    point_of,
    render_device,
    render_round,
)
from windlass.agent.survey.room import available_mb, usable_cores
from windlass.core.counted import counted
from windlass.core.files import write_whole
from windlass.core.knee import LEAST_GAIN, MPS, PLAIN, Point, next_k
from windlass.core.states import OUT_OF_MEMORY, Cause

_VERSION = 1
_STEADY_S = 4.0  # of steps, before a trial alone has shown how fast it is
_FEWEST_STEPS = 5
_SHORT_S = 25.0  # trials that take no longer are watched to their end when they are alone
_MOST_LESSONS = 3
_MOST_FAILURES = 3  # trials that fail: if none has worked by then, nothing is measured
_NOT_WORKING = (Cause.FAILED.value, Cause.KILLED.value, Cause.DIVERGED.value)
_FAR_BEHIND = 0.8
_MEMORY_MARGIN = 1.05
_MB = 1024 * 1024
_NAMED = 3  # trials that a warning speaks of; of the rest the number

Script = Iterator[None]


class Survey:
    """One measurement, from the first trial to measured.json."""

    def __init__(
        self,
        config: AgentConfig,
        runner: Runner,
        trials: List[Trial],
        slots: List[Slot],
        start: Callable[[Trial], Attempt],
        note: Callable[[str], None],
        make_mps: Callable[[str], Mps],
        end_by: Optional[float] = None,
    ) -> None:
        """`end_by` is a moment of the monotonic clock by which it must be over, whatever its own limit is."""
        assert config.measure is not None
        self._config = config
        self._ask = config.measure
        self._runner = runner
        self._trials = trials
        self._alone: int = self._ask["probes"]  # so many of them, the first, are measured alone
        self._left: List[Trial] = []  # of these, those that there was no time for
        self._slots = slots
        self._start = start
        self._note = note
        self._make_mps = make_mps
        self._began = time.monotonic()
        self._until: float = min(
            self._began + self._ask["limit_s"], math.inf if end_by is None else end_by
        )
        self._cores = usable_cores()
        self._memory_mb = available_mb()
        self._device: Optional[Device] = None
        self._probes: List[Dict[str, Any]] = []
        self._rounds: List[RoundResult] = []
        self._points: Dict[str, List[Point]] = {}
        self._warnings: List[str] = []
        self._seen: Dict[str, Any] = {}
        self._why_no_more: Dict[str, str] = {}
        self._threads: Optional[Dict[str, str]] = None
        self._warm_s: Optional[float] = None
        self.failed = ""  # why nothing came of it

    def script(self) -> Script:
        """All of it, in order."""
        self._find_device()
        yield from self._probe_all()
        if not self._probes:
            return
        if not self._sound():
            self.failed = f"no trial worked: {self._probes[-1]['cause']}"
            return
        self._warn_of_left_out()
        self._look_at_gpu_use()
        if self._ask["curve"] and self._worth_a_curve():
            yield from self._settle_warm_starts()
            if self._device is not None and self._ask["mps"] != "off":
                yield from self._curve(PLAIN, 1, 1)
                yield from self._curve_with_mps()
            yield from self._curve(PLAIN, 1, self._most())
        yield from self._end_all()
        self._write()

    # -- one trial alone

    def _probe_all(self) -> Script:
        """Measure trials alone. The ends of a grid may well diverge: another trial takes the place of one that fails.

        `failed` is set where none worked. What is measured afterwards leaves out trials that fail as well, as it seems.
        """
        waiting, spare = self._trials[: self._alone], self._trials[self._alone :]
        worked: List[Trial] = []
        failed: List[Trial] = []
        while waiting:
            trial = waiting.pop(0)
            yield from self._probe(trial)
            cause = self._probes[-1]["cause"]
            if cause in _NOT_WORKING:
                self._probes.pop()
                failed.append(trial)
                self.failed = self.failed or f"trial {trial.id} did not work: {cause}"
                self._warnings.append(
                    f"{_settings(trial)} did not work ({cause}) and was not measured"
                )
                other = choose_other(trial, spare, worked, failed, self._ask["variants"])
                if other is not None and len(failed) < _MOST_FAILURES:
                    spare.remove(other)
                    waiting.append(other)
            else:
                worked.append(trial)
            if self._over() or (len(failed) >= _MOST_FAILURES and not worked):
                break
        if worked:
            self.failed = ""
        self._left, self._alone = waiting, len(worked)
        self._trials = [*worked, *leave_out_failing(spare, worked, failed, self._ask["variants"])]

    def _find_device(self) -> None:
        visible, nvml = self._slots[0].gpus, self._runner.gauges.nvml
        if not visible:
            return
        if nvml is None:
            self._warnings.append(f"no figures of the GPU: {self._runner.gauges.problem}")
            return
        try:
            found = nvml.find(visible)
            self._device = found[0] if found else None
        except NvmlError as error:
            self._warnings.append(f"no figures of the GPU: {error}")

    def _probe(self, trial: Trial) -> Script:
        attempt = self._start(trial)
        until = time.monotonic() + self._ask["trial_limit_s"]
        files = OpenFiles()
        while attempt.attempt in self._runner.attempts and time.monotonic() < min(
            until, self._until
        ):
            if self._is_enough(attempt):
                break
            yield
            files.look(self._runner.gauges.members(attempt))
        ended = attempt.attempt not in self._runner.attempts
        self._runner.gauges.of(attempt)
        if not ended:
            attempt.ended = time.monotonic()
        done, wants_gpu = ended and attempt.cause is Cause.DONE, bool(self._slots[0].gpus)
        probe = render_probe(attempt, done, self._cores, self._ask["variants"], wants_gpu)
        probe["cause"] = (
            attempt.cause.value if ended and not done and attempt.cause is not None else ""
        )
        group = read_cgroup()
        probe["cgroup_mb"] = (
            None if group is None or group.peak_mb is None else round(group.peak_mb, 1)
        )
        probe.update(shared_files=sorted(files.kinds), shared_mb=round(files.shared_mb, 1))
        self._probes.append(probe)
        yield from self._end(attempt)

    def _sound(self) -> List[Dict[str, Any]]:
        """Probes that tell what a trial takes: not those of which memory ran out before they had all of it."""
        return [probe for probe in self._probes if probe["cause"] not in OUT_OF_MEMORY]

    def _warn_of_left_out(self) -> None:
        """Name the trials that there was no time for: by their variant where nobody of it was measured."""
        known = [probe["variant"] for probe in self._probes]
        left = []
        for trial in self._left:
            new = [trial.settings.get(name) for name in self._ask["variants"]] not in known
            names = self._ask["variants"] if new else trial.settings
            left.append(" ".join(f"{name}={trial.settings.get(name)}" for name in names))
        if left:
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            self._warnings.append(
                f"the time was up before {', '.join(left[:_NAMED])}{more} could be measured"
            )

    def _is_enough(self, attempt: Attempt) -> bool:
        """Whether its usage has levelled out and its pace is known. Short trials are watched to their end."""
        gauge = attempt.gauge
        if gauge is None or gauge.rate.first_step_s is None:
            return False  # without a sign of progress only a whole trial tells how long one takes
        passed_s = time.monotonic() - attempt.started
        if passed_s < gauge.rate.first_step_s + _STEADY_S or gauge.rate.step < _FEWEST_STEPS:
            return False
        left = gauge.remaining_s()
        if left is not None and passed_s + left.middle < _SHORT_S:
            return False
        peaks = gauge.peaks
        grows = growing_mb_per_min(peaks.memory) or growing_mb_per_min(peaks.gpu_memory)
        return bool(peaks.levelled() and grows is None and gauge.rate.per_s is not None)

    def _settle_warm_starts(self) -> Script:
        """What is learned once is no part of the curve: learn it first. The first trial has shown what it takes."""
        warming, trial = self._runner.warming, self._trials[0]
        for _ in range(_MOST_LESSONS):
            if warming is None or not warming.is_learning or self._over():
                break
            yield from self._begin_and_end(trial, whole=self._is_short())
        if warming is not None and warming.serves:
            self._warm_s = self._probes[0]["startup_s"]

    def _is_short(self) -> bool:
        times = [probe["time_s"][1] for probe in self._probes if probe["time_s"]]
        return bool(times) and max(times) <= _SHORT_S

    def _begin_and_end(self, trial: Trial, whole: bool = False) -> Script:
        """Run a trial that nobody asks about: to its end, or until it has shown its pace."""
        attempt = self._start(trial)
        until = min(time.monotonic() + self._ask["trial_limit_s"], self._until)
        while attempt.attempt in self._runner.attempts and time.monotonic() < until:
            if not whole and attempt.gauge is not None and attempt.gauge.rate.startup_s is not None:
                break
            yield
        yield from self._end(attempt)

    def _look_at_gpu_use(self) -> None:
        """A GPU that nobody touched: ask the frameworks why that may be."""
        untouched = [probe for probe in self._probes if UNTOUCHED in probe["says"]]
        if not untouched or any(probe["gpu_mb"] for probe in self._probes):
            return
        self._seen = ask_frameworks(
            self._trials[0].stages, self._runner.environment(self._slots[0])
        )

    # -- side by side

    def _worth_a_curve(self) -> bool:
        if self._over():
            self._warnings.append(
                "the time was up before it could be seen how many share a device best"
            )
            return False
        if len(self._trials) < 2:
            return False
        if not any(probe["step_s"] or probe["ended"] for probe in self._sound()):
            self._warnings.append(
                "how many share a device best cannot be found: the trials show no progress and did not end in time; "
                "windlass.log(step=…), a progress bar or `progress:` in the study would show it"
            )
            return False
        return True

    def _most(self) -> int:
        """The most that could be tried, and why no more."""
        limits = [
            (self._cores, f"{counted(self._cores, 'core')}, one a trial"),
            (len(self._trials), "no more trials than that"),
        ]
        if self._ask["most"]:
            limits.append((self._ask["most"], f"a cap of {self._ask['most']}"))
        trials, _, probes = self._alike()
        limits[1] = (len(trials), "no more trials than that")
        memory_mb = max(probe["memory_mb"] for probe in probes) * _MEMORY_MARGIN
        if memory_mb > 1:
            limits.append((int(self._memory_mb / memory_mb), f"{self._memory_mb:.0f} MB of memory"))
        gpu_mb = max((probe["gpu_mb"] or 0.0 for probe in probes), default=0.0) * _MEMORY_MARGIN
        if self._device is not None and gpu_mb > 1:
            free_mb = (self._device.total_bytes - self._device.used_bytes) / _MB
            limits.append((int(free_mb / gpu_mb), f"{free_mb:.0f} MB of GPU memory"))
        most, self._why_no_more["limit"] = min(limits, key=lambda limit: limit[0])
        return max(1, min(most, len(self._slots)))

    def _alike(self) -> Tuple[List[Trial], int, List[Dict[str, Any]]]:
        """The trials that are put side by side, which of them is the first, and the probes of their kind.

        Of variants the one that takes least GPU memory: of larger ones fewer fit in any case, and by their memory.
        """
        names, alone = self._ask["variants"], self._alone
        sound = self._sound()
        sizes = {json.dumps(probe["variant"]): probe["gpu_mb"] or 0.0 for probe in reversed(sound)}
        if self._device is None or len(sizes) < 2 or not all(sizes.values()):
            return self._trials, alone, sound
        smallest = min(sizes, key=lambda variant: sizes[variant])
        kind = [
            trial
            for trial in self._trials
            if json.dumps([trial.settings.get(name) for name in names]) == smallest
        ]
        if len(kind) < 2:
            return self._trials, alone, sound
        probes = [probe for probe in sound if json.dumps(probe["variant"]) == smallest]
        return kind, len(probes), probes

    def _curve(self, mode: str, first: int, most: int) -> Script:
        """Rounds with more and more of them, up to `most`. What was tried before is not tried again."""
        trials, first_trial, probes = self._alike()
        concurrency = Concurrency(
            self._runner, trials, self._start, self._device, probes, first_trial
        )
        points = self._points.setdefault(mode, [])
        while True:
            k = next_k(points, first, most)
            if k is None or self._over() or self._is_far_behind(mode):
                break
            if self._shares_cores() and self._share_cores(k):
                # The first one waits for what is imported anew.
                yield from self._begin_and_end(self._trials[0])
            yield from concurrency.round(mode, k, self._until)
            yield from self._end_all()
            if concurrency.result["note"].endswith(Cause.KILLED.value) and not self._over():
                # Somebody ended one of them: that tells nothing.
                yield from concurrency.round(mode, k, self._until)
                yield from self._end_all()
            result = concurrency.result
            self._rounds.append(result)
            points.append(point_of(result))
            self._note(f"{mode}, {k} at a time: {result['note'] or render_round(result)}")
        if most > 1 or self._most() == 1:
            self._say_why(mode, points, most)

    def _is_far_behind(self, mode: str) -> bool:
        """Whether the last round was so far behind the same number with MPS that more of them would be time lost."""
        with_mps = {point.k: point.value for point in self._points.get(MPS, ())}
        last = self._points[mode][-1] if self._points[mode] else None
        return (
            mode == PLAIN
            and last is not None
            and last.value < _FAR_BEHIND * with_mps.get(last.k, 0.0)
        )

    def _say_why(self, mode: str, points: List[Point], most: int) -> None:
        highest = max((point.k for point in points), default=0)
        before = [point for point in points if point.value > 0 and point.k < highest]
        last = next((point for point in points if point.k == highest), None)
        if self._is_far_behind(mode):
            self._why_no_more[mode] = f"{points[-1].k} at a time do far less than with it"
        elif self._over():
            self._why_no_more[mode] = "the time for measuring was up"
        elif last is not None and not last.value:
            self._why_no_more[mode] = f"{highest} at a time did not work"
        elif (
            last is not None
            and before
            and last.value < max(point.value for point in before) * LEAST_GAIN
        ):
            gain = last.value / max(point.value for point in before)
            self._why_no_more[mode] = f"{highest} at a time bring {(gain - 1) * 100:+.0f} %"
        elif highest == most:
            self._why_no_more[mode] = self._why_no_more["limit"]

    def _shares_cores(self) -> bool:
        """Whether trials that compute on cores alone have more threads the fewer they are."""
        return not self._slots[0].gpus and not self._config.cpus_given

    def _share_cores(self, k: int) -> bool:
        """Each gets its share of the cores for its threads, as it will when the study is planned with this number.

        Whether warm starts begin anew for that.
        """
        threads = dict.fromkeys(THREAD_VARIABLES, str(max(1, self._cores // k)))
        for slot in self._slots:
            slot.variables.update(
                (name.encode(), value.encode()) for name, value in threads.items()
            )
        warming = self._runner.warming
        if warming is None or not warming.serves or self._threads == threads:
            return False
        self._threads = threads
        warming.renew(threads)
        return True

    def _curve_with_mps(self) -> Script:
        visible = self._slots[0].gpus or ""
        problem = why_not(visible, self._runner.gauges.nvml, os.environ)
        mps = self._make_mps(visible) if not problem else None
        if mps is None or not mps.start():
            self._warnings.append(
                f"without MPS: {problem or (mps.problem if mps is not None else '')}"
            )
            return
        try:
            for slot in self._slots:
                slot.variables.update(mps.variables())
            yield from self._curve(MPS, 2, self._most())
        finally:
            mps.stop()
            for slot in self._slots:
                slot.variables.clear()

    # -- ending

    def _over(self) -> bool:
        return time.monotonic() >= self._until

    def _end(self, *attempts: Attempt) -> Script:
        for attempt in attempts:
            if attempt.attempt in self._runner.attempts and attempt not in self._runner.ended:
                self._runner.stopping.stop(attempt, Cause.STOPPED)
        while any(attempt.attempt in self._runner.attempts for attempt in attempts):
            yield

    def _end_all(self) -> Script:
        yield from self._end(*list(self._runner.attempts.values()))

    def _write(self) -> None:
        """Write measured.json, in one piece."""
        points = [point_of(result) for result in self._rounds]
        disturbance = find_disturbance(points)
        if disturbance:
            self._warnings.append(disturbance)
        device = None
        if self._device is not None:
            device = render_device(self._device, self._ask["device_type"])
        measured = {
            "version": _VERSION,
            "when": round(time.time(), 3),
            "digest": self._ask["digest"],
            "host": os.uname().nodename,
            "cores": self._cores,
            "memory_mb": int(self._memory_mb),
            "device": device,
            "variants": self._ask["variants"],
            "probes": self._probes,
            "rounds": self._rounds,
            "choice": choose_level(
                self._rounds, self._ask["prefer"], self._why_no_more, self._device is not None
            ),
            "warm_s": self._warm_s,
            "took_s": round(time.monotonic() - self._began, 2),
            "warnings": self._warnings,
            "seen": self._seen,
        }
        path = self._ask["into"]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_whole(path, json.dumps(measured, indent=1, ensure_ascii=False) + "\n")


def _settings(trial: Trial) -> str:
    return " ".join([f"{name}={value}" for name, value in trial.settings.items()]) or trial.id
