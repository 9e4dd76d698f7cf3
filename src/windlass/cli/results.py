"""windlass results: one row a trial, or one a setting."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from windlass.claims import ranges as rs
from windlass.claims.ranges import Ranges
from windlass.cli.hints import name_study
from windlass.cli.options import find_study, folder_option, take_one
from windlass.cli.terminal import data_stream
from windlass.collect.choose import choose_trials, parse_states, parse_where
from windlass.collect.facts import PlannedFacts, read_facts
from windlass.collect.groups import group_rows
from windlass.collect.index import StudyIndex
from windlass.collect.look import read_register
from windlass.collect.output import OutputReader, last_lines
from windlass.collect.printed import add_printed
from windlass.collect.ran import place_columns
from windlass.collect.results import ResultRows, Row, best_rows, result_rows
from windlass.collect.standing import find_missing, list_numbers
from windlass.errors import InputError, Problem, input_error
from windlass.model import Metric
from windlass.paths import StudyPaths
from windlass.secrets import mask_row
from windlass.spec.goals import GOALS, parse_metric
from windlass.states import State
from windlass.trialfile import TrialFile
from windlass.trust import as_given
from windlass.view.escapes import BOLD, paint
from windlass.view.result_table import render_card, render_groups, render_results, sort_best_first, sort_groups
from windlass.view.results import FORMATS, write_results
from windlass.view.standing import render_missing, render_unnamed
from windlass.view.story import render_failure, render_overlaps
from windlass.view.table import terminal_width, wants_color

_KINDS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_OTHER_KINDS = (".tsv", ".jsonl", ".ndjson", ".xlsx", ".xls", ".feather", ".yaml", ".yml", ".html", ".npz", ".pkl")
_LAST_LINES_SHOWN = 100  # of trials that failed: beyond that a list is read by a program


@click.command()
@click.argument("study", required=False)
@click.option(
    "--by", metavar="NAMES", help="Fold seeds: one row a setting of these parameters, e.g. lr,hidden; or 'all'."
)
@click.option("--best", is_flag=True, help="The best trial, or with seeds the best setting by mean.")
@click.option("-n", "--limit", type=click.IntRange(1), help="So many rows at most (default: all; with --best 1).")
@click.option(
    "--metric",
    "metric_name",
    metavar="NAME[:GOAL]",
    multiple=True,
    callback=take_one,
    help="Judge by this metric instead of the study's; it may also be one that trials only printed.",
)
@click.option("--wide", is_flag=True, help="All columns, however wide the table gets.")
@click.option(
    "--stat",
    type=click.Choice(["last", "min", "max"]),
    default="last",
    show_default=True,
    help="Which value of a trial.",
)
@click.option(
    "--state", "states", metavar="NAMES", help="Only trials in these states or with these causes: failed,killed."
)
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only trials with this value; may be repeated.")
@click.option("--failed", is_flag=True, help="What failed: parameters, cause, job, node, and where its output is.")
@click.option("--usage", is_flag=True, help="Also what each trial used: memory, GPU memory, cores.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Default: by the ending of the file of -o, else a table."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file instead, in the format of its ending: x.csv, x.json.",
)
@click.option("--all", "everything", is_flag=True, help="Also trials that the study no longer has.")
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
    everything: bool,
    folder: str | None,
) -> None:
    """Show results, the best first: trial, the parameters that vary, the metric, and the state of what is not done.

    CSV, JSON and Parquet hold all there is: id, parameters, seed, state, cause, attempts, duration, and last, min and
    max of each metric.
    """
    paths = find_study(study, folder)
    facts = read_facts(paths)
    register = read_register(paths)
    included: Ranges = [(0, register.count)] if everything else register.current
    index = StudyIndex(paths)
    index.refresh()
    if failed and (best or by is not None or states is not None):
        raise input_error("--failed lists trials; it does not go with --best, --by or --state", "leave the other out")
    states = "failed" if failed else states
    metric = _metric(metric_name, facts)
    if metric is not None:
        add_printed(paths, index, metric.name, facts.patterns.get(metric.name))
    shown = _Shown("json" if as_json else kind or _kind_of_file(output), output, metric, facts, stat, wide, limit)
    if states is not None or where:
        included = _chosen(paths, index, included, states, where, shown.is_text)
    if shown.is_text and not failed and not included and (states is not None or where):
        state = [] if states is None else [f"--state {shlex.quote(states)}"]
        print(f"no trial matches {' '.join([*state, *(f'--where {shlex.quote(text)}' for text in where)])}")
    elif failed and shown.is_text:
        print(name_study("\n".join(_failures(paths, index, included)), paths) or "no trial has failed")
    elif best:
        judged = _judged(paths, index, included, metric, shown.is_text)
        number = limit or 1
        shown.best(
            best_rows(paths, index, included, judged, stat=stat, limit=number, seed_name=facts.seed_name), number
        )
    elif by is not None:
        judged = _judged(paths, index, included, metric, shown.is_text)
        shown.groups(_groups(paths, index, included, judged, by, stat, facts.seed_name))
    else:
        with_code = shown.kind != "table" or failed
        shown.all_trials(result_rows(paths, index, included, metric, facts.seed_name, usage, with_code, failed))
        if shown.is_text:
            _say_missing(paths, index, included, metric)
        _say_overlaps(paths, index, included)
    index.close()


def _chosen(
    paths: StudyPaths, index: StudyIndex, included: Ranges, states: str | None, where: tuple[str, ...], is_text: bool
) -> Ranges:
    """The trials in these states with these values.

    Raises InputError for a value that no trial has. A program that asks for JSON or CSV gets what there is, with a
    warning.
    """
    wanted = None if states is None else parse_states(states)
    chosen = choose_trials(paths, index, included, wanted, parse_where(where))
    problems = [Problem(f"--where: no trial has {given}", f"there are: {others}") for given, others in chosen.unknown]
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
        raise input_error(f"{output}: there is no format for {ending}", f"end it in {', '.join(_KINDS)}")
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
                tail = last_lines(OutputReader(paths, record.agent).read({record.attempt: record.number}), 1)
                last = tail.decode("utf-8", "replace").strip()
            shown += 1
            yield from render_failure(trials.read(record.number), record, place, code, last)
    finally:
        trials.close()


def _groups(
    paths: StudyPaths, index: StudyIndex, included: Ranges, metric: Metric, by: str, stat: str, seed_name: str
) -> list[Row]:
    names = None if by == "all" else [name.strip() for name in by.split(",") if name.strip()]
    rows = result_rows(paths, index, included, metric, seed_name)
    return [group.to_row() for group in group_rows(rows, names, metric.name, stat, seed_name)]


def _metric(text: str | None, facts: PlannedFacts) -> Metric | None:
    if text is None:
        return facts.metric
    name, _, goal = text.rpartition(":")
    if name and " " not in goal and "/" not in goal and goal not in GOALS:
        raise input_error(f"the goal of a metric is minimize or maximize, not {goal!r}", f"--metric {name}:maximize")
    if facts.metric is not None and facts.metric.name == text:
        return facts.metric
    return parse_metric(text)


def _judged(paths: StudyPaths, index: StudyIndex, included: Ranges, metric: Metric | None, is_text: bool) -> Metric:
    """The metric to judge by. Raises InputError where there is none, or where no done trial has a value of it.

    A program that asks for JSON or CSV gets what there is, with a warning.
    """
    if metric is None:
        listed = list_numbers(paths, index, included)
        has = f" (the output has {', '.join(one.name for one in listed)})" if listed else ""
        name = shlex.quote(listed[0].name) if listed else "loss"
        raise input_error(
            f"the study names no metric to judge by{has}",
            f"--metric {name}, or `metric: {{name: {name}}}` in the study",
        )
    missing = find_missing(paths, index, included, metric.name)
    lines = [name_study(line, paths) for line in render_missing(missing)]
    if is_text and missing.without and missing.without == missing.done:
        raise input_error(lines[0], "; ".join(lines[1:]))
    for line in lines:
        click.echo(line, err=True)
    return metric


def _say_missing(paths: StudyPaths, index: StudyIndex, included: Ranges, metric: Metric | None) -> None:
    """Say which trials lack the metric; without a metric, which ones the output has, if the trials reported none."""
    lines: list[str] = []
    if metric is not None:
        lines = render_missing(find_missing(paths, index, included, metric.name))
    elif not any(record.metrics for record in index.records(states=(State.DONE,))):
        lines = render_unnamed(list_numbers(paths, index, included))
    for line in lines:
        click.echo(name_study(line, paths), err=True)


def _say_overlaps(paths: StudyPaths, index: StudyIndex, included: Ranges) -> None:
    """Say which trials different agents executed at the same time."""
    overlapped = (record for record in index.tried_again() if rs.contains(included, record.number))
    for line in render_overlaps(overlapped):
        click.echo(name_study(line, paths), err=True)


@dataclass(frozen=True)
class _Shown:
    """Writes rows as was asked for: tables for people, everything else in full for programs.

    Secrets that studies of earlier versions may have are masked.
    """

    kind: str
    output: str | None
    metric: Metric | None
    facts: PlannedFacts
    stat: str
    wide: bool
    limit: int | None

    @property
    def is_text(self) -> bool:
        """Whether it is a table on the screen."""
        return self.kind == "table" and self.output is None

    def all_trials(self, found: ResultRows) -> None:
        """Write the rows of a study. The text of a table is remembered until a journal grows."""
        if self.kind != "table":
            self._write(map(mask_row, found))
            return
        self._say_order("best first")
        width = self._look()["width"]
        asked = [self.stat, self.limit, self.wide, width, list(self.facts.patterns)]
        self._print(self._paint(found.remembered(asked, lambda: self._render(found, width))))

    def trials(self, found: Iterable[Row]) -> None:
        if self.kind != "table":
            self._write(map(mask_row, found))
            return
        self._say_order("best first")
        self._print(self._paint(self._render(found, self._look()["width"])))

    def _render(self, found: Iterable[Row], width: int | None) -> str:
        """A table without colours."""
        rows: Iterable[Row] = map(mask_row, found)
        ordered = list(rows) if self.metric is None else sort_best_first(rows, self.metric, self.stat)
        declared = [*([self.metric.name] if self.metric else []), *self.facts.patterns]
        return render_results(
            ordered,
            list(dict.fromkeys(declared)),
            stat=self.stat,
            seed_name=self.facts.seed_name,
            limit=self.limit,
            wide=self.wide,
            width=width,
        )

    def _paint(self, table: str) -> str:
        head, newline, rest = table.partition("\n")
        return paint(head, BOLD if self._look()["color"] else "") + newline + rest

    def groups(self, found: Iterable[Row]) -> None:
        assert self.metric is not None
        rows = [mask_row(row) for row in found]
        if self.kind != "table":
            self._write(rows)
            return
        ordered = sort_groups(rows, self.metric)[: self.limit]
        self._say_order("mean and 95 % confidence interval, best first")
        self._print(render_groups(ordered, self.metric.name, wide=self.wide, **self._look()))

    def best(self, found: Iterable[Row], number: int) -> None:
        assert self.metric is not None
        rows = [mask_row(row) for row in found]
        if self.kind != "table":
            self._write(rows)
        elif not rows:
            self._print("no trial is done yet\n")
        elif number == 1:
            self._print(render_card(rows[0], self.metric.name) + "\n")
        elif "mean" in rows[0]:
            self._print(render_groups(rows, self.metric.name, wide=self.wide, **self._look()))
        else:
            self.trials(rows)

    def _say_order(self, how: str) -> None:
        if self.metric is not None and self.is_text:
            values = "" if self.stat == "last" else f", the {self.stat} value of each trial"
            click.echo(f"{self.metric.name} ({self.metric.goal}): {how}{values}", err=True)

    def _look(self) -> dict[str, Any]:
        if not self.is_text:
            return {"width": None, "color": False}
        return {"width": terminal_width(sys.stdout), "color": wants_color(sys.stdout)}

    def _print(self, text: str) -> None:
        if self.output is None:
            sys.stdout.write(text)
            return
        with as_given(), open(self.output, "w", encoding="utf-8") as file:
            file.write(text)

    def _write(self, rows: Iterable[Row]) -> None:
        _write(itertools.islice(rows, self.limit) if self.limit else rows, self.kind, self.output)


def _write(rows: Iterable[Row], kind: str, output: str | None) -> None:
    if output is not None:
        with as_given():  # a file of the user's, not of the study's
            if kind == "parquet":
                write_results(rows, kind, sys.stdout, path=output)
                return
            with open(output, "w", encoding="utf-8", newline="") as file:
                write_results(rows, kind, file)
        return
    if kind == "csv":
        write_results(rows, kind, data_stream(sys.stdout))
        return
    write_results(rows, kind, sys.stdout)
