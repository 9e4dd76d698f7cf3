"""windlass run: run what is missing of a study."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from typing import Any

import click

from windlass.bundle.environment import prepare_environment
from windlass.bundle.folder import Prepared, remember_place
from windlass.check.record import passed_at
from windlass.cli.examples import check_example
from windlass.cli.folder_check import find_folder_warnings
from windlass.cli.hints import name_study
from windlass.cli.known_warnings import KnownWarnings
from windlass.cli.options import CommandWithWords, confirm, json_option, place_options, study_options, yes_option
from windlass.cli.report import StreamReporter
from windlass.cli.request import Asked, read_request
from windlass.collect.joblog import GrowingJoblog
from windlass.collect.locate import find_twin
from windlass.collect.look import look
from windlass.collect.outputs import prune_outputs
from windlass.collect.results import read_failed
from windlass.collect.standing import read_standing
from windlass.errors import input_error
from windlass.flow import Outcome, follow_jobs, run_plan, submit_plan
from windlass.launch.local import LocalLauncher
from windlass.model import Plan, Submitted
from windlass.paths import StudyPaths
from windlass.refusals import check_slurm_plan
from windlass.rehearse import RehearsingLauncher, rehearse_plan
from windlass.secrets import mask
from windlass.spec.units import parse_duration_s
from windlass.states import State
from windlass.trust import describe_copy
from windlass.view.plan import render_submitted
from windlass.view.results import strict
from windlass.view.standing import render_standing
from windlass.view.status import render_end, view_to_json
from windlass.view.story import render_failed
from windlass.view.table import wants_color

_MANY_TRIALS = 100_000
_MOST_NAMED = 10


@click.command(cls=CommandWithWords)
@study_options
@place_options
@click.option("--wait", is_flag=True, help="With Slurm: follow the jobs to the end instead of returning at once.")
@click.option("--here", is_flag=True, help="With --on local: also on a login host.")
@click.option(
    "--joblog",
    metavar="FILE",
    help="Also write GNU parallel's joblog, with the attempts of former runs; with Slurm needs --wait.",
)
@click.option("--sample", type=click.IntRange(1), metavar="K", help="Only K trials, far apart: do they work at all?")
@click.option("--rehearse", is_flag=True, help="One agent first; the rest once its usage has levelled out and fits.")
@click.option("--rehearse-limit", default="5m", metavar="TIME", show_default=True, help="For that to happen, at most.")
@click.option("--keep-going", is_flag=True, help="Go on also where the first trials all fail for the same reason.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
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
    plan = asked.plan
    if joblog is not None:
        _check_joblog(joblog, asked.cluster is not None and not wait)
    reporter = _RunReporter(quiet, plan.folder)
    reporter.warnings.show(_early_warnings(asked))
    if plan.trial_count > _MANY_TRIALS and sample is None:
        confirm(f"these are {plan.trial_count:,} trials; go on?", yes)
    _say_twin(plan, reporter)
    log = GrowingJoblog(joblog, StudyPaths(plan.folder)) if joblog else None
    try:
        if asked.cluster is None:
            outcome = _run_here(plan, reporter, log, sample, rehearse_s)
        else:
            if chosen is None and asked.cluster.live:
                reporter.say(f"{plan.site_name}: Slurm answers, the trials go there (--on local: to this machine)")
            paths, submitted = _submit(asked, reporter, sample, rehearse_s)
            if not wait:
                show_submitted(paths, submitted, as_json, reporter)
                return 0
            reporter.say(render_submitted(submitted))
            outcome = follow_jobs(paths, reporter, log, sample is not None)
        if log is not None:
            log.complete()
    finally:
        reporter.close()
        if log is not None:
            log.close()
    if plan.settings["keep"].value == "best" and outcome.exit_code == 0:
        prune_outputs(outcome.paths)
    show_outcome(outcome, as_json, quiet)
    if sample is not None and not as_json and not quiet:
        for line in render_failed(read_failed(outcome.paths, _MOST_NAMED)):
            click.echo(f"  {line}", err=True)
    return outcome.exit_code


def _read_request(ctx: click.Context, options: dict[str, Any], keep_going: bool, sample: int | None) -> Asked:
    asked = read_request(ctx.meta["words"], options, sample)
    check_example(asked.study)
    return replace(asked, plan=replace(asked.plan, keep_going=keep_going))


def _early_warnings(asked: Asked) -> list[str]:
    """What is known before anything is done. Those of a plan for a cluster come with its refusals."""
    of_plan = asked.plan.warnings if asked.cluster is None else ()
    return [*asked.study.warnings, *of_plan, *find_folder_warnings(asked.plan.folder)]


def _say_twin(plan: Plan, reporter: StreamReporter) -> None:
    """Say that another study here looks like this one and has results: all of its trials are executed again."""
    twin = find_twin(plan.folder, plan.study.source_text)
    if not twin or describe_copy(StudyPaths(twin)):  # the trials of a copy run in the original
        return
    done = look(StudyPaths(twin)).counts[State.DONE.value]
    if done:
        name = shlex.quote(os.path.basename(twin))
        reporter.say(f"note: the study {name} ({done} done) looks like this one: `-e {name}` goes on with it")


def _check_joblog(path: str, unattended: bool) -> None:
    """The file is written by the process that sees trials end: it must be there, and the file writable."""
    if unattended:
        raise input_error(
            "--joblog: nobody is there to write it, `run` returns as soon as the jobs are submitted",
            f"add --wait, or leave it out and write it later: windlass logs --joblog {shlex.quote(path)}",
        )
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise input_error(f"--joblog: {path} cannot be written", "name a file in a folder that is there")


def _read_limit(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise input_error(str(error), "write --rehearse-limit 5m") from None


def _run_here(
    plan: Plan, reporter: StreamReporter, log: GrowingJoblog | None, sample: int | None, rehearse_s: float | None
) -> Outcome:
    if rehearse_s is None:
        return run_plan(plan, LocalLauncher(), reporter, log, sample)
    launcher = RehearsingLauncher(LocalLauncher(), reporter.say)
    outcome = run_plan(plan, launcher, reporter, log, sample, rehearse_s)
    launcher.raise_for_refusal()
    return outcome


def _submit(
    asked: Asked, reporter: _RunReporter, sample: int | None, rehearse_s: float | None
) -> tuple[StudyPaths, Submitted]:
    assert asked.cluster is not None
    asked.require_scheduler()
    warnings = check_slurm_plan(asked.plan, asked.cluster)
    if passed_at(asked.study) is None:
        warnings.append("this command at this commit has not passed `windlass check` here")
    reporter.warnings.show(warnings)
    prepare_environment(asked.plan, asked.cluster.internet, reporter.say)
    if rehearse_s is not None:
        return rehearse_plan(asked.plan, reporter, rehearse_s, sample)
    return submit_plan(asked.plan, reporter, sample)


def show_submitted(paths: StudyPaths, submitted: Submitted, as_json: bool, reporter: StreamReporter) -> None:
    if as_json:
        said = {"study": paths.folder, "jobs": list(submitted.jobs), "agents": submitted.agents}
        print(json.dumps({**said, "present": submitted.present}, indent=2))
    else:
        reporter.say(render_submitted(submitted))


class _RunReporter(StreamReporter):
    """Shows a run, what it will cost, and lets its study be found again wherever it was put."""

    def __init__(self, quiet: bool, folder: str) -> None:
        super().__init__(quiet, folder)
        self.warnings = KnownWarnings(folder, self.say)

    def prepared(self, plan: Plan, prepared: Prepared) -> None:
        remember_place(plan)
        self.warnings.remember()
        super().prepared(plan, prepared)


def show_outcome(outcome: Outcome, as_json: bool, quiet: bool) -> None:
    """Show how a run ended, and the best of its trials by the study's metric."""
    if quiet and not as_json:
        return
    view = look(outcome.paths, failures=True)
    standing = read_standing(outcome.paths)
    if as_json:
        best = None if standing is None else strict(standing.best)
        print(json.dumps({**view_to_json(view), "best": best, "exit_code": outcome.exit_code}, indent=2))
        return
    lines = [f"  {line}" for line in render_standing(standing)] if standing is not None else []
    text = name_study("\n".join([render_end(view, wants_color(sys.stderr)), *lines]), outcome.paths)
    click.echo(mask(text, os.environ), err=True)
