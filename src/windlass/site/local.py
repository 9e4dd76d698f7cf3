"""What this machine has: cores, memory, GPUs; and what the user's site file says."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from typing import Any

from windlass.core.errors import InputError, Problem
from windlass.core.processes import fetch_text


@dataclass(frozen=True)
class Gpu:
    name: str  # as CUDA_VISIBLE_DEVICES takes it
    memory_mb: int | None = None


@dataclass(frozen=True)
class Site:
    """Facts about where trials will be executed, and defaults for settings that the site wants to give."""

    cpus: int
    memory_mb: int
    gpus: tuple[Gpu, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)
    source: str = ""


def fetch_local_site() -> Site:
    defaults, source = read_site_file(site_file_path())
    return Site(count_cpus(), total_memory_mb(), fetch_gpus(), defaults, source)


def count_cpus() -> int:
    """Cores this process may use: affinity and the cgroup's quota, not what the machine has."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        if quota != "max":
            cpus = min(cpus, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return cpus


def total_memory_mb() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limit = file.read().strip()
        if limit != "max":
            total = min(total, int(limit) // (1 << 20))
    except (OSError, ValueError):
        pass
    return total


def fetch_gpus() -> tuple[Gpu, ...]:
    """GPUs this process may use. CUDA_VISIBLE_DEVICES has the last word, also when it hides them all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        return ()
    if visible is None and not os.path.isdir("/proc/driver/nvidia/gpus"):
        return ()
    text = fetch_text(
        ["nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    )
    found: dict[str, Gpu] = {}
    for line in (text or "").splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[0].isdigit():
            memory_mb = int(fields[2]) if fields[2].isdigit() else None
            found[fields[0]] = found[fields[1]] = Gpu(fields[0], memory_mb)
    if visible is None:
        return tuple(dict.fromkeys(found.values()))
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return tuple(Gpu(name, found[name].memory_mb if name in found else None) for name in names)


def site_file_path() -> str:
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.environ.get("WINDLASS_SITE") or os.path.join(config, "windlass", "site.toml")


def read_site_file(path: str) -> tuple[dict[str, Any], str]:
    """The user's own defaults, as written: ``slots = 4``, ``timeout = "2h"``."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file), path
    except FileNotFoundError:
        return {}, ""
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError([Problem(str(error), "mend or remove this file", path)]) from error
