"""windlass plan: what `run` would do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from windlass.bundle.code import find_left_out, render_left_out
from windlass.bundle.since import find_changes_of_code
from windlass.check.options import find_option_problems
from windlass.cli.folder_check import find_folder_warnings
from windlass.cli.options import CommandWithWords, json_option, place_options, study_options
from windlass.cli.request import read_request, warn
from windlass.counted import counted
from windlass.errors import InputError, SchedulerError
from windlass.model import Plan, Submitted
from windlass.paths import StudyPaths
from windlass.refusals import check_local_plan, check_slurm_plan
from windlass.submission import example_script, preview_agents
from windlass.view.plan import plan_to_json, render_plan_text


@click.command(cls=CommandWithWords)
@study_options
@click.option(
    "--check", is_flag=True, help="Ask the program for its --help: does it know all the options it would get?"
)
@place_options
@click.option("--all", "everything", is_flag=True, help="Also settings that nobody has set, with their defaults.")
@json_option
@click.pass_context
def command(ctx: click.Context, /, check: bool, everything: bool, as_json: bool, **options: Any) -> None:
    """Show what `run` would do. Writes nothing.

    First what you will want to check: how many trials are to be executed, a few of their commands, where, how long it
    takes, what it costs, what trials read and what is kept of them. Then what was set, and where; on a cluster also
    what each job asks for and why, and the batch script.
    """
    asked = read_request(ctx.meta["words"], options)
    study, plan = asked.study, asked.plan
    warn([*study.warnings, *plan.warnings, *find_folder_warnings(plan.folder)])
    if asked.cluster is not None:
        warn(check_slurm_plan(plan, asked.cluster)[len(plan.warnings) :])
    else:
        warn(check_local_plan(plan))
    problems = find_option_problems(study) if check else []
    if problems:
        raise InputError(problems)
    left_out = find_left_out(plan)
    preview = _preview(plan) if asked.cluster is not None and asked.cluster.live else None
    if as_json:
        print(json.dumps({**plan_to_json(plan, preview), "left_out": left_out}, indent=2, ensure_ascii=False))
    else:
        print(render_plan_text(plan, preview, everything))
        if left_out:
            print(f"left out   {render_left_out(left_out)}")
        submits = plan.agents_missing if preview is None else preview.agents
        if plan.terms is not None and submits:
            terms = replace(plan.terms, agents=submits)
            print("\n" + example_script(terms, StudyPaths(plan.folder)), end="")


def _preview(plan: Plan) -> Submitted | None:
    """What `run` would submit now; None where the scheduler does not answer."""
    assert plan.terms is not None
    try:
        changed = find_changes_of_code(plan)
        preview = preview_agents(plan.terms, StudyPaths(plan.folder), plan.agents_missing, bool(changed))
        if changed and preview.outdated:
            agents = counted(preview.outdated, "agent at work has", "agents at work have")
            text = f"{agents} the code as it was before {', '.join(changed)} changed"
            warn([f"{text}: after `windlass run` they take no more trials, and others are submitted"])
        return preview
    except SchedulerError:
        return None
