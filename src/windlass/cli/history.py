"""windlass history: what was submitted and what became of it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from windlass.cli.hints import name_study
from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study
from windlass.collect.locate import list_studies, study_roots
from windlass.collect.look import look
from windlass.core.paths import StudyPaths
from windlass.view.history import history_to_json, render_history
from windlass.view.table import terminal_width


@click.command()
@click.argument("study", required=False)
@click.option("--all", "every", is_flag=True, help="Show all studies of this project.")
@folder_option
@json_option
def command(study: str | None, every: bool, folder: str | None, as_json: bool) -> None:
    """Show what was submitted, when, and what became of each job: state, node, time, exit code.

    From Slurm's accounting where it answers, otherwise from what agents wrote down.
    """
    if every:
        roots = study_roots(folder, os.getcwd(), os.environ.get("SCRATCH"))
        chosen = [StudyPaths(path) for path in list_studies(roots)]
    else:
        chosen = [find_study(study, folder)]
    rendered: list[dict[str, Any]] = []
    for paths in chosen:
        view = look(paths, accounting=True)
        if as_json:
            rendered.append(history_to_json(view))
        else:
            print(name_study(render_history(view, terminal_width(sys.stdout)), paths), end="")
    if as_json:
        print(json.dumps(rendered if every else rendered[0], indent=2))
