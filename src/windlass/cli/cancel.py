"""windlass cancel: take trials off the list and stop them."""

from __future__ import annotations

import json

import click

from windlass.claims import ranges as rs
from windlass.claims.register import RegisterFile
from windlass.cli.options import confirm, find_study, folder_option, json_option, yes_option
from windlass.collect.trials import find_trials
from windlass.flow import cancel_trials


@click.command()
@click.argument("trials", nargs=-1)
@click.option("--study", help="Which study (default: the newest).")
@folder_option
@yes_option
@json_option
def command(trials: tuple[str, ...], study: str | None, folder: str | None, yes: bool, as_json: bool) -> None:
    """Take trials off the list and stop those under way: those named (number or id), or all of the study."""
    paths = find_study(study, folder)
    register = RegisterFile(paths.claims, "reader").read()
    if trials:
        chosen = rs.from_numbers(find_trials(trials, paths, register.count))
    else:
        chosen = register.current
        open_trials = rs.intersect(rs.union(register.todo, register.held_ranges()), chosen)
        confirm(f"cancel all {rs.count(open_trials)} open trials of {paths.folder}?", yes)
    cancelled = rs.count(cancel_trials(paths, chosen))
    if as_json:
        print(json.dumps({"study": paths.folder, "cancelled": cancelled}))
    else:
        print(f"{cancelled} trials are cancelled" + ("; those under way are being stopped" if cancelled else ""))
