"""Measures a study on this node: a few trials alone, then more and more of them side by side. Python 3.9.

The survey is told as a script: a generator that starts and stops attempts and gives way until the next look. The loop
around it is the usual one, so trials are started, read and ended exactly as they will be later.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from windlass.agent.cgroup import read_cgroup, read_free_mb, read_job_mb
from windlass.agent.child import Attempt, Trial
from windlass.agent.company import Company, RoundResult
from windlass.agent.config import THREAD_VARIABLES, AgentConfig, Slot
from windlass.agent.filesystems import OpenFiles
from windlass.agent.frameworks import ask_frameworks
from windlass.agent.mps import Mps, why_not
from windlass.agent.nvml import Device, NvmlError
from windlass.agent.probing import UNTOUCHED, choose_other, growing_mb_per_min, leave_out_failing, render_probe
from windlass.agent.runner import Runner
from windlass.counted import counted
from windlass.knee import LEAST_GAIN, MPS, PLAIN, Point, choose, find_disturbed, next_k
from windlass.states import OUT_OF_MEMORY, Cause

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

Turn = Iterator[None]


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
        self._until: float = min(self._began + self._ask["limit_s"], math.inf if end_by is None else end_by)
        self._cores = usable_cores()
        self._memory_mb = _available_mb()
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

    def script(self) -> Turn:
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

    def _probe_all(self) -> Turn:
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
                self._warnings.append(f"{_settings(trial)} did not work ({cause}) and was not measured")
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

    def _probe(self, trial: Trial) -> Turn:
        attempt = self._start(trial)
        until = time.monotonic() + self._ask["trial_limit_s"]
        files = OpenFiles()
        while attempt.attempt in self._runner.attempts and time.monotonic() < min(until, self._until):
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
        probe["cause"] = attempt.cause.value if ended and not done and attempt.cause is not None else ""
        group = read_cgroup()
        probe["cgroup_mb"] = None if group is None or group.peak_mb is None else round(group.peak_mb, 1)
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
            self._warnings.append(f"the time was up before {', '.join(left[:_NAMED])}{more} could be measured")

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

    def _settle_warm_starts(self) -> Turn:
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

    def _begin_and_end(self, trial: Trial, whole: bool = False) -> Turn:
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
        self._seen = ask_frameworks(self._trials[0].stages, self._runner.environment(self._slots[0]))

    # -- side by side

    def _worth_a_curve(self) -> bool:
        if self._over():
            self._warnings.append("the time was up before it could be seen how many share a device best")
            return False
        if len(self._trials) < 2:
            return False
        if not any(probe["step_s"] or probe["ended"] for probe in self._sound()):
            self._warnings.append(
                "how many share a device best cannot be told: the trials show no progress and did not end in time; "
                "windlass.log(step=…), a progress bar or `progress:` in the study would tell"
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
        kind = [trial for trial in self._trials if json.dumps([trial.settings.get(name) for name in names]) == smallest]
        if len(kind) < 2:
            return self._trials, alone, sound
        probes = [probe for probe in sound if json.dumps(probe["variant"]) == smallest]
        return kind, len(probes), probes

    def _curve(self, mode: str, first: int, most: int) -> Turn:
        """Rounds with more and more of them, up to `most`. What was tried before is not tried again."""
        trials, first_trial, probes = self._alike()
        company = Company(self._runner, trials, self._start, self._device, probes, first_trial)
        points = self._points.setdefault(mode, [])
        while True:
            k = next_k(points, first, most)
            if k is None or self._over() or self._is_far_behind(mode):
                break
            if self._shares_cores() and self._share_cores(k):
                yield from self._begin_and_end(self._trials[0])  # the first one waits for what is imported anew
            yield from company.round(mode, k, self._until)
            yield from self._end_all()
            if company.result["note"].endswith(Cause.KILLED.value) and not self._over():
                yield from company.round(mode, k, self._until)  # somebody ended one of them: that tells nothing
                yield from self._end_all()
            result = company.result
            self._rounds.append(result)
            points.append(_point(result))
            self._note(f"{mode}, {k} at a time: {result['note'] or _say(result)}")
        if most > 1 or self._most() == 1:
            self._say_why(mode, points, most)

    def _is_far_behind(self, mode: str) -> bool:
        """Whether the last round was so far behind the same number with MPS that more of them would be time lost."""
        with_mps = {point.k: point.value for point in self._points.get(MPS, ())}
        last = self._points[mode][-1] if self._points[mode] else None
        return mode == PLAIN and last is not None and last.value < _FAR_BEHIND * with_mps.get(last.k, 0.0)

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
        elif last is not None and before and last.value < max(point.value for point in before) * LEAST_GAIN:
            gain = last.value / max(point.value for point in before)
            self._why_no_more[mode] = f"{highest} at a time bring {(gain - 1) * 100:+.0f} %"
        elif highest == most:
            self._why_no_more[mode] = self._why_no_more["limit"]

    def _shares_cores(self) -> bool:
        """Whether trials that compute on cores alone have more threads the fewer they are."""
        return not self._slots[0].gpus and not self._config.cpus_said

    def _share_cores(self, k: int) -> bool:
        """Each gets its share of the cores for its threads, as it will when the study is planned with this number.

        Whether warm starts begin anew for that.
        """
        threads = dict.fromkeys(THREAD_VARIABLES, str(max(1, self._cores // k)))
        for slot in self._slots:
            slot.variables.update((name.encode(), value.encode()) for name, value in threads.items())
        warming = self._runner.warming
        if warming is None or not warming.serves or self._threads == threads:
            return False
        self._threads = threads
        warming.renew(threads)
        return True

    def _curve_with_mps(self) -> Turn:
        visible = self._slots[0].gpus or ""
        problem = why_not(visible, self._runner.gauges.nvml, os.environ)
        mps = self._make_mps(visible) if not problem else None
        if mps is None or not mps.start():
            self._warnings.append(f"without MPS: {problem or (mps.problem if mps is not None else '')}")
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

    def _end(self, *attempts: Attempt) -> Turn:
        for attempt in attempts:
            if attempt.attempt in self._runner.attempts and attempt not in self._runner.ended:
                self._runner.stopping.stop(attempt, Cause.STOPPED)
        while any(attempt.attempt in self._runner.attempts for attempt in attempts):
            yield

    def _end_all(self) -> Turn:
        yield from self._end(*list(self._runner.attempts.values()))

    def _choice(self) -> Optional[Dict[str, Any]]:
        points = [_point(result) for result in self._rounds]
        best = choose(points, self._ask["prefer"])
        if best is None:
            return None
        alone = next((point for point in points if point.k == 1 and point.value > 0), None)
        chosen = next(one for one in self._rounds if (one["mode"], one["k"]) == (best.mode, best.k))
        gain = best.value / alone.value if alone is not None else 1.0
        slower = best.one_s / alone.one_s if alone is not None and alone.one_s and best.one_s else 1.0
        names = {PLAIN: "without MPS" if self._device else "side by side", MPS: "with MPS"}
        others = [f"{name}: {self._why_no_more[mode]}" for mode, name in names.items() if mode in self._why_no_more]
        return {
            "k": best.k,
            "mode": best.mode,
            "because": f"{gain:.1f} × the trials an hour of one at a time ({'; '.join(others)})",
            "slowdown": round(max(1.0, slower), 3),
            "gain": round(gain, 3),
            "trials_per_h": chosen["trials_per_h"],
            "trial_s": chosen["trial_s"],
        }

    def _look_for_disturbance(self) -> None:
        strange = find_disturbed([_point(result) for result in self._rounds])
        if strange is not None:
            self._warnings.append(
                f"{strange.k} at a time did more than {strange.k} times as much as one: something else was at work "
                "while one was measured, so that neither its time nor the gain can be trusted; measure again"
            )

    def _write(self) -> None:
        self._look_for_disturbance()
        device = None
        if self._device is not None:
            kind = "mig" if self._device.is_slice else "shard" if os.environ.get("SLURM_SHARDS_ON_NODE") else "gpu"
            size_mb = self._device.total_bytes // _MB
            device = {"name": self._device.name, "memory_mb": size_mb, "kind": kind, "type": self._ask["device_type"]}
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
            "choice": self._choice(),
            "warm_s": self._warm_s,
            "took_s": round(time.monotonic() - self._began, 2),
            "warnings": self._warnings,
            "seen": self._seen,
        }
        path = self._ask["into"]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.getpid()}"
        try:
            with open(partial, "w", encoding="utf-8") as file:
                json.dump(measured, file, indent=1, ensure_ascii=False)
                file.write("\n")
            os.replace(partial, path)
        except OSError:
            with contextlib.suppress(OSError):  # it may not even have been made
                os.unlink(partial)
            raise


def _settings(trial: Trial) -> str:
    return " ".join([f"{name}={value}" for name, value in trial.settings.items()]) or trial.id


def _point(result: RoundResult) -> Point:
    value = result["trials_per_h"] if result["trials_per_h"] is not None else result["rate"]
    one_s = result["trial_s"]
    if one_s is None and result["rate"]:
        one_s = result["k"] / result["rate"]
    return Point(result["mode"], result["k"], 0.0 if result["note"] else value or 0.0, one_s)


def _say(result: RoundResult) -> str:
    if result["trials_per_h"] is not None:
        return f"{result['trials_per_h']:.0f} trials an hour"
    return f"{result['rate'] or 0.0:.1f} steps a second"


def usable_cores() -> int:
    """What trials may use together. Not every cluster keeps jobs to the cores that are theirs."""
    cores = len(os.sched_getaffinity(0))
    given = os.environ.get("SLURM_CPUS_ON_NODE", "") if os.environ.get("SLURM_JOB_ID") else ""
    return min(cores, int(given)) if given.isdigit() and int(given) else cores


def _available_mb() -> float:
    """What trials may take together: what the job may have, or what is free on this machine."""
    limits = [read_free_mb(), read_job_mb()]
    group = read_cgroup()
    if group is not None and group.limit_mb is not None:
        limits.append(group.limit_mb - (group.current_mb or 0.0))
    return min((limit for limit in limits if limit is not None), default=float("inf"))
