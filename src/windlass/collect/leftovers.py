"""Finds what finished studies have left that nobody needs any more. Removes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from windlass.agent.keep.checkpoint import ASIDE
from windlass.collect.index import open_index
from windlass.collect.jobs import look_at_jobs
from windlass.collect.jobview import LIVE
from windlass.collect.look import agents_alive, read_register
from windlass.core.journal.records import AgentRecord
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_if_there
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import Queue, read_queue
from windlass.core.queue.states import ENDED
from windlass.core.states import State
from windlass.core.trialfile import TrialFile

DATA, ENVIRONMENTS, WHEELS = ".windlass-data", ".windlass-environments", ".windlass-wheels"
_PART = re.compile(r".*\.part-[^/]*\Z")
_JOB_OUTPUT = re.compile(r".*_(\d+)_(\d+)\.out\Z")


@dataclass(frozen=True)
class Leftover:
    """A file or folder that may go."""

    path: str
    what: str
    size: int
    files: int = 1


@dataclass(frozen=True)
class Wanted:
    """What is looked for beyond what is always a leftover."""

    checkpoints: bool = False
    data: bool = False
    environments: bool = False


@dataclass(frozen=True)
class Found:
    leftovers: tuple[Leftover, ...]
    spared: str = ""  # why the study was not looked at


def find_study_leftovers(paths: StudyPaths, wanted: Wanted) -> Found:
    """What of one study may go. Of a study with agents at work or in the queue: nothing."""
    with open_index(paths) as index:
        agents = index.agents()
        busy = _busy(paths, agents)
        if busy:
            return Found((), busy)
        done = sorted(index.numbers((State.DONE,))) if wanted.checkpoints else []
    paths_found = [
        *((path, "code that no plan names") for path in _old_code(paths)),
        *(
            (path, "room kept for an agent's last events")
            for path in _names(paths.journal, ".reserve")
        ),
        *((path, "half a copy") for path in _parts(paths.outputs)),
        *((path, "checkpoints of a trial that is done") for path in _checkpoints(paths, done)),
    ]
    return Found(tuple(weigh(path, what) for path, what in paths_found))


def _busy(paths: StudyPaths, agents: list[AgentRecord]) -> str:
    """Why nothing of this study may be removed now; "" where it may. Where nobody can tell, it may not."""
    if any(state is not False for state in agents_alive(paths, agents).values()):
        return "an agent is at work"
    view = look_at_jobs(paths, agents, accounting=False)
    if view is not None and not view.answered and any(not job.over for job in view.jobs):
        return "the scheduler does not answer, and it has had jobs"
    if view is not None and any(job.state in LIVE for job in view.jobs):
        return "it has jobs in the queue"
    return "a client is preparing it" if read_register(paths).preparer is not None else ""


def find_shared_leftovers(
    root: str, projects: Iterable[str], studies: Sequence[str], wanted: Wanted
) -> list[Leftover]:
    """What lies beside the studies of one root: empty logs of jobs that are over; archives that no study names."""
    named = [archive for study in studies for archive in _archives_of(StudyPaths(study))]
    found = [
        (path, "an empty log of a job that is over")
        for path in _empty_logs(StudyPaths(os.path.join(root, "x")))
    ]
    if wanted.data:
        for place in dict.fromkeys([root, *projects]):
            # What belongs to an archive has its name, and more behind it.
            found += [
                (path, "packed data that no study names")
                for path in _archives(place)
                if not any(os.path.realpath(path).startswith(archive) for archive in named)
            ]
    if wanted.environments:
        for folder in (ENVIRONMENTS, WHEELS):
            found += [
                (path, "built again when it is needed")
                for path in _names(os.path.join(root, folder), "")
            ]
    return [weigh(path, what) for path, what in found]


def _old_code(paths: StudyPaths) -> list[str]:
    """Archives of code that the plan does not name any more."""
    named = _archives_of(paths)
    archives = [
        path
        for path in _names(paths.folder, ".tar.gz")
        if os.path.basename(path).startswith("code-")
    ]
    return [path for path in archives if os.path.realpath(path) not in named]


def _checkpoints(paths: StudyPaths, done: Sequence[int]) -> list[str]:
    """The checkpoints of trials that are done, with those that were moved aside."""
    existing = _names(paths.checkpoints, "")
    if not existing or not done:
        return []
    trials = TrialFile(paths)
    try:
        ids = {str(trials.read(number)["id"]) for number in done}
        return [path for path in existing if os.path.basename(path).partition(ASIDE)[0] in ids]
    finally:
        trials.close()


def _parts(folder: str) -> list[str]:
    """Unfinished files that a killed process left behind."""
    return [
        os.path.join(path, name)
        for path, _, names in os.walk(folder)
        for name in names
        if _PART.match(name)
    ]


def _empty_logs(paths: StudyPaths) -> Iterator[str]:
    """Empty outputs of jobs that are certainly over."""
    empty = [
        path
        for path in _names(paths.hpc_outputs, ".out")
        if _JOB_OUTPUT.match(path) and not _size(path)
    ]
    if not empty:
        return
    queue = read_queue(paths.queue, ask)
    for path in empty:
        if queue is not None and _is_over(path, queue):
            yield path


def _is_over(path: str, queue: Queue) -> bool:
    found = _JOB_OUTPUT.match(path)
    assert found is not None
    row = queue.row_of(int(found[1]), int(found[2]))
    return row is None or row.state in ENDED


def _archives(place: str) -> list[str]:
    """Packed data in and below a folder, not deep: it lies beside the folder that was packed."""
    found = []
    for path, folders, _ in os.walk(place):
        if path[len(place) :].count(os.sep) >= 3:
            folders[:] = []
        if DATA in folders:
            files = _names(os.path.join(path, DATA), "")
            found += [
                file
                for file in files
                if os.path.isfile(file) and not os.path.basename(file).startswith(".")
            ]
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in ("node_modules", "venv")
        ]
    return found


def _names(folder: str, ending: str) -> list[str]:
    """The paths in a folder with this ending, sorted; none where the folder cannot be listed."""
    try:
        return [
            os.path.join(folder, name)
            for name in sorted(os.listdir(folder))
            if name.endswith(ending)
        ]
    except OSError:
        return []


def _archives_of(paths: StudyPaths) -> list[str]:
    """The archives that a study's plan names."""
    plan = read_plan_if_there(paths.plan)
    entries = [plan.code or {}, *(plan.data or [])]
    return [os.path.realpath(entry["archive"]) for entry in entries if entry.get("archive")]


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def weigh(path: str, what: str) -> Leftover:
    """A leftover with its size."""
    if not os.path.isdir(path) or os.path.islink(path):
        return Leftover(path, what, _size(path))
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return Leftover(path, what, sum(_size(file) for file in files), len(files))
