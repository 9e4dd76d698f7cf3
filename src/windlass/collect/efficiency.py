"""Asked against used: of a study's jobs and agents from its journals and accounting, of other jobs from accounting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.collect.index import open_index
from windlass.collect.submissions import Submission, read_submissions
from windlass.collect.usage import as_number, read_usage
from windlass.core.errors import SchedulerError, input_error
from windlass.core.journal.events import Ended, decode_event
from windlass.core.journal.read import JournalReader
from windlass.core.journal.records import AgentRecord
from windlass.core.paths import StudyPaths
from windlass.core.planfile import PlanFile, read_plan_file
from windlass.core.queue.ask import ask
from windlass.core.queue.states import JobState
from windlass.slurm.used import JobUse, fetch_uses, highest_together
from windlass.usage import Usage

LOCAL = "this machine"
_NO_ACCOUNTING = "Slurm's accounting does not answer (sacct)"


@dataclass(frozen=True)
class JobGroup:
    """Jobs that asked for the same: an array, a job of its own, or the agents of a study on this machine."""

    name: str
    jobs: tuple[JobUse, ...]
    slots: int = 0  # trials at a time in each; 0 where they are no agents of ours
    gpu_memory_mb: float | None = None  # of one of their GPUs


@dataclass(frozen=True)
class Efficiency:
    """What was asked for and what was used."""

    groups: tuple[JobGroup, ...]
    accounting: bool | None = None  # whether sacct answered; None: it was not asked
    study: str = ""  # empty for jobs that are none of ours
    folder: str = ""
    usage: Usage | None = None  # what trials used, one by one
    plan: PlanFile | None = None  # the study's plan.json


@dataclass(frozen=True)
class _Attempt:
    """What the journal tells of one attempt that ended."""

    start: float
    duration_s: float
    cpu_s: float
    memory_mb: float
    gpu_mb: float | None
    gpu_of_all: bool  # the GPU's figures are of the whole device
    gpu_percent: float | None


def read_efficiency(paths: StudyPaths, only: tuple[int, int | None] | None = None) -> Efficiency:
    """A whole study; `only` one of its arrays, or one task of it."""
    with open_index(paths) as index:
        agents = index.agents()
    submissions = {submission.id: submission for submission in read_submissions(paths)}
    groups: dict[str, list[tuple[AgentRecord, JobUse]]] = {}
    for agent in agents:
        submission = submissions.get(str((agent.job or {}).get("sub")))
        use = fold_agent(agent, read_attempts(paths.journal_of(agent.id)), submission)
        if _is_meant(use, only):
            groups.setdefault(use.array if agent.job is not None else LOCAL, []).append(
                (agent, use)
            )
    accounted = _fetch_accounted(groups)
    plan = read_plan_file(paths.plan)
    return Efficiency(
        groups=tuple(
            replace(_make_group(name, members, accounted or {}), gpu_memory_mb=_device_mb(plan))
            for name, members in groups.items()
        ),
        accounting=None if not any(name != LOCAL for name in groups) else accounted is not None,
        study=plan.name,
        folder=paths.folder,
        usage=read_usage(paths),
        plan=plan,
    )


def fetch_efficiency(job: str) -> Efficiency:
    """Jobs that Windlass did not start. Raises where accounting does not answer or does not know them."""
    uses = fetch_uses([job], ask)
    if uses is None:
        raise SchedulerError(
            f"{_NO_ACCOUNTING}, and job {job} is none of Windlass's own\n"
            "  hint: without accounting nobody keeps what a job used; "
            "`windlass watch` looks at one that runs"
        )
    if not uses:
        raise input_error(
            f"accounting does not know job {job}, or it has not begun",
            "`sacct --jobs` takes 123 and 123_4",
        )
    groups: dict[str, list[JobUse]] = {}
    for use in uses:
        groups.setdefault(use.array, []).append(use)
    return Efficiency(
        tuple(JobGroup(name, tuple(jobs)) for name, jobs in groups.items()), accounting=True
    )


def _is_meant(use: JobUse, only: tuple[int, int | None] | None) -> bool:
    """Whether a job is among those that were asked for: a whole array, or one task of it."""
    return (
        only is None
        or use.name == str(only[0])
        or (use.array == str(only[0]) and (only[1] is None or use.name == f"{only[0]}_{only[1]}"))
    )


def _fetch_accounted(groups: Iterable[str]) -> dict[str, JobUse] | None:
    arrays = [name for name in groups if name != LOCAL]
    uses = fetch_uses(arrays, ask) if arrays else None
    return None if uses is None else {use.name: use for use in uses}


def _make_group(
    name: str, members: Sequence[tuple[AgentRecord, JobUse]], accounted: Mapping[str, JobUse]
) -> JobGroup:
    """A group of jobs that asked for the same, with what journals and accounting know of each."""
    jobs: dict[str, JobUse] = {}
    for _, use in members:  # a job that was started again has several agents, one after another
        jobs[use.name] = _followed(jobs[use.name], use) if use.name in jobs else use
    merged = (_merged(use, accounted.get(use.name)) for use in jobs.values())
    return JobGroup(name, tuple(merged), max((agent.slots for agent, _ in members), default=0))


def _followed(first: JobUse, second: JobUse) -> JobUse:
    """The use of a job that was started again: times add up, peaks are the higher one."""
    return replace(
        second,
        elapsed_s=(first.elapsed_s or 0.0) + (second.elapsed_s or 0.0),
        cpu_s=None if first.cpu_s is None or second.cpu_s is None else first.cpu_s + second.cpu_s,
        memory_mb=_most(first.memory_mb, second.memory_mb),
        gpu_mb=_most(first.gpu_mb, second.gpu_mb),
    )


def _merged(use: JobUse, accounted: JobUse | None) -> JobUse:
    """The journal's figures with accounting's: that counts what is no trial, too, but sees nothing of the GPU's."""
    if accounted is None:
        return use
    known_mb = use.memory_mb or 0.0
    return replace(
        accounted,
        cpu_s=_most(use.cpu_s, accounted.cpu_s),
        memory_mb=_most(use.memory_mb, accounted.memory_mb),
        task_mb=accounted.task_mb if (accounted.memory_mb or 0.0) > known_mb else None,
        gpu_mb=_first(use.gpu_mb, accounted.gpu_mb),
        gpu_percent=_first(use.gpu_percent, accounted.gpu_percent),
        asked_s=_first(accounted.asked_s, use.asked_s),
        asked_memory_mb=_first(accounted.asked_memory_mb, use.asked_memory_mb),
    )


