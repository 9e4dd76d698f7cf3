"""What a cluster would refuse of a batch script of one's own, or take and never start. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from windlass.core.errors import Problem
from windlass.core.meant import nearest_word
from windlass.plan.request_case import list_gpus
from windlass.site.cluster import Cluster, Partition
from windlass.slurm.directives import Option, Script
from windlass.slurm.options import render_time
from windlass.slurm.records import parse_slurm_time_s

_GPU_OPTIONS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")


def find_script_problems(script: Script, file: str, cluster: Cluster) -> list[Problem]:
    """Partitions, times and types of GPU that this cluster does not have, each with the line it stands on."""
    partitions, unknown = _find_partitions(script, file, cluster)
    return [
        *unknown,
        *_find_long_time(script, file, cluster, partitions),
        *_find_gpu_types(script, file, cluster),
    ]


def find_script_remarks(script: Script, file: str, cluster: Cluster) -> list[Problem]:
    """What sbatch's command line, or a variable, may still give."""
    if (
        cluster.account_rule != "required"
        or cluster.default_account
        or script.value("account") is not None
    ):
        return []
    message = f"no account asked for: {cluster.name} wants one"
    return [Problem(message, "#SBATCH --account=def-PROFESSOR; `sshare -U` lists yours", file, 1)]


def _last(script: Script, name: str) -> Option | None:
    """The one that counts."""
    return next(
        (option for option in reversed(script.options) if option.name == name and option.value),
        None,
    )


def _find_partitions(
    script: Script, file: str, cluster: Cluster
) -> tuple[tuple[Partition, ...], list[Problem]]:
    option = _last(script, "partition")
    names = (
        [name.strip() for name in (option.value or "").split(",")] if option is not None else [None]
    )
    known = [partition.name for partition in cluster.partitions]
    found = tuple(partition for name in names if (partition := cluster.partition(name)) is not None)
    problems = []
    if option is not None and known:
        for name in names:
            if name is not None and name not in known:
                message = f"there is no partition {name!r}; there are: {', '.join(known)}{_according_to(cluster)}"
                hint = f"#SBATCH --partition={nearest_word(name, known) or known[0]}"
                problems.append(Problem(message, hint, file, option.line))
    return found, problems


def _find_long_time(
    script: Script, file: str, cluster: Cluster, partitions: tuple[Partition, ...]
) -> Iterator[Problem]:
    """A time above the limit: most clusters take the job and never start it."""
    option = _last(script, "time")
    if option is None:
        return
    try:
        time_s = parse_slurm_time_s(option.value) or math.inf  # sbatch takes 0 for no limit
    except ValueError:
        return  # which the look at values has found
    longest_s = cluster.longest_of(partitions)
    if longest_s is None or time_s <= longest_s:
        return
    longer = [
        one.name
        for one in cluster.partitions
        if one.up and (cluster.longest_of((one,)) or math.inf) >= time_s
    ]
    place = f"partition {', '.join(one.name for one in partitions)}" if partitions else cluster.name
    message = (
        f"--time={option.value}: such a job never starts: {place} allows {render_time(longest_s)}"
    )
    hint = f"#SBATCH --time={render_time(longest_s)}" + (
        f", or #SBATCH --partition={longer[0]}" if longer else ""
    )
    yield Problem(message, hint, file, option.line)


def _find_gpu_types(script: Script, file: str, cluster: Cluster) -> Iterator[Problem]:
    names = [gpu.name for gpu in cluster.gpus if gpu.name]
    if not names or not cluster.typed_gpus:
        return
    for option in script.options:
        for kind in _types_of(option):
            if kind.lower() not in (name.lower() for name in names):
                right = (option.value or "").replace(kind, nearest_word(kind, names) or names[0])
                yield Problem(
                    f"--{option.name}={option.value}: {cluster.name} has no GPUs of type {kind!r}; "
                    f"there are: {list_gpus(cluster.gpus)}{_according_to(cluster)}",
                    f"#SBATCH --{option.name}={right}",
                    file,
                    option.line,
                )


def _types_of(option: Option) -> Iterator[str]:
    """Types of GPU that an option names: `--gres=gpu:a100:2`, `--gpus=a100:2,p100:1`."""
    if option.name not in _GPU_OPTIONS:
        return
    for part in (option.value or "").split(","):
        words = re.sub(r"\(.*\)", "", part).split(":")
        if option.name == "gres" and words.pop(0) not in ("gpu", "gres/gpu"):
            continue
        if words and words[0] and not words[0].isdigit():
            yield words[0]


def _according_to(cluster: Cluster) -> str:
    return "" if cluster.live else f", according to the profile {cluster.profile}"
