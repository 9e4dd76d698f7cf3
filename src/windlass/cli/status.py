"""windlass status: how far a study is."""

from __future__ import annotations

import json
import os
import sys

import click

from windlass.cli.hints import name_study, warn_of_copy
from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study_or_job
from windlass.collect.look import look
from windlass.secrets import mask
from windlass.view.status import render_status, view_to_json
from windlass.view.table import wants_color


@click.command()
@click.argument("study", required=False, metavar="[STUDY|JOB]")
@folder_option
@json_option
def command(study: str | None, folder: str | None, as_json: bool) -> None:
    """Show how far a study is: counts, what runs, its jobs, time left, and why trials failed.

    A job's number (123, or 123_4 for one task) stands for the study it belongs to.
    """
    paths, job = find_study_or_job(study, folder)
    warn_of_copy(paths)
    view = look(paths, failures=True)
    if as_json:
        shown = json.dumps(view_to_json(view), indent=2)
    else:
        shown = name_study(render_status(view, job, wants_color(sys.stdout)), paths)
    print(mask(shown, os.environ))
