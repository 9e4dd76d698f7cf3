"""windlass run: run what is missing of a study."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from windlass.bundle.folder import Prepared, remember_place
from windlass.check.record import passed_at
from windlass.cli.examples import check_example
from windlass.cli.folder_check import find_folder_warnings
from windlass.cli.hints import name_study
from windlass.cli.known_warnings import KnownWarnings
from windlass.cli.options import confirm, json_option, place_options, yes_option
from windlass.cli.report import StreamReporter
from windlass.cli.request import Asked, read_request
from windlass.cli.study_options import CommandWithProgram, study_options
from windlass.collect.joblog import GrowingJoblog
from windlass.collect.locate import find_twin
from windlass.collect.look import look
from windlass.collect.outputs import prune_outputs
from windlass.collect.results import read_failed
from windlass.collect.standing import read_standing
from windlass.core.errors import input_error
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trust import describe_copy
from windlass.core.units import parse_duration_s
from windlass.flow import How, Outcome, run_study
from windlass.model import Plan, Submitted
from windlass.places.base import Place
from windlass.secrets import mask
from windlass.view.results import strict
from windlass.view.standing import render_standing
from windlass.view.status import render_end, view_to_json
from windlass.view.story import render_failed
from windlass.view.table import wants_color

_MOST_NAMED = 10


@click.command(cls=CommandWithProgram)
@study_options
@place_options
@click.option(
    "--wait",
    is_flag=True,
    help="With Slurm: follow the jobs to their end instead of returning at once.",
)
@click.option("--here", is_flag=True, help="With --on local: execute trials even on a login host.")
@click.option(
    "--joblog",
    metavar="FILE",
    help="Also write the joblog of GNU parallel, with the attempts of former runs; with Slurm it needs --wait.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="K",
    help="Run only K trials, far apart from each other, to see whether they work at all.",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="Start one agent first, and the others once its use of memory has levelled out and fits.",
)
@click.option(
    "--rehearse-limit",
    default="5m",
    metavar="TIME",
    show_default=True,
    help="How long --rehearse may wait for the first agent.",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="Go on even where the first trials all fail for the same reason.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@yes_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    wait: bool,
    joblog: str | None,
    sample: int | None,
    rehearse: bool,
    rehearse_limit: str,
    keep_going: bool,
    quiet: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run what is missing of a study: new, failed and interrupted trials, never those that are done.

    \b
    windlass run study.yaml
    windlass run --param 'lr=[0.1,0.01]' --seeds 5 -- python train.py --lr {lr} --seed {seed}

    Where Slurm answers, the trials go to the cluster and the command returns at once; else they run here, and Ctrl-C
    once lets running trials end, twice stops them.
    """
    chosen = options["on"]
    rehearse_s = _read_limit(rehearse_limit) if rehearse else None
    asked = _read_request(ctx, options, keep_going, sample)
    plan, place = asked.plan, asked.place
    if joblog is not None:
        _check_joblog(joblog, place.elsewhere and not wait)
    log = GrowingJoblog(joblog, StudyPaths(plan.folder)) if joblog else None
    reporter = _RunReporter(
        plan.folder, quiet, yes, says_start=wait or not as_json, names_place=chosen is None
    )
    how = How(sample, rehearse_s, wait, on_end=log)
    try:
        outcome = run_study(place, plan, reporter, how, find_folder_warnings(plan.folder))
        if log is not None:
            log.complete()
    finally:
        reporter.close()
        if log is not None:
            log.close()
    if plan.settings["keep"].value == "best" and outcome.is_followed and outcome.exit_code == 0:
        prune_outputs(outcome.paths)
    show_outcome(outcome, as_json, quiet)
    if sample is not None and outcome.is_followed and not as_json and not quiet:
        for line in render_failed(read_failed(outcome.paths, _MOST_NAMED)):
            click.echo(f"  {line}", err=True)
    return outcome.exit_code


def _read_request(
    ctx: click.Context, options: dict[str, Any], keep_going: bool, sample: int | None
) -> Asked:
    asked = read_request(ctx.meta["arguments"], options, sample)
    check_example(asked.study)
    return replace(asked, plan=replace(asked.plan, keep_going=keep_going))


def _say_twin(plan: Plan, reporter: StreamReporter) -> None:
    """Say that another study here looks like this one and has results: all of its trials are executed again."""
    twin = find_twin(plan.folder, plan.study.source_text)
    if not twin or describe_copy(StudyPaths(twin)):  # the trials of a copy run in the original
        return
    done = look(StudyPaths(twin)).counts[State.DONE.value]
    if done:
        name = shlex.quote(os.path.basename(twin))
        reporter.say(
            f"note: the study {name} ({done} done) looks like this one: `-e {name}` goes on with it"
        )


def _check_joblog(path: str, unattended: bool) -> None:
    """The file is written by the process that sees trials end: it must be there, and the file writable."""
    if unattended:
        raise input_error(
            "--joblog: nobody is there to write it, `run` returns as soon as the jobs are submitted",
            f"add --wait, or leave it out and write it later: windlass logs --joblog {shlex.quote(path)}",
        )
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise input_error(
            f"--joblog: {path} cannot be written", "name a file in a folder that is there"
        )


def _read_limit(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise input_error(str(error), "write --rehearse-limit 5m") from None


class _RunReporter(StreamReporter):
    """Shows a run, what it will cost, and lets its study be found again wherever it was put."""

    def __init__(
        self, folder: str, quiet: bool, yes: bool, says_start: bool, names_place: bool
    ) -> None:
        super().__init__(quiet, folder)
        self._warnings = KnownWarnings(folder, self.say)
        self._yes = yes
        self._says_start = says_start
        self._names_place = names_place

    def warn(self, warnings: Sequence[str]) -> None:
        self._warnings.show(warnings)

    def confirm(self, question: str) -> None:
        confirm(question, self._yes)

    def planned(self, place: Place, plan: Plan) -> None:
        _say_twin(plan, self)
        if self._names_place and place.explain_choice():
            self.say(place.explain_choice())

    def prepared(self, plan: Plan, prepared: Prepared) -> None:
        if plan.elsewhere and passed_at(plan.study) is None:
            self.warn(["this command at this commit has not passed `windlass check` here"])
        remember_place(plan)
        self._warnings.remember()
        super().prepared(plan, prepared)

    def started(self, submitted: Submitted | None) -> None:
        if self._says_start:
            super().started(submitted)


def show_outcome(outcome: Outcome, as_json: bool, quiet: bool) -> None:
    """Show how a run ended, and the best of its trials by the study's metric. Of jobs that go on: which they are."""
    if not outcome.is_followed:
        if as_json and outcome.submitted is not None:
            print(json.dumps(_submitted_to_json(outcome.paths, outcome.submitted), indent=2))
        return
    if quiet and not as_json:
        return
    view = look(outcome.paths, failures=True)
    standing = read_standing(outcome.paths)
    if as_json:
        best = None if standing is None else strict(standing.best)
        print(
            json.dumps(
                {**view_to_json(view), "best": best, "exit_code": outcome.exit_code}, indent=2
            )
        )
        return
    lines = [f"  {line}" for line in render_standing(standing)] if standing is not None else []
    text = name_study("\n".join([render_end(view, wants_color(sys.stderr)), *lines]), outcome.paths)
    click.echo(mask(text, os.environ), err=True)


def _submitted_to_json(paths: StudyPaths, submitted: Submitted) -> dict[str, Any]:
    return {
        "study": paths.folder,
        "jobs": list(submitted.jobs),
        "agents": submitted.agents,
        "present": submitted.present,
    }
