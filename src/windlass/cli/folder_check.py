"""`windlass doctor --folder`: whether a folder is fit for studies. What it found is kept there for `run` and `plan`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from windlass.agent import fitness
from windlass.agent.probe import find_python
from windlass.cli.report import StreamReporter
from windlass.cli.request import Asked, plan_study
from windlass.collect.locate import study_roots
from windlass.errors import FolderError
from windlass.flow import follow_jobs, submit_plan
from windlass.launch._shell import start_detached
from windlass.launch.control import send_cancel
from windlass.paths import StudyPaths
from windlass.refusals import check_slurm_plan
from windlass.site.discover import slurm_answers
from windlass.site.usage import fetch_answers, fetch_disks
from windlass.spec import Overrides, study_from_command
from windlass.submission import agents_may_be_there
from windlass.view.fitness import FIT, UNFIT, judge, render_fitness

FILE = ".windlass-folder.json"  # in the folder that was looked at
VERSION = 1
_STARTING_S = 60.0  # that a second process on this machine has to answer
_QUEUED_S = 24 * 3600.0  # that a job may wait; Ctrl-C cancels it
_SETTLING_S = 5.0  # after a submission, in which the queue may not show the job yet
_MOST_QUOTA_LINES = 12


def check_folder(path: str, flags: dict[str, Any], on: str | None, site: str | None, here: bool, as_json: bool) -> int:
    """Look at a folder, show what was found and keep it there. Returns the exit code: 1 where it is unfit."""
    root = os.path.abspath(os.path.expanduser(path)) if path else study_roots(None, os.getcwd(), _scratch())[0]
    try:
        os.makedirs(root, exist_ok=True)
        place = tempfile.mkdtemp(prefix=".windlass-doctor-", dir=root)
    except OSError as error:
        raise FolderError(
            f"{root}: no study can be written there ({error.strerror})\n  hint: --folder PATH names another place"
        ) from error
    try:
        found = _look(root, place, flags, on, site, here)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    verdict, reasons = judge(found)
    found = {**found, "verdict": verdict, "reasons": reasons}
    _keep(root, found)
    print(json.dumps(found, indent=2) if as_json else render_fitness(found))
    return 1 if verdict == UNFIT else 0


def _scratch() -> str | None:
    return os.environ.get("SCRATCH")


def _look(root: str, place: str, flags: dict[str, Any], on: str | None, site: str | None, here: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"v": VERSION, "folder": root, "time": round(time.time()), "job": None}
    alone = os.path.join(place, "alone")
    os.mkdir(alone)
    found |= fitness.probe(alone)
    answers = fetch_answers(None, fetch_disks([root]), (), os.environ)
    found["quota"] = [line for one in answers for line in one.text.splitlines()][:_MOST_QUOTA_LINES]
    both = os.path.join(place, "both")
    os.mkdir(both)
    fitness.prepare(both)
    if on == "local" or (on is None and site is None and not slurm_answers()):
        found["other"] = _ask_process(both)
    else:
        found["job"], found["other"] = _ask_job(root, both, flags, on, site, here)
    return found


def _ask_process(folder: str) -> dict[str, Any] | None:
    words = [sys.executable, "-m", "windlass.agent.fitness", folder]
    with tempfile.TemporaryFile() as errors:
        process = start_detached(words, (), errors.fileno())
        try:
            return fitness.ask(folder, _STARTING_S, lambda: process.poll() is None)
        finally:
            process.kill()
            process.wait()


def _ask_job(
    root: str, folder: str, flags: dict[str, Any], on: str | None, site: str | None, here: bool
) -> tuple[str, dict[str, Any] | None]:
    """Measure together with a job, which is a study with one short trial in the folder that is looked at."""
    python = "python" if shutil.which("python") else find_python(os.environ) or "python3"
    words = (python, "-m", "windlass.agent.fitness", folder)
    study = study_from_command(words, Overrides(name=f"doctor-{time.strftime('%H%M%S')}-{os.getpid()}"))
    study = replace(study, said={**study.said, "code": "live"})
    size = {"slots": 1, "cpus": 1, "memory": "1GB", "time": "5m", "agents": 1, "folder": root}
    asked = plan_study(study, {**flags, **size}, on, site, here)
    paths = StudyPaths(asked.plan.folder)
    try:
        return _ask_submitted(asked, paths, folder)
    finally:
        shutil.rmtree(paths.folder, ignore_errors=True)
        _remove_logs(paths, asked.plan.study.name)


def _ask_submitted(asked: Asked, paths: StudyPaths, folder: str) -> tuple[str, dict[str, Any] | None]:
    assert asked.cluster is not None
    asked.require_scheduler()
    check_slurm_plan(asked.plan, asked.cluster)
    quiet = StreamReporter(True)
    _, submitted = submit_plan(asked.plan, quiet)
    jobs = [str(job) for job in submitted.jobs]
    click.echo(f"waiting for job {', '.join(jobs)} on another node; Ctrl-C cancels it", err=True)
    try:
        other = fitness.ask(folder, _QUEUED_S, _is_there(paths))
        follow_jobs(paths, quiet)
    finally:
        send_cancel(jobs, only_waiting=False)
    return ", ".join(jobs), other


def _is_there(paths: StudyPaths) -> Callable[[], bool]:
    """Whether the job may still come. The scheduler is asked every ten seconds at most."""
    began = time.monotonic()

    def is_there() -> bool:
        return time.monotonic() - began < _SETTLING_S or agents_may_be_there(paths)

    return is_there


def _remove_logs(paths: StudyPaths, name: str) -> None:
    try:
        names = os.listdir(paths.hpc_outputs)
    except OSError:
        return
    for log in names:
        if log.startswith(name + "_"):
            os.unlink(os.path.join(paths.hpc_outputs, log))


def _keep(root: str, found: dict[str, Any]) -> None:
    """Write the result where `run` finds it, in one step. A folder that cannot be written to keeps none."""
    path = os.path.join(root, FILE)
    try:
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        pass


def find_folder_warnings(folder: str) -> list[str]:
    """What `windlass doctor --folder` last found wrong with the place that a study's folder is in; [] if nothing."""
    root = os.path.dirname(folder)
    try:
        with open(os.path.join(root, FILE), encoding="utf-8") as file:
            found = json.load(file)
        verdict, reasons, when = found["verdict"], list(map(str, found["reasons"])), float(found["time"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # Nobody has looked, or another version wrote it.
    if verdict == FIT or not reasons:
        return []
    day = time.strftime("%Y-%m-%d", time.localtime(when))
    return [f"{root} is {verdict}, as `windlass doctor --folder` found on {day}: {'; '.join(reasons)}"]
