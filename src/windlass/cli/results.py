"""windlass results: one row a trial, or one a setting."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from windlass.cli.hints import name_study
from windlass.cli.options import folder_option, take_one
from windlass.cli.shown_results import ShownResults
from windlass.cli.studies import find_study
from windlass.collect.choose import choose_trials, parse_states, parse_where
from windlass.collect.facts import PlannedFacts, read_facts
from windlass.collect.feed import feed_tracker
from windlass.collect.groups import group_rows
from windlass.collect.index import StudyIndex, open_index
from windlass.collect.look import read_register
from windlass.collect.output import OutputReader, last_lines
from windlass.collect.printed import add_printed
from windlass.collect.ran import place_columns
from windlass.collect.results import Row, best_rows, result_rows
from windlass.collect.standing import find_missing, list_numbers
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.counted import counted
from windlass.core.errors import InputError, Problem, input_error
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import TrialFile
from windlass.core.trust import as_given
from windlass.model import Metric
from windlass.spec.goals import GOALS, parse_metric
from windlass.trackers.base import file_trackers
from windlass.view.results import FORMATS
from windlass.view.standing import render_missing, render_unnamed
from windlass.view.story import render_failure, render_overlaps

_KINDS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_OTHER_KINDS = (
    ".tsv",
    ".jsonl",
    ".ndjson",
    ".xlsx",
    ".xls",
    ".feather",
    ".yaml",
    ".yml",
    ".html",
    ".npz",
    ".pkl",
)
_LAST_LINES_SHOWN = 100  # of trials that failed: beyond that a list is read by a program


@click.command()
@click.argument("study", required=False)
@click.option(
    "--by",
    metavar="NAMES",
    help="Fold seeds: show one row for each setting of these parameters, for example lr,hidden, or of all.",
)
@click.option(
    "--best",
    is_flag=True,
    help="Show the best trial, or with seeds the setting with the best mean.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    help="Show at most N rows (default: all; with --best: 1).",
)
@click.option(
    "--metric",
    "metric_name",
    metavar="NAME[:GOAL]",
    multiple=True,
    callback=take_one,
    help="Judge by this metric instead of that of the study; trials may also only have printed it.",
)
@click.option("--wide", is_flag=True, help="Show all columns, however wide the table gets.")
@click.option(
    "--stat",
    type=click.Choice(["last", "min", "max"]),
    default="last",
    show_default=True,
    help="Which of the values that a trial logged counts.",
)
@click.option(
    "--state",
    "states",
    metavar="NAMES",
    help="Show only trials in these states or with these causes, for example failed,killed.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="NAME=VALUE",
    help="Show only trials with this value of a parameter; may be repeated.",
)
@click.option(
    "--failed",
    is_flag=True,
    help="Show the trials that failed: parameters, cause, job, node, and where their output is.",
)
@click.option(
    "--usage", is_flag=True, help="Show also what each trial used: memory, GPU memory, cores."
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="The format of the results (default: by the ending of the file of -o, else a table).",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON with stable keys; the same as --format json.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file, in the format of its ending, for example x.csv or x.json.",
)
@click.option(
    "--curves",
    metavar="FILE",
    help="Write all values that trials reported, step by step, to x.csv or x.jsonl.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Show also trials that the study no longer has."
)
@folder_option
def command(
    study: str | None,
    by: str | None,
    best: bool,
    limit: int | None,
    metric_name: str | None,
    wide: bool,
    stat: str,
    states: str | None,
    where: tuple[str, ...],
    failed: bool,
    usage: bool,
    kind: str | None,
    as_json: bool,
    output: str | None,
    curves: str | None,
    everything: bool,
    folder: str | None,
) -> None:
    """Show results, the best first: trial, the parameters that vary, the metric, and the state of what is not done.

    CSV, JSON and Parquet hold all there is: id, parameters, seed, state, cause, attempts, duration, and last, min and
    max of each metric.
    """
    if failed and (best or by is not None or states is not None):
        raise input_error(
            "--failed lists trials; it does not go with --best, --by or --state",
            "leave the other out",
        )
    states = "failed" if failed else states
    paths = find_study(study, folder)
    facts = read_facts(paths)
    register = read_register(paths)
    included: Ranges = [(0, register.count)] if everything else register.current
    metric = _metric(metric_name, facts)
    kind = "json" if as_json else kind or _kind_of_file(output)
    shown = ShownResults(kind, output, metric, facts, stat, wide, limit)
    with open_index(paths) as index:
        if metric is not None:
            add_printed(paths, index, metric.name, facts.patterns.get(metric.name))
        if states is not None or where:
            included = _chosen(paths, index, included, states, where, shown.is_text)
        trials = _Trials(paths, index, included, metric, stat, facts.seed_name)
        if curves is not None:
            _write_curves(paths, index, included, curves)
        elif shown.is_text and failed:
            text = name_study("\n".join(_failures(paths, index, included)), paths)
            print(text or "no trial has failed")
        elif shown.is_text and not included and (states is not None or where):
            _report_no_match(states, where)
        elif best:
            shown.best(trials.best(limit or 1, shown.is_text), limit or 1)
        elif by is not None:
            shown.groups(trials.grouped(by, shown.is_text))
        else:
            _show_trials(trials, shown, usage, failed)


def _report_no_match(states: str | None, where: tuple[str, ...]) -> None:
    options = [] if states is None else [f"--state {shlex.quote(states)}"]
    options += [f"--where {shlex.quote(text)}" for text in where]
    print(f"no trial matches {' '.join(options)}")


def _write_curves(paths: StudyPaths, index: StudyIndex, included: Ranges, target: str) -> None:
    """Write the curves of these trials in the format that the file's ending names."""
    kinds = file_trackers()
    kind = kinds.get(os.path.splitext(target)[1].lower())
    if kind is None:
        raise input_error(
            f"{target}: curves are not written in this format", f"end it in {', '.join(kinds)}"
        )
    with as_given():
        tracker = kind(target)
    count = feed_tracker(paths, index, included, tracker)
    click.echo(f"curves of {counted(count, 'trial')}: {target}", err=True)


