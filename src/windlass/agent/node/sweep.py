"""Removes the local folders of jobs that are gone, once what is to be kept of them is safe. Python 3.9.

A folder is ours to remove only if its name is one that we give, it and the mark inside are this user's, nobody holds
the mark's lock, and the job's agent is known to be dead.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from windlass.agent.child import Trial
from windlass.agent.keep.finder import Finder
from windlass.agent.keep.outputs import DESCRIPTION, MANIFEST, MARK, UNSAFE, OutputKeeper
from windlass.agent.keep.trial_folder import place_left
from windlass.core.claims.alive import identity, is_alive, same_kernel
from windlass.core.claims.strays import AGENT_VARIABLE, end_strays, find_strays
from windlass.core.errors import FolderError
from windlass.core.journal.events import Ended, Started, decode_event
from windlass.core.journal.kept import read_kept
from windlass.core.journal.read import JournalReader
from windlass.core.paths import StudyPaths, expand_node_path, user_name
from windlass.core.queue.ask import ask
from windlass.core.queue.gone import Gone, job_gone
from windlass.core.queue.queue import Queue, read_queue
from windlass.core.trialfile import TrialFile
from windlass.core.units import render_bytes

_NO_STUDY = "is not there"
# What is left of a study whose folder is gone stays for so long: a disk may come back.
_FORGOTTEN_S = 14 * 86400.0
_EMPTY_S = 86400.0  # an empty folder without a mark, of somebody who was killed while making it


class Mark:
    """Says whose a local folder is. Its lock is held for as long as the agent lives."""

    def __init__(self, folder: str, job: Optional[Mapping[str, Any]]) -> None:
        path = os.path.join(folder, MARK)
        self._file = open(path + ".new", "w", encoding="utf-8")  # noqa: SIM115
        with contextlib.suppress(
            OSError
        ):  # a file system without locks: the other signs have to do
            fcntl.flock(self._file, fcntl.LOCK_SH)
        owner = {
            "v": 1,
            "t": round(time.time(), 3),
            **identity(),
            "uid": os.getuid(),
            "job": job and dict(job),
        }
        json.dump(owner, self._file)
        self._file.flush()
        os.rename(path + ".new", path)

    def close(self) -> None:
        self._file.close()


def release_folder(folder: str) -> str:
    """Remove a local folder that nobody uses any more. Returns "", or why it is still there."""
    problem = salvage(folder)
    if not problem:
        # The mark goes last: what a kill leaves of the folder is found and removed by the next agent here.
        _remove(folder)
    return problem


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, DESCRIPTION))
    for name in _names(folder):
        path = os.path.join(folder, name)
        if name != MARK:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, onerror=_make_removable)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(path)
    shutil.rmtree(folder, ignore_errors=True)


def _make_removable(_: Any, path: str, __: Any) -> None:
    """A folder that was made read-only, as some datasets are."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


# -- what a dead agent did not get to keep


def salvage(folder: str) -> str:
    """Copy out what trials left here that is not safe yet. Returns "", or what stands in the way."""
    described = _read_json(os.path.join(folder, DESCRIPTION))
    if described is None:
        return ""
    paths = StudyPaths(described["study"])
    if not os.path.isdir(paths.folder):
        if time.time() - os.stat(folder).st_mtime > _FORGOTTEN_S:
            return ""  # the study was removed: nobody will come for what its trials left
        return f"the study's folder {paths.folder} {_NO_STUDY}"
    try:
        when = os.stat(paths.journal_of(described["agent"])).st_mtime
        trials = list(_unsafe_trials(folder, paths, described["agent"]))
        if not trials:
            return ""
        manifest = _read_json(os.path.join(folder, MANIFEST)) or {}
        finder = Finder(described["patterns"], {**os.environ, "SLURM_TMPDIR": folder})
        keeper = OutputKeeper(finder, paths, _name_rest(described), "")
        # What others have kept of the same trials since then counts for more.
        keeper.spare(read_kept(paths.outputs))
        problems = []
        for trial, slot, aside in trials:
            problem = keeper.salvage(trial, place_left(described, slot, aside, manifest), when)
            problems += [problem] if problem else []
        if not keeper.close():
            problems += keeper.notes
    except (OSError, ValueError, KeyError, IndexError, FolderError) as error:
        return f"{type(error).__name__}: {error}"
    return problems[0] if problems else ""


def _unsafe_trials(folder: str, paths: StudyPaths, agent: str) -> Iterator[Tuple[Trial, int, str]]:
    """Trials that had begun and not ended when the agent was gone, each with its slot; and those whose outputs found no
    room, each with where its folder was moved to.
    """
    unsafe = [(number, slot, "") for number, slot in sorted(_open_trials(paths, agent).items())]
    with contextlib.suppress(OSError), open(os.path.join(folder, UNSAFE), encoding="ascii") as file:
        unsafe += [
            (number, 0, aside)
            for number, aside in (json.loads(line) for line in file if line.endswith("\n"))
        ]
    if not unsafe:
        return
    file_of_trials = TrialFile(paths)
    try:
        for number, slot, aside in unsafe:
            yield Trial(number, file_of_trials.read_line(number)), slot, aside
    finally:
        file_of_trials.close()


def _open_trials(paths: StudyPaths, agent: str) -> Dict[int, int]:
    """Trials that an agent had under way at the end of its journal, and the slot of each."""
    begun: Dict[int, int] = {}
    reader = JournalReader(paths.journal_of(agent))
    while True:
        events = reader.read()
        if not events:
            return begun
        for event in map(decode_event, events):
            if isinstance(event, Started):
                begun[event.number] = event.fields.get("s", 0)
            elif isinstance(event, Ended):
                begun.pop(event.number, None)


