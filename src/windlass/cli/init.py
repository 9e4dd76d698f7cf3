"""windlass init: write a study for a script by reading its --help, or copy an example."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys

import click

from windlass.cli.examples import ALIASES, choose_example, copy_example, read_examples
from windlass.cli.options import confirm, json_option, yes_option
from windlass.core.errors import input_error
from windlass.core.ids import slug
from windlass.core.paths import find_project, find_study_file
from windlass.core.processes import fetch_text
from windlass.search.template import placeholder_names
from windlass.search.trials import iterate_trials
from windlass.site.discover import find_scratch
from windlass.spec.build import Overrides, Place, build_study
from windlass.spec.document import parse_document
from windlass.spec.from_help import parse_help, render_study
from windlass.spec.help_forms import recognise


@click.command()
@click.argument("script", required=False, metavar="[SCRIPT [COMMAND]... | FOLDER]")
@click.argument("arguments", nargs=-1, metavar="")
@click.option(
    "-o",
    "--output",
    default="study.yaml",
    show_default=True,
    help="The file to write, or - for standard output; one that ends in .txt gets one command a line.",
)
@click.option(
    "--example",
    metavar="NAME",
    help="Copy this example into FOLDER, which must be new; `list` shows all examples.",
)
@yes_option
@json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    output: str,
    example: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Write a study for SCRIPT by reading its --help: parameters to try, the command, and what else could be varied.

    Understood are argparse, click, typer, tyro, Fire, absl, jsonargparse, Lightning CLI and Hydra. COMMAND is one of
    those that SCRIPT has, such as `fit`.

    With --example, copy a working example into FOLDER instead.
    """
    if example == "list":
        show_examples(as_json)
    elif example is not None:
        start_example(example, script or example, as_json)
    else:
        write_study(script, arguments, output, yes, as_json)


# -- examples


def show_examples(as_json: bool) -> None:
    """List the examples, with their other names and the packages that they need."""
    examples = read_examples()
    if as_json:
        listed = [
            {"name": one.name, "about": one.about, "needs": list(one.needs)}
            for one in examples.values()
        ]
        print(json.dumps(listed, ensure_ascii=False))
        return
    names = {name: alias for alias, name in ALIASES.items()}
    for one in examples.values():
        also = f" (or {names[one.name]})" if one.name in names else ""
        needs = f" Needs {', '.join(one.needs)}." if one.needs else ""
        print(f"{one.name + also:24} {one.about}{needs}")


def start_example(name: str, folder: str, as_json: bool) -> None:
    """Copy an example to `folder` and print the commands that run it. Nothing is installed or started."""
    example = choose_example(name)
    copy_example(example, folder)
    if as_json:
        made = {
            "example": example.name,
            "folder": os.path.abspath(folder),
            "next": example.commands(),
        }
        print(json.dumps({**made, "needs": list(example.needs)}))
        return
    if example.needs:
        packages = ", ".join(example.needs)
        print(
            f"this example needs {packages}; where your `python` lacks it: pip install {' '.join(example.needs)}"
        )
    print(f"wrote {folder}; next:\n  cd {shlex.quote(folder)}")
    for step in example.steps:
        print(f"  {step}")


# -- a study of one's own


