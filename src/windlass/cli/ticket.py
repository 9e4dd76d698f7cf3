"""windlass explain --ticket: all that a support desk asks, in one text."""

from __future__ import annotations

import os
from dataclasses import replace

from windlass import __version__
from windlass.bundle.since import describe_other_code
from windlass.cli.studies import find_study_and_trials, name_of, take_one_trial
from windlass.collect.jobs import find_job, parse_job
from windlass.collect.locate import study_roots
from windlass.collect.look import read_register
from windlass.collect.ticket import Ticket, gather_ticket
from windlass.collect.trials import find_trials
from windlass.core.errors import InputError, input_error
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_if_there
from windlass.secrets import mask
from windlass.site.profiles import list_profiles, read_profile
from windlass.view.ticket import render_ticket


def write_ticket(arguments: tuple[str, ...], study: str | None, folder: str | None) -> str:
    """The ticket on the trial or job that the arguments name, with secrets masked."""
    ticket = _with_code(_gather(arguments, study, folder))
    return mask(render_ticket(ticket, _support_of(ticket.site)), os.environ)


def _with_code(ticket: Ticket) -> Ticket:
    """With a comment where the lines that execute the trial by hand use other code than its last attempt."""
    trial = ticket.trial
    if trial is None or not trial.attempts:
        return ticket
    paths, last = StudyPaths(ticket.folder), trial.attempts[-1]
    comments = describe_other_code(paths, read_plan_if_there(paths.plan), last.code, last.start)
    return replace(ticket, trial=replace(trial, by_hand=(*comments, *trial.by_hand)))


def _support_of(site: str) -> tuple[str, ...]:
    """Where users of that site get help, if its profile knows."""
    try:
        return tuple(read_profile(site).facts.get("support", ())) if site in list_profiles() else ()
    except InputError:
        return ()


def _gather(arguments: tuple[str, ...], study: str | None, folder: str | None) -> Ticket:
    """A number is that of a trial where the study has one, otherwise that of a job."""
    name = take_one_trial(arguments) if len(arguments) < 2 else ""
    job = parse_job(name or "")
    if job is None or job[1] is None:
        paths, trials = find_study_and_trials(arguments, study, folder)
        name = take_one_trial(trials)
        if name is None:
            raise input_error("a ticket is about one trial or job", "windlass explain 3 --ticket")
        job = parse_job(name)
        count = read_register(paths).count
        if job is None or (job[1] is None and job[0] < count):
            return gather_ticket(paths, __version__, number=find_trials([name], paths, count)[0])
    found = find_job(name or "", study_roots(folder, os.getcwd(), os.environ.get("SCRATCH")))
    if found is None:
        raise input_error(
            f"there is neither a trial nor a job {name}", "`windlass history --all` lists jobs"
        )
    paths, array, task = found
    ticket = gather_ticket(paths, __version__, job=f"{array}_{task or 0}")
    if ticket.job is None:
        raise input_error(f"{name_of(paths)} has no job {name}", "`windlass history` lists them")
    return ticket