def _read_json(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            owner = json.load(file)
        return owner if isinstance(owner, dict) else None
    except (OSError, ValueError):
        return None


# -- folders of the dead


class Swept:
    """What was found of one folder."""

    def __init__(self, path: str, what: str, why: str = "", size: int = 0) -> None:
        self.path = path
        self.what = what  # removed, dead (only looked at), kept, in use
        self.why = why
        self.size = size

    def to_json(self) -> Dict[str, Any]:
        return {"path": self.path, "what": self.what, "why": self.why, "bytes": self.size}


def sweep_dead(
    roots: Sequence[str], queue_file: str, say: Callable[[str], None], look: bool = False
) -> List[Swept]:
    """Remove what dead jobs left below the roots; with `look`, only say what would go."""
    found = []
    queue: List[Optional[Queue]] = []  # asked once, and only if needed

    def fetch_queue() -> Optional[Queue]:
        if not queue:
            queue.append(read_queue(queue_file, ask) if queue_file else None)
        return queue[0]

    for root in dict.fromkeys(os.path.realpath(root) for root in roots if root):
        for path in _candidates(root):
            try:
                swept = _sweep(path, fetch_queue, look)
            except OSError as error:
                swept = Swept(path, "kept", error.strerror or str(error))
            if swept is not None:
                found.append(swept)
                if swept.what == "removed":
                    say(
                        f"{os.uname().nodename}: removed {path}, which a dead job had left ({render_bytes(swept.size)})"
                    )
                elif swept.what == "kept" and not swept.why.endswith(_NO_STUDY):
                    say(f"{os.uname().nodename}: {path} of a dead job stays: {swept.why}")
    return found


def _candidates(root: str) -> List[str]:
    # Earlier versions used the name that the environment gave.
    names = {user_name(), os.environ.get("LOGNAME"), os.environ.get("USER")}
    user = "|".join(re.escape(name) for name in names if name)
    ours = re.compile(rf"(?:{user})_(?:\d+(?:_\d+){{1,2}}|local_\d+_\w+)(?:\.\d+)?\Z")
    found = []
    for name in sorted(_names(root)):
        path = os.path.join(root, name)
        if ours.match(name):
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                    found.append(path)
    return found


def _sweep(path: str, fetch_queue: Callable[[], Optional[Queue]], look: bool) -> Optional[Swept]:
    try:
        descriptor = os.open(os.path.join(path, MARK), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if not look and time.time() - os.lstat(path).st_mtime > _EMPTY_S:
            with contextlib.suppress(OSError):
                os.rmdir(path)  # only if it is empty
        return None
    with os.fdopen(descriptor, encoding="utf-8") as mark:
        if os.fstat(mark.fileno()).st_uid != os.getuid():
            return None
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Swept(path, "in use")
        try:
            owner = json.load(mark)
        except ValueError:
            return Swept(path, "kept", "its mark cannot be read")
        if not _is_dead(owner, fetch_queue):
            return Swept(path, "in use")
        return _clear(path, owner, look)


def _clear(path: str, owner: Mapping[str, Any], look: bool) -> Swept:
    size = _size_below(path)
    if look:
        return Swept(path, "dead", size=size)
    described = _read_json(os.path.join(path, DESCRIPTION))
    if described is not None and same_kernel(owner):
        end_strays(AGENT_VARIABLE, described["agent"])
    elif described is not None and find_strays(AGENT_VARIABLE, described["agent"]):
        return Swept(path, "in use")
    problem = release_folder(path)
    return Swept(path, "kept", problem, size) if problem else Swept(path, "removed", size=size)


def _name_rest(described: Mapping[str, Any]) -> str:
    """The archive for what a dead agent left on this node: others may be at work on the other nodes of its job."""
    return "-".join(filter(None, (described["agent"], described.get("node", ""), "rest")))


def _is_dead(owner: Mapping[str, Any], fetch_queue: Callable[[], Optional[Queue]]) -> bool:
    """Whether the agent that made the folder is gone for certain."""
    alive = is_alive(owner)
    if alive is not None:
        return not alive
    if owner.get("host") != os.uname().nodename or not owner.get("job"):
        return False  # a folder that several machines share: the others' are theirs
    queue = fetch_queue()
    if queue is None or queue.asked <= float(owner["t"]):
        return False
    # Nobody has its lock. A job that the scheduler lists no more does not run.
    job = owner["job"]
    is_listed = queue.row_of(job["array"], job["task"], job["id"]) is not None
    return job_gone(job, queue, float(owner["t"])) is Gone.YES or not is_listed


def _size_below(path: str) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def sweep_main(argv: Sequence[str]) -> int:
    """``agent.pyz --sweep ROOT… --queue FILE``: one line of JSON for each folder of ours."""
    parser = argparse.ArgumentParser(
        prog="windlass-agent", description="Removes local folders of dead jobs."
    )
    parser.add_argument(
        "--sweep", nargs="+", metavar="ROOT", required=True, help="where such folders are"
    )
    parser.add_argument("--queue", metavar="FILE", default="", help="the scheduler's last answer")
    parser.add_argument("--look", action="store_true", help="remove nothing")
    arguments = parser.parse_args(list(argv))
    roots = [*filter(None, map(expand_node_path, arguments.sweep)), tempfile.gettempdir()]
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    for swept in sweep_dead(roots, arguments.queue, lambda _: None, arguments.look):
        print(json.dumps({"node": node, **swept.to_json()}))
    print(json.dumps({"node": node, "what": "end"}))
    sys.stdout.flush()
    return 0