def write_study(
    script: str | None, arguments: tuple[str, ...], output: str, yes: bool, as_json: bool
) -> None:
    """Write a study for a script from what its --help lists, and print what to do next.

    An existing file is only replaced with `yes`, or where the user agrees. Raises InputError where there is no script,
    or where it cannot be asked.
    """
    present = find_study_file(os.curdir)
    if script is None:
        hint = (
            f"{os.path.normpath(present)} is a study already: windlass plan"
            if present
            else "windlass init train.py"
        )
        raise input_error(
            "a script is needed",
            f"{hint}; or, to look at one that works: windlass init --example list",
        )
    if not os.path.isfile(script):
        raise input_error(f"there is no file {script!r}", "windlass init train.py")
    _check_output(output)
    interpreter = find_interpreter(script)
    path = script if interpreter or os.sep in script else os.path.join(".", script)
    text, source = fetch_help(interpreter, path, arguments)
    form = recognise(text, source)
    options = parse_help(text, source, script, arguments)
    study = render_study(path, options, interpreter, form, arguments)
    if output.endswith(".txt"):
        study = render_tasks(study, output)
    if output == "-":
        print(study, end="")
        return
    if os.path.exists(output):
        confirm(f"{output} is there already; overwrite it?", yes)
    with open(output, "w", encoding="utf-8") as file:
        file.write(study)
    scratch_dir, problem = make_scratch_dir()
    if as_json:
        made = None if problem else scratch_dir
        names = [option.name for option in options]
        print(
            json.dumps(
                {"file": output, "form": form.package, "options": names, "scratch_dir": made}
            )
        )
        return
    if form.package:
        print(f"{script} reads its settings with {form.package}, as {form.written}")
    print(f"wrote {output}; look at it, then: windlass plan {output}")
    if problem:
        print(f"the project's folder on the scratch cannot be made: {scratch_dir}: {problem}")
    elif scratch_dir:
        print(
            f"put data that jobs read into {scratch_dir}, e.g. datasets/mnist for `data: [datasets/mnist]`"
        )
    if present and find_study_file(os.curdir) != present:
        print(
            f"without a name, studies were taken from {os.path.normpath(present)}; now from this file"
        )


def fetch_help(interpreter: list[str], path: str, arguments: tuple[str, ...]) -> tuple[str, str]:
    """What a script prints for --help, and its source. Raises InputError where it does not answer."""
    program = interpreter
    if interpreter == ["python"]:
        # The one that trials are executed with: windlass itself may be installed elsewhere.
        program = [shutil.which("python") or sys.executable]
    text = fetch_text(
        [*program, path, *arguments, "--help"],
        env={**os.environ, "COLUMNS": "160", "NO_COLOR": "1"},
    )
    if text is None:
        hint = "write study.yaml by hand: see the study file's reference"
        raise input_error(f"`{path} --help` did not answer", hint)
    with open(path, encoding="utf-8", errors="replace") as file:
        return text, file.read()


def find_interpreter(script: str) -> list[str]:
    """The arguments that stand before a script in its command; none where it is executed by itself."""
    if script.endswith(".py"):
        return ["python"]
    if os.access(script, os.X_OK):
        return []
    with open(script, encoding="utf-8", errors="replace") as file:
        line = file.readline()
    arguments = line[2:].split() if line.startswith("#!") else []
    if arguments and os.path.basename(arguments[0]) == "env":
        arguments = [argument for argument in arguments[1:] if argument != "-S"]
    if not arguments:
        return ["bash"] if script.endswith((".sh", ".bash")) else ["python"]
    return ["python"] if os.path.basename(arguments[0]).startswith("python") else arguments


def _check_output(path: str) -> None:
    """The file can be written, as far as that can be known before the script is asked."""
    folder = os.path.dirname(os.path.abspath(path))
    if path == "-":
        return
    if not os.path.isdir(folder):
        raise input_error(
            f"{path}: there is no folder {os.path.dirname(path)}", f"mkdir -p {shlex.quote(folder)}"
        )
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise input_error(f"{path} cannot be written", "name another file with -o")


def make_scratch_dir() -> tuple[str, str]:
    """Make the project's folder on the shared scratch, where data and results go: its path, and what went wrong.

    Nothing is made, and the path is empty, where there is no scratch.
    """
    scratch = find_scratch(os.environ)
    if scratch is None:
        return "", ""
    folder = os.path.join(scratch, slug(os.path.basename(find_project(os.getcwd()))))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        return folder, error.strerror or str(error)
    return folder, ""


def render_tasks(text: str, file: str) -> str:
    """The commands of a study's trials, one a line."""
    document, problems = parse_document(text, file)
    study = build_study(document, Overrides(), Place(os.getcwd(), "study"), problems)
    lines = []
    for trial in iterate_trials(study):
        ((_, arguments),) = trial.stages
        if any(placeholder_names(argument) for argument in arguments):
            raise input_error(
                "an argument of the command has braces, which a file of commands fills in",
                "-o study.yaml",
            )
        lines.append(shlex.join(arguments) + "\n")
    return "".join(lines)