def _most(first: float | None, second: float | None) -> float | None:
    return second if first is None else first if second is None else max(first, second)


def _first(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


# -- what one agent's journal tells


def fold_agent(
    agent: AgentRecord, attempts: Sequence[_Attempt], submission: Submission | None
) -> JobUse:
    """What an agent was given and what its attempts used, as if it were a job of its own."""
    request = {} if submission is None else submission.request
    job = agent.job or {}
    nodes = as_number(request.get("nodes")) or 1.0
    gpus = _first(_count(agent.gpus), _times(as_number(request.get("gpus")), nodes))
    elapsed_s = max(0.0, agent.last_seen - agent.start)
    until = max((one.start + one.duration_s for one in attempts), default=agent.last_seen)
    counted_s = elapsed_s if agent.ended else max(0.0, min(until, agent.last_seen) - agent.start)
    # Attempts under way are counted when they end.
    share = elapsed_s / counted_s if counted_s else 1.0
    array = job.get("array", job.get("id"))
    return JobUse(
        name=agent.id
        if not job
        else str(array) + ("" if job.get("task") is None else f"_{job['task']}"),
        id=int(job.get("id") or 0),
        state=JobState.DONE if agent.ended else JobState.RUNNING,
        job_name=str(request.get("job_name", "")),
        elapsed_s=elapsed_s,
        asked_s=as_number(request.get("time_s")),
        cpus=_first(_times(as_number(request.get("cpus")), nodes), _count(agent.cpus)),
        cpu_s=sum(one.cpu_s for one in attempts) * share if attempts else None,
        asked_memory_mb=_times(as_number(request.get("memory_mb")), nodes),
        memory_mb=highest_together((one.start, one.duration_s, one.memory_mb) for one in attempts),
        gpus=gpus,
        gpu_type=str(request.get("gpu_type") or ""),
        gpu_mb=_gpu_mb(attempts, gpus),
        gpu_percent=_gpu_percent(attempts, gpus, elapsed_s),
    )


def _gpu_mb(attempts: Sequence[_Attempt], gpus: float | None) -> float | None:
    """On each of the job's GPUs, if they are filled alike."""
    of_all = [one.gpu_mb for one in attempts if one.gpu_mb is not None and one.gpu_of_all]
    if of_all:
        return max(of_all)
    own = [(one.start, one.duration_s, one.gpu_mb) for one in attempts if one.gpu_mb is not None]
    together = highest_together(own)
    return (
        None if together is None else max(together / (gpus or 1.0), *(much for _, _, much in own))
    )


def _gpu_percent(
    attempts: Sequence[_Attempt], gpus: float | None, elapsed_s: float
) -> float | None:
    """How busy the GPUs of a job were over its whole time; None where no attempt could measure it.

    Figures of single processes add up. Figures of the whole device already contain the neighbours, and are averaged.
    """
    known = [
        (one.duration_s, one.gpu_percent, one.gpu_of_all)
        for one in attempts
        if one.gpu_percent is not None
    ]
    if not known:
        return None
    busy = sum(lasted * percent for lasted, percent, _ in known)
    if all(not of_all for _, _, of_all in known):
        return min(100.0, busy / elapsed_s / (gpus or 1.0)) if elapsed_s else None
    lasted_s = sum(lasted for lasted, _, _ in known)
    return busy / lasted_s if lasted_s else None


def _count(value: Any) -> float | None:
    return float(len(value)) if isinstance(value, (list, tuple)) else as_number(value)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def read_attempts(path: str) -> list[_Attempt]:
    """All attempts that ended, those too that were tried again."""
    reader = JournalReader(path)
    attempts: list[_Attempt] = []
    while events := reader.read():
        attempts += [
            one
            for event in map(decode_event, events)
            if isinstance(event, Ended) and (one := _parse_attempt(event.fields)) is not None
        ]
    return attempts


def _parse_attempt(event: Mapping[str, Any]) -> _Attempt | None:
    """An attempt from its journal's event; None where that lacks its times.

    Figures that were not measured stay None or 0.
    """
    start, duration_s = as_number(event.get("start")), as_number(event.get("dur"))
    if start is None or duration_s is None:
        return None
    use = event.get("use") if isinstance(event.get("use"), dict) else {}
    assert isinstance(use, dict)
    cores = as_number(use.get("cores"))
    return _Attempt(
        start=start,
        duration_s=duration_s,
        cpu_s=cores * duration_s if cores is not None else as_number(event.get("cpu_s")) or 0.0,
        memory_mb=_first(as_number(use.get("mem_mb")), as_number(event.get("rss_mb"))) or 0.0,
        gpu_mb=as_number(use.get("gpu_mb")),
        gpu_of_all=use.get("gpu_src") == "device",
        gpu_percent=as_number(use.get("gpu_pct")),
    )


def _device_mb(plan: PlanFile) -> float | None:
    """Memory of one GPU, by plan."""
    pack = plan.pack
    return as_number(pack.get("gpu_memory_mb")) if isinstance(pack, dict) else None
