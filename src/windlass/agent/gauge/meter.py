"""Measures the process trees of trials from /proc, cheaply. Linux, Python 3.9, standard library.

A process belongs to a trial if it is in the trial's process group or session, has a parent that does, or carries
WINDLASS_TRIAL in its environment: so those that moved away count. Once seen as a member, it stays one.

Memory is PSS, in which pages shared by several processes count once in all. To read it the kernel walks all pages
of a process, so it is read where memory has changed most, for a small share of one core, and RSS tells the rest.
What one process has read and written on which file system /proc does not say.
"""

from __future__ import annotations

import os
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from windlass.agent.gauge.counters import NOTHING, Counters, at_least, minus, plus
from windlass.agent.gauge.gpu_meter import GpuMeter, GpuUse
from windlass.agent.gauge.nvml import Nvml

RANK_MARK = (
    b"WINDLASS_RANK="  # in the environment of the processes of one rank, see launchers/_task.py
)
PSS, RSS, MIXED = "pss", "rss", "mixed"

_MB = 1024 * 1024
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / _MB
_TICKS = os.sysconf("SC_CLK_TCK")
_PSS_SHARE = 0.003  # of one core, for reading PSS
_PSS_CREDIT_S = 0.02
# That a first look at a process may run up: RSS would count for a peak that never was.
_PSS_DEBT_S = 0.2
_PSS_STALE_S = 30.0
# After which strangers are looked at once more: their numbers may have been used anew.
_LOOK_AGAIN_S = 60.0
_LOOKS = 3  # at a new process of ours: between fork and exec it has its parent's environment
_GHOST_SCANS = 2


class RankUse(NamedTuple):
    """One rank of a trial: its processes together, at one moment."""

    memory_mb: float
    rss_mb: float  # RSS of the largest of its processes
    cpu_s: float
    gpu_mb: Optional[float] = None  # where the driver tells it of each process


class Sample(NamedTuple):
    """One look at a trial. Counters are totals since its beginning, those of ended processes included."""

    when: float  # monotonic seconds
    memory_mb: float
    memory_source: str
    cpu_s: float
    read_bytes: int  # through system calls: files, pipes, whatever the page cache answered
    written_bytes: int
    disk_read_bytes: int  # fetched from storage
    disk_written_bytes: int
    processes: int
    threads: int
    gpu_memory_mb: Optional[float] = None
    gpu_source: Optional[str] = None
    gpu_percent: Optional[float] = None
    gpu_percent_source: Optional[str] = None
    largest_mb: float = 0.0  # RSS of the largest of its processes
    ranks: Mapping[int, RankUse] = {}  # of a trial with a launcher


class _Stat(NamedTuple):
    """What is of use in /proc/PID/stat."""

    state: bytes
    parent: int
    group: int
    session: int
    own_s: float
    reaped_s: float
    threads: int
    began: int
    rss_mb: float


class _Process:
    """A member of a trial's tree as last seen."""

    __slots__ = (
        "counters",
        "inherited",
        "pid",
        "pss_mb",
        "pss_readable",
        "pss_rss_mb",
        "pss_when",
        "rank",
        "rank_looks",
        "stat",
    )

    def __init__(self, pid: int, stat: _Stat) -> None:
        self.pid = pid
        self.stat = stat
        self.counters: Counters = NOTHING
        # What may have come from children that were waited for.
        self.inherited: Counters = NOTHING
        self.pss_mb: Optional[float] = None
        self.pss_rss_mb = 0.0  # RSS when PSS was read
        self.pss_when = 0.0
        self.pss_readable = True
        self.rank: Optional[int] = None
        self.rank_looks = _LOOKS

    def find_rank(self) -> None:
        """Read from its environment which rank it belongs to; what starts the ranks belongs to none."""
        self.rank_looks -= 1
        for variable in (_read(f"/proc/{self.pid}/environ") or b"").split(b"\0"):
            if variable.startswith(RANK_MARK) and variable[len(RANK_MARK) :].isdigit():
                self.rank = int(variable[len(RANK_MARK) :])

    @property
    def memory_mb(self) -> float:
        """PSS as read, and growth since then as if it were its own; RSS where PSS cannot be read."""
        if self.pss_mb is None:
            return self.stat.rss_mb
        return min(self.stat.rss_mb, max(0.0, self.pss_mb + self.stat.rss_mb - self.pss_rss_mb))


