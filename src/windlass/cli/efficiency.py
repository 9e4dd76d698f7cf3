"""windlass efficiency: what was asked for, what was used, and what to ask for next time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study_or_job
from windlass.collect.advice import Advice, advise
from windlass.collect.efficiency import Efficiency, fetch_efficiency, read_efficiency
from windlass.collect.jobs import parse_job
from windlass.core.errors import InputError
from windlass.core.queue.ask import ask
from windlass.plan.source_line import find_line
from windlass.slurm.directives import Option, parse_script, parse_words
from windlass.slurm.used import fetch_submit_line
from windlass.view.efficiency import Placed, efficiency_to_json, render_efficiency
from windlass.view.table import terminal_width

_WORDS = 40  # of a command line that are looked at


@dataclass(frozen=True)
class _Script:
    """A batch script and what it was submitted with. Options of the command line, which win, have no line."""

    path: str
    options: Mapping[str, Option]


@click.command()
@click.argument("study", required=False, metavar="[STUDY|JOB]")
@folder_option
@json_option
def command(study: str | None, folder: str | None, as_json: bool) -> None:
    """Show what was asked for and what was used: time, CPU, memory, GPU, GPU memory; and the line to change.

    A study is one table, a few rows for each array. A job's number (123, or 123_4 for one task) stands for the study
    it belongs to; jobs that Windlass did not start are looked up in Slurm's accounting.
    """
    found = _find(study, folder)
    script = None if found.study else _find_script(found.groups[0].jobs[0].name)
    written = (
        None
        if script is None
        else {name: option.value or "" for name, option in script.options.items()}
    )
    advices = [_place(found, advice, script) for advice in advise(found, written)]
    if as_json:
        print(json.dumps(efficiency_to_json(found, advices), indent=2, default=str))
    else:
        print(render_efficiency(found, advices, terminal_width(sys.stdout)), end="")


def _find(name: str | None, folder: str | None) -> Efficiency:
    """The figures of a study, of one of its jobs, or of a job that is not ours, which accounting alone knows."""
    try:
        paths, job = find_study_or_job(name, folder)
    except InputError:
        if name is None or parse_job(name) is None:
            raise
        return fetch_efficiency(name)
    return read_efficiency(paths, job)


def _place(found: Efficiency, advice: Advice, script: _Script | None) -> Placed:
    """Where the line stands that is to be changed."""
    if script is not None:
        option = script.options.get(advice.option)
        return (
            Placed(advice, os.path.relpath(script.path), option.line)
            if option and option.line
            else Placed(advice)
        )
    source = found.plan.source if found.plan is not None else ""
    if not advice.key or advice.source != "study" or not source:
        return Placed(advice)
    text = _read(source)
    return Placed(
        advice, os.path.relpath(source), find_line(text, advice.section, advice.key) if text else 0
    )


def _find_script(job: str) -> _Script | None:
    """The script that the job was submitted with, if it is still there and of one part."""
    folder, line = fetch_submit_line(job, ask)
    arguments = line.split(" ")[1:_WORDS]
    for first, path in _candidates(folder, arguments):
        text = _read(path)
        if text.startswith("#!"):
            script = parse_script(text)
            options = [*script.options, *parse_words(arguments[:first], 0)]
            found = {option.name: option for option in options if isinstance(option, Option)}
            return _Script(path, found) if script.parts == 1 else None
    return None


def _candidates(folder: str, arguments: list[str]) -> Iterator[tuple[int, str]]:
    """What may be the script of a command line whose quotes are lost: any arguments of it that together name a file.

    Each with the number of arguments before it.
    """
    for first, argument in enumerate(arguments):
        for stop in range(first + 1, len(arguments) + 1):
            path = os.path.join(folder, " ".join(arguments[first:stop]))
            if not argument.startswith("-") and os.path.isfile(path):
                yield first, path


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""
