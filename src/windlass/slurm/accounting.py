"""Slurm's accounting, as ``sacct`` tells it: what became of jobs that the queue has forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from windlass.core.queue.rows import parse_tasks, parse_time
from windlass.core.queue.states import JobState, parse_job_state
from windlass.core.units import parse_slurm_mb

Ask = Callable[[Sequence[str], Mapping[str, str]], str | None]

_FIELDS = "JobIDRaw,JobID,State,ExitCode,NodeList,Submit,Start,End,ElapsedRaw,Reason,MaxRSS,Partition,Account,JobName"
_BARS = _FIELDS.count(",")
_ENV = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_BATCH = 500  # jobs in one question: the line of a command is not endless
_NUMBER = re.compile(r"(\d+)(?:\+\d+)?(?:_(?:(\d+)|\[([^]]*)\]))?\Z")


@dataclass(frozen=True)
class JobRecord:
    """What accounting keeps of one job, or of one task of an array. None: unknown, or not so yet."""

    id: int  # its own job number
    array: int
    task: int | None
    state: JobState
    state_name: str
    exit_code: int | None
    signal: int | None
    node: str
    submitted: float | None
    start: float | None
    end: float | None
    elapsed_s: float | None
    reason: str
    max_rss_mb: float | None
    partition: str
    account: str
    name: str
    pending_tasks: tuple[tuple[int, int], ...] = ()


def fetch_records(jobs: Iterable[int], ask: Ask) -> list[JobRecord] | None:
    """What accounting knows of these jobs and arrays. None where there is no accounting or it does not answer.

    It lags behind the scheduler: a job may be missing, or shown in an earlier state, for some seconds.
    """
    numbers = sorted(set(jobs))
    records: list[JobRecord] = []
    for begin in range(0, len(numbers), _BATCH):
        listed = ",".join(str(number) for number in numbers[begin : begin + _BATCH])
        text = ask(
            ["sacct", "--noheader", "--parsable2", f"--format={_FIELDS}", f"--jobs={listed}"], _ENV
        )
        if text is None:
            return None
        records += parse_records(text)
    return records


def parse_records(text: str) -> list[JobRecord]:
    """The jobs of sacct's answer; of their steps only the largest memory is kept."""
    jobs: dict[str, JobRecord] = {}
    peaks: dict[str, float] = {}
    for line in text.split("\n"):
        fields = line.split("|", _BARS)
        if len(fields) != _BARS + 1:
            continue
        raw, _, step = fields[0].partition(".")
        peak = parse_slurm_mb(fields[10], plain="")
        if peak is not None:
            peaks[raw] = max(peak, peaks.get(raw, 0.0))
        if not step:
            record = _parse_record(fields)
            if record is not None:
                jobs[fields[1]] = record
    return [replace(record, max_rss_mb=peaks.get(str(record.id))) for record in jobs.values()]


def _parse_record(fields: Sequence[str]) -> JobRecord | None:
    found = _NUMBER.match(fields[1])
    if found is None or not fields[0].isdecimal():
        return None
    array, task, tasks = found.groups()
    code, _, signal = fields[3].partition(":")
    return JobRecord(
        id=int(fields[0]),
        array=int(array),
        task=None if task is None else int(task),
        state=parse_job_state(fields[2]),
        state_name=fields[2],
        exit_code=int(code) if code.isdecimal() else None,
        signal=int(signal) if signal.isdecimal() else None,
        node="" if fields[4] == "None assigned" else fields[4],
        submitted=parse_time(fields[5]),
        start=parse_time(fields[6]),
        end=parse_time(fields[7]),
        elapsed_s=float(fields[8]) if fields[8].isdecimal() else None,
        reason="" if fields[9] == "None" else fields[9],
        max_rss_mb=None,
        partition=fields[11],
        account=fields[12],
        name=fields[13],
        pending_tasks=() if tasks is None else parse_tasks(tasks)[0],
    )