class _Ghost:
    """Members that are gone, and the ancestor that inherits their counters if it waited for them.

    The ancestor may have been read just before it waited, so its growth is looked at for one more scan.
    """

    __slots__ = ("ancestor", "before", "scans_left", "total")

    def __init__(self, ancestor: _Process, before: Counters) -> None:
        self.ancestor = ancestor
        self.before = before
        self.total = NOTHING
        self.scans_left = _GHOST_SCANS

    def missing(self) -> Counters:
        grown = minus(self.ancestor.inherited, self.before)
        return at_least(minus(self.total, grown), NOTHING)


class _Watch:
    """A trial under watch."""

    __slots__ = ("counters", "ghosts", "has_ranks", "lost", "members", "roots")

    def __init__(self, has_ranks: bool) -> None:
        self.has_ranks = has_ranks
        self.roots: Set[int] = set()
        self.members: Dict[int, _Process] = {}
        self.lost: Counters = NOTHING  # of members that nobody waited for
        self.ghosts: List[_Ghost] = []
        self.counters: Counters = NOTHING


class Meter:
    """Measures all trials of one agent in one go."""

    def __init__(self, agent: str = "", nvml: Optional[Nvml] = None) -> None:
        self._agent = f"WINDLASS_AGENT={agent}".encode() if agent else b""
        self._gpus = GpuMeter(nvml) if nvml is not None else None
        self._watches: Dict[str, _Watch] = {}
        self._roots: Dict[int, str] = {}
        self._strangers: Dict[int, int] = {}  # process → how often it will still be looked at
        self._looked_again = time.monotonic()
        self._credit_s = _PSS_CREDIT_S
        self._sampled = time.monotonic()
        self._own = os.getpid()

    @property
    def gpu_problem(self) -> str:
        """Why GPU figures are missing, if they are."""
        return self._gpus.problem if self._gpus is not None else ""

    def watch(
        self, trial: str, pid: int, visible: Optional[str] = None, has_ranks: bool = False
    ) -> None:
        """Measure the tree of `pid`, which leads a process group. Again with another one: both are the trial's.

        With 0 for `pid`, processes are known by their environment alone. `visible` is the trial's
        CUDA_VISIBLE_DEVICES. Best called before the trial has touched the GPU. With `has_ranks`, the samples tell
        of each rank.
        """
        if trial not in self._watches:
            self._watches[trial] = _Watch(has_ranks)
            if self._gpus is not None:
                self._gpus.watch(trial, visible)
        if not pid:
            self._strangers.clear()  # its first processes may have been looked at already
            return
        self._watches[trial].roots.add(pid)
        self._roots[pid] = trial
        self._strangers.pop(pid, None)

    def forget(self, trial: str) -> None:
        watch = self._watches.pop(trial, None)
        if watch is None:
            return
        for root in watch.roots:
            self._roots.pop(root, None)
        if self._gpus is not None:
            self._gpus.forget(trial)

    def members(self, trial: str) -> Set[int]:
        """Processes of a trial as of the last sample."""
        return set(self._watches[trial].members) if trial in self._watches else set()

    def sample(self) -> Dict[str, Sample]:
        """One look at everything; trials without a living process are there with their last counters."""
        now = time.monotonic()
        present = _list_processes()
        self._find_new(present, now)
        for watch in self._watches.values():
            self._refresh(watch)
        self._read_pss(now)
        gpu: Dict[str, GpuUse] = {}
        if self._gpus is not None:
            gpu = self._gpus.read(
                {trial: set(watch.members) for trial, watch in self._watches.items()}
            )
        self._sampled = now
        on_gpu = self._gpus.by_process if self._gpus is not None else {}
        return {
            trial: _summary(watch, now, gpu.get(trial, GpuUse()), on_gpu)
            for trial, watch in self._watches.items()
        }

    def _find_new(self, present: Set[int], now: float) -> None:
        if now - self._looked_again > _LOOK_AGAIN_S:
            self._strangers.clear()
            self._looked_again = now
        strangers = self._strangers
        for pid in [pid for pid in strangers if pid not in present]:
            del strangers[pid]
        known: Dict[int, str] = {}
        for trial, watch in self._watches.items():
            known.update(dict.fromkeys(watch.members, trial))
        unknown = {pid for pid in present if pid not in known and strangers.get(pid, _LOOKS) > 0}
        unknown.discard(self._own)
        stats: Dict[int, _Stat] = {}
        for pid in unknown:
            stat = _read_stat(pid)
            if stat is not None:
                stats[pid] = stat
        for pid in sorted(stats, key=lambda pid: stats[pid].began):
            owner = self._trial_of(pid, stats[pid], known)
            if owner is not None:
                known[pid] = owner
                strangers.pop(pid, None)
                self._watches[owner].members[pid] = _Process(pid, stats[pid])

    def _trial_of(self, pid: int, stat: _Stat, known: Dict[int, str]) -> Optional[str]:
        """Parents come first, as they began first; so one look at `known` tells of the whole line."""
        for number in (pid, stat.group, stat.session):
            if number in self._roots:
                return self._roots[number]
        if stat.parent in known:
            return known[stat.parent]
        environment = _read(f"/proc/{pid}/environ")
        if environment is None:
            self._strangers[pid] = 0  # not ours, or gone
            return None
        self._strangers[pid] = self._strangers.get(pid, _LOOKS) - 1
        if b"WINDLASS_TRIAL=" not in environment:
            return None
        variables = environment.split(b"\0")
        if self._agent and self._agent not in variables:
            return None
        for variable in variables:
            if variable.startswith(b"WINDLASS_TRIAL="):
                trial = os.fsdecode(variable[15:])
                return trial if trial in self._watches else None
        return None

    def _refresh(self, watch: _Watch) -> None:
        """Read the members anew, parents first, and settle what those that are gone have used."""
        before = {pid: process.inherited for pid, process in watch.members.items()}
        gone: List[_Process] = []
        for process in sorted(watch.members.values(), key=lambda process: process.stat.began):
            if not _refresh_process(process):
                gone.append(process)
        for process in gone:
            del watch.members[process.pid]
        for ghost in watch.ghosts:
            ghost.scans_left -= 1
        new: Dict[int, _Ghost] = {}
        for process in gone:
            ancestor = _surviving_ancestor(process, gone, watch.members)
            if ancestor is None:
                watch.lost = plus(watch.lost, process.counters)
                continue
            if ancestor.pid not in new:
                new[ancestor.pid] = _Ghost(ancestor, before[ancestor.pid])
            new[ancestor.pid].total = plus(new[ancestor.pid].total, process.counters)
        watch.ghosts += new.values()
        settled = [
            ghost
            for ghost in watch.ghosts
            if ghost.scans_left <= 0 or ghost.ancestor.pid not in watch.members
        ]
        for ghost in settled:
            watch.ghosts.remove(ghost)
            watch.lost = plus(watch.lost, ghost.missing())
        total = watch.lost
        for process in watch.members.values():
            total = plus(total, process.counters)
        for ghost in watch.ghosts:
            total = plus(total, ghost.missing())
        watch.counters = at_least(total, watch.counters)

    def _read_pss(self, now: float) -> None:
        """Spend what time there is on the processes whose memory has changed most since PSS was read."""
        self._credit_s = min(_PSS_CREDIT_S, self._credit_s + (now - self._sampled) * _PSS_SHARE)
        due: List[Tuple[float, _Process]] = []
        for watch in self._watches.values():
            for process in watch.members.values():
                changed_mb = abs(process.stat.rss_mb - process.pss_rss_mb)
                is_small = changed_mb < max(1.0, process.stat.rss_mb * 0.01)
                if not process.pss_readable or (is_small and now - process.pss_when < _PSS_STALE_S):
                    continue
                due.append((changed_mb, process))
        due.sort(key=lambda item: (item[1].pss_when > 0, -item[0]))
        began = time.thread_time()
        for _, process in due:
            least_s = 0.0 if process.pss_when else -_PSS_DEBT_S
            if self._credit_s - (time.thread_time() - began) > least_s:
                _read_process_pss(process, now)
        self._credit_s -= time.thread_time() - began


