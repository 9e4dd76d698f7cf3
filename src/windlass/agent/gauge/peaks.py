"""What the samples of one trial amount to: peaks, whether they have been reached, cores, use of the GPU. Python 3.9."""

from __future__ import annotations

import resource
from collections import deque
from typing import Deque, Dict, List, NamedTuple, Optional, Tuple

from windlass.agent.gauge.meter import RankUse, Sample

_WINDOW_S = 60.0
_KEPT = 512
_OWN_MB = 1.05 / 1024  # of a kilobyte, with a little more for what is fresh
_FEWEST = 6  # samples before anything counts as levelled out


class Growth(NamedTuple):
    """A moment and the highest value up to it."""

    when: float
    peak: float


class Level:
    """One quantity over time. Memory of its own is bounded, however long a trial lasts."""

    def __init__(self) -> None:
        self.peak = 0.0
        self.last = 0.0
        self.count = 0
        self._history: List[Growth] = []
        self._stride = 1
        self._recent: Deque[Tuple[float, float]] = deque()

    def add(self, when: float, value: float) -> None:
        self.peak = max(self.peak, value) if self.count else value
        self.last = value
        if self.count % self._stride == 0:
            self._history.append(Growth(when, self.peak))
            if len(self._history) > _KEPT:
                del self._history[1::2]
                self._stride *= 2
        self.count += 1
        self._recent.append((when, value))
        while when - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()

    def slope_per_min(self) -> float:
        """How fast it grows: a straight line through the last minute. 0 with fewer than two moments."""
        count = len(self._recent)
        if count < 2:
            return 0.0
        mean_when = sum(when for when, _ in self._recent) / count
        mean_value = sum(value for _, value in self._recent) / count
        spread = sum((when - mean_when) ** 2 for when, _ in self._recent)
        if not spread:
            return 0.0
        together = sum((when - mean_when) * (value - mean_value) for when, value in self._recent)
        return together / spread * 60.0

    def late_slope_per_min(self) -> Optional[float]:
        """The same through the later half of what was seen; None with too little to tell."""
        late = self._late()
        if len(late) < _FEWEST:
            return None
        (first, low), (last, high) = late[0], late[-1]
        return (high - low) / (last - first) * 60.0 if last > first else None

    def late_growth(self) -> float:
        """How much the peak rose in the later half of what was seen."""
        late = self._late()
        return late[-1][1] - late[0][1] if late else 0.0

    def _late(self) -> List[Growth]:
        if not self._history:
            return []
        middle = (self._history[0].when + self._history[-1].when) / 2
        return [growth for growth in self._history if growth.when >= middle]

    def levelled(self, share: float = 0.02) -> bool:
        """Whether the peak rose by less than `share` in the last third of the time. False with too few samples."""
        if self.count < _FEWEST:
            return False
        begin, end = self._history[0].when, self._recent[-1][0]
        before = [
            growth.peak for growth in self._history if growth.when <= begin + (end - begin) * 2 / 3
        ]
        return self.peak <= before[-1] * (1 + share)


