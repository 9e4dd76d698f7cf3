"""windlass shell: an interactive job with a study's needs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from typing import Any

import click

from windlass.cli.options import CommandWithWords, study_options
from windlass.cli.request import read_request, warn
from windlass.collect.recorded import read_recording
from windlass.errors import InputError, SchedulerError, input_error
from windlass.launch.interactive import SHELL_NAME, render_salloc, with_idle_warning
from windlass.launch.recording import write_recorder
from windlass.paths import STUDIES, find_project, find_study_file
from windlass.plan.refuse import find_interactive_problems, make_interactive
from windlass.slurm.ask import ask
from windlass.slurm.rows import QUEUE_ENV, parse_queue, queue_words
from windlass.slurm.states import ENDED
from windlass.spec.units import parse_duration_s
from windlass.view.progress import render_duration
from windlass.view.recorded import render_draft


@click.command(cls=CommandWithWords)
@study_options
@click.option("--site", metavar="NAME", help="The cluster's profile (default: found out).")
@click.option("--dry-run", is_flag=True, help="Only print the command.")
@click.option("--force", is_flag=True, help="Also where an interactive job of yours is there already.")
@click.option("--record", is_flag=True, help="Write down what is typed, and draft `environment:` from it at the end.")
@click.option(
    "--idle-warning",
    metavar="TIME",
    default="30m",
    show_default=True,
    help="Warn in the terminal when nothing has run for so long; 0: never.",
)
@click.option("--draft", metavar="FOLDER", hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    dry_run: bool,
    force: bool,
    record: bool,
    idle_warning: str,
    draft: str | None,
    **options: Any,
) -> None:
    """Get an interactive job with the study's needs, for looking around and for finding errors.

    It lasts as long as the site allows such jobs by default (often an hour); --time asks for another time. It goes to
    the site's partition for interactive jobs, where its profile names one; --partition asks for another. Words after --
    are executed there instead of a shell. It holds what it was given until it ends: leave it with `exit`, and use
    `windlass run` for the work itself. A request that could never start is refused, as with `run`.

    With --record it is a bash that remembers: what made the program work (modules, activation, variables) is printed
    at the end as lines for the study's file.
    """
    if draft is not None:
        _show_draft(draft)
        return
    program = ctx.meta["words"] or (os.environ.get("SHELL") or "/bin/bash", "-l")
    if record:
        if ctx.meta["words"]:
            raise input_error("--record is for a shell, not for a command", "leave out what stands after --")
        program = write_recorder(_recording_folder()) if not dry_run else ("bash", "--rcfile", "RECORDER", "-i")
    has_study = options["study"] or options["configs"] or find_study_file(os.getcwd())
    # Without a study, flags alone say what the job needs.
    asked = read_request(() if has_study else ("true",), {**options, "on": "slurm"})
    assert asked.cluster is not None
    plan = make_interactive(asked.plan, asked.cluster)
    problems = find_interactive_problems(plan, asked.cluster)
    if problems:
        raise InputError(problems)
    assert plan.request is not None
    if dry_run:
        print(shlex.join(render_salloc(plan.request, plan.request.time_s, program)))
        return
    asked.require_scheduler()
    if not force:
        _refuse_second()
    warn(plan.warnings)
    idle_s = _read_idle_s(idle_warning)
    if idle_s and sys.stdin.isatty():
        program = tuple(with_idle_warning(program, idle_s, plan.request))
    words = render_salloc(plan.request, plan.request.time_s, program)
    where = f" in partition {plan.request.partition}" if plan.request.partition else ""
    click.echo(f"an interactive job of at most {render_duration(plan.request.time_s)}{where}; `exit` ends it", err=True)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise SchedulerError(f"{words[0]}: {error.strerror}") from error


def _recording_folder() -> str:
    """In the project, which the node can see."""
    home = os.path.join(find_project(os.getcwd()), STUDIES, "recorded")
    os.makedirs(home, exist_ok=True)
    marker = os.path.join(os.path.dirname(home), ".gitignore")
    if not os.path.exists(marker):
        with open(marker, "w", encoding="ascii") as file:
            file.write("*\n")
    return os.path.join(home, f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def _show_draft(folder: str) -> None:
    """Print the draft and keep it beside the recording, which goes: it holds all variables of the shell."""
    try:
        text = render_draft(read_recording(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kept = f"{folder}.yaml"
    with open(kept, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"\n{text}\nkept in {kept}")


def _read_idle_s(text: str) -> float:
    try:
        return 0.0 if text == "0" else parse_duration_s(text)
    except ValueError as error:
        raise input_error(f"--idle-warning: {error}", "write --idle-warning 30m, or 0 for none") from None


def _refuse_second() -> None:
    text = ask(queue_words(), QUEUE_ENV)
    if text is None:
        raise SchedulerError("the scheduler does not answer (squeue)\n  hint: try again later")
    for row in parse_queue(text):
        if row.name == SHELL_NAME and row.state not in ENDED:
            where = f"on {row.node}" if row.node else "waiting"
            raise input_error(
                f"you have an interactive job already: {row.id}, {where}",
                f"`scancel {row.id}` ends it; --force asks for another one all the same",
            )
