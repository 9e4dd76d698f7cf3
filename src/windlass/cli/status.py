"""windlass status: how far a study is."""

from __future__ import annotations

import json
import os
import sys

import click

from windlass.cli.hints import name_study, warn_of_copy
from windlass.cli.options import find_study, folder_option, json_option
from windlass.collect.jobs import find_job, parse_job
from windlass.collect.locate import study_roots
from windlass.collect.look import look
from windlass.errors import InputError, input_error
from windlass.paths import StudyPaths
from windlass.secrets import mask
from windlass.view.status import render_status, view_to_json
from windlass.view.table import wants_color

Job = tuple[int, int | None]  # number, task


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


def find_study_or_job(name: str | None, folder: str | None) -> tuple[StudyPaths, Job | None]:
    """The study of that name, or the one that the job of that number belongs to."""
    try:
        return find_study(name, folder), None
    except InputError:
        if name is None or parse_job(name) is None:
            raise
    found = find_job(name, study_roots(folder, os.getcwd(), os.environ.get("SCRATCH")))
    if found is None:
        raise input_error(f"no study has a job {name}", "`squeue --me` lists all your jobs")
    return found[0], (found[1], found[2])
