"""windlass plan: what `run` would do."""

from __future__ import annotations

import json
from typing import Any

import click

from windlass.bundle.code import find_left_out, render_left_out
from windlass.check.options import find_option_problems
from windlass.cli.folder_check import find_folder_warnings
from windlass.cli.options import json_option, place_options
from windlass.cli.request import read_request, warn
from windlass.cli.study_options import CommandWithProgram, study_options
from windlass.core.errors import InputError
from windlass.view.plan import plan_to_json, render_plan_text


@click.command(cls=CommandWithProgram)
@study_options
@click.option(
    "--check",
    is_flag=True,
    help="Ask the program for its --help, and refuse options that it does not know.",
)
@place_options
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show all settings, also those that have their defaults.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, check: bool, everything: bool, as_json: bool, **options: Any
) -> None:
    """Show what `run` would do. Writes nothing.

    First what you will want to check: how many trials are to be executed, a few of their commands, where, how long it
    takes, what it costs, what trials read and what is kept of them. Then what was set, and where; on a cluster also
    what each job asks for and why, and the batch script.
    """
    asked = read_request(ctx.meta["arguments"], options)
    study, plan = asked.study, asked.plan
    warn([*study.warnings, *plan.warnings, *find_folder_warnings(plan.folder)])
    findings = asked.place.find_problems(plan)
    if findings.problems:
        raise InputError(list(findings.problems))
    warn(findings.warnings)
    problems = find_option_problems(study) if check else []
    if problems:
        raise InputError(problems)
    left_out = find_left_out(plan)
    preview = asked.place.preview(plan)
    warn(preview.warnings)
    if as_json:
        shown = plan_to_json(plan, preview.submitted)
        print(json.dumps({**shown, "left_out": left_out}, indent=2, ensure_ascii=False))
    else:
        print(render_plan_text(plan, preview.submitted, everything))
        if left_out:
            print(f"left out   {render_left_out(left_out)}")
        if preview.script:
            print("\n" + preview.script, end="")