def _chosen(
    paths: StudyPaths,
    index: StudyIndex,
    included: Ranges,
    states: str | None,
    where: tuple[str, ...],
    is_text: bool,
) -> Ranges:
    """The trials in these states with these values.

    Raises InputError for a value that no trial has. A program that asks for JSON or CSV gets what there is, with a
    warning.
    """
    wanted = None if states is None else parse_states(states)
    chosen = choose_trials(paths, index, included, wanted, parse_where(where))
    problems = [
        Problem(f"--where: no trial has {given}", f"there are: {others}")
        for given, others in chosen.unknown
    ]
    if problems and is_text:
        raise InputError(problems)
    for problem in problems:
        click.echo(f"warning: {problem.message}; {problem.hint}", err=True)
    return chosen.trials


def _kind_of_file(output: str | None) -> str:
    """The format that a file's ending names. Raises InputError for an ending that stands for another kind of file."""
    ending = os.path.splitext(output or "")[1].lower()
    if ending in _KINDS:
        return _KINDS[ending]
    if ending in _OTHER_KINDS:
        raise input_error(
            f"{output}: there is no format for {ending}", f"end it in {', '.join(_KINDS)}"
        )
    return "table"


def _failures(paths: StudyPaths, index: StudyIndex, included: Ranges) -> Iterator[str]:
    trials = TrialFile(paths)
    agents = {agent.id: agent for agent in index.agents()}
    shown = 0
    try:
        for record in index.records(rs.numbers(included)):
            place = place_columns(paths, record, agents)
            code = agents[record.agent].code if record.agent in agents else None
            last = ""
            if record.agent and shown < _LAST_LINES_SHOWN:
                tail = last_lines(
                    OutputReader(paths, record.agent).read({record.attempt: record.number}), 1
                )
                last = tail.decode("utf-8", "replace").strip()
            shown += 1
            yield from render_failure(trials.read(record.number), record, place, code, last)
    finally:
        trials.close()


