"""How many trials share a GPU: memory says how many fit, the measurement how many pay. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.core.knee import Point, choose
from windlass.core.units import render_duration, render_limit
from windlass.measured import MPS, PLAIN, Measurement, Mode, Probe, Round
from windlass.plan.evidence import MEASURE_HINT, Budgets, Evidence, TrialTime

_SAME_MEMORY = 0.02
_INSTANT_S = 0.001
_SETUP_S = 180.0  # of a job, before its first trial begins: environment, code and data
# The notice before a job's end takes a quarter of its time at most; see agent/interrupt.py.
_MOST_NOTICE = 4


@dataclass(frozen=True)
class Slots:
    count: int
    because: str


@dataclass(frozen=True)
class Device:
    """The GPU that trials will get, as far as it is known."""

    name: str = ""
    memory_mb: int | None = None
    same: bool = False  # of the type that was measured


UNKNOWN = Device()


@dataclass(frozen=True)
class Sharing:
    """How many trials are on one GPU at a time."""

    a_gpu: int
    because: str
    typical: int  # of a usual mix of variants, where `a_gpu` is for the smallest
    mode: Mode = PLAIN
    measured: bool = False  # whether the number was measured, and not only what fits


def same_memory(one_mb: int | None, other_mb: int | None) -> bool:
    return (
        not one_mb or not other_mb or abs(one_mb - other_mb) <= _SAME_MEMORY * max(one_mb, other_mb)
    )


def may_share(evidence: Evidence) -> bool:
    """Whether a trial that asks for one GPU may get a share of one: where it was measured on a GPU.

    `pack: {most: 1}` keeps it alone; so do several GPUs a trial, and a declared amount of GPU memory.
    """
    need, measured = evidence.settings["gpus"].value, evidence.measured
    if need and need > 1:
        return False
    return (
        not need
        or need < 1
        or (
            measured is not None
            and measured.device is not None
            and not evidence.declared("gpu_memory_mb")
        )
    )


def share_gpu(evidence: Evidence, budgets: Budgets, device: Device) -> Sharing:
    """The fewest that any limit allows, and at least one."""
    settings = evidence.settings
    need, most = settings["gpus"].value, settings["most"]
    measured = evidence.measured
    sizes = budgets.gpu_mb()
    limits = [Slots(int(1 / need), f"{need:g} of a GPU each")] if need and need < 1 else []
    mode: Mode = MPS if settings["mps"].value == "on" else PLAIN
    shared = evidence.declared("gpu_memory_mb") or (
        measured is not None and measured.device is not None
    )
    if shared and sizes and device.memory_mb:
        limits.append(Slots(device.memory_mb // min(sizes), _say_fit(evidence, sizes, device)))
    picked = None
    if measured is not None and device.same and not limits_are_declared(evidence):
        fit = min(
            [limit.count for limit in limits] + ([int(most.value)] if most.value else []),
            default=None,
        )
        picked = pick_concurrency(measured, settings["prefer"].value, settings["mps"].value, fit)
        if picked is not None:
            mode = picked[1]
            limits.append(Slots(picked[0], f"{evidence.measured_source}: {picked[0]} {picked[2]}"))
    if not limits:
        return Sharing(1, f"one trial a GPU; {MEASURE_HINT}", 1, mode)
    if most.value:
        limits.append(Slots(int(most.value), f"{most.source}: at most {most.value} a GPU"))
    fewest = min(limits, key=lambda limit: limit.count)
    count = max(1, fewest.count)
    typical = count
    if sizes and device.memory_mb:
        typical = max(1, min(count, int(device.memory_mb // (sum(sizes) / len(sizes)))))
    return Sharing(count, fewest.because, typical, mode if count > 1 else PLAIN, picked is not None)


def limits_are_declared(evidence: Evidence) -> bool:
    """Whether the user gave how much of a GPU a trial gets; one whole GPU is what a trial has before it is measured."""
    need = evidence.settings["gpus"].value
    return bool(need) and need < 1 and evidence.declared("gpus")


def warn_of_gpu(evidence: Evidence, with_gpu: bool) -> list[str]:
    """What was measured with a GPU tells little of trials without one, and the other way round."""
    measured = evidence.measured
    if measured is None or (measured.device is not None) == with_gpu:
        return []
    if with_gpu:
        return [
            "measured without a GPU: trials that use one take more memory, and another time; "
            "`windlass measure` where there is one"
        ]
    assert measured.device is not None
    return [
        f"measured on {measured.device.name}: without a GPU trials take longer than what is asked for"
    ]


def warn_of_sharing(evidence: Evidence, device: Device, sharing: Sharing) -> list[str]:
    measured = evidence.measured
    if measured is None or measured.device is None or limits_are_declared(evidence):
        return []
    if not device.same:
        there = device.name or "the GPU"
        fits = (
            ": its memory, not the throughput, says how many share it" if device.memory_mb else ""
        )
        return [
            f"measured on {measured.device.name}, which {there} is not{fits}; times are those of the other"
        ]
    if measured.choice is None and sharing.a_gpu > 1:
        return [f"{sharing.a_gpu} trials fit a GPU; whether that many pay was not measured"]
    return []


def _say_fit(evidence: Evidence, sizes: Sequence[int], device: Device) -> str:
    peak = evidence.most.gpu_mb
    source = "" if evidence.declared("gpu_memory_mb") or peak is None else f"{peak.source}: "
    size = f"{min(sizes)} MB" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)} MB"
    return f"{source}{device.memory_mb} MB on a {device.name or 'GPU'}, {size} a trial"


# -- what the measurement says


def pick_concurrency(
    measured: Measurement, prefer: str, mps: str, fit: int | None = None
) -> tuple[int, Mode, str] | None:
    """How many, in which mode, and in words, of those numbers that were tried and fit; None where none was."""
    untried = mps == "on" and not any(one.mode == MPS for one in measured.rounds)
    usable = _usable(measured.rounds, "auto" if untried else mps)
    best = choose([_point(one) for one in usable if fit is None or one.k <= max(1, fit)], prefer)
    if best is not None:
        words = "side by side are hardly slower" if prefer == "latency" else "share it best"
        words += ", without MPS" if untried else ""
        return (
            best.k,
            MPS if untried or best.mode == MPS else PLAIN,
            words if best.k > 1 else "alone is best",
        )
    choice = measured.choice
    return (
        (choice.k, MPS if mps == "on" else choice.mode, "share it best")
        if choice is not None
        else None
    )


def _usable(rounds: Sequence[Round], mps: str) -> list[Round]:
    modes = {"auto": (PLAIN, MPS), "on": (MPS,), "off": (PLAIN,)}[mps]
    return [
        one
        for one in rounds
        if (one.mode in modes or one.k == 1) and not one.note and (one.rate or one.trial_s)
    ]


def _point(one: Round) -> Point:
    one_s = one.trial_s or (one.k / one.rate if one.rate else None)
    return Point(one.mode, one.k, one.trials_per_h or one.rate or 0.0, one_s)


def slowdown(measured: Measurement | None, k: int, mode: Mode) -> float:
    """How many times longer one trial takes among k than alone; 1 where nobody knows."""
    if measured is None or k <= 1:
        return 1.0
    alone, choice = _alone(measured), measured.choice
    usable = [one for one in _usable(measured.rounds, "auto") if one.mode == mode and one.k > 1]
    known = sorted((one.k, _against(alone, one)) for one in usable) if alone is not None else []
    if not known:
        return (
            max(1.0, choice.slowdown)
            if choice is not None and (choice.k, choice.mode) == (k, mode)
            else 1.0
        )
    below, above = (1, 1.0), None
    for point in known:
        if point[0] >= k:
            above = point
            break
        below = point
    if above is None:  # nothing is gained beyond: all together stay as fast as they were
        return max(1.0, below[1] * k / below[0])
    share = (k - below[0]) / (above[0] - below[0])
    return max(1.0, below[1] + share * (above[1] - below[1]))


def _alone(measured: Measurement) -> Round | None:
    return next((one for one in _usable(measured.rounds, "auto") if one.k == 1), None)


def _against(alone: Round, together: Round) -> float:
    if alone.trial_s and together.trial_s:
        return together.trial_s / alone.trial_s
    if alone.rate and together.rate:
        return alone.rate * together.k / together.rate
    return 1.0


@dataclass(frozen=True)
class OneTrial:
    """The time of one trial among its neighbours: expected, and what is asked for."""

    middle_s: float
    high_s: float
    safety: float = 1.0
    because: str = ""
    # What the first of them take longer to begin: imports that the others share.
    once_s: float = 0.0
    # Before the job's end, when trials are told to stop: they have to be done by then.
    notice_s: float = 0.0
    # Of a job, before its first trial begins, as agents recorded it; None: not known.
    setup_s: float | None = None

    def expect_s(self, waves: int) -> float:
        """So many in turn: the last of them may be a long one. None take no time."""
        if waves < 1:
            return 0.0
        return (waves - 1) * self.middle_s + self.high_s + self.once_s

    def usable_s(self, job_s: float) -> float:
        """How long a job of this length executes trials, where its setup takes no time worth mentioning."""
        return job_s - min(self.notice_s, job_s / _MOST_NOTICE)

    def around_s(self, job_s: float) -> float:
        """How much of a job of this length passes before its first trial begins and after the notice.

        Trials have a quarter of it at least: a guess must not take up short jobs.
        """
        setup_s = min(_SETUP_S, job_s / 4) if self.setup_s is None else self.setup_s
        return min(setup_s + min(self.notice_s, job_s / _MOST_NOTICE), 0.75 * job_s)

    def ask_s(self, waves: int) -> float:
        """The time of a job for so many: what comes before the first trial and after the last is on top."""
        expect_s = self.expect_s(waves)
        work_s = expect_s + (_SETUP_S if self.setup_s is None else self.setup_s)
        least_s = min(work_s + self.notice_s, work_s * _MOST_NOTICE / (_MOST_NOTICE - 1))
        return round(max(expect_s * self.safety, least_s), 3)


def time_at_concurrency(
    evidence: Evidence, time: TrialTime | None, k: int | None, mode: Mode
) -> OneTrial | None:
    """`k`: how many share a device; None: what was measured of that tells nothing of these."""
    if time is None:
        return None
    notice_s = float(evidence.settings["lead_s"].value)
    if time.declared:
        because = f"{time.source}: {render_limit(time.high_s)} a trial"
        return OneTrial(
            time.middle_s, time.high_s, 1.0, because, notice_s=notice_s, setup_s=evidence.setup_s
        )
    measured, middle_s = evidence.measured, time.middle_s
    uneven, once_s = time.high_s / max(_INSTANT_S, middle_s), 0.0
    alone = (
        _alone(measured)
        if measured is not None and time.source == evidence.measured_source
        else None
    )
    if measured is not None and alone is not None and alone.trial_s:
        # Those of the curve are from all over the study and find warm caches; the first ones were alone with both.
        middle_s = alone.trial_s
        uneven = _unevenness(measured.probes, alone)
        once_s = (
            max(0.0, measured.warm_s - (alone.startup_s or 0.0))
            if measured.warm_s is not None
            else 0.0
        )
    slower = (
        slowdown(measured, k, mode) / slowdown(measured, time.k, mode) if k is not None else 1.0
    )
    safety = float(evidence.settings["safety"].value)
    beside = (
        f", {slower:.3g} times as long among {k}" if k is not None and round(slower, 2) != 1 else ""
    )
    one = render_duration(middle_s)
    because = f"{time.source}: {one} a trial{beside}, {safety:g} for safety"
    middle_s = max(_INSTANT_S, middle_s * slower)
    return OneTrial(
        middle_s, middle_s * uneven, safety, because, once_s, notice_s, evidence.setup_s
    )


def _unevenness(probes: Sequence[Probe], alone: Round) -> float:
    """How much longer than usual the longest trial is: than those of the probes, and than the one of the round."""
    works = [_work_s(probe) for probe in probes if probe.time_s]
    if not works or not sum(works):
        return 1.0
    longest_s = (alone.startup_s or 0.0) + max(works)
    return max(max(works) / (sum(works) / len(works)), longest_s / (alone.trial_s or longest_s))


def _work_s(probe: Probe) -> float:
    """What a trial takes without its start, which the first one pays for all."""
    if probe.steps and probe.step_s:
        return probe.steps * probe.step_s[1]
    return probe.time_s[1] if probe.time_s else 0.0
