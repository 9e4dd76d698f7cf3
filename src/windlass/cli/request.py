"""What a command line asks for: the study, where it is to be executed, and the plan for that."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import click

from windlass.cli.options import SETTING_WORDS
from windlass.errors import InputError, input_error
from windlass.model import Data, Plan, Study
from windlass.plan.refuse import find_local_problems
from windlass.planning import make_plan, make_slurm_plan
from windlass.site.cluster import Cluster
from windlass.site.discover import fetch_cluster, slurm_answers
from windlass.site.here import fetch_here
from windlass.site.load import fetch_load
from windlass.site.local import fetch_local_site
from windlass.spec import Overrides, find_study_file, load_study, study_from_command
from windlass.spec.units import DURATION_FORMS, parse_duration_s


@dataclass(frozen=True)
class Asked:
    study: Study
    plan: Plan
    cluster: Cluster | None = None  # None: this machine

    def require_scheduler(self) -> None:
        """Raise InputError where the plan was made from a profile alone: nothing can be submitted from here."""
        if self.cluster is None or self.cluster.live:
            return
        name = self.cluster.name
        message = "there is no Slurm here: sbatch is missing or not set up"
        if slurm_answers():
            message = f"this machine submits to another cluster than {name}, so nothing is submitted from here"
        raise input_error(
            message, f"log in to {name} and run it there; `windlass plan --site {name}` checks it against the profile"
        )


def read_request(words: tuple[str, ...], options: dict[str, Any], sample: int | None = None) -> Asked:
    """The study and the plan that a command line asks for; with `sample`, for so many of its trials."""
    overrides = Overrides(
        params=tuple(options.pop("params")),
        seeds=options.pop("seeds"),
        repeat=options.pop("repeat"),
        trials=options.pop("trials"),
        method=options.pop("method"),
        search_seed=options.pop("search_seed"),
        name=options.pop("name"),
        metric=options.pop("metric"),
    )
    configs = options.pop("configs")
    file = options.pop("study") or configs
    if words and file:
        raise input_error("either a study file or a command after --, not both", "leave one of them out")
    study = study_from_command(words, overrides) if words else load_study(file or _default_file(), overrides)
    if configs and study.tasks:
        study = replace(study, submitter=True)
    if options["data"]:
        study = replace(study, data=tuple(Data(path) for path in data_paths(options["data"])))
    flags = {word: options[word] for word in SETTING_WORDS}
    flags["options"] = flags["options"] or None
    return plan_study(study, flags, options["on"], options["site"], options.get("here", True), sample)


def data_paths(texts: Iterable[str]) -> list[str]:
    """The paths of all `--data`; one of them may name several."""
    paths: list[str] = []
    for text in texts:
        try:
            paths += shlex.split(text)
        except ValueError as error:
            raise input_error(f"--data {text}: this cannot be split into paths: {error}", "close the quote") from None
    return paths


def plan_study(
    study: Study, flags: dict[str, Any], on: str | None, site: str | None, anyway: bool, sample: int | None = None
) -> Asked:
    answers = slurm_answers()
    if on == "local" and answers and not anyway:
        _refuse_login_host()
    if on == "local" or (on is None and not answers and site is None):
        return Asked(study, make_plan(study, flags, fetch_local_site(), sample))
    if not answers and site is None:
        raise input_error(
            "there is no Slurm here: sbatch is missing or not set up",
            "--on local executes the trials on this machine; --site NAME plans for a cluster from its profile",
        )
    cluster = fetch_load(fetch_cluster(site))
    return Asked(study, make_slurm_plan(study, flags, cluster, sample), cluster)


def _refuse_login_host() -> None:
    """Where Slurm answers, this may be a host that all users share."""
    here = fetch_here(fetch_cluster(), os.environ)
    problems = find_local_problems(True, here)
    if here.is_login_host:
        raise InputError([replace(problem, hint=f"{problem.hint}; `--here` insists") for problem in problems])
    warn(problem.message for problem in problems)


def _default_file() -> str:
    found = find_study_file(os.getcwd())
    if found is None:
        raise input_error("no study given and no study.yaml here", "windlass init SCRIPT.py writes one")
    return found


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def read_seconds(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """A callback for options that take a duration; a plain number is seconds."""
    try:
        seconds = float(value) if value.replace(".", "", 1).isdecimal() else parse_duration_s(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}; for example 30s; accepted are {DURATION_FORMS}") from None
    if seconds <= 0:
        raise click.BadParameter("more than no time is wanted, for example 30s")
    return seconds