def _refresh_process(process: _Process) -> bool:
    """Read a member's figures. False if it is gone, or its number is another one's by now."""
    stat = _read_stat(process.pid)
    if stat is None or stat.began != process.stat.began:
        return False
    process.stat = stat
    transfers = _read_io(process.pid)
    if transfers is None:  # a zombie, or not ours to see: what was known remains
        transfers = process.counters[1:]
    process.counters = (stat.own_s + stat.reaped_s, *transfers)
    process.inherited = (stat.reaped_s, *transfers)
    return True


def _surviving_ancestor(
    process: _Process, gone: Sequence[_Process], members: Dict[int, _Process]
) -> Optional[_Process]:
    dead = {other.pid: other for other in gone}
    parent = process.stat.parent
    while parent in dead and dead[parent] is not process:
        process = dead.pop(parent)
        parent = process.stat.parent
    return members.get(parent)


def _count_ranks(watch: _Watch, on_gpu: Mapping[int, float]) -> Dict[int, RankUse]:
    """What each rank takes now. `on_gpu`: process → GPU memory in MB, where the driver says so."""
    ranks: Dict[int, RankUse] = {}
    for process in watch.members.values():
        if process.rank is None and process.rank_looks > 0:
            process.find_rank()
        if process.rank is None or process.stat.state in b"ZX":
            continue
        so_far = ranks.get(process.rank, RankUse(0.0, 0.0, 0.0))
        gpu_mb = so_far.gpu_mb
        if process.pid in on_gpu:
            gpu_mb = (gpu_mb or 0.0) + on_gpu[process.pid]
        ranks[process.rank] = RankUse(
            so_far.memory_mb + process.memory_mb,
            max(so_far.rss_mb, process.stat.rss_mb),
            so_far.cpu_s + process.counters[0],
            gpu_mb,
        )
    return ranks


