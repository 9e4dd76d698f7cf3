"""What to ask for next time, from what was asked for and used. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.collect.efficiency import Efficiency, JobGroup
from windlass.core.counted import counted
from windlass.core.planfile import NO_PLAN, PlanFile
from windlass.core.queue.states import ENDED, JobState
from windlass.core.units import (
    render_duration,
    render_limit,
    render_mb,
    spell_duration,
    spell_memory,
)
from windlass.slurm.options import render_time
from windlass.slurm.used import JobUse
from windlass.usage import Usage, whole_cores

LESS, MORE = "ask for less", "ask for more"
_WORTH = 0.8  # what would be less than this share of what was asked for is worth an advice
_NEARLY_ALL = 0.95
_MEMORY_ROOM = 1.2
_TIME_ROOM = 1.3
_IDLE_PERCENT = 50.0
_SHORTEST_S = 10.0  # of a job that tells how many cores it uses
_MEMORY_SHARES = frozenset({"mem-per-cpu", "mem-per-gpu"})  # which sbatch refuses beside --mem
# Settings that the user gave, as opposed to those that Windlass chose.
_SAID = "study", "command line"


@dataclass(frozen=True)
class Advice:
    """One line to change. `section` and `key` name it in a study's file; `option` names one of sbatch's."""

    what: str  # ask for less, ask for more, look
    because: str
    section: str = ""
    key: str = ""
    value: str = ""
    option: str = ""
    source: str = ""  # where the user gave the present value: study or command line

    @property
    def change(self) -> str:
        """The line itself; empty where there is none."""
        if self.option:
            return f"#SBATCH --{self.option}={self.value}"
        if not self.key:
            return ""
        if self.source == "command line":
            return f"--{self.key.replace('_', '-')} {self.value}"
        return f"{self.section}: {{{self.key}: {self.value}}}"


def advise(found: Efficiency, written: Mapping[str, str] | None = None) -> list[Advice]:
    """What to change: in the study, or in the script of jobs that are none of ours, whose options are `written`."""
    if not found.study:
        return [advice for group in found.groups for advice in advise_script(group, written)]
    if found.usage is None or not found.usage.done:
        return []
    plan = found.plan or NO_PLAN
    group = found.groups[-1] if found.groups else None
    advices = [
        _advise_memory(found.usage, plan, group),
        _advise_cpus(found.usage, plan),
        _advise_time(found.usage, plan),
        _advise_gpu(found.usage, group),
    ]
    return [advice for advice in advices if advice is not None]


def _advise_memory(usage: Usage, plan: PlanFile, group: JobGroup | None) -> Advice | None:
    """Advice on memory: the highest peak of a trial, with room, against what was requested."""
    peak_mb, asked_mb = usage.overall.memory_mb, plan.trial_memory_mb
    if not isinstance(asked_mb, (int, float)) and group is not None and group.slots:
        # With room for the agent.
        asked_mb = (_asked(group, "asked_memory_mb") or 0.0) / group.slots
    if peak_mb is None or not asked_mb:
        return None
    because = f"asked {render_mb(asked_mb)} a trial, the highest peak was {render_mb(peak_mb)}"
    source = str(plan.sources.get("memory_mb", ""))
    want = {
        "section": "needs",
        "key": "memory",
        "value": spell_memory(_room_mb(peak_mb)),
        "source": source,
    }
    return _less_or_more(_room_mb(peak_mb), peak_mb, asked_mb, because, want)


def _advise_cpus(usage: Usage, plan: PlanFile) -> Advice | None:
    """Advice on cores: what nine of ten trials used at most, against what was requested."""
    cores, asked = usage.overall.cores, plan.cpus_per_slot
    if cores is None or not isinstance(asked, (int, float)) or asked <= 1:
        return None
    wanted = whole_cores(cores)
    because = f"asked {counted(asked, 'core')} a trial, nine of ten used at most {cores:.1f}"
    want = {
        "section": "needs",
        "key": "cpus",
        "value": str(wanted),
        "source": str(plan.sources.get("cpus", "")),
    }
    return _less_or_more(wanted, 0.0, asked, because, want)


def _advise_time(usage: Usage, plan: PlanFile) -> Advice | None:
    """Advice on time: the longest trial, with room, against what was requested."""
    asked_s, times = plan.trial_time_s, usage.overall.time_s
    if times is None or not isinstance(asked_s, (int, float)):
        return None
    wanted_s = neat_time_s(times[2] * _TIME_ROOM)
    because = f"asked {render_limit(asked_s)} a trial, the longest took {render_duration(math.ceil(times[2]))}"
    source = str(plan.sources.get("time_s", ""))
    want = {"section": "needs", "key": "time", "value": spell_duration(wanted_s), "source": source}
    return _less_or_more(wanted_s, times[2], asked_s, because, want)


def _less_or_more(
    wanted: float, used: float, asked: float, because: str, want: Mapping[str, str]
) -> Advice | None:
    """An advice where the user gave the figure; what Windlass chose, it chooses better next time."""
    less, more = wanted < _WORTH * asked, used > _NEARLY_ALL * asked
    if not less and not more:
        return None
    if want["source"] not in _SAID:
        return Advice("nothing to change", f"{because}: the next plan goes by what trials used")
    return Advice(LESS if less else MORE, because, **want)


def _advise_gpu(usage: Usage, group: JobGroup | None) -> Advice | None:
    """Advice where a GPU was not used, or idle for most of the time."""
    jobs = [job for job in group.jobs if job.gpus] if group is not None else []
    if not jobs:
        return None
    if usage.overall.gpu_mb == 0:
        return Advice(
            "look",
            "no trial touched the GPU it was given: `windlass doctor --gpu` says what it sees",
        )
    # Of the whole GPU: what one trial kept busy of it is a part where several share it.
    percents = [job.gpu_percent for job in jobs if job.gpu_percent is not None]
    busy = sum(percents) / len(percents) if percents else None
    if busy is not None and busy < _IDLE_PERCENT:
        company = f" with {usage.k} at a time" if usage.k else ""
        return Advice(
            "look",
            f"the GPU was {busy:.0f} % busy{company}: `windlass measure` finds how many share it",
        )
    return None


# -- jobs that are none of ours


def advise_script(group: JobGroup, written: Mapping[str, str] | None = None) -> list[Advice]:
    """Lines of a batch script, from all jobs of it that have ended; text alone where a line might be wrong.

    What was cut off says when it was too little, never that less would do. `written`: the options they were submitted
    with; None: not known.
    """
    jobs = [job for job in group.jobs if job.state in ENDED]
    advices = [_script_memory(jobs, written), _script_cpus(jobs, written), _script_time(jobs)]
    states = {job.state for job in jobs}
    if JobState.OUT_OF_MEMORY in states and advices[0] is not None and advices[0].what == LESS:
        advices[0] = None  # what was sampled before it was killed is not the peak
    return [
        advice for advice in advices if advice and (JobState.DONE in states or advice.what != LESS)
    ]


def _script_memory(jobs: Sequence[JobUse], written: Mapping[str, str] | None) -> Advice | None:
    """Of one node, as --mem says it. Less goes by the most that may have been used, more by what surely was."""
    asked_mb, most_mb = _asked_node_mb(jobs), _most_node_mb(jobs)
    sure_mb = max((job.task_mb or 0.0 for job in jobs), default=0.0)
    steps_mb = max((job.steps_mb or 0.0 for job in jobs), default=0.0)
    if not most_mb or not asked_mb:
        return None
    least_mb = max(_room_mb(most_mb), math.ceil(steps_mb))
    less = least_mb < _WORTH * asked_mb
    peak_mb, wanted_mb = (most_mb, least_mb) if less else (sure_mb, _room_mb(sure_mb))
    a_node = " a node" if any(job.nodes > 1 for job in jobs) else ""
    at_most = "at most " if peak_mb > sure_mb else ""
    because = (
        f"asked {render_mb(asked_mb)}{a_node}, the highest peak was {at_most}{render_mb(peak_mb)}"
    )
    if wanted_mb > _room_mb(peak_mb):
        because += f", steps ask for {render_mb(steps_mb)}"
    value = spell_memory(wanted_mb).removesuffix("B")
    if "." in value:  # which sbatch does not take
        value = f"{wanted_mb}M"
    fits = written is not None and not _MEMORY_SHARES & written.keys()
    return _script_advice(least_mb, sure_mb, asked_mb, because, "mem" if fits else "", value)


def _script_cpus(jobs: Sequence[JobUse], written: Mapping[str, str] | None) -> Advice | None:
    """Advice on the cores of a batch script.

    It names a line only where fewer cores would not also mean less memory.
    """
    used = [
        job.cpu_s / job.elapsed_s
        for job in jobs
        if job.cpu_s and (job.elapsed_s or 0.0) >= _SHORTEST_S and job.elapsed_s
    ]
    asked = max((job.cpus or 0.0 for job in jobs), default=0.0)
    if not used or asked <= 1:
        return None
    wanted = whole_cores(max(used))
    because = f"asked {counted(asked, 'core')}, at most {max(used):.1f} were used on average"
    said = (written or {}).get("cpus-per-task", "")
    one_task = said.isdecimal() and wanted < int(said) and asked < 2 * int(said)
    fits = one_task and _keeps_memory(jobs, wanted / asked, written or {})
    return _script_advice(wanted, 0.0, asked, because, "cpus-per-task" if fits else "", str(wanted))


def _keeps_memory(jobs: Sequence[JobUse], share: float, written: Mapping[str, str]) -> bool:
    """Whether the memory suffices with this share of the cores: what no option says may go by them, too."""
    if "mem-per-cpu" not in written and ("mem" in written or "mem-per-gpu" in written):
        return True
    asked_mb, most_mb = _asked_node_mb(jobs), _most_node_mb(jobs)
    return not asked_mb or (bool(most_mb) and _room_mb(most_mb) <= asked_mb * share)


def _asked_node_mb(jobs: Sequence[JobUse]) -> float:
    return max(((job.asked_memory_mb or 0.0) / job.nodes for job in jobs), default=0.0)


def _most_node_mb(jobs: Sequence[JobUse]) -> float:
    return max((job.node_mb or 0.0 for job in jobs), default=0.0)


def _script_time(jobs: Sequence[JobUse]) -> Advice | None:
    """Advice on the time of a batch script."""
    took_s = max((job.elapsed_s or 0.0 for job in jobs), default=0.0)
    asked_s = max((job.asked_s or 0.0 for job in jobs), default=0.0)
    if not took_s or not asked_s:
        return None
    wanted_s = neat_time_s(took_s * _TIME_ROOM)
    because = (
        f"asked {render_limit(asked_s)}, the longest took {render_duration(math.ceil(took_s))}"
    )
    return _script_advice(wanted_s, took_s, asked_s, because, "time", render_time(wanted_s))


def _script_advice(
    wanted: float, used: float, asked: float, because: str, option: str, value: str
) -> Advice | None:
    """An advice without an option to change is text alone."""
    if wanted < _WORTH * asked:
        return Advice(LESS, because, option=option, value=value)
    if used > _NEARLY_ALL * asked:
        return Advice(MORE, because, option=option, value=value)
    return None


# -- figures as people write them


def _asked(group: JobGroup, name: str) -> float | None:
    known = [getattr(job, name) for job in group.jobs if getattr(job, name) is not None]
    return max(known) if known else None


def _room_mb(peak_mb: float) -> int:
    """With a fifth on top, to the next 100 MB."""
    return math.ceil(peak_mb * _MEMORY_ROOM / 100) * 100


def neat_time_s(seconds: float) -> int:
    """Rounded up to minutes, of longer ones to five, to fifteen."""
    step_s = 60 if seconds <= 900 else 300 if seconds <= 3 * 3600 else 900
    return math.ceil(seconds / step_s) * step_s
