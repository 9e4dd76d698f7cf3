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

from windlass.agent.node import fitness
from windlass.collect.locate import study_roots
from windlass.core.errors import FolderError
from windlass.core.files import write_whole
from windlass.core.processes import start_detached
from windlass.environments.shared.probe import find_python
from windlass.flow import How, Reporter, check_plan, own_folder, prepare_study
from windlass.following import wait_for_end
from windlass.places.base import Agents, Place
from windlass.places.choose import choose_place
from windlass.planning import make_plan
from windlass.site.usage import fetch_answers, fetch_disks
from windlass.spec import Overrides, study_from_command
from windlass.view.fitness import FIT, UNFIT, judge, render_fitness

FILE = ".windlass-folder.json"  # in the folder that was looked at
VERSION = 1
_STARTING_S = 60.0  # that a second process on this machine has to answer
_QUEUED_S = 24 * 3600.0  # that a job may wait; Ctrl-C cancels it
_SETTLING_S = 5.0  # after a submission, in which the queue may not show the job yet
_MOST_QUOTA_LINES = 12


def check_folder(
    path: str, flags: dict[str, Any], on: str | None, site: str | None, as_json: bool
) -> int:
    """Look at a folder, show what was found and keep it there. Returns the exit code: 1 where it is unfit."""
    root = (
        os.path.abspath(os.path.expanduser(path))
        if path
        else study_roots(None, os.getcwd(), _scratch())[0]
    )
    try:
        os.makedirs(root, exist_ok=True)
        place = tempfile.mkdtemp(prefix=".windlass-doctor-", dir=root)
    except OSError as error:
        raise FolderError(
            f"{root}: no study can be written there ({error.strerror})\n  hint: --folder PATH names another place"
        ) from error
    try:
        found = _look(root, place, flags, on, site)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    verdict, reasons = judge(found)
    found = {**found, "verdict": verdict, "reasons": reasons}
    _keep(root, found)
    print(json.dumps(found, indent=2) if as_json else render_fitness(found))
    return 1 if verdict == UNFIT else 0


def _scratch() -> str | None:
    return os.environ.get("SCRATCH")


def _look(
    root: str, place: str, flags: dict[str, Any], on: str | None, site: str | None
) -> dict[str, Any]:
    """Find out how a folder behaves: alone on this machine, then together with another process or a job on a node."""
    found: dict[str, Any] = {"v": VERSION, "folder": root, "time": round(time.time()), "job": None}
    alone = os.path.join(place, "alone")
    os.mkdir(alone)
    found |= fitness.probe(alone)
    answers = fetch_answers(None, fetch_disks([root]), (), os.environ)
    found["quota"] = [line for one in answers for line in one.text.splitlines()][:_MOST_QUOTA_LINES]
    both = os.path.join(place, "both")
    os.mkdir(both)
    fitness.prepare(both)
    other = choose_place(on, site, True)
    if other.elsewhere:
        found["job"], found["other"] = _ask_job(other, root, both, flags)
    else:
        found["other"] = _ask_process(both)
    return found


def _ask_process(folder: str) -> dict[str, Any] | None:
    """What a second process on this machine sees in the folder; None where it does not answer."""
    arguments = [sys.executable, "-m", "windlass.agent.node.fitness", folder]
    with tempfile.TemporaryFile() as errors:
        process = start_detached(arguments, (), errors.fileno())
        try:
            return fitness.ask(folder, _STARTING_S, lambda: process.poll() is None)
        finally:
            process.kill()
            process.wait()


def _ask_job(
    place: Place, root: str, folder: str, flags: dict[str, Any]
) -> tuple[str, dict[str, Any] | None]:
    """Measure together with a job, which is a study with one short trial in the folder that is looked at."""
    python = "python" if shutil.which("python") else find_python(os.environ) or "python3"
    arguments = (python, "-m", "windlass.agent.node.fitness", folder)
    study = study_from_command(
        arguments, Overrides(name=f"doctor-{time.strftime('%H%M%S')}-{os.getpid()}")
    )
    study = replace(study, given={**study.given, "code": "live"})
    needs = {"slots": 1, "cpus": 1, "memory": "1GB", "time": "5m", "agents": 1, "folder": root}
    plan = make_plan(place, study, {**flags, **needs})
    with own_folder(plan.folder) as paths:
        check_plan(place, plan, Reporter())
        prepare_study(plan, Reporter(), How())
        agents = place.start(paths)
        assert agents is not None and agents.submitted is not None
        jobs = ", ".join(map(str, agents.submitted.jobs))
        click.echo(f"waiting for job {jobs} on another node; Ctrl-C cancels it", err=True)
        try:
            other = fitness.ask(folder, _QUEUED_S, _is_there(agents))
            wait_for_end(agents)
        finally:
            agents.stop()
    return jobs, other


def _is_there(agents: Agents) -> Callable[[], bool]:
    """Whether the job may still come. The scheduler is asked every ten seconds at most."""
    began = time.monotonic()
    return lambda: time.monotonic() - began < _SETTLING_S or not agents.look()[0]


def _keep(root: str, found: dict[str, Any]) -> None:
    """Write the result where `run` finds it, in one step. A folder that cannot be written to keeps none."""
    path = os.path.join(root, FILE)
    try:
        write_whole(path, json.dumps(found, indent=1))
    except OSError:
        pass


def find_folder_warnings(folder: str) -> list[str]:
    """What `windlass doctor --folder` last found wrong with the place that a study's folder is in; [] if nothing."""
    root = os.path.dirname(folder)
    try:
        with open(os.path.join(root, FILE), encoding="utf-8") as file:
            found = json.load(file)
        verdict, reasons, when = (
            found["verdict"],
            list(map(str, found["reasons"])),
            float(found["time"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # Nobody has looked, or another version wrote it.
    if verdict == FIT or not reasons:
        return []
    day = time.strftime("%Y-%m-%d", time.localtime(when))
    return [
        f"{root} is {verdict}, as `windlass doctor --folder` found on {day}: {'; '.join(reasons)}"
    ]
