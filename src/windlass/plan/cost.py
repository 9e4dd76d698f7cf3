"""What a plan costs, when it would be through, and how else the trials could be dealt out to jobs. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from windlass.model import Cost, Request, Split
from windlass.plan.draft import whole_minutes
from windlass.plan.sharing import OneTrial
from windlass.site.cluster import Cluster, GpuType

CORE_HOURS = "core-hours"
_LENGTHS_H = (1, 3, 6, 12, 24)  # longer jobs wait long
_MOST_SPLITS = 4


@dataclass(frozen=True)
class Work:
    """Trials that are dealt out: `width` of them at a time in a job, each taking as long as `one`."""

    trials: int
    width: int
    one: OneTrial

    def jobs_s(self, agents: int) -> float:
        """All jobs together: an agent ends when nothing is left, and its last trial may be a long one."""
        waves = math.ceil(self.trials / self.width)
        return waves * self.one.middle_s + agents * (self.one.high_s - self.one.middle_s)


@dataclass(frozen=True)
class Limits:
    agents: int
    job_s: float | None
    at_once: int


@dataclass(frozen=True)
class Prices:
    """What jobs that ask for this are billed."""

    request: Request
    cluster: Cluster
    gpu_type: GpuType | None = None

    def of(self, jobs_s: float, *, at_most: bool = False) -> Cost:
        """Jobs that last so long, all together.

        A site bills the largest of a job's shares: of GPUs, or of the cores or the memory that go with them.
        """
        request, gpu = self.request, self.gpu_type
        hours = jobs_s / 3600 * request.nodes
        gpu_hours, core_hours = hours * request.gpus, hours * request.cpus
        billed = None
        if request.gpus and gpu is not None and gpu.cost is not None:
            shares = [float(request.gpus)]
            shares += [request.cpus / gpu.share_cpus] if gpu.share_cpus else []
            shares += [request.memory_mb / gpu.share_memory_mb] if gpu.share_memory_mb else []
            billed = hours * gpu.cost * max(shares)
        elif not request.gpus and self.cluster.cost_unit == CORE_HOURS:
            billed = core_hours
        unit = self.cluster.cost_unit or "" if billed is not None else ""
        return Cost(gpu_hours, core_hours, billed, unit, at_most)


def finish_s(work: Work, agents: int, waves: int, time_s: float, at_once: int) -> float:
    """Until the last trial ends, where `at_once` of these jobs run at a time."""
    one = work.one
    if agents <= at_once:
        return one.expect_s(waves)
    longer = math.ceil(work.trials / (work.width * at_once))
    if one.expect_s(longer) <= one.usable_s(time_s):
        # Those that run have the time to take what the others would have.
        return one.expect_s(longer)
    return one.expect_s(waves) * math.ceil(agents / at_once)


def find_splits(work: Work, prices: Prices, limits: Limits, planned: int) -> tuple[Split, ...]:
    """From many short jobs, which start sooner, to few long ones, which start their environment less often.

    Not the number of agents that is planned.
    """
    found: dict[int, Split] = {}
    one, most_s = work.one, limits.job_s if limits.job_s is not None else math.inf
    for length_s in sorted({min(hours * 3600.0, most_s) for hours in _LENGTHS_H}):
        # So many hours of trials; setup and notice are on top where the site's limit leaves room for them.
        waves = 1 + int((length_s - one.expect_s(1) * one.safety) // (one.middle_s * one.safety))
        while waves > 1 and one.ask_s(waves) > most_s:
            waves -= 1
        if waves < 1 or length_s < prices.cluster.min_job_s:
            continue
        agents = min(math.ceil(work.trials / (work.width * waves)), limits.agents)
        waves = math.ceil(work.trials / (work.width * agents))
        time_s = whole_minutes(one.ask_s(waves))
        if time_s <= most_s and agents != planned:
            estimate_s = finish_s(work, agents, waves, time_s, limits.at_once)
            found.setdefault(
                agents, Split(agents, time_s, waves, estimate_s, prices.of(work.jobs_s(agents)))
            )
    return _spread(sorted(found.values(), key=lambda split: -split.agents))


def _spread(splits: list[Split]) -> tuple[Split, ...]:
    """The first, the last and what lies between them, few enough to be read."""
    if len(splits) <= _MOST_SPLITS:
        return tuple(splits)
    step = (len(splits) - 1) / (_MOST_SPLITS - 1)
    return tuple(splits[round(number * step)] for number in range(_MOST_SPLITS))
