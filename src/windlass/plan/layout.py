"""What is inside one job: its GPUs and the trials that run in it at a time. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from windlass.core.counted import counted
from windlass.measured import PLAIN, Mode
from windlass.model import PackTerms
from windlass.plan.draft import Draft
from windlass.plan.evidence import MEASURE_HINT, Budgets, find_budgets
from windlass.plan.gpus import choose_gpus, find_device, is_node
from windlass.plan.sharing import (
    UNKNOWN,
    Device,
    Slots,
    may_share,
    pick_concurrency,
    share_gpu,
    warn_of_gpu,
    warn_of_sharing,
)
from windlass.site.cluster import GpuType

_MOST_CPU_SLOTS = 8  # of a job without GPUs, unless the user says more


@dataclass(frozen=True)
class Layout:
    """How many trials run side by side in one job, on which device, and with which budgets of memory."""

    slots: Slots
    width: int  # trials at a time of a usual mix of variants; the slots are for the smallest
    budgets: Budgets
    gpus: int = 0
    gpu_type: GpuType | None = None
    device: Device = UNKNOWN
    a_gpu: int = 1  # trials on one GPU; without GPUs, in the job
    mode: Mode = PLAIN
    curve: bool = True  # whether what was measured of trials side by side tells of these

    @property
    def concurrency(self) -> int | None:
        """The concurrency level for which the time of a trial is looked up; None: times stay as they were found."""
        return self.a_gpu if self.curve else None

    def of(self, count: int, because: str) -> Layout:
        """The same with another number of slots."""
        a_gpu = math.ceil(count / self.gpus) if self.gpus else count
        width = min(self.width, count) if count < self.slots.count else count
        return replace(self, slots=Slots(count, because), width=width, a_gpu=a_gpu)


def choose_layout(draft: Draft) -> Layout:
    gpus, gpu_type = choose_gpus(draft)
    draft.warnings += warn_of_gpu(draft.evidence, gpus > 0)
    layout = _with_gpus(draft, gpus, gpu_type) if gpus else _without_gpus(draft)
    given = draft.settings["slots"]
    if given.value:
        return layout.of(int(given.value), f"{given.source}: slots {given.value}")
    if draft.trial_count < layout.slots.count:
        return layout.of(max(1, draft.trial_count), f"{counted(draft.trial_count, 'trial')} in all")
    return layout


def _with_gpus(draft: Draft, gpus: int, gpu_type: GpuType | None) -> Layout:
    evidence, need = draft.evidence, draft.settings["gpus"].value
    device = find_device(draft, gpu_type)
    budgets = find_budgets(evidence, device.memory_mb)
    if need and need >= 1 and not may_share(evidence):
        hint = f"; {MEASURE_HINT}" if need == 1 and evidence.measured is None else ""
        slots = Slots(
            max(1, gpus // int(need)), f"{counted(gpus, 'GPU')} a job, {need:g} a trial{hint}"
        )
        return Layout(slots, slots.count, budgets, gpus, gpu_type, device)
    sharing = share_gpu(evidence, budgets, device)
    draft.warnings += warn_of_sharing(evidence, device, sharing)
    a_gpu, because = sharing.a_gpu, sharing.because
    room = _room(draft, gpu_type, budgets, gpus) if evidence.measured is not None else None
    if room is not None and room.count < a_gpu:
        a_gpu, because = room.count, room.because
    because = because if gpus == 1 else f"{gpus} GPUs a job, {because}"
    width = min(sharing.typical, a_gpu) * gpus
    mode = sharing.mode if a_gpu > 1 else PLAIN
    return Layout(Slots(a_gpu * gpus, because), width, budgets, gpus, gpu_type, device, a_gpu, mode)


def _room(draft: Draft, gpu_type: GpuType | None, budgets: Budgets, gpus: int) -> Slots | None:
    """Trials a GPU for which a node has cores and memory; at least one, and refusing says what is wrong with that."""
    nodes = draft.nodes(gpu_type.name if gpu_type is not None else None)
    if not nodes:
        return None
    cores, memory_mb = draft.value("cpus") or 1, budgets.other.memory_mb
    by_cores = max(int(node.cpus // cores) for node in nodes) // gpus
    limits = [
        Slots(
            max(1, by_cores),
            f"{counted(max(node.cpus for node in nodes), 'core')} on a node, {cores:g} a trial",
        )
    ]
    if memory_mb:
        most_mb = max(node.memory_mb for node in nodes)
        because = f"{most_mb} MB of memory on a node, {memory_mb} MB a trial"
        limits.append(Slots(max(1, most_mb // memory_mb // gpus), because))
    return min(limits, key=lambda limit: limit.count)


def _without_gpus(draft: Draft) -> Layout:
    budgets = find_budgets(draft.evidence, None)
    need = draft.settings["cpus"].value or 1
    cores = max((node.cpus for node in draft.nodes()), default=_MOST_CPU_SLOTS)
    fit = max(1, int(cores // need))
    slots = Slots(fit, f"{counted(cores, 'core')} on a node, {need:g} a trial")
    if fit > _MOST_CPU_SLOTS:
        slots = Slots(
            _MOST_CPU_SLOTS, f"{_MOST_CPU_SLOTS} to a job, {counted(need, 'core')} a trial"
        )
    measured, curve = draft.evidence.measured, False
    if measured is not None and measured.device is None and is_node(measured.host, draft.cluster):
        picked = pick_concurrency(measured, draft.value("prefer"), "off")
        if picked is not None and picked[0] <= fit:
            curve = True
            slots = Slots(picked[0], f"{draft.evidence.measured_source}: {picked[0]} {picked[2]}")
    limits = [slots]
    room = (
        _room(draft, None, budgets, 1)
        if draft.evidence.peaks and not draft.declared("memory_mb")
        else None
    )
    limits += [room] if room is not None else []
    if draft.value("most"):
        limits.append(
            Slots(
                draft.value("most"),
                f"{draft.settings['most'].source}: at most {draft.value('most')}",
            )
        )
    fewest = min(limits, key=lambda limit: limit.count)
    return Layout(fewest, fewest.count, budgets, a_gpu=fewest.count, curve=curve)


def make_terms(
    layout: Layout, variants: tuple[str, ...], mps: str, memory_mb: int | None
) -> PackTerms:
    """What the agent is told about sharing."""
    budgets = layout.budgets
    return PackTerms(
        a_gpu=layout.a_gpu,
        mps=layout.gpus > 0
        and layout.a_gpu > 1
        and (layout.mode != PLAIN or mps == "on")
        and mps != "off",
        variants=variants,
        gpu_memory_mb=layout.device.memory_mb if layout.gpus else None,
        budgets=budgets.variants,
        budget=budgets.other,
        job_memory_mb=memory_mb,
    )
