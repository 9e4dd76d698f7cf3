"""One trial, executed for a short time as a node would: from a copy of the code, without a display; and watched."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.check.item import Item, failed, passed, skipped
from windlass.collect.index import open_index
from windlass.core.claims.strays import find_strays
from windlass.core.errors import WindlassError
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause, State
from windlass.core.units import render_duration, render_limit
from windlass.flow import How, Reporter, try_study
from windlass.model import Study
from windlass.places.base import Place
from windlass.planning import make_plan

_LOOK_S = 0.2
_DIVERGED = "diverged"
_MOST_FILES = 200_000
_SEARCH_S = 10.0
_PASSED_OVER = (".git", ".windlass", "__pycache__", ".windlass-data")


@dataclass(frozen=True)
class TriedTrial:
    """What one trial did within the time it was given."""

    seconds: float
    ended: bool  # False: its time was up, and it was well until then
    ending: str  # how it ended, as a phrase: `ended with exit code 1`
    problem: str = ""  # how it failed
    shared_files: tuple[str, ...] = ()  # that it made or changed in shared folders
    shared_bytes: int = 0
    written_bytes: int = 0  # by its processes in all, wherever that went; at least

    @property
    def diverged(self) -> bool:
        """Whether it failed for NaN or infinity, not for an error."""
        return self.problem.startswith(_DIVERGED)


def check_trial(tried: TriedTrial | None, why_not: str) -> Item:
    """Item: one trial works."""
    if tried is None:
        return skipped("trial", f"none was executed: {why_not}")
    if tried.diverged:
        return failed(
            "trial", f"the first one {tried.problem}", "mend it, or `on_nan: ignore` in the study"
        )
    if tried.problem:
        return failed(
            "trial", f"the first one {tried.problem}", "windlass run --sample 1, windlass logs"
        )
    return passed("trial", f"the first one, from a copy of the code, {tried.ending}")


def try_trial(
    study: Study, machine: Place, shared: tuple[str, ...], limit_s: float, scratch: str = ""
) -> TriedTrial:
    """Execute the first trial for at most so long. `shared` are folders that are looked at before and after.

    The rest of `scratch` may be huge: it is only searched for files that are newer than the trial.
    """
    root = tempfile.mkdtemp(prefix="windlass-check-")
    needs: dict[str, Any] = {"folder": root, "slots": 1, "timeout": f"{limit_s:g}s", "retries": 0}
    if study.given.get("code") is None:
        needs["code"] = "frozen"
    try:
        plan = make_plan(machine, study, needs)
        shared = (*shared, root)  # which $scratch_dir is, for this trial
        own = (plan.folder, StudyPaths(plan.folder).hpc_outputs)
        before = dict(_look(shared, own))
        began, began_at = time.monotonic(), time.time()
        try:
            with (
                _Watcher(plan.folder) as watcher,
                try_study(machine, plan, Reporter(), How(sample=1)) as outcome,
            ):
                seconds, ended, ending, problem = _ending(outcome.paths, limit_s)
        except WindlassError as error:
            return TriedTrial(time.monotonic() - began, True, "", f"could not be started: {error}")
        after = dict(_look(shared, own))
        fresh = [path for path, what in after.items() if before.get(path) != what]
        elsewhere = find_newer(scratch, began_at, (*shared, *own)) if scratch else {}
        fresh += list(elsewhere)
        size = sum(after[path][0] if path in after else elsewhere[path] for path in fresh)
        return TriedTrial(
            seconds, ended, ending, problem, tuple(fresh), size, watcher.written_bytes
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _ending(paths: StudyPaths, limit_s: float) -> tuple[float, bool, str, str]:
    """How the trial ended: its seconds, whether it ended by itself, how, and what was wrong with it."""
    with open_index(paths) as index:
        states = (State.DONE, State.FAILED, State.INTERRUPTED, State.CANCELLED)
        records = [
            record
            for number in index.numbers(states)
            for record in index.records(range(number, number + 1))
        ]
        notes = [note.text for note in index.notes()]
    if not records:
        return 0.0, True, "", f"could not be started: {notes[-1] if notes else 'nobody knows why'}"
    record = records[0]
    seconds = record.duration_s or 0.0
    note = f"; {record.note}" if record.note else ""
    if record.state is State.DONE:
        return seconds, True, f"is done after {render_duration(seconds)}{note}", ""
    if record.cause == Cause.TIME.value:
        return seconds, False, f"went on well for {render_limit(limit_s)}{note}", ""
    if record.cause == Cause.DIVERGED.value:
        return seconds, True, "", f"{_DIVERGED} after {render_duration(seconds)}: {record.note}"
    code = f" (exit code {record.exit_code})" if record.exit_code else ""
    return (
        seconds,
        True,
        "",
        f"ended badly after {render_duration(seconds)}: {record.cause}{code}{_last_words(paths)}",
    )


def _last_words(paths: StudyPaths) -> str:
    """The last line that it printed."""
    for name in sorted(os.listdir(paths.output)):
        if name.endswith(".log"):
            with open(os.path.join(paths.output, name), "rb") as file:
                lines = [
                    line
                    for line in file.read()[-4000:].decode("utf-8", "replace").splitlines()
                    if line.strip()
                ]
            if lines:
                return f": {lines[-1][:200]}"
    return ""


class _Watcher:
    """Adds up what the processes of a trial write, as the kernel counts it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._written: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            for pid in find_strays("WINDLASS_FOLDER", self._folder):
                self._written[pid] = max(self._written.get(pid, 0), _bytes_written(pid))

    def __enter__(self) -> _Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def written_bytes(self) -> int:
        return sum(self._written.values())


def _bytes_written(pid: int) -> int:
    """The bytes that a process has written to disks; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            lines: Mapping[str, str] = dict(line.split(": ") for line in file.read().splitlines())
        return int(lines["write_bytes"])
    except (OSError, ValueError, KeyError):
        return 0


def find_newer(top: str, since: float, but: tuple[str, ...] = ()) -> dict[str, int]:
    """Files below `top`, outside of the folders `but`, that were made or changed since then: path → size.

    A new file changes the time of its folder, so only such folders are read file by file. The search ends after a few
    seconds: a scratch may hold millions of folders.
    """
    skipped = {os.path.realpath(folder) for folder in but}
    until = time.monotonic() + _SEARCH_S
    found: dict[str, int] = {}
    waiting = [os.path.realpath(top)]
    while waiting and time.monotonic() < until and len(found) < _MOST_FILES:
        folder = waiting.pop()
        if folder in skipped or os.path.basename(folder) in _PASSED_OVER:
            continue
        try:
            changed = os.stat(folder).st_mtime >= since
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif changed and entry.stat(follow_symlinks=False).st_ctime >= since:
                        found[entry.path] = entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return found


def _look(folders: tuple[str, ...], own: tuple[str, ...]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Size and time of the files in these folders, without our own; of very many, the first."""
    count = 0
    for top in dict.fromkeys(os.path.realpath(folder) for folder in folders):
        for folder, below, names in os.walk(top):
            below[:] = [
                name
                for name in below
                if name not in _PASSED_OVER and os.path.join(folder, name) not in own
            ]
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.lstat(path)
                except OSError:
                    continue
                yield path, (status.st_size, status.st_mtime_ns)
                count += 1
                if count >= _MOST_FILES:
                    return
