"""A study's results as rows for people and programs: one a trial, one a setting, or the best."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from windlass import __version__
from windlass.collect.byhand import render_command
from windlass.collect.groups import (
    ROW_HEAD,
    ROW_TAIL,
    GroupRow,
    Row,
    group_rows,
    metric_columns,
    reserved_name,
)
from windlass.collect.index import StudyIndex, open_index, without_collection
from windlass.collect.look import find_lost_causes, read_register
from windlass.collect.ran import code_columns, place_columns
from windlass.collect.usage import cores_of, memory_mb_of, used
from windlass.core.claims.ranges import contains, normalise
from windlass.core.damage import has_reported
from windlass.core.ids import settings_as_given
from windlass.core.journal.records import AgentRecord, TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import TrialFile
from windlass.model import Metric, Range

__all__ = ["GroupRow", "ResultRows", "Row", "best_rows", "group_rows", "result_rows"]

_CHUNK = 2000  # trials in memory at a time
_MOST_KEPT = 64 << 20  # characters of a text that is remembered on local disk
_NO_VALUE = (None, None, None, 0)  # of a metric that a trial did not report


@dataclass(frozen=True)
class ResultRows:
    """One row a trial, in order of their numbers. Starts over when iterated again; never all in memory.

    Keys are, in order: id, number, the parameters, the seed, state, cause, attempts, duration_s, exit_code (None
    where a signal ended it), then for each metric its last value under its own name, `.min` and `.max`, then what
    was asked for besides. A parameter whose name is one of ours stands under ``param.NAME``, a metric whose name is a
    parameter's under ``metric.NAME``.
    """

    paths: StudyPaths
    index: StudyIndex
    included: Sequence[Range]
    metric: Metric | None = None
    seed_name: str = "seed"
    # Trials whose record ends with a start and whose agent is gone → cause.
    lost: Mapping[int, str] = field(default_factory=dict)
    with_usage: bool = False  # also what each trial used
    with_code: bool = False  # also with which code it ran
    with_place: bool = False  # also where it ran, and where its output is

    def __iter__(self) -> Iterator[Row]:
        trials = TrialFile(self.paths)
        more = self.with_code or self.with_place
        agents = {agent.id: agent for agent in self.index.agents()} if more else {}
        try:
            for first, stop in normalise(self.included):
                for begin in range(first, stop, _CHUNK):
                    yield from self._chunk(trials, begin, min(begin + _CHUNK, stop), agents)
        finally:
            trials.close()

    def remembered(self, asked: Sequence[Any], render: Callable[[], str]) -> str:
        """The text that `render` makes of these rows, which is called again only once something has changed.

        `asked` is what else the text depends on. While trials run nothing is remembered, because whether they still do
        does not depend on the journals alone; nor where something is damaged, so that each look reports it.
        """
        is_under_way = (
            bool(self.lost) or next(self.index.numbers((State.RUNNING,)), None) is not None
        )
        metric = None if self.metric is None else [self.metric.name, self.metric.goal]
        columns = [metric, self.seed_name, self.with_usage, self.with_code, self.with_place]
        status = _fetch_status(self.paths.trials)
        question = json.dumps(
            ["table", __version__, normalise(self.included), columns, status, *asked]
        )

        length = 0

        def render_quickly() -> str:
            nonlocal length
            with without_collection():
                text = render()
            length = len(text)
            return text

        def may_keep() -> bool:
            return (
                not is_under_way
                and length <= _MOST_KEPT
                and not has_reported("lines")
                and not has_reported("")
            )

        if is_under_way:
            return render_quickly()
        return str(self.index.remembered(question, render_quickly, may_keep))

    def _chunk(
        self, trials: TrialFile, begin: int, end: int, agents: Mapping[str, AgentRecord]
    ) -> Iterator[Row]:
        """The rows of a range of trials. Trials whose agent is gone are shown as interrupted."""
        records = {record.number: record for record in self.index.records(range(begin, end))}
        for number, trial in trials.iterate(begin, end):
            record = records.get(number)
            if record is not None and number in self.lost:
                record = replace(record, state=State.INTERRUPTED, cause=self.lost[number])
            row = trial_row(number, trial, record, self.metric, self.seed_name)
            if self.with_usage:
                row.update(usage_columns(record))
            if self.with_code:
                row.update(code_columns(record, agents))
            if self.with_place:
                row.update(place_columns(self.paths, record, agents))
            yield row


def result_rows(
    paths: StudyPaths,
    index: StudyIndex,
    included: Sequence[Range],
    metric: Metric | None = None,
    seed_name: str = "seed",
    with_usage: bool = False,
    with_code: bool = False,
    with_place: bool = False,
) -> ResultRows:
    """The rows of the included trials."""
    lost = find_lost_causes(paths, index)
    return ResultRows(
        paths, index, included, metric, seed_name, lost, with_usage, with_code, with_place
    )


def read_failed(paths: StudyPaths, limit: int) -> list[tuple[Mapping[str, Any], TrialRecord]]:
    """The first trials that failed, of those that the study has now: each with its line of trials.jsonl."""
    with open_index(paths) as index, contextlib.closing(TrialFile(paths)) as trials:
        current = read_register(paths).current
        records = (
            one for one in index.records(states=(State.FAILED,)) if contains(current, one.number)
        )
        return [(trials.read(record.number), record) for record in itertools.islice(records, limit)]


def _fetch_status(path: str) -> list[int]:
    """What differs once a file is another one or was written to; nothing where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def usage_columns(record: TrialRecord | None) -> Row:
    """What a trial's attempt used, as far as it was sampled."""
    if record is None:
        return dict.fromkeys(
            ("used.memory_mb", "used.gpu_mb", "used.gpu_percent", "used.cores", "used.first_step_s")
        )
    return {
        "used.memory_mb": memory_mb_of(record),
        "used.gpu_mb": used(record, "gpu_mb"),
        "used.gpu_percent": used(record, "gpu_pct"),
        "used.cores": cores_of(record),
        "used.first_step_s": used(record, "first_s"),
    }


