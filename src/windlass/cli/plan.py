"""windlass plan: what `run` would do."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from typing import Any

import click

from windlass.cli.options import CommandWithWords, json_option, place_options, study_options
from windlass.cli.request import read_request, warn
from windlass.errors import InputError, Problem
from windlass.flow import check_slurm_plan
from windlass.launch._shell import fetch_text
from windlass.model import Study
from windlass.paths import StudyPaths
from windlass.search import iterate_trials
from windlass.submission import example_script
from windlass.view.plan import plan_to_json, render_plan_text


def check_options(study: Study) -> None:
    """Raise InputError where a program's --help does not speak of an option that a trial would give it."""
    problems = []
    trial = next(iterate_trials(study))
    for stage, words in trial.stages:
        options = {word.partition("=")[0] for word in words if re.match(r"--[A-Za-z]", word)}
        program = list(itertools.takewhile(lambda word: not word.startswith("--"), words))
        text = fetch_text([*program, "--help"], timeout_s=120, cwd=study.workdir) if options else ""
        if text is None:
            problems.append(Problem(f"{stage}: `{shlex.join(program)} --help` did not answer", "leave out --check"))
            continue
        missing = sorted(option for option in options if not re.search(re.escape(option) + r"(?![\w-])", text))
        problems += [
            Problem(
                f"{stage}: `{shlex.join(program)} --help` does not speak of {option}",
                "add it to the program",
                study.source,
            )
            for option in missing
        ]
    if problems:
        raise InputError(problems)


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
    if check:
        check_options(study)
    first = [trial for trial, _ in zip(iterate_trials(study), range(3), strict=False)]
    if as_json:
        print(json.dumps(plan_to_json(plan, first), indent=2, ensure_ascii=False))
    else:
        print(render_plan_text(plan, first))
        if plan.terms is not None:
            print("\n" + example_script(plan.terms, StudyPaths(plan.folder)), end="")
