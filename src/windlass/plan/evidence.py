"""What one trial needs: as declared, else as real trials of the study used, else as measured. Pure.

Each figure carries the words that say where it came from. Memory is kept as peaks; `find_budgets` adds the head-room,
which nothing that was declared gets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.core.states import OUT_OF_MEMORY
from windlass.measured import Measurement, Probe
from windlass.model import Budget, Setting, Study
from windlass.plan.changed import (
    Lengths,
    find_lengths,
    has_other_variants,
    warn_of_changes,
    without_whole_trials,
)
from windlass.spec.units import add_headroom
from windlass.usage import Usage, VariantUse, whole_cores

DECLARED = ("command line", "study")
MEASURE_HINT = "`windlass measure` finds out how many share a GPU best"
_UNFINISHED = 1.5  # on memory that was still growing when it was measured
HOST_HEADROOM, _HOST_STEP_MB = 1.2, 100
_MIX_UNIT_MB = 256  # GPU memory is rounded down to it: the memory of a mix may come out too high, never too low
# Before an agent begins, a job takes some time that nobody records.
_LEAST_SETUP_S, _SETUP_SAFETY = 60.0, 1.5


@dataclass(frozen=True)
class Figure:
    value: float
    source: str


@dataclass(frozen=True)
class Peak:
    """The most that trials of one variant took. None: nobody knows."""

    variant: tuple[Any, ...] = ()
    gpu_mb: Figure | None = None
    memory_mb: Figure | None = None


NOTHING = Peak()


@dataclass(frozen=True)
class TrialTime:
    """How long one trial takes, in the company of `k` on its device."""

    middle_s: float
    high_s: float
    source: str
    k: int = 1
    declared: bool = False  # the user's word for the most it takes: nothing is added


@dataclass(frozen=True)
class Evidence:
    """All that is known of one trial before anything is asked for."""

    settings: Mapping[str, Setting]  # with the cores of a trial as they were found
    peaks: tuple[Peak, ...] = ()
    most: Peak = NOTHING  # over all variants
    time: TrialTime | None = None
    measured: Measurement | None = None
    measured_source: str = ""
    # That a job is given before its first trial begins; None: not known.
    setup_s: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def uses_gpu(self) -> bool:
        """Whether trials were seen to use one."""
        return bool(self.most.gpu_mb and self.most.gpu_mb.value)

    def declared(self, key: str) -> bool:
        setting = self.settings[key]
        return setting.value is not None and setting.source in DECLARED


def find_evidence(
    study: Study,
    settings: Mapping[str, Setting],
    measured: Measurement | None = None,
    usage: Usage | None = None,
    digest: str = "",
) -> Evidence:
    """`digest` is the study's: a measurement of another command tells nothing of this one."""
    warnings: list[str] = []
    if measured is not None and measured.digest != digest:
        warnings.append(
            "the study has changed since `windlass measure`; what that found is not used"
        )
        measured = None
    source = render_source(measured) if measured is not None else ""
    fallen: list[Probe] = []  # they needed more than was seen of them: that lowers nothing
    if measured is not None:
        fallen = [probe for probe in measured.probes if probe.cause in OUT_OF_MEMORY]
        measured = replace(
            measured, probes=tuple(probe for probe in measured.probes if probe not in fallen)
        )
    enough = usage if usage is not None and usage.is_evidence else None
    peaks = _find_peaks(study.variants, measured, usage, source)
    seen = [
        *peaks,
        *(Peak((), _figure(one.gpu_mb, source), _figure(one.memory_mb, source)) for one in fallen),
    ]
    most = Peak(
        (), _highest(peak.gpu_mb for peak in seen), _highest(peak.memory_mb for peak in seen)
    )
    lengths = find_lengths(study, measured) if measured is not None else None
    if measured is not None:
        known = [peak.variant for peak in peaks]
        warnings += [
            *_warn_of_growth(measured.probes),
            *warn_of_changes(study, measured, lengths, known),
        ]
        if has_other_variants(study, measured):
            peaks = ()
    return Evidence(
        settings={**settings, "cpus": _find_cores(settings["cpus"], measured, enough, source)},
        peaks=peaks,
        most=most,
        time=_find_time(settings, measured, enough, source, lengths),
        measured=without_whole_trials(measured)
        if measured is not None and lengths is not None
        else measured,
        measured_source=source,
        setup_s=None if usage is None else _find_setup_s(usage),
        warnings=tuple(warnings),
    )


