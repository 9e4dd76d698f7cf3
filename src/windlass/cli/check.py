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
from windlass.cli.options import CommandWithWords, json_option, place_options, study_options
from windlass.cli.request import Asked, read_request, read_seconds
from windlass.errors import InputError, Problem, input_error
from windlass.flow import EXIT_INTERRUPTED
from windlass.model import Study
from windlass.search import iterate_trials
from windlass.site.here import Here, fetch_here
from windlass.site.local import Site, fetch_local_site
from windlass.view.check import checklist_to_json, ladder_to_json, render_checklist, render_rung

_LADDER = "ladder: [{name: one example, args: --limit 1, expect: loss<=0.01}]"


@click.command(cls=CommandWithWords)
@study_options
@place_options
@click.option("--ladder", is_flag=True, help="Climb the study's ladder instead: small versions first, each must hold.")
@click.option("--no-run", is_flag=True, help="Start nothing: leave out what needs the program.")
@click.option(
    "--limit",
    callback=read_seconds,
    metavar="TIME",
    default="60s",
    show_default=True,
    help="Time that one trial is given.",
)
@click.option("--here", is_flag=True, help="Start a trial also on a login host.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, ladder: bool, no_run: bool, limit: float, here: bool, as_json: bool, **options: Any
) -> int:
    """Go through the checklist: code committed, data packed, environment there, needs known, no windows, options
    known, shared folders spared. Each item passes or fails, with the reason and what to do.

    One trial is executed for a short time, from a copy of the code and without a display. It fails where it computes
    NaN. Nothing is submitted.

    With --ladder, the rungs under `ladder:` in the study are executed here one after the other, each once the one
    before it has reached what it was expected to. They are recorded as trials of the study NAME-ladder.
    """
    asked = read_request(ctx.meta["words"], options)
    place = None if asked.cluster is None else fetch_here(asked.cluster, os.environ, (asked.plan.folder,))
    site = fetch_local_site()
    why_not = "--no-run" if no_run else _why_not(asked, place, site, here)
    if ladder:
        return _climb(asked, site, why_not, as_json)
    shared = (asked.study.project_dir, os.path.dirname(asked.plan.folder))
    scratch = os.environ.get("SCRATCH", "")
    tried = None if why_not else try_trial(asked.study, site, shared, limit, scratch)
    items = make_checklist(asked, place, tried, why_not)
    ready = all(item.verdict != "fail" for item in items)
    if ready and tried is not None:
        write_record(asked.study)
    if as_json:
        print(json.dumps(checklist_to_json(items, ready), indent=2, ensure_ascii=False))
    else:
        print(render_checklist(items))
    return 0 if ready else 1


def _climb(asked: Asked, site: Site, why_not: str, as_json: bool) -> int:
    study = asked.study
    if not study.ladder:
        raise InputError([Problem("the study has no ladder", _LADDER, study.source)])
    if why_not:
        raise input_error(f"the ladder is climbed on this machine: {why_not}", "windlass shell opens a job to do it in")
    check_example(study)
    plan = plan_ladder(study, site, os.path.dirname(asked.plan.folder))
    width = max(len(rung.name) for rung in study.ladder)
    results = []
    for result in climb(study, plan, lambda text: click.echo(text, err=True)):
        results.append(result)
        if not as_json:
            print(render_rung(result, width, plan.study.name), flush=True)
    said = ladder_to_json(results, plan.study.name, plan.folder)
    if as_json:
        print(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        print(f"windlass results {plan.study.name} shows them again")
    if any(result.verdict == "interrupted" for result in results):
        return EXIT_INTERRUPTED
    return 0 if said["held"] else 1


def make_checklist(asked: Asked, place: Here | None, tried: TriedTrial | None, why_not: str) -> list[Item]:
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
        check_folders(asked.plan, asked.cluster, place),
    ]


def _check_options(study: Study, why_not: str) -> Item:
    if why_not:
        return skipped("options", f"the program was not asked for its --help: {why_not}")
    problems = find_option_problems(study)
    if problems:
        return failed("options", "; ".join(problem.message for problem in problems), problems[0].hint)
    return passed("options", "the program's --help lists all options that it would get")


def _why_not(asked: Asked, place: Here | None, site: Site, insists: bool) -> str:
    """Why no trial can be executed here; "" where it can."""
    if place is not None and place.is_login_host and not insists:
        return f"{place.host} is a login host (--here insists)"
    if asked.plan.settings["gpus"].value and not site.gpus:
        return "a trial needs a GPU and there is none here"
    return ""
