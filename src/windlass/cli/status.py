"""windlass status: how far a study is."""

from __future__ import annotations

import json

import click

from windlass.cli.options import find_study, folder_option, json_option
from windlass.collect.look import look
from windlass.view.status import render_status, view_to_json


@click.command()
@click.argument("study", required=False)
@folder_option
@json_option
def command(study: str | None, folder: str | None, as_json: bool) -> None:
    """Show how far a study is: counts, what runs, time left, and why trials failed."""
    view = look(find_study(study, folder))
    print(json.dumps(view_to_json(view), indent=2) if as_json else render_status(view))
