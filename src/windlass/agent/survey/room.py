"""How many cores and how much memory the trials of a survey may use together. Python 3.9, standard library."""

from __future__ import annotations

import os

from windlass.agent.gauge.cgroup import read_cgroup, read_free_mb, read_job_mb


def usable_cores() -> int:
    """The cores that trials may use together: those the process may run on, at most those that Slurm gave the job.

    Both are asked, because not every cluster keeps jobs to the cores that are theirs.
    """
    cores = len(os.sched_getaffinity(0))
    given = os.environ.get("SLURM_CPUS_ON_NODE", "") if os.environ.get("SLURM_JOB_ID") else ""
    return min(cores, int(given)) if given.isdigit() and int(given) else cores


def available_mb() -> float:
    """The memory that trials may take together: what the job may have, or what is free on this machine.

    Infinity where neither the job, nor its control group, nor the kernel gives a figure.
    """
    limits = [read_free_mb(), read_job_mb()]
    group = read_cgroup()
    if group is not None and group.limit_mb is not None:
        limits.append(group.limit_mb - (group.current_mb or 0.0))
    return min((limit for limit in limits if limit is not None), default=float("inf"))
