"""What the kernel's control group says of this process and all in its group: memory, kills, CPU. Python 3.9.

The limit of a job usually stands some levels above the group of its processes: the tightest level on the way up is
the one that counts, and its peak is the one to compare with it.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

_MB = 1024 * 1024
_NO_LIMIT_BYTES = 1 << 60  # version 1 writes a number of about 2**63 for "none"


class Cgroup(NamedTuple):
    """None: this kernel, or this group, does not say."""

    version: int
    path: str  # of the level whose memory is limited most, or of the group itself
    limit_mb: Optional[float]
    peak_mb: Optional[float]
    current_mb: Optional[float]
    # Processes of the group that the kernel ended for memory, since the group was made.
    oom_kills: Optional[int]
    cpu_limit: Optional[float]  # cores
    throttled_s: Optional[float]  # how long the group waited because its cores were used up


class _Mount(NamedTuple):
    point: str
    root: str


def read_cgroup(root: str = "/") -> Optional[Cgroup]:
    """The group of this process. None where there is no memory controller. `root` is where /proc and /sys lie."""
    groups = _read_groups(root)
    mounts = _read_mounts(root)
    if "memory" in groups and "memory" in mounts:
        return _read_v1(groups, mounts)
    if "" in groups and "" in mounts:
        return _read_v2(groups[""], mounts[""])
    return None


def _read_groups(root: str) -> Dict[str, str]:
    """Controller → path of our group; the controller of version 2 is ''."""
    found: Dict[str, str] = {}
    for line in read_text(os.path.join(root, "proc/self/cgroup")).splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def _read_mounts(root: str) -> Dict[str, _Mount]:
    """Controller → where its tree is mounted, and which part of the tree that is."""
    found: Dict[str, _Mount] = {}
    for line in read_text(os.path.join(root, "proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        kind, options = after.split(" ", 1)[0], after.rsplit(" ", 1)[-1]
        columns = before.split(" ")
        if len(columns) < 5 or not kind.startswith("cgroup"):
            continue
        mount = _Mount(os.path.join(root, columns[4].lstrip("/")), columns[3])
        for controller in [""] if kind == "cgroup2" else options.split(","):
            found.setdefault(controller, mount)
    return found


def _levels(path: str, mount: _Mount) -> Iterator[str]:
    """Folders of the group and of those above it, as far up as this process can see."""
    if mount.root != "/" and (path + "/").startswith(mount.root.rstrip("/") + "/"):
        path = path[len(mount.root) :]
    parts = [part for part in path.split("/") if part and part != ".."]
    while parts:
        folder = os.path.join(mount.point, *parts)
        if os.path.isdir(folder):
            yield folder
        parts.pop()
    yield mount.point


def _read_v2(path: str, mount: _Mount) -> Optional[Cgroup]:
    levels = list(_levels(path, mount))
    chosen, limit = _tightest(levels, "memory.max")
    own = levels[0]
    kills = _read_fields(os.path.join(own, "memory.events")).get("oom_kill")
    stat = _read_fields(os.path.join(own, "cpu.stat"))
    throttled = stat.get("throttled_usec")
    current = _read_number(os.path.join(chosen, "memory.current"))
    if current is None and kills is None:
        return None
    return Cgroup(
        version=2,
        path=chosen,
        limit_mb=_as_mb(limit),
        peak_mb=_as_mb(_read_number(os.path.join(chosen, "memory.peak"))),
        current_mb=_as_mb(current),
        oom_kills=kills,
        cpu_limit=min(
            (cores for cores in map(_cores_v2, levels) if cores is not None), default=None
        ),
        throttled_s=None if throttled is None else throttled / 1e6,
    )


def _read_v1(groups: Dict[str, str], mounts: Dict[str, _Mount]) -> Cgroup:
    levels = list(_levels(groups["memory"], mounts["memory"]))
    chosen, limit = _tightest(levels, "memory.limit_in_bytes")
    cores, throttled = None, None
    if "cpu" in groups and "cpu" in mounts:
        cpu_levels = list(_levels(groups["cpu"], mounts["cpu"]))
        cores = min(
            (cores for cores in map(_cores_v1, cpu_levels) if cores is not None), default=None
        )
        throttled = _read_fields(os.path.join(cpu_levels[0], "cpu.stat")).get("throttled_time")
    return Cgroup(
        version=1,
        path=chosen,
        limit_mb=_as_mb(limit),
        peak_mb=_as_mb(_read_number(os.path.join(chosen, "memory.max_usage_in_bytes"))),
        current_mb=_as_mb(_read_number(os.path.join(chosen, "memory.usage_in_bytes"))),
        oom_kills=_read_fields(os.path.join(levels[0], "memory.oom_control")).get("oom_kill"),
        cpu_limit=cores,
        throttled_s=None if throttled is None else throttled / 1e9,
    )


def _tightest(levels: List[str], name: str) -> Tuple[str, Optional[int]]:
    """The level with the least limit and that limit; the group itself where there is none."""
    best: Tuple[str, Optional[int]] = (levels[0], None)
    for level in levels:
        limit = _read_number(os.path.join(level, name))
        if limit is not None and limit < _NO_LIMIT_BYTES and (best[1] is None or limit < best[1]):
            best = (level, limit)
    return best


def _cores_v2(level: str) -> Optional[float]:
    columns = read_text(os.path.join(level, "cpu.max")).split()
    return int(columns[0]) / int(columns[1]) if len(columns) == 2 and columns[0].isdigit() else None


def _cores_v1(level: str) -> Optional[float]:
    quota = _read_number(os.path.join(level, "cpu.cfs_quota_us"))
    period = _read_number(os.path.join(level, "cpu.cfs_period_us"))
    return quota / period if quota and period and quota > 0 else None


def _as_mb(count_bytes: Optional[int]) -> Optional[float]:
    return None if count_bytes is None else count_bytes / _MB


def _read_number(path: str) -> Optional[int]:
    try:
        return int(read_text(path))
    except ValueError:
        return None  # "max", or no such file


def _read_fields(path: str) -> Dict[str, int]:
    """A file of lines with a name and a number."""
    fields = (line.split() for line in read_text(path).splitlines())
    return {
        columns[0]: int(columns[1])
        for columns in fields
        if len(columns) == 2 and columns[1].isdigit()
    }


def read_text(path: str) -> str:
    """A file of the kernel's; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def read_free_mb() -> Optional[float]:
    """Memory of this machine that could be given out now."""
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return None


def read_job_mb() -> Optional[float]:
    """What the scheduler says that this job has; None outside of jobs, and where it gives all there is."""
    given = os.environ.get("SLURM_MEM_PER_NODE", "")
    return float(given) if given.isdigit() and int(given) else None
