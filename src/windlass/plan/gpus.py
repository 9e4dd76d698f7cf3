"""GPUs of one job: whether, how many, of which type, and whether it is the type that was measured. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from windlass.measured import Measurement
from windlass.plan.draft import Draft
from windlass.plan.sharing import UNKNOWN, Device, same_memory
from windlass.site.cluster import Cluster, GpuType


def choose_gpus(draft: Draft) -> tuple[int, GpuType | None]:
    """How many GPUs a job gets on each node, and of which type; None: whichever there is."""
    if not _wants_gpu(draft):
        given = draft.settings["gpus"]
        draft.because["gpus"] = (
            f"{given.source}: none"
            if given.value is not None
            else "nothing asks for one (--gpus 1)"
        )
        return 0, None
    need = draft.settings["gpus"].value or 0
    given = draft.settings["gpus_per_job"]
    count = given.value or max(1, math.ceil(need))
    draft.because["gpus"] = given.source if given.value else draft.settings["gpus"].source
    if not given.value and not need and draft.evidence.most.gpu_mb is not None:
        draft.because["gpus"] = draft.evidence.most.gpu_mb.source
    return count, _choose_gpu_type(draft)


def _wants_gpu(draft: Draft) -> bool:
    gpus = draft.settings["gpus"].value
    if gpus is not None:
        return bool(gpus)
    given = ("gpu_memory_mb", "gpu_type", "gpus_per_job", "mem_per_gpu_mb")
    return any(draft.declared(key) for key in given) or draft.evidence.uses_gpu


def _choose_gpu_type(draft: Draft) -> GpuType | None:
    cluster, given = draft.cluster, draft.settings["gpu_type"]
    if not cluster.typed_gpus:
        if given.value and given.source in ("study", "command line"):
            draft.warnings.append(
                f"{cluster.name} does not tell GPU types apart; {given.value} is left out"
            )
        return _any_type(cluster.gpus)
    if given.value:
        draft.because["gpu_type"] = given.source
        return cluster.gpu(given.value)
    names = {name for node in draft.nodes() for name in node.gpus} or {
        gpu.name for gpu in cluster.gpus
    }
    if len(names) == 1:
        draft.because["gpu_type"] = "the only one there is"
        return cluster.gpu(names.pop())
    measured = draft.evidence.measured
    for name in sorted(names):
        kind = cluster.gpu(name)
        if measured is not None and kind is not None and _is_measured(measured, kind, cluster):
            draft.because["gpu_type"] = (
                f"{draft.evidence.measured_source}: the type that was measured"
            )
            return kind
    return None


def _any_type(kinds: Sequence[GpuType]) -> GpuType:
    """A GPU of whichever type: with the smallest share of a node; its memory is known where there is one type."""
    if len(kinds) == 1:
        return replace(kinds[0], name="")
    cpus = [kind.share_cpus for kind in kinds if kind.share_cpus]
    memory_mb = [kind.share_memory_mb for kind in kinds if kind.share_memory_mb]
    return GpuType(
        "", share_cpus=min(cpus, default=None), share_memory_mb=min(memory_mb, default=None)
    )


def find_device(draft: Draft, gpu_type: GpuType | None) -> Device:
    if gpu_type is None:
        return UNKNOWN
    measured = draft.evidence.measured
    same = measured is not None and _is_measured(measured, gpu_type, draft.cluster)
    memory_mb = gpu_type.memory_mb
    if memory_mb is None and same and measured is not None and measured.device is not None:
        memory_mb = measured.device.memory_mb
    return Device(gpu_type.name, memory_mb, same)


def _is_measured(measured: Measurement, kind: GpuType, cluster: Cluster) -> bool:
    """Whether a type of GPU is the one that was measured: by the scheduler's name for it, or by its own."""
    device = measured.device
    if device is None:
        return False
    if not kind.name:  # types are not told apart here: the same cluster is all that can be known
        return is_node(measured.host, cluster) and same_memory(kind.memory_mb, device.memory_mb)
    if device.type:
        return device.type == kind.name
    words = re.findall(r"[a-z0-9.]+", device.name.lower())
    wanted = re.findall(r"[a-z0-9.]+", kind.name.lower())
    return set(wanted) <= set(words) and same_memory(kind.memory_mb, device.memory_mb)


def is_node(host: str, cluster: Cluster) -> bool:
    return host.partition(".")[0] in {node.name.partition(".")[0] for node in cluster.nodes}
