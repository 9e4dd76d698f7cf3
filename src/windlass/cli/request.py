"""What a command line asks for: the study, where it is to be executed, and the plan for that."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import click

from windlass.cli.study_options import description_flags, setting_flags
from windlass.core.errors import input_error
from windlass.core.units import DURATION_FORMS, parse_duration_s
from windlass.model import Data, Plan, Study
from windlass.places.base import Place
from windlass.places.choose import choose_place
from windlass.planning import make_plan
from windlass.spec import Overrides, find_study_file, load_study, study_from_command


@dataclass(frozen=True)
class Asked:
    study: Study
    plan: Plan
    place: Place


def read_request(
    arguments: tuple[str, ...], options: dict[str, Any], sample: int | None = None
) -> Asked:
    """The study and the plan that a command line asks for; with `sample`, for so many of its trials."""
    overrides = Overrides(options["param"], **description_flags(options))
    configs = options["configs"]
    file = options["study"] or configs
    if arguments and file:
        raise input_error(
            "either a study file or a command after --, not both", "leave one of them out"
        )
    study = (
        study_from_command(arguments, overrides)
        if arguments
        else load_study(file or _default_file(), overrides)
    )
    if configs and study.tasks:
        study = replace(study, submitter=True)
    if options["data"]:
        study = replace(study, data=tuple(Data(path) for path in data_paths(options["data"])))
    return plan_study(
        study,
        setting_flags(options),
        options["on"],
        options["site"],
        options.get("here", True),
        sample,
    )


def data_paths(texts: Iterable[str]) -> list[str]:
    """The paths of all `--data`; one of them may name several."""
    paths: list[str] = []
    for text in texts:
        try:
            paths += shlex.split(text)
        except ValueError as error:
            raise input_error(
                f"--data {text}: this cannot be split into paths: {error}", "close the quote"
            ) from None
    return paths


def plan_study(
    study: Study,
    flags: dict[str, Any],
    on: str | None,
    site: str | None,
    anyway: bool,
    sample: int | None = None,
) -> Asked:
    """The plan of a study for the place that the user names, or for the one that is offered.

    With `anyway`, this machine is a place also where it is a login host. With `sample`, for so many trials.
    """
    place = choose_place(on, site, anyway)
    warn(place.notes)
    return Asked(study, make_plan(place, study, flags, sample), place)


def _default_file() -> str:
    found = find_study_file(os.getcwd())
    if found is None:
        raise input_error(
            "no study given and no study.yaml here", "windlass init SCRIPT.py writes one"
        )
    return found


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def read_seconds(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """A callback for options that take a duration; a plain number is seconds."""
    try:
        seconds = float(value) if value.replace(".", "", 1).isdecimal() else parse_duration_s(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{error}; for example 30s; accepted are {DURATION_FORMS}"
        ) from None
    if seconds <= 0:
        raise click.BadParameter("more than no time is wanted, for example 30s")
    return seconds
