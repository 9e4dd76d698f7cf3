"""Gathers what a support desk asks about a trial or a job: what, where, when, with what, and how to see it again."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from typing import Any

from windlass.collect.attempts import AttemptStory, read_attempts, started_from
from windlass.collect.byhand import render_by_hand
from windlass.collect.index import open_index
from windlass.collect.jobview import JobView
from windlass.collect.look import look
from windlass.collect.output import OutputReader, last_lines
from windlass.collect.reconcile import StudyView
from windlass.core.ids import settings_as_given
from windlass.core.journal.read import read_header
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_if_there
from windlass.core.queue.ask import ask
from windlass.core.states import State
from windlass.core.trialfile import TrialFile

_LINES = 40
_LOG_BYTES = 64 << 10


@dataclass(frozen=True)
class TrialFacts:
    """One trial: what it is, and every attempt at it. `output` is the end of what the last one printed."""

    number: int
    id: str
    stages: tuple[str, ...]
    by_hand: tuple[str, ...]  # lines for a shell
    settings: dict[str, Any]
    attempts: tuple[AttemptStory, ...]
    output: str
    traceback: str


@dataclass(frozen=True)
class Ticket:
    """All of it. Nothing is hidden yet: whoever shows it masks secrets."""

    study: str
    folder: str
    trial: TrialFacts | None
    job: JobView | None
    log_file: str = ""  # Slurm's own log of the job
    log: str = ""
    script: str = ""
    request: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    site: str = ""


def gather_ticket(
    paths: StudyPaths, version: str, *, number: int | None = None, job: str | None = None
) -> Ticket:
    """What is known of trial `number`, or of the job of that name (``123_4``) and a trial that failed in it."""
    view = look(paths, accounting=True)
    found = _job_named(view, job) if job is not None else None
    if number is None and found is not None:
        number = _failed_in(paths, found.agent)
    trial = None if number is None else _trial_facts(paths, number)
    if found is None and trial is not None and trial.attempts:
        found = _job_of_agent(view, trial.attempts[-1].agent)
    plan = read_plan_if_there(paths.plan)
    log_file = _log_of(paths, found)
    return Ticket(
        study=view.name,
        folder=paths.folder,
        trial=trial,
        job=found,
        log_file=log_file,
        log=_read_end(log_file),
        script=_read_beginning(paths.job_script) if view.jobs is not None else "",
        request=_request_of(view, found),
        versions=_versions(paths, version, trial, with_slurm=view.jobs is not None),
        site=plan.site_name or str(plan.unknown.get("site") or ""),
    )


def _job_named(view: StudyView, name: str) -> JobView | None:
    jobs = () if view.jobs is None else view.jobs.jobs
    return next((job for job in jobs if name in (job.name, str(job.id))), None)


def _job_of_agent(view: StudyView, agent: str) -> JobView | None:
    """The job that an agent was in, also where another agent has begun in it since."""
    record = next((one.record for one in view.agents if one.record.id == agent), None)
    if record is None or record.job is None or view.jobs is None:
        return None
    sub, task = record.job.get("sub"), int(record.job.get("task") or 0)
    return next((job for job in view.jobs.jobs if job.submission == sub and job.task == task), None)


def _failed_in(paths: StudyPaths, agent: str) -> int | None:
    """The first trial that failed or was interrupted under an agent; None where there is none."""
    with open_index(paths) as index:
        numbers = list(index.numbers((State.FAILED, State.INTERRUPTED)))
        return next(
            (record.number for record in index.records(numbers) if record.agent == agent), None
        )


def _trial_facts(paths: StudyPaths, number: int) -> TrialFacts:
    """What is known of a trial, with the end of its output."""
    file = TrialFile(paths)
    trial = file.read(number)
    file.close()
    attempts = read_attempts(paths, number)
    output = ""
    if attempts:
        pieces = OutputReader(paths, attempts[-1].agent).read({attempts[-1].attempt: number})
        output = last_lines(pieces, 400).decode("utf-8", "replace")
    return TrialFacts(
        number=number,
        id=trial["id"],
        stages=tuple(name for name, _ in trial["stages"]),
        by_hand=tuple(render_by_hand(paths, number, started_from(attempts))),
        settings=settings_as_given(trial),
        attempts=tuple(attempts),
        output="\n".join(output.splitlines()[-_LINES:]),
        traceback=find_traceback(output),
    )


def find_traceback(text: str) -> str:
    """The last traceback of Python's in a text, with its closing line; "" where there is none."""
    lines = text.splitlines()
    starts = [
        place for place, line in enumerate(lines) if "Traceback (most recent call last)" in line
    ]
    if not starts:
        return ""
    kept = [lines[starts[-1]]]
    for line in lines[starts[-1] + 1 :]:
        kept.append(line)
        if line and not line[0].isspace():
            break
    return "\n".join(kept)


def _log_of(paths: StudyPaths, job: JobView | None) -> str:
    """The file with a job's own output; "" where the job has no number."""
    if job is None or job.array is None:
        return ""
    return os.path.join(
        paths.hpc_outputs, f"{os.path.basename(paths.folder)}_{job.array}_{job.task}.out"
    )


def _read_beginning(path: str) -> str:
    """The beginning of a text file, where a batch script has its request; "" where there is none."""
    try:
        with open(path, "rb") as file:
            return "\n".join(file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()[:_LINES])
    except OSError:
        return ""


def _read_end(path: str) -> str:
    """The end of a text file; "" where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-_LINES:])
    except OSError:
        return ""


def _request_of(view: StudyView, job: JobView | None) -> dict[str, Any]:
    """What a job asked for, without what was left open."""
    for submission in view.jobs.submissions if view.jobs is not None else ():
        if job is not None and submission.id == job.submission:
            return {
                key: value
                for key, value in submission.request.items()
                if value not in (None, {}, [], "")
            }
    return {}


def _versions(
    paths: StudyPaths, version: str, trial: TrialFacts | None, *, with_slurm: bool
) -> dict[str, str]:
    """The versions of Windlass, Python, the agent and, with `with_slurm`, Slurm."""
    found = {
        "windlass": version,
        "here": f"Python {platform.python_version()}, {platform.platform()}",
    }
    header = (
        read_header(paths.journal_of(trial.attempts[-1].agent))
        if trial is not None and trial.attempts
        else None
    )
    if header is not None and header.get("version"):
        found["agent"] = f"windlass {header['version']}"
    slurm = ask(["sinfo", "--version"], {}) if with_slurm else None
    if slurm:
        found["slurm"] = slurm.strip()
    return found
