"""windlass watch: one look inside what runs, or one every half a minute."""

from __future__ import annotations

import json
import sys
import time

import click

from windlass.cli.hints import name_study
from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import Job, find_study_or_job
from windlass.collect.jobs import parse_job
from windlass.collect.look import look
from windlass.core.errors import InputError, input_error
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.units import parse_duration_s
from windlass.places.slurm.inside import fetch_running, look_inside
from windlass.view.table import terminal_width
from windlass.view.trouble import explain_standstill
from windlass.view.watch import name_of_job, render_watch, running_in, watch_to_json

LEAST_S = 30.0  # a look costs the node and the scheduler something


@click.command()
@click.argument("study", required=False, metavar="[STUDY|JOB]")
@click.option(
    "--every",
    metavar="TIME",
    help="Look again at this interval (30s or longer) until nothing runs.",
)
@click.option("--deep", is_flag=True, help="Execute nvidia-smi and top inside the job.")
@folder_option
@json_option
def command(
    study: str | None, every: str | None, deep: bool, folder: str | None, as_json: bool
) -> None:
    """Look inside a running study or job: progress, memory and GPU memory of each trial under way.

    Of trials, agents tell this themselves every few seconds. With --deep, and for jobs that Windlass did not start,
    `srun --overlap` puts nvidia-smi and top beside the job's processes for a moment.
    """
    pause_s = _parse_pause(every)
    paths, job, foreign = _find(study, folder)
    try:
        while _look(paths, job, foreign, deep, as_json) and pause_s:
            time.sleep(pause_s)
    except InputError:
        if pause_s is None:
            raise


def _parse_pause(every: str | None) -> float | None:
    if every is None:
        return None
    try:
        pause_s = parse_duration_s(every)
    except ValueError as error:
        raise input_error(str(error), "--every 30s") from None
    if pause_s < LEAST_S:
        raise input_error(
            f"--every {every} is too often: nodes and scheduler are everybody's",
            "--every 30s or slower",
        )
    return pause_s


def _find(name: str | None, folder: str | None) -> tuple[StudyPaths | None, Job | None, str]:
    """The study and which of its jobs is meant; or the number of a job that is none of ours."""
    try:
        paths, job = find_study_or_job(name, folder)
    except InputError:
        if name is None or parse_job(name) is None:
            raise
        return None, None, name
    return paths, job, ""


def _look(
    paths: StudyPaths | None, job: Job | None, foreign: str, deep: bool, as_json: bool
) -> bool:
    """Show one look; returns whether there was anything to look at."""
    if paths is None:
        number, nodes = fetch_running(foreign)
        text = look_inside(number, nodes)
        print(
            json.dumps({"job": foreign, "time": round(time.time(), 1), "deep": text})
            if as_json
            else text,
            flush=True,
        )
        return True
    view, now = look(paths), time.time()
    pairs = running_in(view, job)
    jobs = sorted({name for _, agent in pairs if (name := name_of_job(agent))}) if deep else []
    texts = {name: look_inside(*fetch_running(name)) for name in jobs}
    if deep and not jobs:
        raise input_error(
            "no trial of this study runs in a job now",
            "--deep looks inside jobs; `windlass status`",
        )
    if as_json:
        print(json.dumps({**watch_to_json(view, job, now), "deep": texts or None}), flush=True)
        return bool(pairs)
    print(render_watch(view, job, now, terminal_width(sys.stdout)), end="", flush=True)
    if not pairs:
        open_trials = view.counts[State.WAITING.value] or view.counts[State.INTERRUPTED.value]
        nobody = name_study(explain_standstill(view), paths)
        print(f"  {nobody if open_trials else 'nothing is left to do'}")
    for name, text in texts.items():
        print(f"\njob {name}\n{text}", end="", flush=True)
    return bool(pairs)
