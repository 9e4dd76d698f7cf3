"""windlass shell: an interactive job with a study's needs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from typing import Any

import click

from windlass.cli.request import read_request, warn
from windlass.cli.study_options import CommandWithProgram, study_options
from windlass.collect.recorded import read_recording
from windlass.core.errors import InputError, SchedulerError, input_error
from windlass.core.paths import STUDIES, find_project, find_study_file
from windlass.core.queue.ask import ask
from windlass.core.queue.rows import QUEUE_ENV, parse_queue, queue_command
from windlass.core.queue.states import ENDED
from windlass.core.units import parse_duration_s, render_limit
from windlass.places.slurm.interactive import (
    SHELL_NAME,
    find_interactive_problems,
    make_interactive,
    render_salloc,
    with_idle_warning,
)
from windlass.places.slurm.place import SlurmPlace
from windlass.places.slurm.recording import write_recorder
from windlass.view.recorded import render_draft


@click.command(cls=CommandWithProgram)
@study_options
@click.option(
    "--site",
    metavar="NAME",
    help="The profile of the cluster (default: the one that fits this machine).",
)
@click.option("--dry-run", is_flag=True, help="Print the command instead of executing it.")
@click.option(
    "--force", is_flag=True, help="Ask for the job even if you have an interactive one already."
)
@click.option(
    "--record",
    is_flag=True,
    help="Record what is typed, and draft `environment:` of a study file from it at the end.",
)
@click.option(
    "--idle-warning",
    metavar="TIME",
    default="30m",
    show_default=True,
    help="Warn in the terminal when nothing has run for this long; 0 warns never.",
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
    the site's partition for interactive jobs, where its profile names one; --partition asks for another. A command
    after -- is executed there instead of a shell. It holds what it was given until it ends: leave it with `exit`, and
    use `windlass run` for the work itself. A request that could never start is refused, as with `run`.

    With --record it is a bash that remembers: what made the program work (modules, activation, variables) is printed
    at the end as lines for the study's file.
    """
    if draft is not None:
        _show_draft(draft)
        return
    program = _program(ctx.meta["arguments"], record, dry_run)
    has_study = options["study"] or options["configs"] or find_study_file(os.getcwd())
    # Without a study, flags alone say what the job needs.
    asked = read_request(() if has_study else ("true",), {**options, "on": SlurmPlace.name})
    assert isinstance(asked.place, SlurmPlace)
    plan = make_interactive(asked.plan, asked.place.cluster)
    problems = find_interactive_problems(plan, asked.place.cluster)
    if problems:
        raise InputError(problems)
    assert plan.request is not None
    if dry_run:
        print(shlex.join(render_salloc(plan.request, plan.request.time_s, program)))
        return
    asked.place.require()
    if not force:
        _refuse_second()
    warn(plan.warnings)
    idle_s = _read_idle_s(idle_warning)
    if idle_s and sys.stdin.isatty():
        program = tuple(with_idle_warning(program, idle_s, plan.request))
    salloc = render_salloc(plan.request, plan.request.time_s, program)
    where = f" in partition {plan.request.partition}" if plan.request.partition else ""
    click.echo(
        f"an interactive job of at most {render_limit(plan.request.time_s)}{where}; `exit` ends it",
        err=True,
    )
    try:
        os.execvp(salloc[0], salloc)
    except OSError as error:
        raise SchedulerError(f"{salloc[0]}: {error.strerror}") from error


def _program(given: tuple[str, ...], record: bool, dry_run: bool) -> tuple[str, ...]:
    """The program of the interactive job: the given one, a shell that is recorded, or the user's login shell."""
    if not record:
        return given or (os.environ.get("SHELL") or "/bin/bash", "-l")
    if given:
        raise input_error(
            "--record is for a shell, not for a command", "leave out what stands after --"
        )
    if dry_run:
        return ("bash", "--rcfile", "RECORDER", "-i")
    return write_recorder(_recording_folder())


def _recording_folder() -> str:
    """A new folder for a recording, inside the project: the node can see it there."""
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
        raise input_error(
            f"--idle-warning: {error}", "write --idle-warning 30m, or 0 for none"
        ) from None


def _refuse_second() -> None:
    """Raise InputError where the user has an interactive job already: a second one is mostly a mistake."""
    text = ask(queue_command(), QUEUE_ENV)
    if text is None:
        raise SchedulerError("the scheduler does not answer (squeue)\n  hint: try again later")
    for row in parse_queue(text):
        if row.name == SHELL_NAME and row.state not in ENDED:
            where = f"on {row.node}" if row.node else "waiting"
            raise input_error(
                f"you have an interactive job already: {row.id}, {where}",
                f"`scancel {row.id}` ends it; --force asks for another one all the same",
            )
