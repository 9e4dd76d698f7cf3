"""windlass doctor: what the GPU and the frameworks see; which imports are missing; whether a folder is fit."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from typing import Any

import click

from windlass.agent.node.doctor import MARK
from windlass.check.imports import find_imports, find_missing, find_scripts
from windlass.cli.env import find_interpreter
from windlass.cli.folder_check import check_folder
from windlass.cli.options import json_option, place_options
from windlass.cli.request import Asked, plan_study, warn
from windlass.cli.study_options import setting_options
from windlass.collect.look import look
from windlass.collect.output import OutputReader
from windlass.core.errors import AgentError, InputError, input_error
from windlass.core.paths import StudyPaths
from windlass.environments.shared.probe import find_python
from windlass.flow import How, Reporter, try_study
from windlass.model import Study, Submitted
from windlass.places.choose import choose_place
from windlass.planning import make_plan
from windlass.search import iterate_trials
from windlass.spec import Overrides, find_study_file, load_study, study_from_command
from windlass.view.doctor import explain_seen, render_seen, seen_to_json


@click.command()
@click.argument("study", required=False)
@click.option(
    "--gpu",
    is_flag=True,
    help="Show what the GPU, the driver, CUDA and the frameworks see, in a short job.",
)
@click.option(
    "--bench",
    is_flag=True,
    help="With --gpu: also time 1000 matrix products, to see whether the GPU is as fast as it should be.",
)
@click.option(
    "--imports",
    is_flag=True,
    help="Name modules that the program of the study imports and its environment lacks.",
)
@click.option(
    "--folder",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Test whether a folder is fit for studies; without a path, the one in which the studies of this project are.",
)
@setting_options("gpu_type", "account", "partition", "qos")
@click.option("--here", is_flag=True, help="With --on local: execute trials even on a login host.")
@place_options
@json_option
def command(
    study: str | None,
    gpu: bool,
    bench: bool,
    imports: bool,
    folder: str | None,
    here: bool,
    on: str | None,
    site: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Find out why a program does not use the GPU, or does not start; and whether a folder is fit for studies.

    \b
    windlass doctor --gpu                     in a short job with one GPU, or here where there is no Slurm
    windlass doctor --gpu --bench study.yaml  with the study's environment; with a figure of speed
    windlass doctor --imports study.yaml      before anything is queued, without executing anything
    windlass doctor --folder /scratch/me      links, syncs, clocks, room; from a second node, in a job, where Slurm is
    """
    if not gpu and not imports and not bench and folder is None:
        raise input_error("say what to look at", "--gpu, --folder, or --imports with a study")
    if folder is not None:
        return check_folder(folder, flags, on, site, as_json)
    given = load_study(study or _default_file(), Overrides()) if study or imports else None
    if imports:
        assert given is not None
        _show_missing(given, plan_study(given, {}, on, site, True), as_json)
    if gpu or bench:
        looked_at = _make_study(given, bench)
        return _look(looked_at, flags, on, site, here, as_json)
    return 0


def _default_file() -> str:
    found = find_study_file(os.getcwd())
    if found is None:
        raise input_error(
            "--imports needs a study, and there is no study.yaml here",
            "windlass doctor --imports FILE",
        )
    return found


# -- imports


def _show_missing(study: Study, asked: Asked, as_json: bool) -> None:
    """Raises InputError with all that is missing."""
    trial = next(iterate_trials(study))
    scripts = [
        path for _, arguments in trial.stages for path in find_scripts(arguments, study.workdir)
    ]
    if not scripts:
        raise input_error(
            "the study's command names no Python file to look into", "--imports reads Python alone"
        )
    folders = [study.workdir, study.project_dir, os.path.join(study.project_dir, "src")]
    imports = find_imports(scripts, folders)
    python = find_interpreter(asked)
    if python is None:
        raise input_error("the environment has no Python yet", "windlass env build")
    problems = find_missing(imports, python, os.environ)
    if as_json:
        missing = [
            {"message": one.message, "hint": one.hint, "file": one.file, "line": one.line}
            for one in problems
        ]
        print(
            json.dumps(
                {"python": python, "imports": [one.name for one in imports], "missing": missing},
                indent=2,
            )
        )
    if problems:
        raise InputError(problems)
    if not as_json:
        print(
            f"all {len(imports)} modules that {', '.join(map(os.path.relpath, scripts))} imports are in {python}"
        )


# -- GPU


def _make_study(given: Study | None, bench: bool) -> Study:
    """One trial that looks around, in the given study's environment or in that of this shell."""
    python = "python"
    if given is not None:
        word = next(iterate_trials(given)).stages[0][1][0]
        python = word if os.path.basename(word).startswith("python") else python
    elif shutil.which(python) is None:
        python = find_python(os.environ) or "python3"
    arguments = (python, "-m", "windlass.agent.node.doctor", *(("--bench",) if bench else ()))
    study = study_from_command(
        arguments, Overrides(name=f"doctor-{time.strftime('%H%M%S')}-{os.getpid()}")
    )
    study = replace(study, given={**study.given, "code": "live"})
    if given is None:
        return study
    return replace(
        study,
        environment=given.environment,
        env=given.env,
        workdir=given.workdir,
        project_dir=given.project_dir,
        given={
            **study.given,
            **{
                key: given.given[key]
                for key in ("account", "partition", "qos")
                if key in given.given
            },
        },
    )


def _look(
    study: Study, flags: dict[str, Any], on: str | None, site: str | None, here: bool, as_json: bool
) -> int:
    """Execute the one trial, here or in a job, and show what it saw. Its folder is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="windlass-doctor-") as folder:
        place = choose_place(on, site, here)
        warn(place.notes)
        plan = make_plan(place, study, {**flags, **place.small_needs(folder)})
        with try_study(place, plan, _JobReporter(), How()) as outcome:
            seen = _read_seen(outcome.paths)
    print(json.dumps(seen_to_json(seen), indent=2) if as_json else render_seen(seen).rstrip("\n"))
    return 1 if explain_seen(seen) else 0


class _JobReporter(Reporter):
    """Shows which job looks around, and nothing else of it but what is fetched for it."""

    def started(self, submitted: Submitted | None) -> None:
        if submitted is not None:
            jobs = ", ".join(map(str, submitted.jobs))
            click.echo(f"looking around in job {jobs}; Ctrl-C cancels it", err=True)

    def fetching(self, text: str) -> None:
        click.echo(text, err=True)


def _read_seen(paths: StudyPaths) -> dict[str, Any]:
    """What the trial printed. Raises AgentError, with its last output, where the trial did not get that far."""
    view = look(paths)
    texts: dict[int, bytes] = {}
    for agent in view.agents:
        for piece in OutputReader(paths, agent.record.id).read():
            texts[piece.stream] = texts.get(piece.stream, b"") + piece.data
    lines = [
        line
        for text in texts.values()
        for line in text.decode("utf-8", "replace").splitlines()
        if line.strip()
    ]
    for line in lines:
        if line.startswith(MARK):
            seen: dict[str, Any] = json.loads(line[len(MARK) :])
            return seen
    reason = (
        lines[-1]
        if lines
        else next(
            (note.text for note in reversed(view.notes) if not note.routine),
            "its agent left no note",
        )
    )
    raise AgentError(f"the trial that looks around did not finish: {reason}")