def render_source(measured: Measurement) -> str:
    when = time.localtime(measured.when)
    where = measured.device.name if measured.device is not None else measured.host
    return f"measured ({when.tm_mday} {time.strftime('%b %H:%M', when)}, {where})"


def _find_setup_s(usage: Usage) -> float | None:
    """From the longest setup that agents in jobs have recorded; other nodes may take somewhat longer."""
    return None if usage.setup_s is None else max(_LEAST_SETUP_S, _SETUP_SAFETY * usage.setup_s)


def _render_real(usage: Usage) -> str:
    return f"real trials ({usage.done or usage.attempts} of this study)"


# -- cores and time


def _find_cores(
    given: Setting, measured: Measurement | None, usage: Usage | None, source: str
) -> Setting:
    if given.value is not None and given.source in DECLARED:
        return given
    if usage is not None and usage.overall.cores is not None:
        return Setting(whole_cores(usage.overall.cores), _render_real(usage))
    cores = [
        probe.cores
        for probe in (measured.probes if measured is not None else ())
        if probe.cores is not None
    ]
    return Setting(whole_cores(max(cores)), source) if cores else given


def _find_time(
    settings: Mapping[str, Setting],
    measured: Measurement | None,
    usage: Usage | None,
    source: str,
    lengths: Lengths | None,
) -> TrialTime | None:
    given = settings["time_s"]
    if given.value is not None and given.source in DECLARED:
        return TrialTime(float(given.value), float(given.value), given.source, declared=True)
    if usage is not None and usage.overall.time_s is not None:
        median_s, ninetieth_s, longest_s = usage.overall.time_s
        # With the safety on top, also the longest one would have had the time it took.
        high_s = max(ninetieth_s, longest_s / settings["safety"].value)
        return TrialTime(median_s, high_s, _render_real(usage), max(1, usage.k or 1))
    probes = measured.probes if measured is not None else ()
    if lengths is not None:
        scaled = [found for probe in probes if (found := lengths.times_s(probe))]
        middle_s = sum(one_s for one_s, _ in scaled) / len(scaled)
        return TrialTime(middle_s, max(high_s for _, high_s in scaled), f"{source} {lengths}")
    times = [probe.time_s[1] for probe in probes if probe.time_s]
    return TrialTime(sum(times) / len(times), max(times), source) if times else None


# -- memory


def _find_peaks(
    names: Sequence[str], measured: Measurement | None, usage: Usage | None, source: str
) -> tuple[Peak, ...]:
    probes = measured.probes if measured is not None else ()
    uses = usage.variants if usage is not None else ()
    variants = [use.variant for use in uses] + [_variant(probe, names) for probe in probes]
    found = []
    for variant in dict.fromkeys(variants):
        real = next((use for use in uses if use.variant == variant), None)
        mine = [probe for probe in probes if _variant(probe, names) == variant]
        guess = not (usage is not None and real is not None and real.is_evidence)
        gpu = _highest(
            _figure(_gpu_peak(probe) if guess else probe.gpu_mb, source) for probe in mine
        )
        memory = _highest(
            _figure(_memory_peak(probe) if guess else probe.memory_mb, source) for probe in mine
        )
        if usage is not None and real is not None:
            gpu = _raise_to_real(real, _figure(real.gpu_mb, _render_real(usage)), gpu)
            memory = _raise_to_real(real, _figure(real.memory_mb, _render_real(usage)), memory)
        if gpu is not None or memory is not None:
            found.append(Peak(variant, gpu, memory))
    return tuple(found)


