"""windlass diff: what has changed in the project since a study was submitted."""

from __future__ import annotations

import json
import sys

import click

from windlass.bundle.changes import Change, find_changes
from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study
from windlass.cli.terminal import data_stream
from windlass.core.errors import input_error
from windlass.core.planfile import read_plan_file


@click.command()
@click.argument("study", required=False)
@click.option("-p", "--patch", is_flag=True, help="Show the lines that differ, as a patch.")
@folder_option
@json_option
def command(study: str | None, patch: bool, folder: str | None, as_json: bool) -> None:
    """Show what has changed in the project since a study was submitted: M modified, A added, D deleted.

    Trials are executed with the code as it was at the last `run` or `retry`.
    """
    paths = find_study(study, folder)
    plan = read_plan_file(paths.plan)
    if not plan.code:
        raise input_error(
            f"{paths.folder}: this study's trials are executed in the project itself, as it is",
            "`code: frozen` keeps a copy of it as it was at submission",
        )
    changes = find_changes(plan, paths)
    if as_json:
        rows = [{"name": change.name, "change": change.kind} for change in changes]
        print(
            json.dumps(
                {"study": paths.folder, "commit": plan.code["commit"], "changes": rows}, indent=2
            )
        )
    elif patch:
        print(
            "".join(change.render_patch() for change in changes),
            end="",
            file=data_stream(sys.stdout),
        )
    else:
        _show(changes)


def _show(changes: list[Change]) -> None:
    for change in changes:
        print(f"{change.kind} {change.name}")
    if not changes:
        click.echo("nothing has changed", err=True)
