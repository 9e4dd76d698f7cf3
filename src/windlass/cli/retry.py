"""windlass retry: put trials back and run them again."""

from __future__ import annotations

import json

import click

from windlass.claims import ranges as rs
from windlass.claims.ranges import Ranges
from windlass.claims.register import Register, RegisterFile
from windlass.cli.options import confirm, find_study, folder_option, json_option, yes_option
from windlass.cli.report import StreamReporter
from windlass.cli.run import show_outcome, show_submitted
from windlass.collect.trials import find_trials
from windlass.errors import input_error
from windlass.flow import chosen_states, follow_jobs, refresh_code, retry_trials, run_folder, submit_folder
from windlass.launch.local import LocalLauncher
from windlass.model import Submitted
from windlass.paths import StudyPaths
from windlass.states import State
from windlass.submission import read_terms
from windlass.view.plan import render_submitted


@click.command()
@click.argument("trials", nargs=-1)
@click.option("--study", help="Which study (default: the newest).")
@click.option("--failed", is_flag=True, help="All that failed.")
@click.option("--interrupted", is_flag=True, help="All that were interrupted.")
@click.option("--cancelled", is_flag=True, help="All that were cancelled.")
@click.option("--done", is_flag=True, help="Also those that ended well.")
@click.option("--no-run", is_flag=True, help="Only put them back; agents at work take them, or the next `run`.")
@click.option("--wait", is_flag=True, help="With Slurm: follow the jobs to the end instead of returning at once.")
@click.option("--on", type=click.Choice(["slurm", "local"]), help="Where (default: where the study ran).")
@click.option("-j", "--slots", type=int, help="Trials at a time.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@folder_option
@yes_option
@json_option
def command(
    trials: tuple[str, ...],
    study: str | None,
    failed: bool,
    interrupted: bool,
    cancelled: bool,
    done: bool,
    no_run: bool,
    wait: bool,
    on: str | None,
    slots: int | None,
    quiet: bool,
    folder: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Put trials back and run them again: those named (number or id), or all of a kind. Default: all that failed.

    Like `run`, with the project's code and data as they are now; the code that is used is printed.
    """
    paths = find_study(study, folder)
    register = RegisterFile(paths.claims, "reader").read()
    flags = {State.FAILED: failed, State.INTERRUPTED: interrupted, State.CANCELLED: cancelled, State.DONE: done}
    states = [state for state, wanted in flags.items() if wanted]
    if trials and states:
        raise input_error("either trials or kinds of trials, not both", "leave one of them out")
    chosen = _chosen(trials, states, paths, register)
    if State.DONE in states:
        confirm(f"run {rs.count(chosen)} trials again, among them finished ones?", yes)
    reporter = StreamReporter(quiet or as_json, paths.folder)
    code = refresh_code(paths) if chosen else None
    put_back = retry_trials(paths, chosen)
    if not quiet and not as_json:
        click.echo(f"{rs.count(put_back)} trials are put back", err=True)
    reporter.say_code(code)
    if no_run or not put_back:
        if as_json:
            print(json.dumps({"study": paths.folder, "put_back": rs.count(put_back)}))
        return 0
    terms = read_terms(paths)
    if terms is not None and on != "local":
        submitted = submit_folder(paths, terms)
        if not wait:
            show_submitted(paths, submitted, as_json, reporter)
            return 0
        return _follow(paths, submitted, reporter, as_json, quiet)
    with open(paths.plan, encoding="utf-8") as file:
        planned = int(json.load(file)["slots"])
    try:
        outcome = run_folder(paths, slots or planned, LocalLauncher(), reporter)
    finally:
        reporter.close()
    show_outcome(outcome, as_json, quiet)
    return outcome.exit_code


def _follow(paths: StudyPaths, submitted: Submitted, reporter: StreamReporter, as_json: bool, quiet: bool) -> int:
    reporter.say(render_submitted(submitted))
    try:
        outcome = follow_jobs(paths, reporter)
    finally:
        reporter.close()
    show_outcome(outcome, as_json, quiet)
    return outcome.exit_code


def _chosen(trials: tuple[str, ...], states: list[State], paths: StudyPaths, register: Register) -> Ranges:
    if trials:
        return rs.from_numbers(find_trials(trials, paths, register.count))
    return chosen_states(paths, register, states or [State.FAILED])
