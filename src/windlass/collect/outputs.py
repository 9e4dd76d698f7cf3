"""What a study kept of its trials' files: finds it, takes it out, and drops what is not the best."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windlass.collect.attempts import read_retries
from windlass.collect.facts import read_facts
from windlass.collect.index import open_index
from windlass.collect.look import agents_alive, read_register
from windlass.collect.missing import may_be_behind, renew_listing
from windlass.collect.printed import add_printed
from windlass.core.counted import counted
from windlass.core.damage import report_damage
from windlass.core.errors import FolderError, input_error
from windlass.core.journal.kept import (
    LEFT_BEHIND,
    ContentChangedError,
    KeptFile,
    KeptWriter,
    find_cut,
    find_unlisted,
    read_kept,
)
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import TrialFile

# Before another look at files that were kept lately: clients keep sizes for a second.
_PAUSES_S = 0.0, 0.3, 1.2
KEPT = "kept"  # name of the archive that is left when the others are dropped


@dataclass(frozen=True)
class Pruned:
    """What dropping the outputs of all but the best did, or why nothing was dropped."""

    best: str = ""
    files: int = 0  # that were dropped
    freed_bytes: int = 0
    because: str = ""


def find_outputs(
    paths: StudyPaths, trials: Sequence[str] = ()
) -> tuple[list[KeptFile], list[KeptFile]]:
    """Complete files, the latest of each name; of these trials, or of all.

    Those that were kept before the user's last `retry` of their trial come second: they are of another execution, and
    perhaps of other code. Those of earlier sessions of the same execution are among the first.
    """
    _await_outputs(paths)
    files = read_kept(paths.outputs)
    chosen = [file for file in files if file.trial in trials] if trials else files
    retried = _retried(paths) if chosen else {}
    current: list[KeptFile] = []
    earlier: list[KeptFile] = []
    for file in chosen:
        # Files that no pattern names are kept as left-behind/<trial id>/….
        owner = file.path.partition("/")[0] if file.trial == LEFT_BEHIND else file.trial
        (earlier if file.time < retried.get(owner, 0.0) else current).append(file)
    return current, earlier


def _await_outputs(paths: StudyPaths) -> None:
    """Look again at what was kept lately: a network file system may not show an agent's archive yet, or its end."""
    for pause_s in _PAUSES_S:
        if not may_be_behind(paths.outputs):
            return
        time.sleep(pause_s)
        is_recent = renew_listing(paths.outputs)
        if not is_recent:
            return


def report_cut(paths: StudyPaths, trials: Sequence[str] = ()) -> bool:
    """Report archives and files of kept outputs that are cut short or gone. Returns whether there are any."""
    cut = find_cut(paths.outputs, trials)
    for place, count in cut.items():
        state = "is cut short" if os.path.exists(place) else "is gone"
        problem = f"{state}: {counted(count, 'file that was kept is', 'files that were kept are')} missing"
        report_damage(
            place,
            problem,
            "a backup may have it; else `windlass retry` of these trials makes them again",
        )
    untold = find_unlisted(paths.outputs)
    for place, lines in untold.items():
        if lines:
            are = counted(lines, "line is", "lines are")
            problem = f"{are} damaged; the archive was searched for what they tell of"
            report_damage(
                place,
                problem,
                "files that have no line are handed out without a comparison of their content",
            )
        else:
            problem = "it was kept, but the index with its trial and time is damaged or gone"
            report_damage(place, problem, "it is not listed; it can be used from there")
    return bool(cut or untold)


def _retried(paths: StudyPaths) -> dict[str, float]:
    """When the user last put trials back, by their ids."""
    found = {}
    trials = TrialFile(paths)
    for number, when in read_retries(paths).items():
        with contextlib.suppress(
            FolderError
        ):  # a journal that names a trial which is not there is damaged
            found[str(trials.read(number)["id"])] = when
    trials.close()
    return found


@dataclass(frozen=True)
class Extracted:
    """How many files were written, and how many were not because their content is not the one that was kept."""

    count: int
    damaged: int


def extract_outputs(files: Iterable[KeptFile], target: str) -> Extracted:
    """Write the files below `target`, in a folder for each trial, with the paths they had.

    A file whose content has changed since it was kept is reported and not written.
    """
    count = damaged = 0
    for file in sorted(
        files, key=lambda file: file.target is not None
    ):  # nothing is written through a link
        relative = os.path.normpath(os.path.join(file.trial, file.path))
        if relative.startswith(("..", "/")):
            raise FolderError(f"{file.place}: {file.path!r} would leave {target}")
        link = _link_above(target, relative)
        if link:
            raise FolderError(
                f"{link} is a link, and {file.path!r} would be written through it; choose a new folder"
            )
        try:
            file.extract(os.path.join(target, relative))
        except ContentChangedError as error:
            damaged += 1
            problem = f"{file.path!r} of trial {file.trial} is not written: {error.strerror}"
            remedy = "a backup may have it; else `windlass retry` of this trial makes it again"
            report_damage(file.place, problem, remedy, f"content {file.trial} {file.path}")
            continue
        except OSError as error:
            raise FolderError(f"{os.path.join(target, relative)}: {error.strerror}") from error
        count += 1
    return Extracted(count, damaged)


