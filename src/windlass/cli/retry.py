"""windlass retry: put trials back and run them again."""

from __future__ import annotations

import json

import click

from windlass.cli.options import confirm, folder_option, json_option, yes_option
from windlass.cli.report import StreamReporter
from windlass.cli.run import show_outcome
from windlass.cli.studies import find_study_and_trials, name_of, study_and_trials
from windlass.collect.afresh import put_checkpoints_back
from windlass.collect.trials import find_trials
from windlass.core.claims import ranges as rs
from windlass.core.claims.client import client_name
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.recover import recover
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.counted import counted
from windlass.core.errors import input_error
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trust import refuse_copy
from windlass.flow import How, run_folder
from windlass.places import place_names
from windlass.places.choose import place_of
from windlass.todo import chosen_states, refresh_code, retry_trials


@click.command()
@study_and_trials("[STUDY] [TRIAL]...")
@click.option("--failed", is_flag=True, help="Put all trials back that failed.")
@click.option("--interrupted", is_flag=True, help="Put all trials back that were interrupted.")
@click.option("--cancelled", is_flag=True, help="Put all trials back that were cancelled.")
@click.option("--done", is_flag=True, help="Put trials back even if they ended well.")
@click.option(
    "--fresh",
    is_flag=True,
    help="Begin without checkpoints: those that are there are moved aside, and it is printed where they are.",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="Go on even where the first trials all fail for the same reason.",
)
@click.option(
    "--no-run",
    is_flag=True,
    help="Only put trials back; agents at work take them, or the next `run` does.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="With Slurm: follow the jobs to their end instead of returning at once.",
)
@click.option(
    "--on",
    type=click.Choice(place_names()),
    help="Where trials are executed (default: where the study ran).",
)
@click.option(
    "-j",
    "--slots",
    type=int,
    metavar="N",
    help="How many trials run at the same time on this machine.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@folder_option
@yes_option
@json_option
def command(
    arguments: tuple[str, ...],
    study: str | None,
    failed: bool,
    interrupted: bool,
    cancelled: bool,
    done: bool,
    fresh: bool,
    keep_going: bool,
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

    A trial that has checkpoints goes on from the newest one. One that was done, and with --fresh any, begins at the
    beginning.

    Like `run`, with the project's code, data and built environment as they are now; the code that is used is printed.
    """
    paths, trials = find_study_and_trials(arguments, study, folder)
    refuse_copy(paths)
    register = RegisterFile(paths.claims, "reader").read()
    kinds = (
        (State.FAILED, failed),
        (State.INTERRUPTED, interrupted),
        (State.CANCELLED, cancelled),
        (State.DONE, done),
    )
    states = [state for state, wanted in kinds if wanted]
    if trials and states:
        raise input_error("either trials or kinds of trials, not both", "leave one of them out")
    chosen = _chosen(trials, states, paths, register)
    if State.DONE in states:
        confirm(f"run {counted(rs.count(chosen), 'trial')} again, among them finished ones?", yes)
    reporter = StreamReporter(quiet or as_json, paths.folder)
    code = refresh_code(paths) if chosen else None
    moved = _prepare(paths, chosen, fresh)
    put_back = retry_trials(paths, chosen, keep_going)
    if not quiet and not as_json:
        text = f"{name_of(paths)}: {counted(rs.count(put_back), 'trial is', 'trials are')} put back"
        click.echo("\n".join([text, *_render_moved(moved)]), err=True)
    reporter.say_code(code)
    if no_run or not put_back:
        if as_json:
            print(json.dumps({"study": paths.folder, "put_back": rs.count(put_back)}))
        return 0
    try:
        outcome = run_folder(place_of(paths, on), paths, reporter, How(wait=wait, slots=slots))
    finally:
        reporter.close()
    show_outcome(outcome, as_json, quiet)
    return outcome.exit_code


def _prepare(paths: StudyPaths, chosen: Ranges, fresh: bool) -> list[str]:
    """A trial that is done, and with `--fresh` any, begins at the beginning. Returns where its checkpoints are now."""
    register_file = RegisterFile(paths.claims, client_name())
    recover(paths, register_file)  # what dead agents held
    register = register_file.read()
    free = rs.subtract(chosen, register.held_ranges())
    done = free if fresh else rs.intersect(free, chosen_states(paths, register, [State.DONE]))
    return put_checkpoints_back(paths, free, done)


def _render_moved(moved: list[str]) -> list[str]:
    """Where the checkpoints of trials went that begin at the beginning again."""
    if not moved:
        return []
    if len(moved) == 1:
        return [
            f"one trial begins at the beginning; its checkpoints up to now were moved to {moved[0]}"
        ]
    return [
        f"{len(moved)} trials begin at the beginning; their checkpoints were moved, the first to {moved[0]}"
    ]


def _chosen(
    trials: tuple[str, ...], states: list[State], paths: StudyPaths, register: Register
) -> Ranges:
    if trials:
        return rs.from_numbers(find_trials(trials, paths, register.count))
    return chosen_states(paths, register, states or [State.FAILED])
