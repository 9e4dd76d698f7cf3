"""windlass outputs: the files that were kept of trials."""

from __future__ import annotations

import json

import click

from windlass.cli.hints import name_study
from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study_and_trials, name_of, study_and_trials
from windlass.collect.look import read_register
from windlass.collect.outputs import (
    best_trial,
    explain_nothing_kept,
    extract_outputs,
    find_outputs,
    prune_outputs,
    report_cut,
)
from windlass.collect.trials import find_trials
from windlass.core.counted import counted
from windlass.core.errors import input_error
from windlass.core.journal.kept import LEFT_BEHIND, KeptFile
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile
from windlass.core.units import render_bytes
from windlass.view.outputs import render_outputs


@click.command()
@study_and_trials("[STUDY] [TRIAL]...")
@click.option(
    "--best", is_flag=True, help="Take the files of the best trial by the metric of the study."
)
@click.option(
    "--to",
    metavar="FOLDER",
    help="Write the files there, in a folder for each trial, with the paths they had.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Take also files that were kept before the last `windlass retry` of a trial.",
)
@click.option("--list", "as_list", is_flag=True, help="List the files (the default without --to).")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove the files of all but the best trial, once the study is over.",
)
@folder_option
@json_option
def command(
    arguments: tuple[str, ...],
    study: str | None,
    best: bool,
    to: str | None,
    everything: bool,
    as_list: bool,
    prune: bool,
    folder: str | None,
    as_json: bool,
) -> int:
    """List the files that were kept of trials (`outputs:` in the study), or write them to a folder.

    Files that a trial left before its last `windlass retry` are of another execution and are not included, except with
    --all.

    TRIAL is a number or an id; `left-behind` stands for files that trials wrote and no pattern names.
    """
    paths, trials = find_study_and_trials(arguments, study, folder)
    if prune:
        return _prune(paths, as_json)
    chosen = [best_trial(paths)] if best else _ids(trials, paths)
    files, earlier = find_outputs(paths, chosen)
    is_cut = report_cut(paths, chosen)
    if everything:
        files, earlier = sorted([*files, *earlier], key=lambda file: (file.trial, file.path)), []
    if best and not files and not earlier:
        click.echo(name_study(explain_nothing_kept(paths, chosen[0]), paths), err=True)
    if earlier:
        text = f"left out {counted(len(earlier), 'file')} from before the last `windlass retry` of a trial"
        click.echo(f"{text}; --all includes everything", err=True)
    if to is not None:
        extracted = extract_outputs(files, to)
        is_cut = is_cut or extracted.damaged > 0
        if not as_json:
            click.echo(f"{counted(extracted.count, 'file')} written to {to}", err=True)
    if as_json:
        print(json.dumps([_to_json(file) for file in files], indent=2))
    elif to is None or as_list:
        print(render_outputs([(file.trial, _name(file), file.size) for file in files]))
    return 1 if is_cut else 0


def _ids(names: tuple[str, ...], paths: StudyPaths) -> list[str]:
    """The ids of the trials that the user named. The name for files of unknown trials stays as it is."""
    numbers = find_trials(
        [name for name in names if name != LEFT_BEHIND], paths, read_register(paths).count
    )
    file = TrialFile(paths)
    try:
        ids = [str(file.read(number)["id"]) for number in numbers]
    finally:
        file.close()
    return [*ids, LEFT_BEHIND] if LEFT_BEHIND in names else ids


def _name(file: KeptFile) -> str:
    """The path as `ls -F` has it, with what a link leads to."""
    if file.target is not None:
        return f"{file.path} -> {file.target}"
    return file.path + ("/" if file.is_folder else "")


def _to_json(file: KeptFile) -> dict[str, object]:
    """A kept file for `--json`, with the archive and offset where its content lies."""
    kind = "link" if file.target is not None else "folder" if file.is_folder else "file"
    row: dict[str, object] = {
        "trial": file.trial,
        "path": file.path,
        "kind": kind,
        "bytes": file.size,
    }
    return {
        **row,
        "target": file.target,
        "in": file.place,
        "offset": file.offset,
        "kept_at": file.time,
    }


def _prune(paths: StudyPaths, as_json: bool) -> int:
    """Remove the kept files of all trials but the best. Returns the exit code.

    Raises InputError while trials may still change which one is the best.
    """
    done = prune_outputs(paths)
    if done.because:
        raise input_error(
            f"outputs are dropped when the study is over: {done.because}",
            "`windlass status` shows it",
        )
    if as_json:
        print(
            json.dumps({"best": done.best, "dropped": done.files, "freed_bytes": done.freed_bytes})
        )
    else:
        removed = f"{counted(done.files, 'file')} removed ({render_bytes(done.freed_bytes)})"
        print(f"{name_of(paths)}: the files of {done.best} are kept, {removed}")
    return 0
