"""windlass plan: what `run` would do."""

from __future__ import annotations

import json
from typing import Any

import click

from windlass.bundle.code import find_left_out, render_left_out
from windlass.check.options import find_option_problems
from windlass.cli.options import CommandWithWords, json_option, place_options, study_options
from windlass.cli.request import read_request, warn
from windlass.errors import InputError
from windlass.paths import StudyPaths
from windlass.refusals import check_local_plan, check_slurm_plan
from windlass.search import iterate_trials
from windlass.submission import example_script
from windlass.view.plan import plan_to_json, render_plan_text


@click.command(cls=CommandWithWords)
@study_options
@click.option(
    "--check", is_flag=True, help="Ask the program for its --help: does it know all the options it would get?"
)
@place_options
@json_option
@click.pass_context
def command(ctx: click.Context, /, check: bool, as_json: bool, **options: Any) -> None:
    """Show what `run` would do: trials, slots, folder, and where each setting came from. Writes nothing."""
    asked = read_request(ctx.meta["words"], options)
    study, plan = asked.study, asked.plan
    warn([*study.warnings, *plan.warnings])
    if asked.cluster is not None:
        warn(check_slurm_plan(plan, asked.cluster)[len(plan.warnings) :])
    else:
        warn(check_local_plan(plan))
    problems = find_option_problems(study) if check else []
    if problems:
        raise InputError(problems)
    left_out = find_left_out(plan)
    first = [trial for trial, _ in zip(iterate_trials(study), range(3), strict=False)]
    if as_json:
        print(json.dumps({**plan_to_json(plan, first), "left_out": left_out}, indent=2, ensure_ascii=False))
    else:
        print(render_plan_text(plan, first))
        if left_out:
            print(f"left out   {render_left_out(left_out)}")
        if plan.terms is not None:
            print("\n" + example_script(plan.terms, StudyPaths(plan.folder)), end="")
