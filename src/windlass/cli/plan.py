"""windlass plan: what `run` would do."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import sys
from typing import Any

import click

from windlass.cli.options import SETTING_WORDS, CommandWithWords, json_option, study_options
from windlass.errors import InputError, Problem, input_error
from windlass.flow import make_plan
from windlass.launch._shell import fetch_text
from windlass.model import Plan, Study
from windlass.search import iterate_trials
from windlass.site.local import fetch_local_site
from windlass.spec import Overrides, find_study_file, load_study, study_from_command
from windlass.view.plan import plan_to_json, render_plan_text


def read_request(words: tuple[str, ...], options: dict[str, Any]) -> tuple[Study, Plan]:
    """The study and the plan that a command line asks for."""
    overrides = Overrides(
        params=tuple(options.pop("params")),
        seeds=options.pop("seeds"),
        trials=options.pop("trials"),
        method=options.pop("method"),
        search_seed=options.pop("search_seed"),
        name=options.pop("name"),
        metric=options.pop("metric"),
    )
    file = options.pop("study") or options.pop("configs")
    if words and file:
        raise input_error("either a study file or a command after --, not both", "leave one of them out")
    study = study_from_command(words, overrides) if words else load_study(file or _default_file(), overrides)
    flags = {word: options[word] for word in SETTING_WORDS}
    return study, make_plan(study, flags, fetch_local_site())


def _default_file() -> str:
    found = find_study_file(os.getcwd())
    if found is None:
        raise input_error("no study given and no study.yaml here", "windlass init SCRIPT.py writes one")
    return found


def warn(study: Study) -> None:
    for warning in study.warnings:
        print(f"warning: {warning}", file=sys.stderr)


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
@json_option
@click.pass_context
def command(ctx: click.Context, /, check: bool, as_json: bool, **options: Any) -> None:
    """Show what `run` would do: trials, slots, folder, and where each setting came from. Writes nothing."""
    study, plan = read_request(ctx.meta["words"], options)
    warn(study)
    if check:
        check_options(study)
    first = [trial for trial, _ in zip(iterate_trials(study), range(3), strict=False)]
    if as_json:
        print(json.dumps(plan_to_json(plan, first), indent=2, ensure_ascii=False))
    else:
        print(render_plan_text(plan, first))
