"""The defaults of job_submitter.sh, for studies that are files of that script. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model import Setting, Study
from windlass.site.cluster import Cluster

SOURCE = "default of job_submitter.sh"
_GPUS, _CPUS, _MEMORY_PER_GPU_MB = 1.0, 2.0, 10 * 1024


def with_submitter_defaults(
    settings: Mapping[str, Setting], study: Study, cluster: Cluster
) -> dict[str, Setting]:
    """Fill in what nobody has given: 1 GPU, 2 cores, 10G for each GPU. Its hour is our own default as well.

    Other studies get no GPU that they do not ask for. What was measured, or used by real trials, beats these cores and
    this memory, as it beats other defaults.
    """
    filled = dict(settings)
    if not study.submitter:
        return filled

    def fill(key: str, value: float) -> None:
        if filled[key].value is None:
            filled[key] = Setting(value, SOURCE)

    nodes = cluster.nodes_of(settings["partition"].value)
    # Nobody asked for these amounts: on small nodes they are no reason to refuse.
    fill("cpus", min(_CPUS, max((node.cpus for node in nodes), default=_CPUS)))
    has_gpus = not nodes or any(node.gpus for node in nodes)
    sized = any(settings[key].value is not None for key in ("gpu_memory_mb", "gpus_per_job"))
    if has_gpus and not sized:
        fill("gpus", _GPUS)
    if has_gpus and settings["memory_mb"].value is None:
        # Plan/slurm.py cuts it to what a node has, for all GPUs of a job.
        fill("mem_per_gpu_mb", _MEMORY_PER_GPU_MB)
    return filled