def _link_above(target: str, relative: str) -> str:
    """The first folder on the way from `target` to a file that is a symbolic link; "" where there is none."""
    path = target
    for part in os.path.dirname(relative).split(os.sep):
        path = os.path.join(path, part)
        if os.path.islink(path):
            return path
    return ""


def best_trial(paths: StudyPaths) -> str:
    """The id of the best trial by the study's metric. Raises InputError where there is none."""
    facts = read_facts(paths)
    metric = facts.metric
    if metric is None:
        raise input_error(
            "the study names no metric to judge by", "`metric: {name: loss}` in the study"
        )
    with open_index(paths) as index:
        add_printed(paths, index, metric.name, facts.patterns.get(metric.name))
        records = index.best(
            metric.name, metric.goal, "last", 1, included=read_register(paths).current
        )
        if not records:
            raise input_error(
                f"no trial is done and has reported {metric.name}",
                "`windlass status` shows how far it is",
            )
    trials = TrialFile(paths)
    try:
        return str(trials.read(records[0].number)["id"])
    finally:
        trials.close()


def explain_nothing_kept(paths: StudyPaths, best: str) -> str:
    """Why there are no outputs of the best trial."""
    text = f"trial {best} is the best of those that are done, and no outputs of it are kept"
    with open_index(paths) as index:
        retried = [
            record
            for record in index.records(sorted(read_retries(paths)))
            if record.state is not State.DONE
        ]
    if _was_pruned(paths):
        text += ": those of all but the best trial were dropped earlier (`keep: best`, or `outputs --prune`)"
    if retried:
        some = "trial was" if len(retried) == 1 else "trials were"
        text += (
            f". {len(retried)} {some} put back with `retry` and not done since. Only trials that are done count; "
            "`windlass outputs --all` lists what was kept before"
        )
    return text


def _was_pruned(paths: StudyPaths) -> bool:
    try:
        return any(name.startswith(f"{KEPT}-") for name in os.listdir(paths.outputs))
    except OSError:
        return False


def prune_outputs(paths: StudyPaths) -> Pruned:
    """Keep the outputs of the best trial, and what was left behind; drop the others'. Only when the study is over.

    What is to stay is written anew, whole and on the disk, before anything goes.
    """
    because = _not_over(paths)
    if because:
        return Pruned(because=because)
    best = best_trial(paths)
    files = read_kept(paths.outputs)
    staying = [file for file in files if file.trial in (best, LEFT_BEHIND)]
    if len(staying) == len(files):
        return Pruned(best)
    before = _size(paths.outputs)
    _rewrite(paths, staying)
    return Pruned(best, len(files) - len(staying), max(0, before - _size(paths.outputs)))


def _not_over(paths: StudyPaths) -> str:
    """Why the study is not over yet; "" where it is."""
    register = read_register(paths)
    if register.todo or register.held:
        return "trials wait or run"
    with open_index(paths) as index:
        alive = agents_alive(paths, index.agents())
    return "an agent is at work" if any(state is not False for state in alive.values()) else ""


def _rewrite(paths: StudyPaths, staying: Sequence[KeptFile]) -> None:
    """Write the files that stay into a new archive, and remove the old ones once it is complete on the disk."""
    old = [name for name in os.listdir(paths.outputs) if name.endswith((".tar", ".idx"))]
    name = f"{KEPT}-{os.getpid()}"
    staging = os.path.join(paths.outputs, f".{name}")
    writer = KeptWriter(paths.outputs, name)
    try:
        os.makedirs(staging, exist_ok=True)
        for file in staying:
            if file.offset is None:
                writer.add_copied(
                    file.trial, file.path, os.stat(file.place), file.time, file.checksum
                )
                continue
            taken = os.path.join(staging, "file")
            file.extract(taken)
            _add_again(writer, file, taken)
        writer.close()
    except OSError as error:
        for ending in (".tar", ".idx"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(paths.outputs, name + ending))
        raise FolderError(f"{paths.outputs}: {error.strerror}; nothing was dropped") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    for ending in (".idx", ".tar"):  # without its index an archive still tells what is in it
        for other in old:
            if other.endswith(ending):
                os.unlink(os.path.join(paths.outputs, other))
    _drop_plain(paths, {file.place for file in staying if file.offset is None})


def _add_again(writer: KeptWriter, file: KeptFile, taken: str) -> None:
    """Add a file that was taken out of an old archive to the new one, with its permissions and time."""
    status = os.lstat(taken)
    if file.target is not None:
        writer.add_link(file.trial, file.path, file.target, status, file.time)
        os.unlink(taken)
    elif file.is_folder:
        writer.add_folder(file.trial, file.path, status, file.time)
        os.rmdir(taken)
    else:
        with open(taken, "rb") as source:
            # The archive that it comes from may be closed because of the file's folder.
            former = os.stat(file.place)
            writer.add(
                file.trial, file.path, source.read(), status, file.time, file.is_sparse, [former]
            )


def _drop_plain(paths: StudyPaths, staying: set[str]) -> None:
    """Remove large files of trials that do not stay, and the folders that are empty then."""
    for folder, _, names in os.walk(paths.outputs, topdown=False):
        if folder == paths.outputs:
            continue
        for name in names:
            if os.path.join(folder, name) not in staying:
                os.unlink(os.path.join(folder, name))
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _size(folder: str) -> int:
    """The bytes of all files below a folder."""
    return sum(
        os.lstat(os.path.join(path, name)).st_size
        for path, _, names in os.walk(folder)
        for name in names
    )