class Peaks:
    """The samples of one trial, folded. All of it is of the time since the first sample."""

    def __init__(self) -> None:
        self.memory = Level()
        self.gpu_memory = Level()
        self.processes = 0
        self.threads = 0
        self.workers = 0  # processes that were there for a while
        self.count = 0
        self.largest_mb = 0.0  # RSS of the largest process that was seen
        self.ranks: Dict[int, RankUse] = {}  # the most that each rank took
        self.memory_source = ""
        self.gpu_source: Optional[str] = None
        self._first: Optional[Sample] = None
        self._last: Optional[Sample] = None
        self._recent: Deque[Sample] = deque()
        self._before = 0
        self._percent_sum = 0.0
        self._percent_count = 0

    def add(self, sample: Sample) -> None:
        """Take in the next sample; samples come in the order of time. Only a window of them is kept, and the peaks."""
        self.count += 1
        if self._first is None:
            self._first = sample
        self._last = sample
        self._recent.append(sample)
        while sample.when - self._recent[0].when > _WINDOW_S:
            self._recent.popleft()
        if sample.memory_mb >= self.memory.peak:
            self.memory_source = sample.memory_source
        self.memory.add(sample.when, sample.memory_mb)
        self.largest_mb = max(self.largest_mb, sample.largest_mb)
        for rank, use in sample.ranks.items():
            self.ranks[rank] = higher_of(self.ranks.get(rank, use), use)
        if sample.gpu_memory_mb is not None:
            if sample.gpu_memory_mb >= self.gpu_memory.peak:
                self.gpu_source = sample.gpu_source
            self.gpu_memory.add(sample.when, sample.gpu_memory_mb)
        if sample.gpu_percent is not None:
            self._percent_sum += sample.gpu_percent
            self._percent_count += 1
        if self.processes and min(self._before, sample.processes) > self.workers:
            self.workers = min(self._before, sample.processes)
        self._before = sample.processes
        self.processes = max(self.processes, sample.processes)
        self.threads = max(self.threads, sample.threads)

    def memory_peak_mb(self, rss_mb: float) -> float:
        """The peak, and what a process took beyond it between two looks: `rss_mb` is the kernel's own figure.

        That one is never less than ours was: a process that has yet to become a trial is the agent's image.
        """
        if not self.memory.count:
            return rss_mb
        unseen_mb = rss_mb - max(
            self.largest_mb, _OWN_MB * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        )
        return self.memory.peak + max(0.0, unseen_mb)

    @property
    def last(self) -> Optional[Sample]:
        return self._last

    @property
    def cores(self) -> Optional[float]:
        """Cores used on average; None before two samples."""
        return _cores(self._first, self._last)

    @property
    def cores_lately(self) -> Optional[float]:
        """The same of the later half of the last minute: what it needs once it is under way."""
        return (
            _cores(self._recent[len(self._recent) // 2], self._recent[-1]) if self._recent else None
        )

    @property
    def gpu_percent(self) -> Optional[float]:
        """Use of the GPU on average; None where no sample had it."""
        return self._percent_sum / self._percent_count if self._percent_count else None

    @property
    def touched_gpu(self) -> bool:
        return self.gpu_memory.peak > 0

    @property
    def gpu_percent_lately(self) -> Optional[float]:
        """The same of the later half of the last minute: without start-up, where there was more than that."""
        later = list(self._recent)[len(self._recent) // 2 :]
        values = [sample.gpu_percent for sample in later if sample.gpu_percent is not None]
        return sum(values) / len(values) if values else None

    def reading_mb_per_s(self) -> Tuple[float, bool]:
        """How much it reads, lately, and whether most of that comes from storage rather than from the cache."""
        if len(self._recent) < 2:
            return 0.0, False
        first, last = self._recent[len(self._recent) // 2], self._recent[-1]
        if last.when <= first.when:
            return 0.0, False
        read, fetched = (
            last.read_bytes - first.read_bytes,
            last.disk_read_bytes - first.disk_read_bytes,
        )
        return read / (last.when - first.when) / (1 << 20), fetched > read / 2 > 0

    def levelled(self) -> bool:
        """Whether neither memory nor GPU memory still grows."""
        return self.memory.levelled() and (self.gpu_memory.count == 0 or self.gpu_memory.levelled())


def higher_of(one: RankUse, other: RankUse) -> RankUse:
    """The higher of each figure."""
    sizes = [mb for mb in (one.gpu_mb, other.gpu_mb) if mb is not None]
    return RankUse(
        max(one.memory_mb, other.memory_mb),
        max(one.rss_mb, other.rss_mb),
        max(one.cpu_s, other.cpu_s),
        max(sizes) if sizes else None,
    )


def _cores(first: Optional[Sample], last: Optional[Sample]) -> Optional[float]:
    if first is None or last is None or last.when <= first.when:
        return None
    return (last.cpu_s - first.cpu_s) / (last.when - first.when)
