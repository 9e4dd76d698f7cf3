"""windlass init: write a study for a script by reading its --help."""

from __future__ import annotations

import json
import os
import sys

import click

from windlass.cli.options import confirm, json_option, yes_option
from windlass.errors import input_error
from windlass.launch._shell import fetch_text
from windlass.spec.from_help import parse_help, render_study


@click.command()
@click.argument("script")
@click.option(
    "-o", "--output", default="study.yaml", show_default=True, help="The file to write; - for standard output."
)
@yes_option
@json_option
def command(script: str, output: str, yes: bool, as_json: bool) -> None:
    """Write a study for SCRIPT by reading its --help: parameters to try, the command, and what else could be varied."""
    if not os.path.isfile(script):
        raise input_error(f"there is no file {script!r}", "windlass init train.py")
    interpreter = [] if os.access(script, os.X_OK) and not script.endswith(".py") else ["python"]
    program = [sys.executable] if interpreter else []
    path = script if program or os.sep in script else os.path.join(".", script)
    text = fetch_text([*program, path, "--help"])
    if text is None:
        raise input_error(
            f"`{script} --help` did not answer", "write study.yaml by hand: see the study file's reference"
        )
    options = parse_help(text)
    study = render_study(path, options, interpreter)
    if output == "-":
        print(study, end="")
        return
    if os.path.exists(output):
        confirm(f"{output} is there already; overwrite it?", yes)
    with open(output, "w", encoding="utf-8") as file:
        file.write(study)
    if as_json:
        print(json.dumps({"file": output, "options": [option.name for option in options]}))
        return
    print(f"wrote {output}; look at it, then: windlass plan {output}")
