"""How many trials at a time this machine carries. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from windlass.errors import input_error
from windlass.ids import slug
from windlass.model import Plan, Setting, Study
from windlass.paths import STUDIES
from windlass.site.local import Site


@dataclass(frozen=True)
class Slots:
    count: int
    because: str


def plan_local(study: Study, trial_count: int, settings: Mapping[str, Setting], site: Site, folder: str) -> Plan:
    """The plan for one agent on this machine."""
    slots = choose_slots(settings, site, trial_count)
    cpus_needed = settings["cpus"].value
    cpus_per_slot = max(1, round(cpus_needed)) if cpus_needed else max(1, site.cpus // slots.count)
    gpus = tuple(gpu.name for gpu in site.gpus) if settings["gpus"].value else ()
    return Plan(
        study=study,
        folder=folder,
        trial_count=trial_count,
        slots=slots.count,
        slots_because=slots.because,
        cpus=site.cpus,
        cpus_per_slot=cpus_per_slot,
        gpus=gpus,
        agents=1,
        settings=settings,
    )


def choose_slots(settings: Mapping[str, Setting], site: Site, trial_count: int) -> Slots:
    """The scarcest of cores, memory and GPUs decides; what the user says beats it."""
    said = settings["slots"]
    if said.value is not None:
        if said.value < 1:
            raise input_error("slots must be 1 or more", "leave it out for one a core")
        return Slots(said.value, f"{said.source}: slots {said.value}")
    cpus = settings["cpus"].value or 1
    limits = [Slots(int(site.cpus / cpus), f"{site.cpus} cores, {cpus:g} a trial")]
    memory_mb = settings["memory_mb"].value
    if memory_mb:
        limits.append(Slots(site.memory_mb // memory_mb, f"{site.memory_mb} MB of memory, {memory_mb} MB a trial"))
    if settings["gpus"].value:
        limits.append(_gpu_slots(settings, site))
    scarcest = min(limits, key=lambda limit: limit.count)
    if scarcest.count < 1:
        raise input_error(
            f"one trial does not fit on this machine: {scarcest.because}",
            "lower `needs`, or give `--slots 1` to try all the same",
        )
    if trial_count < scarcest.count:
        return Slots(max(1, trial_count), f"{trial_count} trials in all")
    return scarcest


def _gpu_slots(settings: Mapping[str, Setting], site: Site) -> Slots:
    gpus, memory_mb = settings["gpus"].value, settings["gpu_memory_mb"].value
    have = len(site.gpus)
    if not have:
        raise input_error(
            "a trial needs a GPU and this machine shows none", "--gpus 0 to try without, or look at nvidia-smi"
        )
    if gpus >= 1:
        return Slots(have // int(gpus), f"{have} GPUs, {gpus:g} a trial")
    a_gpu = int(1 / gpus)
    smallest_mb = min((gpu.memory_mb for gpu in site.gpus if gpu.memory_mb), default=None)
    if memory_mb and smallest_mb:
        a_gpu = min(a_gpu, smallest_mb // memory_mb)
    return Slots(have * a_gpu, f"{have} GPUs, {a_gpu} trials a GPU")


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
