"""Options that several verbs share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from windlass.core.errors import input_error
from windlass.places import place_names

Function = TypeVar("Function", bound=Callable[..., Any])


def take_one(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """A callback for options of which the last would win silently: several different values are an InputError."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        option = param.opts[0]
        given = " ".join(f"{option} {shlex.quote(value)}" for value in different)
        raise input_error(
            f"there can be only one {option}, and {len(different)} are given: {given}",
            "leave the others out",
        )
    return different[0] if different else None


def place_options(function: Function) -> Function:
    """Where trials are executed."""
    options = [
        click.option(
            "--on",
            type=click.Choice(place_names()),
            help="Where trials are executed (default: slurm where it answers, else local).",
        ),
        click.option(
            "--site",
            metavar="NAME",
            help="The profile of the cluster (default: the one that fits this machine).",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def folder_option(function: Function) -> Function:
    return click.option(
        "--folder", metavar="PATH", help="The folder in which the folders of studies are."
    )(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with stable keys.")(
        function
    )


def yes_option(function: Function) -> Function:
    return click.option("-y", "--yes", is_flag=True, help="Answer every question with yes.")(
        function
    )


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; without one, `--yes` must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise input_error(question, "--yes answers this without a terminal")
    if not click.confirm(question, err=True):
        raise click.Abort
