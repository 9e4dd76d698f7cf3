"""windlass doctor: what the GPU and the frameworks see; which imports are missing; whether a folder is fit."""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from typing import Any

import click

from windlass.agent.doctor import MARK
from windlass.agent.probe import find_python
from windlass.bundle.environment import prepare_environment
from windlass.check.imports import find_imports, find_missing, find_scripts
from windlass.cli.env import find_interpreter
from windlass.cli.folder_check import check_folder
from windlass.cli.options import SETTING_WORDS, json_option, place_options
from windlass.cli.report import StreamReporter
from windlass.cli.request import Asked, plan_study
from windlass.collect.look import look
from windlass.collect.output import OutputReader
from windlass.errors import AgentError, InputError, input_error
from windlass.flow import follow_jobs, run_plan, submit_plan
from windlass.launch.control import send_cancel
from windlass.launch.local import LocalLauncher
from windlass.model import Study
from windlass.paths import StudyPaths
from windlass.refusals import check_slurm_plan
from windlass.search import iterate_trials
from windlass.site.discover import slurm_answers
from windlass.site.local import fetch_gpus
from windlass.spec import Overrides, find_study_file, load_study, study_from_command
from windlass.view.doctor import explain_seen, render_seen, seen_to_json

_INTERRUPTED = 130


@click.command()
@click.argument("study", required=False)
@click.option("--gpu", is_flag=True, help="What the GPU, the driver, CUDA and the frameworks see: a short job.")
@click.option("--bench", is_flag=True, help="With --gpu: also 1000 matrix products, as a sanity figure.")
@click.option("--imports", is_flag=True, help="Modules that the study's program imports and its environment lacks.")
@click.option(
    "--folder",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Whether a folder is fit for studies; without a path, the one where this project's studies are.",
)
@click.option("-G", "--gpu-type", metavar="TYPE", help="With --gpu: on a GPU of this type.")
@click.option("-a", "--account", help="The account that pays.")
@click.option("-p", "--partition", help="Where the job waits.")
@click.option("--qos", help="Quality of service.")
@click.option("--here", is_flag=True, help="With --on local: also on a login host.")
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
        return check_folder(folder, {**_flags(), **flags}, on, site, here, as_json)
    given = load_study(study or _default_file(), Overrides()) if study or imports else None
    if imports:
        assert given is not None
        _show_missing(given, plan_study(given, _flags(), on, site, True), as_json)
    if gpu or bench:
        looked_at = _make_study(given, bench)
        return _look(looked_at, {**_flags(), **flags}, on, site, here, as_json)
    return 0


def _default_file() -> str:
    found = find_study_file(os.getcwd())
    if found is None:
        raise input_error("--imports needs a study, and there is no study.yaml here", "windlass doctor --imports FILE")
    return found


def _flags() -> dict[str, Any]:
    return dict.fromkeys(SETTING_WORDS)


# -- imports


def _show_missing(study: Study, asked: Asked, as_json: bool) -> None:
    """Raises InputError with all that is missing."""
    trial = next(iterate_trials(study))
    scripts = [path for _, words in trial.stages for path in find_scripts(words, study.workdir)]
    if not scripts:
        raise input_error("the study's command names no Python file to look into", "--imports reads Python alone")
    folders = [study.workdir, study.project_dir, os.path.join(study.project_dir, "src")]
    imports = find_imports(scripts, folders)
    python = find_interpreter(asked)
    if python is None:
        raise input_error("the environment has no Python yet", "windlass env build")
    problems = find_missing(imports, python, os.environ)
    if as_json:
        said = [{"message": one.message, "hint": one.hint, "file": one.file, "line": one.line} for one in problems]
        print(json.dumps({"python": python, "imports": [one.name for one in imports], "missing": said}, indent=2))
    if problems:
        raise InputError(problems)
    if not as_json:
        print(f"all {len(imports)} modules that {', '.join(map(os.path.relpath, scripts))} imports are in {python}")


