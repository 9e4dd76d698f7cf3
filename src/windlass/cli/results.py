"""windlass results: one row a trial, or one a setting."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import click

from windlass.claims import ranges as rs
from windlass.claims.ranges import Ranges
from windlass.cli.hints import name_study
from windlass.cli.options import find_study, folder_option
from windlass.cli.terminal import data_stream
from windlass.collect.choose import choose_trials, parse_states, parse_where
from windlass.collect.facts import PlannedFacts, read_facts
from windlass.collect.groups import group_rows
from windlass.collect.index import StudyIndex
from windlass.collect.look import read_register
from windlass.collect.output import OutputReader, last_lines
from windlass.collect.ran import place_columns
from windlass.collect.results import Row, best_rows, result_rows
from windlass.errors import input_error
from windlass.model import Metric
from windlass.paths import StudyPaths
from windlass.secrets import mask_row
from windlass.trialfile import TrialFile
from windlass.trust import as_given
from windlass.view.results import FORMATS, render_card, write_results
from windlass.view.story import render_failure
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
@click.option("-n", "--limit", type=int, default=1, show_default=True, help="With --best: how many.")
@click.option("--metric", "metric_name", metavar="NAME[:GOAL]", help="Judge by this metric instead of the study's.")
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
    limit: int,
    metric_name: str | None,
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
    """Show results: id, parameters, seed, state, cause, attempts, duration, and last, min and max of each metric."""
    paths = find_study(study, folder)
    facts = read_facts(paths)
    register = read_register(paths)
    included: Ranges = [(0, register.count)] if everything else register.current
    index = StudyIndex(paths)
    index.refresh()
    if failed and (best or by is not None or states is not None):
        raise input_error("--failed lists trials; it does not go with --best, --by or --state", "leave the other out")
    states = "failed" if failed else states
    if states is not None or where:
        wanted = None if states is None else parse_states(states)
        included = choose_trials(paths, index, included, wanted, parse_where(where))
    kind = "json" if as_json else kind or _kind_of_file(output)
    metric = _metric(metric_name, facts)
    if best:
        rows: Iterable[Row] = best_rows(
            paths, index, included, _needed(metric), stat=stat, limit=limit, seed_name=facts.seed_name
        )
    elif by is not None:
        if kind == "table" and metric is not None:
            click.echo(f"{metric.name} ({metric.goal}), the {stat} value of each trial", err=True)
        rows = _groups(paths, index, included, _needed(metric), by, stat, facts.seed_name)
    else:
        with_code = kind != "table" or failed
        rows = result_rows(paths, index, included, metric, facts.seed_name, usage, with_code, failed)
    if failed and kind == "table" and output is None:
        print(name_study("\n".join(_failures(paths, index, included)), paths) or "no trial has failed")
    elif best and kind == "table" and output is None and limit == 1:
        print(render_card(mask_row(next(iter(rows), {}))))
    else:
        _write(rows, kind, output)
    index.close()


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
                tail = last_lines(OutputReader(paths, record.agent).read(record.number, record.attempt), 1)
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
    name, _, goal = text.partition(":")
    if goal not in ("", "minimize", "maximize", "min", "max"):
        raise input_error(f"the goal of a metric is minimize or maximize, not {goal!r}", f"--metric {name}:maximize")
    if not goal and facts.metric is not None and facts.metric.name == name:
        return facts.metric
    return Metric(name, "maximize" if goal.startswith("max") else "minimize")


def _needed(metric: Metric | None) -> Metric:
    if metric is None:
        raise input_error(
            "the study names no metric to judge by", "--metric loss, or `metric: {name: loss}` in the study"
        )
    return metric


def _write(found: Iterable[Row], kind: str, output: str | None) -> None:
    rows: Iterable[Row] = (mask_row(row) for row in found)  # Studies of earlier versions may have secrets.
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
    write_results(rows, kind, sys.stdout, width=terminal_width(sys.stdout), color=wants_color(sys.stdout))