def trial_row(
    number: int,
    trial: Mapping[str, Any],
    record: TrialRecord | None,
    metric: Metric | None = None,
    seed_name: str = "seed",
) -> Row:
    """One trial's row; without a record it waits."""
    record = TrialRecord(number, State.WAITING) if record is None else record
    settings = settings_as_given(trial)
    row: Row = {"id": trial["id"], "number": number}
    if "rung" in trial:
        row["rung"] = trial["rung"]
    for name, column in _parameter_columns(tuple(settings), seed_name, "rung" in trial):
        row[column] = settings[name]
    row["state"] = record.state.value
    row["cause"] = record.cause
    row["attempts"] = record.attempts
    row["duration_s"] = record.duration_s
    row["exit_code"] = None if record.signal else record.exit_code
    if record.spans and record.overlapped_s:
        row["overlapped_s"] = round(record.overlapped_s, 3)
    return _with_metrics(row, record, metric)


@functools.lru_cache(maxsize=256)
def _parameter_columns(
    names: tuple[str, ...], seed_name: str, has_rung: bool
) -> list[tuple[str, str]]:
    """The parameters of a trial in the order of their columns, each with its column; the seed comes last."""
    reserved = (*ROW_HEAD, *ROW_TAIL, *(("rung",) if has_rung else ()))
    columns = [(name, reserved_name(name, reserved)) for name in names if name != seed_name]
    return [*columns, (seed_name, seed_name)] if seed_name in names else columns


def _with_metrics(row: Row, record: TrialRecord, metric: Metric | None) -> Row:
    """The row with the last, lowest and highest value of each metric; the metric that is judged by comes first."""
    names = list(record.metrics)
    if metric is not None and names != [metric.name]:
        names = [metric.name, *(name for name in names if name != metric.name)]
    columns = [metric_columns(row, name) for name in names]
    for name, column in zip(names, columns, strict=True):
        last, low, high, _ = record.metrics.get(name, _NO_VALUE)
        row[column["last"]], row[column["min"]], row[column["max"]] = last, low, high
    for name, text in record.texts.items():
        if name not in record.metrics:
            row[metric_columns(row, name)["last"]] = text
    return row


def best_rows(
    paths: StudyPaths,
    index: StudyIndex,
    included: Sequence[Range],
    metric: Metric,
    *,
    stat: str = "last",
    limit: int = 1,
    seed_name: str = "seed",
) -> list[Row]:
    """The best trials, or with seeds the settings with the best mean over them, each with its command.

    Without seeds only the winners' settings are read. The means over seeds are worked out once and remembered
    until a journal grows.
    """
    ranges = normalise(included)
    if not ranges:
        return []
    trials = TrialFile(paths)
    try:
        if seed_name in trials.read(ranges[0][0])["settings"]:
            rows = result_rows(paths, index, ranges, metric, seed_name)
            return [
                _group_row(paths, trials, group)
                for group in _best_groups(rows, metric, stat, limit)
            ]
        records = index.best(metric.name, metric.goal, stat, limit, included=ranges)
        return [_single_row(paths, trials, record, metric, seed_name) for record in records]
    finally:
        trials.close()


def _best_groups(rows: ResultRows, metric: Metric, stat: str, limit: int) -> list[GroupRow]:
    """The settings with the best means over their seeds. The answer is remembered until a journal grows."""
    question = json.dumps(
        ["best groups", rows.included, metric.name, metric.goal, stat, limit, rows.seed_name]
    )

    def compute() -> list[dict[str, Any]]:
        """The groups, the best first; of equal means the one with the lower number."""
        groups = [
            g
            for g in group_rows(rows, None, metric.name, stat, rows.seed_name)
            if g.mean is not None
        ]
        sign = -1.0 if metric.goal == "maximize" else 1.0
        groups.sort(key=lambda group: (sign * (group.mean or 0.0), group.number))
        return [asdict(group) for group in groups[:limit]]

    return [GroupRow(**group) for group in rows.index.remembered(question, compute)]


def _group_row(paths: StudyPaths, trials: TrialFile, group: GroupRow) -> Row:
    """The row of a setting, with the id and command of its first trial."""
    trial = trials.read(group.number)
    return {
        "id": trial["id"],
        "number": group.number,
        **group.to_row(),
        "command": render_command(paths, group.number),
    }


def _single_row(
    paths: StudyPaths, trials: TrialFile, record: TrialRecord, metric: Metric, seed_name: str
) -> Row:
    """The row of a trial with its command."""
    trial = trials.read(record.number)
    row = trial_row(record.number, trial, record, metric, seed_name)
    return {**row, "command": render_command(paths, record.number)}