def _variant(probe: Probe, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(probe.settings.get(name) for name in names)


def _raise_to_real(use: VariantUse, real: Figure | None, measured: Figure | None) -> Figure | None:
    """Real trials never lower a peak that was seen: the largest of them may be yet to come."""
    if real is None:
        return measured
    if measured is None:
        return real if use.is_evidence else None
    return real if real.value >= measured.value else measured


def _figure(value: float | None, source: str) -> Figure | None:
    return Figure(value, source) if value else None


def _highest(figures: Iterable[Figure | None]) -> Figure | None:
    return max(
        (figure for figure in figures if figure is not None),
        key=lambda figure: figure.value,
        default=None,
    )


def _gpu_peak(probe: Probe) -> float | None:
    return (
        probe.gpu_mb * (_UNFINISHED if "GPU memory" in _unfinished(probe) else 1)
        if probe.gpu_mb
        else None
    )


def _memory_peak(probe: Probe) -> float:
    return probe.memory_mb * (_UNFINISHED if "memory" in _unfinished(probe) else 1)


def _unfinished(probe: Probe) -> tuple[str, ...]:
    """Of which memory the peak may not have been seen."""
    if probe.ended or probe.levelled:
        return ()
    growing = {"memory": probe.growing_mb_per_min}
    if probe.gpu_mb:
        growing["GPU memory"] = probe.gpu_growing_mb_per_min
    return tuple(name for name, rate in growing.items() if rate) or tuple(growing)


def _warn_of_growth(probes: Iterable[Probe]) -> list[str]:
    names = dict.fromkeys(name for probe in probes for name in _unfinished(probe))
    if not names:
        return []
    text = " and ".join(names)
    return [
        f"{text} may not have reached the peak when it was measured; {_UNFINISHED:g} times it is asked"
    ]


# -- budgets


@dataclass(frozen=True)
class Budgets:
    """What trials are given: by variant, and for any other. Without figures: not limited."""

    variants: tuple[Budget, ...]
    other: Budget

    @property
    def all(self) -> tuple[Budget, ...]:
        return self.variants or (self.other,)

    def gpu_mb(self) -> list[int]:
        return [budget.gpu_mb for budget in self.all if budget.gpu_mb]


def find_budgets(evidence: Evidence, gpu_memory_mb: int | None) -> Budgets:
    """Peaks with their head-room. A GPU of this size that holds the peak holds the budget."""
    made = [_budget(evidence, peak, gpu_memory_mb) for peak in evidence.peaks]
    other = _budget(evidence, evidence.most, gpu_memory_mb)
    return Budgets(tuple(made) if len(made) > 1 else (), other)


def _budget(evidence: Evidence, peak: Peak, gpu_memory_mb: int | None) -> Budget:
    gpu_mb = memory_mb = None
    if evidence.declared("gpu_memory_mb"):
        gpu_mb = int(evidence.settings["gpu_memory_mb"].value)
    elif peak.gpu_mb is not None:
        gpu_mb = add_headroom(peak.gpu_mb.value, evidence.settings["headroom"].value)
        if gpu_memory_mb is not None and peak.gpu_mb.value <= gpu_memory_mb:
            gpu_mb = min(gpu_mb, gpu_memory_mb)
    if evidence.declared("memory_mb"):
        memory_mb = int(evidence.settings["memory_mb"].value)
    elif peak.memory_mb is not None:
        steps = round(peak.memory_mb.value * HOST_HEADROOM / _HOST_STEP_MB, 6)
        memory_mb = math.ceil(steps) * _HOST_STEP_MB
    return Budget(peak.variant, gpu_mb, memory_mb)


def settle(evidence: Evidence, budget: Budget, time_s: float | None) -> dict[str, Setting]:
    """The settings as they are planned with: what was found and what was given, each with its source."""
    settled = dict(evidence.settings)
    if (
        budget.gpu_mb
        and not evidence.declared("gpu_memory_mb")
        and evidence.most.gpu_mb is not None
    ):
        settled["gpu_memory_mb"] = Setting(budget.gpu_mb, evidence.most.gpu_mb.source)
    if (
        budget.memory_mb
        and not evidence.declared("memory_mb")
        and evidence.most.memory_mb is not None
    ):
        settled["memory_mb"] = Setting(budget.memory_mb, evidence.most.memory_mb.source)
    if time_s is not None and evidence.time is not None and not evidence.time.declared:
        settled["time_s"] = Setting(float(math.ceil(time_s)), evidence.time.source)
    return settled


def largest_mix_mb(budgets: Budgets, trials: int, gpu_memory_mb: int | None) -> int | None:
    """The most host memory that so many trials can be given which share one GPU; None: not known."""
    known = [
        ((budget.gpu_mb or 0) // _MIX_UNIT_MB, budget.memory_mb)
        for budget in budgets.all
        if budget.memory_mb
    ]
    if not known:
        return None
    highest_mb = max(memory_mb for _, memory_mb in known)
    if gpu_memory_mb is None or len(known) == 1:
        return trials * highest_mb
    # By the GPU memory there is; one more trial each time.
    best = [0] * (gpu_memory_mb // _MIX_UNIT_MB + 1)
    for _ in range(trials):
        best = [
            max(
                best[room],
                *(
                    best[room - size] + memory_mb if size <= room else 0
                    for size, memory_mb in known
                ),
            )
            for room in range(len(best))
        ]
    return max(best[-1], highest_mb)
