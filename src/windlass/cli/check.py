"""windlass check: the checklist before a study goes to the cluster."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from windlass.check.code import check_code
from windlass.check.data import check_data
from windlass.check.environment import check_environment
from windlass.check.folders import check_folders
from windlass.check.headless import check_headless, find_windows
from windlass.check.item import Item, failed, passed, skipped
from windlass.check.ladder import climb, plan_ladder
from windlass.check.needs import check_needs
from windlass.check.options import find_option_problems
from windlass.check.record import write_record
from windlass.check.shared import check_shared
from windlass.check.trial import TriedTrial, check_trial, try_trial
from windlass.cli.examples import check_example
from windlass.cli.interruption import rehearse
from windlass.cli.options import json_option, place_options
from windlass.cli.request import Asked, read_request, read_seconds
from windlass.cli.study_options import CommandWithProgram, study_options
from windlass.core.errors import InputError, Problem, input_error
from windlass.flow import EXIT_INTERRUPTED
from windlass.model import Study
from windlass.places.base import Place
from windlass.places.local import LocalPlace
from windlass.search import iterate_trials
from windlass.site.here import Here
from windlass.view.check import checklist_to_json, ladder_to_json, render_checklist, render_rung

_LADDER = "ladder: [{name: one example, args: --limit 1, expect: loss<=0.01}]"


@click.command(cls=CommandWithProgram)
@study_options
@place_options
@click.option(
    "--ladder",
    is_flag=True,
    help="Execute the rungs under `ladder:` instead: small versions first, each of which must hold.",
)
@click.option(
    "--interruption",
    is_flag=True,
    help="Interrupt a trial here on purpose instead, and see whether it goes on where it was.",
)
@click.option(
    "--after",
    metavar="TIME",
    help="With --interruption: interrupt the trial after this time (default: at its first whole checkpoint).",
)
@click.option(
    "--no-run", is_flag=True, help="Start nothing, and leave out all items that need the program."
)
@click.option(
    "--limit",
    callback=read_seconds,
    metavar="TIME",
    default="60s",
    show_default=True,
    help="How long the one trial may run.",
)
@click.option("--here", is_flag=True, help="Start a trial even on a login host.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    ladder: bool,
    interruption: bool,
    after: str | None,
    no_run: bool,
    limit: float,
    here: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Go through the checklist: code committed, data packed, environment there, needs known, no windows, options
    known, shared folders spared. Each item passes or fails, with the reason and what to do.

    One trial is executed for a short time, from a copy of the code and without a display. It fails where it computes
    NaN. Nothing is submitted.

    With --ladder, the rungs under `ladder:` in the study are executed here one after the other, each once the one
    before it has reached what it was expected to. They are recorded as trials of the study NAME-ladder.

    With --interruption, one trial is executed here, interrupted as at the end of a job's time, and started again. This
    happens in a folder of its own that is removed afterwards; with --folder PATH it stays there.
    """
    if interruption:
        return rehearse(ctx.meta["arguments"], options, after, as_json)
    if after is not None:
        raise input_error(
            "--after counts only with --interruption", "windlass check --interruption --after 30s"
        )
    asked = read_request(ctx.meta["arguments"], options)
    host = asked.place.fetch_here(asked.plan.folder)
    machine = LocalPlace()
    why_not = "--no-run" if no_run else _why_not(asked, host, machine, here)
    if ladder:
        return _climb(asked, machine, why_not, as_json)
    shared = (asked.study.project_dir, os.path.dirname(asked.plan.folder))
    scratch = os.environ.get("SCRATCH", "")
    tried = None if why_not else try_trial(asked.study, machine, shared, limit, scratch)
    items = make_checklist(asked, host, tried, why_not)
    ready = all(item.verdict != "fail" for item in items)
    if ready and tried is not None:
        write_record(asked.study)
    if as_json:
        print(json.dumps(checklist_to_json(items, ready), indent=2, ensure_ascii=False))
    else:
        print(render_checklist(items))
    return 0 if ready else 1


def _climb(asked: Asked, machine: Place, why_not: str, as_json: bool) -> int:
    """Climb the ladder rung by rung and show each result at once. Returns the exit code: 0 if every rung held.

    Raises InputError where the study has no ladder, or where this machine is no place for trials.
    """
    study = asked.study
    if not study.ladder:
        raise InputError([Problem("the study has no ladder", _LADDER, study.source)])
    if why_not:
        raise input_error(
            f"the ladder is climbed on this machine: {why_not}",
            "windlass shell opens a job to do it in",
        )
    check_example(study)
    plan = plan_ladder(study, machine, os.path.dirname(asked.plan.folder))
    width = max(len(rung.name) for rung in study.ladder)
    results = []
    for result in climb(study, machine, plan, lambda text: click.echo(text, err=True)):
        results.append(result)
        if not as_json:
            print(render_rung(result, width, plan.study.name), flush=True)
    answer = ladder_to_json(results, plan.study.name, plan.folder)
    if as_json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        print(f"windlass results {plan.study.name} shows them again")
    if any(result.verdict == "interrupted" for result in results):
        return EXIT_INTERRUPTED
    return 0 if answer["held"] else 1


def make_checklist(
    asked: Asked, host: Here | None, tried: TriedTrial | None, why_not: str
) -> list[Item]:
    """The results of all items, in the order in which they are shown.

    `tried` is a trial that was executed; where none was, `why_not` has the reason, and the items that need one are
    skipped.
    """
    study = asked.study
    trial = next(iterate_trials(study))
    windows = find_windows(trial.stages, study.workdir, study.project_dir)
    return [
        check_code(study),
        check_data(asked.plan),
        check_environment(study, tried),
        check_needs(asked.plan),
        check_trial(tried, why_not),
        check_headless(windows, tried),
        _check_options(study, why_not),
        check_shared(tried, asked.plan.trial_count),
        check_folders(asked.plan, host),
    ]


def _check_options(study: Study, why_not: str) -> Item:
    """The item on options: whether the program's own --help lists all options that the study passes."""
    if why_not:
        return skipped("options", f"the program was not asked for its --help: {why_not}")
    problems = find_option_problems(study)
    if problems:
        return failed(
            "options", "; ".join(problem.message for problem in problems), problems[0].hint
        )
    return passed("options", "the program's --help lists all options that it would get")


def _why_not(asked: Asked, host: Here | None, machine: LocalPlace, insists: bool) -> str:
    """Why no trial can be executed here; "" where it can."""
    if host is not None and host.is_login_host and not insists:
        return f"{host.host} is a login host (--here insists)"
    if asked.plan.settings["gpus"].value and not machine.site.gpus:
        return "a trial needs a GPU and there is none here"
    return ""
