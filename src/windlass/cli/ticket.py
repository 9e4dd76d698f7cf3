"""windlass ticket: all that a support desk asks, in one text."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from windlass import __version__
from windlass.bundle.since import describe_other_code
from windlass.cli.options import find_study, folder_option
from windlass.collect.facts import read_plan
from windlass.collect.jobs import find_job, parse_job
from windlass.collect.locate import study_roots
from windlass.collect.look import read_register
from windlass.collect.ticket import Ticket, gather_ticket
from windlass.collect.trials import find_trials
from windlass.errors import InputError, input_error
from windlass.paths import StudyPaths
from windlass.secrets import mask
from windlass.site.profiles import list_profiles, read_profile
from windlass.view.ticket import render_ticket


@click.command()
@click.argument("name", metavar="TRIAL|JOB")
@click.option("--study", help="Which study (default: the newest).")
@folder_option
def command(name: str, study: str | None, folder: str | None) -> None:
    """Write down what a support desk asks about a trial (number or id) or a job (123_4): what failed, where, when,
    what it asked for, and how to see it again. Secrets are masked; read it before you send it.
    """
    ticket = _with_code(_gather(name, study, folder))
    print(mask(render_ticket(ticket, _support_of(ticket.site)), os.environ), end="")


def _with_code(ticket: Ticket) -> Ticket:
    """With a comment where the lines that execute the trial by hand use other code than its last attempt."""
    trial = ticket.trial
    if trial is None or not trial.attempts:
        return ticket
    paths, last = StudyPaths(ticket.folder), trial.attempts[-1]
    comments = describe_other_code(paths, read_plan(paths), last.code, last.start)
    return replace(ticket, trial=replace(trial, by_hand=(*comments, *trial.by_hand)))


def _support_of(site: str) -> tuple[str, ...]:
    """Where users of that site get help, if its profile knows."""
    try:
        return tuple(read_profile(site).facts.get("support", ())) if site in list_profiles() else ()
    except InputError:
        return ()


def _gather(name: str, study: str | None, folder: str | None) -> Ticket:
    """A number is that of a trial where the study has one, otherwise that of a job."""
    job = parse_job(name)
    if job is None or job[1] is None:
        paths = find_study(study, folder)
        count = read_register(paths).count
        if job is None or job[0] < count:
            return gather_ticket(paths, __version__, number=find_trials([name], paths, count)[0])
    found = find_job(name, study_roots(folder, os.getcwd(), os.environ.get("SCRATCH")))
    if found is None:
        raise input_error(f"there is neither a trial nor a job {name}", "`windlass history --all` lists jobs")
    paths, array, task = found
    ticket = gather_ticket(paths, __version__, job=f"{array}_{task or 0}")
    if ticket.job is None:
        raise input_error(f"{os.path.basename(paths.folder)} has no job {name}", "`windlass history` lists them")
    return ticket