def _summary(watch: _Watch, now: float, gpu: GpuUse, on_gpu: Mapping[int, float]) -> Sample:
    living = [process for process in watch.members.values() if process.stat.state not in b"ZX"]
    sources = {PSS if process.pss_mb is not None else RSS for process in living}
    cpu_s, read, written, disk_read, disk_written = watch.counters
    return Sample(
        when=now,
        memory_mb=sum(process.memory_mb for process in living),
        memory_source=MIXED if len(sources) == 2 else next(iter(sources), PSS),
        cpu_s=cpu_s,
        read_bytes=int(read),
        written_bytes=int(written),
        disk_read_bytes=int(disk_read),
        disk_written_bytes=int(disk_written),
        processes=len(living),
        threads=sum(process.stat.threads for process in living),
        gpu_memory_mb=gpu.memory_mb,
        gpu_source=gpu.memory_source,
        gpu_percent=gpu.percent,
        gpu_percent_source=gpu.percent_source,
        largest_mb=max((process.stat.rss_mb for process in living), default=0.0),
        ranks=_count_ranks(watch, on_gpu) if watch.has_ranks else {},
    )


def _list_processes() -> Set[int]:
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return set()


def _read_stat(pid: int) -> Optional[_Stat]:
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    # The program's name stands in parentheses and may hold anything, spaces and parentheses too.
    fields = text[text.rindex(b")") + 2 :].split()
    return _Stat(
        fields[0],
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        (int(fields[11]) + int(fields[12])) / _TICKS,
        (int(fields[13]) + int(fields[14])) / _TICKS,
        int(fields[17]),
        int(fields[19]),
        int(fields[21]) * _PAGE_MB,
    )


def _read_io(pid: int) -> Optional[Tuple[float, float, float, float]]:
    """Bytes read, written, fetched from storage and sent to it."""
    text = _read(f"/proc/{pid}/io")
    if not text:
        return None
    fields = text.split()
    # rchar: 1 wchar: 3 syscr: 5 syscw: 7 read_bytes: 9 write_bytes: 11
    return (float(fields[1]), float(fields[3]), float(fields[9]), float(fields[11]))


def _read_process_pss(process: _Process, now: float) -> None:
    text = _read(f"/proc/{process.pid}/smaps_rollup")
    begin = text.find(b"\nPss:") if text else -1
    process.pss_when = now
    if begin < 0 or text is None:
        # A process that is just ending has no pages; one that may not be looked into never will.
        process.pss_readable = text is not None
        return
    process.pss_mb = int(text[begin + 5 :].split(None, 1)[0]) / 1024
    process.pss_rss_mb = process.stat.rss_mb


def _read(path: str) -> Optional[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(descriptor, 65536)
        while len(data) % 4096 == 0 and data:
            more = os.read(descriptor, 65536)
            if not more:
                break
            data += more
        return data
    except OSError:
        return None
    finally:
        os.close(descriptor)
