"""windlass run: run what is missing of a study."""

from __future__ import annotations

import json
from typing import Any

import click

from windlass.cli.options import CommandWithWords, confirm, json_option, study_options, yes_option
from windlass.cli.plan import read_request, warn
from windlass.cli.report import StreamReporter
from windlass.collect.joblog import Joblog
from windlass.collect.look import look
from windlass.flow import Outcome, run_plan
from windlass.launch.local import LocalLauncher
from windlass.paths import StudyPaths
from windlass.view.status import render_end, view_to_json

_MANY_TRIALS = 100_000


@click.command(cls=CommandWithWords)
@study_options
@click.option("--joblog", metavar="FILE", help="Also write GNU parallel's joblog.")
@click.option("--sample", type=click.IntRange(1), metavar="K", help="Only K trials, far apart: do they work at all?")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@yes_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, joblog: str | None, sample: int | None, quiet: bool, yes: bool, as_json: bool, **options: Any
) -> int:
    """Run what is missing of a study: new, failed and interrupted trials, never those that are done.

    \b
    windlass run study.yaml
    windlass run --param 'lr=[0.1,0.01]' --seeds 5 -- python train.py --lr {lr} --seed {seed}

    Ctrl-C once lets running trials end, twice stops them.
    """
    study, plan = read_request(ctx.meta["words"], options)
    warn(study)
    if plan.trial_count > _MANY_TRIALS and sample is None:
        confirm(f"these are {plan.trial_count:,} trials; go on?", yes)
    reporter = StreamReporter(quiet)
    log: Joblog | None = None

    def on_end(cause: str, event: dict[str, Any]) -> None:
        nonlocal log
        if joblog is not None:
            log = log or Joblog(joblog, StudyPaths(plan.folder))
            log.add(cause, event)

    try:
        outcome = run_plan(plan, LocalLauncher(), reporter, on_end if joblog else None, sample)
    finally:
        reporter.close()
        if log is not None:
            log.close()
    show_outcome(outcome, as_json, quiet)
    return outcome.exit_code


def show_outcome(outcome: Outcome, as_json: bool, quiet: bool) -> None:
    view = look(outcome.paths)
    if as_json:
        print(json.dumps({**view_to_json(view), "exit_code": outcome.exit_code}, indent=2))
    elif not quiet:
        click.echo(render_end(view), err=True)
