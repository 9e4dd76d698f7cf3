"""Asked against used as one table and as JSON, with the lines to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from windlass.collect.advice import Advice
from windlass.collect.efficiency import Efficiency, JobGroup
from windlass.core.counted import counted
from windlass.core.queue.states import ENDED
from windlass.core.units import render_duration, render_mb
from windlass.slurm.used import JobUse
from windlass.view.numbers import render_percent
from windlass.view.table import render_table


@dataclass(frozen=True)
class Resource:
    """One thing that jobs ask for and use."""

    key: str
    name: str
    asked: Callable[[JobUse, JobGroup], float | None]
    used: Callable[[JobUse], float | None]
    render: Callable[[float], str]
    render_asked: Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """One resource of one group: least, mean and most over its jobs, and the mean as a share of what was asked."""

    resource: Resource
    asked: float | None
    least: float | None
    mean: float | None
    most: float | None
    share: float | None


@dataclass(frozen=True)
class Placed:
    """An advice with the file and line it is about; empty and 0 where that is not known."""

    advice: Advice
    file: str = ""
    line: int = 0


def _cores(job: JobUse) -> float | None:
    return None if job.cpu_s is None or not job.elapsed_s else job.cpu_s / job.elapsed_s


def _busy(job: JobUse) -> float | None:
    return None if not job.gpus or job.gpu_percent is None else job.gpu_percent * job.gpus / 100


def _device_mb(job: JobUse, group: JobGroup) -> float | None:
    return group.gpu_memory_mb if job.gpus else None


RESOURCES = (
    Resource(
        "time_s",
        "time",
        lambda job, _: job.asked_s,
        lambda job: job.elapsed_s,
        render_duration,
        render_duration,
    ),
    Resource(
        "cores",
        "CPU",
        lambda job, _: job.cpus,
        _cores,
        lambda v: f"{v:.2f}",
        lambda v: counted(v, "core"),
    ),
    Resource(
        "memory_mb",
        "memory",
        lambda job, _: job.asked_memory_mb,
        lambda job: job.memory_mb,
        render_mb,
        render_mb,
    ),
    Resource(
        "gpus",
        "GPU",
        lambda job, _: job.gpus or None,
        _busy,
        lambda v: f"{v:.2f}",
        lambda v: f"{v:g}",
    ),
    Resource("gpu_mb", "GPU memory", _device_mb, lambda job: job.gpu_mb, render_mb, render_mb),
)


def measure_group(group: JobGroup) -> list[Line]:
    """A line for each resource that was asked for or used."""
    lines = []
    for resource in RESOURCES:
        asked = [value for job in group.jobs if (value := resource.asked(job, group)) is not None]
        used = [value for job in group.jobs if (value := resource.used(job)) is not None]
        shares = [
            part / whole
            for job in group.jobs
            if (part := resource.used(job)) is not None and (whole := resource.asked(job, group))
        ]
        if not asked and not used:
            continue
        lines.append(
            Line(
                resource,
                max(asked, default=None),
                min(used, default=None),
                sum(used) / len(used) if used else None,
                max(used, default=None),
                sum(shares) / len(shares) if shares else None,
            )
        )
    return lines


def efficiency_to_json(found: Efficiency, advices: Sequence[Placed]) -> dict[str, Any]:
    """Stable keys: study, folder, accounting, groups (each with its resources), trials, advice."""
    return {
        "study": found.study or None,
        "folder": found.folder or None,
        "accounting": found.accounting,
        "groups": [_group_to_json(group) for group in found.groups],
        "trials": None if found.usage is None else asdict(found.usage),
        "advice": [_advice_to_json(placed) for placed in advices],
    }


def _group_to_json(group: JobGroup) -> dict[str, Any]:
    """A group of jobs for `--json`: of each resource what was requested, and the least, mean and most used."""
    return {
        "name": group.name,
        "jobs": len(group.jobs),
        "running": sum(job.state not in ENDED for job in group.jobs),
        "slots": group.slots or None,
        "memory_at_most": any(job.memory_at_most for job in group.jobs),
        **{
            line.resource.key: {
                "asked": line.asked,
                "least": line.least,
                "mean": line.mean,
                "most": line.most,
                "share": None if line.share is None else round(line.share, 4),
            }
            for line in measure_group(group)
        },
    }


def _advice_to_json(placed: Placed) -> dict[str, Any]:
    """An advice for `--json`. File and line are null where it is not known what has to be changed."""
    advice = placed.advice
    return {
        "what": advice.what,
        "change": advice.change or None,
        "because": advice.because,
        "file": placed.file or None,
        "line": placed.line or None,
    }


def render_efficiency(
    found: Efficiency, advices: Sequence[Placed], width: int | None = None
) -> str:
    """Text that ends with a newline."""
    count = sum(len(group.jobs) for group in found.groups)
    running = sum(job.state not in ENDED for group in found.groups for job in group.jobs)
    still = f", {running} of them still running" if running else ""
    head = f"{found.study}   {found.folder}" if found.study else f"{counted(count, 'job')}{still}"
    lines = [head]
    if found.study and count:
        lines.append(f"  {counted(count, 'agent')}{still}")
    if found.accounting is False:
        lines.append("  Slurm's accounting does not answer: from the journals alone")
    if not count:
        return "\n".join([*lines, "  nothing has been executed yet", ""])
    text = render_table([row for group in found.groups for row in _rows(group)], width=width)
    tail = [_render_trials(found)] if found.usage is not None else []
    if any(job.memory_at_most for group in found.groups for job in group.jobs):
        tail.append(
            "memory is at most so much: Slurm keeps each step's largest task, taken here for all of its tasks"
        )
    tail += [_render_advice(placed) for placed in advices]
    if not found.study and any(
        job.gpus and job.gpu_percent is None for group in found.groups for job in group.jobs
    ):
        tail.append(
            "Slurm keeps nothing of the GPU here; `windlass watch JOB` looks at a job that runs"
        )
    return "\n".join(lines) + "\n\n" + text + ("\n" + "\n".join(tail) + "\n" if tail else "")


def _rows(group: JobGroup) -> list[dict[str, Any]]:
    """A group of jobs as rows of the table, one for each resource. Only the first row names the group."""
    rows: list[dict[str, Any]] = []
    for line in measure_group(group):
        render = line.resource.render
        first = not rows
        rows.append(
            {
                "job": group.name if first else None,
                "jobs": str(len(group.jobs)) if first else None,
                "what": line.resource.name,
                "asked": "–" if line.asked is None else line.resource.render_asked(line.asked),
                "least": "–" if line.least is None else render(line.least),
                "mean": "–" if line.mean is None else render(line.mean),
                "most": "–" if line.most is None else render(line.most),
                "used": "–" if line.share is None else render_percent(line.share * 100),
            }
        )
    return rows


def _render_trials(found: Efficiency) -> str:
    """One trial at a glance."""
    assert found.usage is not None
    use = found.usage.overall
    parts = []
    if use.time_s is not None:
        median, _, longest = use.time_s
        parts.append(f"{render_duration(median)} (longest {render_duration(longest)})")
    if use.memory_mb is not None:
        parts.append(f"{render_mb(use.memory_mb)} of memory at the peak")
    if use.gpu_mb is not None:
        parts.append(f"{render_mb(use.gpu_mb)} of GPU memory")
    if use.cores is not None:
        parts.append(counted(round(use.cores, 1), "core"))
    return f"one trial, of {found.usage.attempts}: {', '.join(parts)}"


def _render_advice(placed: Placed) -> str:
    advice = placed.advice
    place = f"{placed.file}:{placed.line}: " if placed.file and placed.line else ""
    if not advice.change:
        return f"{advice.what}: {advice.because}"
    return f"{place}{advice.what}: `{advice.change}` ({advice.because})"
