"""How many trials at a time this machine carries. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from windlass.core.counted import counted
from windlass.core.errors import input_error
from windlass.core.ids import slug
from windlass.core.paths import STUDIES
from windlass.measured import PLAIN, Measurement, Mode
from windlass.model import PackTerms, Plan, Setting, Study
from windlass.plan.evidence import (
    MEASURE_HINT,
    Budgets,
    Evidence,
    find_budgets,
    find_evidence,
    settle,
)
from windlass.plan.refuse_processes import find_process_warnings
from windlass.plan.refuse_study import command_words
from windlass.plan.shared_places import find_place_warnings
from windlass.plan.sharing import (
    Device,
    Slots,
    may_share,
    pick_concurrency,
    same_memory,
    share_gpu,
    time_at_concurrency,
    warn_of_gpu,
    warn_of_sharing,
)
from windlass.site.local import Site

_NEARLY = 0.9


def plan_local(
    study: Study,
    trial_count: int,
    settings: Mapping[str, Setting],
    site: Site,
    folder: str,
    evidence: Evidence | None = None,
    missing: int | None = None,
) -> Plan:
    """The plan for one agent on this machine; the estimate is of the trials that are `missing` (None: all)."""
    evidence = evidence or find_evidence(study, settings)
    host = choose_host(evidence, site, trial_count)
    cpus_needed = settings["cpus"].value
    cpus_per_slot = (
        max(1, round(cpus_needed)) if cpus_needed else max(1, site.cpus // host.slots.count)
    )
    one = time_at_concurrency(
        evidence, evidence.time, host.a_gpu if host.curve else None, host.mode
    )
    waves = math.ceil((trial_count if missing is None else missing) / host.width)
    packs = (settings["gpus"].value or 0) <= 1 if host.gpus else bool(evidence.peaks)
    plan = Plan(
        study=study,
        folder=folder,
        trial_count=trial_count,
        missing=missing,
        slots=host.slots.count,
        slots_because=host.slots.because,
        cpus=site.cpus,
        cpus_per_slot=cpus_per_slot,
        gpus=host.gpus,
        agents=1,
        settings=settle(
            evidence, host.budgets.other, one.high_s * one.safety if one is not None else None
        ),
        waves=max(1, waves),
        pack=_make_terms(host, evidence, study) if packs else None,
        estimate_s=one.expect_s(waves) if one is not None else None,
        warnings=(*evidence.warnings, *warn_of_gpu(evidence, bool(host.gpus)), *host.warnings),
    )
    ports = find_process_warnings(plan, command_words(plan))
    return replace(plan, warnings=(*plan.warnings, *ports, *find_place_warnings(plan)))


@dataclass(frozen=True)
class Host:
    """What this machine gives: its GPUs, and trials at a time."""

    slots: Slots
    width: int  # of a usual mix of variants
    budgets: Budgets
    gpus: tuple[str, ...] = ()
    a_gpu: int = 1  # without GPUs: trials at a time
    gpu_memory_mb: int | None = None
    mode: Mode = PLAIN
    curve: bool = True  # whether what was measured of trials side by side tells of these
    warnings: tuple[str, ...] = ()


def choose_host(evidence: Evidence, site: Site, trial_count: int) -> Host:
    """The scarcest of cores, memory and GPUs decides; what was measured on this very machine beats cores and memory,
    and what the user says beats all."""
    given = evidence.settings["slots"]
    wants = evidence.settings["gpus"].value
    speaks = evidence.uses_gpu or evidence.declared("gpu_memory_mb")
    uses = bool(wants) or (wants is None and speaks and bool(site.gpus))
    host = (
        _with_gpus(evidence, site, insist=given.value is None)
        if uses
        else _without_gpus(evidence, site)
    )
    if given.value is not None:
        if given.value < 1:
            raise input_error("slots must be 1 or more", "leave it out for one a core")
        return _resize(host, Slots(given.value, f"{given.source}: slots {given.value}"))
    if host.slots.count < 1:
        raise input_error(
            f"one trial does not fit on this machine: {host.slots.because}",
            "lower `needs`, or give `--slots 1` to try all the same",
        )
    if trial_count < host.slots.count:
        return _resize(host, Slots(max(1, trial_count), f"{counted(trial_count, 'trial')} in all"))
    return host


def _resize(host: Host, slots: Slots) -> Host:
    a_gpu = math.ceil(slots.count / len(host.gpus)) if host.gpus else slots.count
    width = min(host.width, slots.count) if slots.count < host.slots.count else slots.count
    return replace(host, slots=slots, width=max(1, width), a_gpu=a_gpu)


def _without_gpus(evidence: Evidence, site: Site) -> Host:
    budgets, measured, settings = find_budgets(evidence, None), evidence.measured, evidence.settings
    limits = _limits(evidence, site, budgets)
    curve = measured is not None and measured.device is None and _is_here(measured, site)
    if measured is not None and curve:
        picked = pick_concurrency(measured, settings["prefer"].value, "off")
        if picked is not None:
            limits = [Slots(picked[0], f"{evidence.measured_source}: {picked[0]} {picked[2]}")]
    limits += _cap(evidence, 1)
    fewest = min(limits, key=lambda limit: limit.count)
    return Host(fewest, max(1, fewest.count), budgets, a_gpu=max(1, fewest.count), curve=curve)


def _with_gpus(evidence: Evidence, site: Site, *, insist: bool) -> Host:
    need, have, measured = evidence.settings["gpus"].value, len(site.gpus), evidence.measured
    names = tuple(gpu.name for gpu in site.gpus)
    if not have:
        if insist:
            raise input_error(
                "a trial needs a GPU and this machine shows none",
                "--gpus 0 to try without, or look at nvidia-smi",
            )
        return _without_gpus(evidence, site)
    smallest_mb = min((gpu.memory_mb for gpu in site.gpus if gpu.memory_mb), default=None)
    known = measured.device if measured is not None else None
    device = Device(
        "", smallest_mb, known is not None and same_memory(smallest_mb, known.memory_mb)
    )
    budgets = find_budgets(evidence, smallest_mb)
    limits = _limits(evidence, site, budgets)
    if need and need >= 1 and not may_share(evidence):
        hint = f"; {MEASURE_HINT}" if need == 1 and measured is None else ""
        limits.append(Slots(have // int(need), f"{counted(have, 'GPU')}, {need:g} a trial{hint}"))
        fewest = min(limits, key=lambda limit: limit.count)
        return Host(fewest, max(1, fewest.count), budgets, names, 1, smallest_mb)
    sharing = share_gpu(evidence, budgets, device)
    if (
        sharing.measured
        and measured is not None
        and site.cpus >= measured.cores
        and not evidence.declared("cpus")
    ):
        # It was found with so many cores, and with all that k trials did to each other and to the host's memory.
        limits = [
            Slots(
                int(sharing.a_gpu * max(1.0, site.cpus / measured.cores)),
                counted(site.cpus, "core"),
            )
        ]
    # Before cores and memory, which were measured with it: where they say the same, this is the reason.
    limits.insert(
        0,
        Slots(
            have * sharing.a_gpu,
            f"{counted(have, 'GPU')}, {counted(sharing.a_gpu, 'trial')} a GPU: {sharing.because}",
        ),
    )
    fewest = min(limits, key=lambda limit: limit.count)
    a_gpu = min(sharing.a_gpu, math.ceil(fewest.count / have)) or 1
    warnings = tuple(warn_of_sharing(evidence, device, sharing))
    width = max(1, min(fewest.count, sharing.typical * have))
    return Host(
        fewest,
        width,
        budgets,
        names,
        a_gpu,
        smallest_mb,
        sharing.mode if a_gpu > 1 else PLAIN,
        True,
        warnings,
    )


def _limits(evidence: Evidence, site: Site, budgets: Budgets) -> list[Slots]:
    """What cores and memory allow."""
    cpus = evidence.settings["cpus"].value or 1
    limits = [Slots(int(site.cpus / cpus), f"{counted(site.cpus, 'core')}, {cpus:g} a trial")]
    memory_mb = budgets.other.memory_mb or evidence.settings["memory_mb"].value
    if memory_mb:
        limits.append(
            Slots(
                site.memory_mb // memory_mb,
                f"{site.memory_mb} MB of memory, {memory_mb} MB a trial",
            )
        )
    return limits


def _cap(evidence: Evidence, devices: int) -> list[Slots]:
    most = evidence.settings["most"]
    return (
        [Slots(most.value * devices, f"{most.source}: at most {most.value}")] if most.value else []
    )


def _is_here(measured: Measurement, site: Site) -> bool:
    """Whether it was measured on a machine like this one."""
    return measured.cores == site.cpus and site.memory_mb >= _NEARLY * measured.memory_mb


def _make_terms(host: Host, evidence: Evidence, study: Study) -> PackTerms:
    mps = evidence.settings["mps"].value
    shares = bool(host.gpus) and host.a_gpu > 1
    return PackTerms(
        a_gpu=host.a_gpu,
        mps=shares and (host.mode != PLAIN or mps == "on") and mps != "off",
        variants=study.variants,
        gpu_memory_mb=host.gpu_memory_mb,
        budgets=host.budgets.variants,
        budget=host.budgets.other,
    )


def study_folder(settings: Mapping[str, Setting], study: Study, scratch: str | None) -> str:
    """<folder>/<study>: below $SCRATCH/<project> where there is a scratch, else below the project."""
    project = slug(os.path.basename(study.project_dir))
    if settings["folder"].value is not None:
        root = os.path.expanduser(settings["folder"].value)
    elif scratch:
        root = os.path.join(scratch, project)
    else:
        root = os.path.join(study.project_dir, STUDIES)
    return os.path.join(os.path.abspath(root), study.name)