def _metric(text: str | None, facts: PlannedFacts) -> Metric | None:
    if text is None:
        return facts.metric
    name, _, goal = text.rpartition(":")
    if name and " " not in goal and "/" not in goal and goal not in GOALS:
        raise input_error(
            f"the goal of a metric is minimize or maximize, not {goal!r}",
            f"--metric {name}:maximize",
        )
    if facts.metric is not None and facts.metric.name == text:
        return facts.metric
    return parse_metric(text)


@dataclass(frozen=True)
class _Trials:
    """The trials that were asked for, with what they are judged by."""

    paths: StudyPaths
    index: StudyIndex
    included: Ranges
    metric: Metric | None
    stat: str
    seed_name: str

    def best(self, limit: int, is_text: bool) -> list[Row]:
        """The rows of the best trials, at most `limit` of them. Raises InputError as `_judged` does."""
        metric = self._judged(is_text)
        options: dict[str, Any] = {"stat": self.stat, "limit": limit, "seed_name": self.seed_name}
        return best_rows(self.paths, self.index, self.included, metric, **options)

    def grouped(self, by: str, is_text: bool) -> list[Row]:
        """One row for each setting of the parameters that `by` names. Raises InputError as `_judged` does."""
        metric = self._judged(is_text)
        names = None if by == "all" else [name.strip() for name in by.split(",") if name.strip()]
        rows = result_rows(self.paths, self.index, self.included, metric, self.seed_name)
        groups = group_rows(rows, names, metric.name, self.stat, self.seed_name)
        return [group.to_row() for group in groups]

    def _judged(self, is_text: bool) -> Metric:
        """The metric to judge by. Raises InputError where there is none, or where no done trial has a value of it.

        A program that asks for JSON or CSV gets what there is, with a warning.
        """
        if self.metric is None:
            listed = list_numbers(self.paths, self.index, self.included)
            has = f" (the output has {', '.join(one.name for one in listed)})" if listed else ""
            name = shlex.quote(listed[0].name) if listed else "loss"
            raise input_error(
                f"the study names no metric to judge by{has}",
                f"--metric {name}, or `metric: {{name: {name}}}` in the study",
            )
        missing = find_missing(self.paths, self.index, self.included, self.metric.name)
        lines = [name_study(line, self.paths) for line in render_missing(missing)]
        if is_text and missing.without and missing.without == missing.done:
            raise input_error(lines[0], "; ".join(lines[1:]))
        for line in lines:
            click.echo(line, err=True)
        return self.metric

    def report_missing(self) -> None:
        """Report which trials lack the metric; without a metric, which ones the output has, if trials reported none."""
        lines: list[str] = []
        if self.metric is not None:
            missing = find_missing(self.paths, self.index, self.included, self.metric.name)
            lines = render_missing(missing)
        elif not any(record.metrics for record in self.index.records(states=(State.DONE,))):
            lines = render_unnamed(list_numbers(self.paths, self.index, self.included))
        for line in lines:
            click.echo(name_study(line, self.paths), err=True)

    def report_overlaps(self) -> None:
        """Report which trials different agents executed at the same time."""
        again = self.index.tried_again()
        overlapped = (record for record in again if rs.contains(self.included, record.number))
        for line in render_overlaps(overlapped):
            click.echo(name_study(line, self.paths), err=True)


def _show_trials(trials: _Trials, shown: ShownResults, usage: bool, failed: bool) -> None:
    """Show one row for each trial, and report on standard error what the rows do not tell."""
    rows = result_rows(
        trials.paths,
        trials.index,
        trials.included,
        trials.metric,
        trials.seed_name,
        with_usage=usage,
        with_code=shown.kind != "table" or failed,
        with_place=failed,
    )
    shown.all_trials(rows)
    if shown.is_text:
        trials.report_missing()
    trials.report_overlaps()