# -- GPU


def _make_study(given: Study | None, bench: bool) -> Study:
    """One trial that looks around, in the given study's environment or in that of this shell."""
    python = "python"
    if given is not None:
        word = next(iterate_trials(given)).stages[0][1][0]
        python = word if os.path.basename(word).startswith("python") else python
    elif shutil.which(python) is None:
        python = find_python(os.environ) or "python3"
    words = (python, "-m", "windlass.agent.doctor", *(("--bench",) if bench else ()))
    study = study_from_command(words, Overrides(name=f"doctor-{time.strftime('%H%M%S')}-{os.getpid()}"))
    study = replace(study, said={**study.said, "code": "live"})
    if given is None:
        return study
    return replace(
        study,
        environment=given.environment,
        env=given.env,
        workdir=given.workdir,
        project_dir=given.project_dir,
        said={**study.said, **{key: given.said[key] for key in ("account", "partition", "qos") if key in given.said}},
    )


def _look(study: Study, flags: dict[str, Any], on: str | None, site: str | None, here: bool, as_json: bool) -> int:
    folder = tempfile.mkdtemp(prefix="windlass-doctor-")
    if on == "local" or (on is None and site is None and not slurm_answers()):
        size = {"slots": 1, "gpus": len(fetch_gpus()) or None, "folder": folder}
    else:
        size = {"slots": 1, "gpus": 1, "cpus": 2, "memory": "4GB", "time": "10m", "agents": 1}
    try:
        seen = _see(plan_study(study, {**flags, **size}, on, site, here))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(seen_to_json(seen), indent=2) if as_json else render_seen(seen).rstrip("\n"))
    return 1 if explain_seen(seen) else 0


def _see(asked: Asked) -> dict[str, Any]:
    """Execute the one trial, here or in a job, and read what it saw. Its folder is gone afterwards."""
    paths = StudyPaths(asked.plan.folder)
    quiet = StreamReporter(True)
    try:
        if asked.cluster is None:
            run_plan(asked.plan, LocalLauncher(), quiet)
        else:
            _see_in_job(asked, paths, quiet)
        return _read_seen(paths)
    finally:
        shutil.rmtree(paths.folder, ignore_errors=True)
        for log in glob.glob(glob.escape(os.path.join(paths.hpc_outputs, asked.plan.study.name)) + "_*.out"):
            os.unlink(log)


def _see_in_job(asked: Asked, paths: StudyPaths, quiet: StreamReporter) -> None:
    assert asked.cluster is not None
    asked.require_scheduler()
    check_slurm_plan(asked.plan, asked.cluster)
    prepare_environment(asked.plan, asked.cluster.internet, lambda text: click.echo(text, err=True))
    _, submitted = submit_plan(asked.plan, quiet)
    click.echo(f"looking around in job {', '.join(map(str, submitted.jobs))}; Ctrl-C cancels it", err=True)
    if follow_jobs(paths, quiet).exit_code == _INTERRUPTED:
        send_cancel([str(job) for job in submitted.jobs], only_waiting=False)
        raise click.Abort


def _read_seen(paths: StudyPaths) -> dict[str, Any]:
    """What the trial printed. Raises AgentError, with its last words, where it did not come to that."""
    view = look(paths)
    texts: dict[int, bytes] = {}
    for agent in view.agents:
        for piece in OutputReader(paths, agent.record.id).read():
            texts[piece.stream] = texts.get(piece.stream, b"") + piece.data
    lines = [line for text in texts.values() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    for line in lines:
        if line.startswith(MARK):
            seen: dict[str, Any] = json.loads(line[len(MARK) :])
            return seen
    said = (
        lines[-1]
        if lines
        else next((note.text for note in reversed(view.notes) if not note.routine), "it said nothing")
    )
    raise AgentError(f"nobody could look around: {said}")
