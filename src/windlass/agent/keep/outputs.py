"""Keeps the files that a study wants to keep, on every way out of a trial. Python 3.9, standard library."""

from __future__ import annotations

import errno
import json
import math
import os
import queue
import stat
import threading
import time
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from windlass.agent.child import Trial
from windlass.agent.keep.finder import Finder, Found, Place, State, with_folders
from windlass.agent.keep.trial_folder import TrialFolders
from windlass.core.counted import counted
from windlass.core.files import write_whole
from windlass.core.journal.kept import LEFT_BEHIND, KeptFile, KeptWriter, copy_large, has_holes
from windlass.core.journal.write import is_full
from windlass.core.openness import statuses_above
from windlass.core.passing import passing_error
from windlass.core.paths import StudyPaths

SMALL_BYTES = 4 << 20  # files up to this size go into the agent's archive
LEFT_BEHIND_BYTES = 100 << 20
MARK = ".windlass-job"  # in a local folder that we made: whose it is
DESCRIPTION, UNSAFE, MANIFEST = ".windlass-outputs.json", ".windlass-unsafe", ".windlass-manifest"
_AT_ONCE_BYTES = 64 << 20  # a trial with more is left to a thread, so that no slot waits for it
_SYNC_S = 1.0
_LITTER = ("__pycache__", ".git", ".windlass")
_MOST_LEFT_BEHIND = 10_000  # files an agent


Signatures = Dict[str, Tuple[int, int]]  # name of an output → size and time


_PATIENCE_S = 120.0  # for a folder that gives errors which may pass


class _Keeping:
    """The files of one attempt on their way."""

    def __init__(self, trial: Trial, found: Found, left: Found, when: float) -> None:
        self.trial = trial
        self.found = found
        self.left = left  # what it wrote in its folder and no pattern names
        self.when = when
        self.done = False
        self.lost: List[str] = []  # paths that could not be kept
        self.why = ""
        self.full = False  # for want of room
        self.note = ""
        self.missing: List[str] = []  # patterns that none of its files matches
        self.begun = False  # to be copied
        self.first = time.monotonic()  # when that was tried first
        self.may_pass = False  # what keeps some from being copied


class Settled(NamedTuple):
    """What became of the files of one attempt."""

    note: str
    missing: List[str]  # patterns that nothing matched which the attempt wrote
    is_unsafe: bool  # some could not be kept
    is_lost: bool  # and are lost with the job


class OutputKeeper:
    """Copies what trials leave into the study's folder: small files into one archive, large ones under their names.

    What was copied is then removed from the trial's folder; a folder with something that could not be copied is set
    aside in the job's local folder, which stays until somebody has copied it.
    """

    def __init__(
        self,
        finder: Finder,
        paths: StudyPaths,
        agent: str,
        local: str,
        keeps_rest: bool = True,
        node: str = "",
    ) -> None:
        """`local` is the job's own folder, where there is one. `keeps_rest`: also keep files that no pattern names.

        `node` is the name of this node where it is not the agent's own.
        """
        self.notes: List[str] = []  # about the agent as a whole
        self.full = False  # something could not be kept for want of room
        self._finder = finder
        self._paths = paths
        self._name = agent
        self._local = local
        self._keeps_rest = keeps_rest
        self._node = node
        self._writer = KeptWriter(paths.outputs, f"{agent}-{node}" if node else agent)
        self._lock = threading.Lock()  # of the writer
        self._keeping: Dict[int, _Keeping] = {}
        self._before: Dict[int, State] = {}  # attempt → files outside of its folder when it began
        self._queue: "queue.SimpleQueue[_Keeping]" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._synced = time.monotonic()
        self._described = False
        self._spared: Dict[Tuple[str, str], float] = {}
        # Path → what was kept of it, and for which trial.
        self._outside: Dict[str, Tuple[Tuple[int, int], str]] = {}
        self._left_bytes = self._left_count = 0
        self._left_over: List[str] = []  # beyond the limits

    def begin(self, number: int, trial: Trial, variables: Mapping[bytes, bytes]) -> None:
        """Attempt `number` is about to begin: whatever lies outside of its folder now is not its own."""
        self._before[number] = self._finder.look_outside(trial, variables)

    def describe(self, folders: TrialFolders, slot: int) -> None:
        """Write down in the job's folder what somebody else has to know to keep its outputs should we be killed."""
        if self._described or not os.path.isdir(self._local):
            return
        self._described = True
        with open(os.path.join(self._local, MANIFEST), "w", encoding="utf-8") as file:
            json.dump(folders.manifest(slot), file)
        description = {
            "study": self._paths.folder,
            "agent": self._name,
            "patterns": self._finder.patterns,
        }
        description["node"] = self._node
        write_whole(
            os.path.join(self._local, DESCRIPTION), json.dumps({**description, **folders.to_json()})
        )

    def safe(
        self,
        number: int,
        trial: Trial,
        variables: Mapping[bytes, bytes],
        place: Callable[[], Place],
    ) -> bool:
        """Whether all that attempt `number` leaves is settled; the first call begins with it. False: ask again."""
        keeping = self._keeping.get(number)
        if keeping is None:
            keeping = self._keeping[number] = self._look(number, trial, variables, place())
        if not keeping.begun:
            keeping.begun = True
            if sum(_size(path) for path in keeping.found.values()) <= _AT_ONCE_BYTES:
                self._keep(keeping)
            else:
                self._leave_to_thread(keeping)
        return keeping.done

    def look(
        self, number: int, trial: Trial, variables: Mapping[bytes, bytes], place: Place
    ) -> Tuple[Signatures, List[str]]:
        """The files that attempt `number` leaves, and patterns that none matches. `safe` keeps the files."""
        self._keeping[number] = self._look(number, trial, variables, place)
        return self.signatures(number), self._keeping[number].missing

    def signatures(self, number: int) -> Signatures:
        """What tells the files of an attempt from those that it leaves on other nodes."""
        found = self._keeping[number].found
        return {name: (_size(path), _modified(path)) for name, path in found.items()}

    def adapt(self, number: int, twice: List[str], same: List[str]) -> None:
        """Other nodes have files of these names: others, or the very `same` ones, on a disk that the nodes share."""
        found = self._keeping[number].found
        for name in twice:
            found[os.path.join(self._node, name)] = found.pop(name)
        for name in same:
            del found[name]

    def _look(
        self, number: int, trial: Trial, variables: Mapping[bytes, bytes], place: Place
    ) -> _Keeping:
        found, missing = self._finder.find(trial, variables, place, self._before.pop(number, {}))
        shared = self._drop_others(found, place, trial)
        keeping = _Keeping(trial, found, self._left_behind(trial, found, place), time.time())
        keeping.missing, keeping.note = missing, shared
        return keeping

    def _drop_others(self, found: Found, place: Place, trial: Trial) -> str:
        """A file outside of working folders is kept once. Returns a note on those that were kept for other trials."""
        note = ""
        for name, path in list(found.items()):
            if path in place.written or path in place.made:
                continue
            what = (_size(path), _modified(path))
            kept, other = self._outside.get(path, (None, ""))
            if kept == what and other != trial.id:
                del found[name]
                note = (
                    f"outputs: {path} was kept for trial {other} already; with {{trial_id}} in its name, or written "
                    "to a relative path, each trial has its own"
                )
            else:
                self._outside[path] = (what, trial.id)
        return note

    def _left_behind(self, trial: Trial, found: Found, place: Place) -> Found:
        """What the trial wrote in its folder and no pattern names, up to the limits of an agent."""
        left: Found = {}
        if not self._keeps_rest:
            return left
        named = set(found.values())
        for path in sorted(place.written - named):
            name = os.path.relpath(path, place.project)
            size = _size(path)
            if set(name.split(os.sep)) & set(_LITTER) or os.path.basename(name).startswith(".nfs"):
                continue
            if self._left_bytes + size > LEFT_BEHIND_BYTES or self._left_count >= _MOST_LEFT_BEHIND:
                self._left_over.append(f"{trial.id}/{name}")
                continue
            self._left_bytes += size
            self._left_count += 1
            left[os.path.join(trial.id, self._node, name)] = path
        return left

    def settle(self, number: int) -> Settled:
        """What became of an attempt's outputs, once they are safe or cannot be kept. It is forgotten here."""
        keeping = self._keeping.pop(number)
        self.full = self.full or keeping.full
        return Settled(
            keeping.note, keeping.missing, bool(keeping.lost), self._will_vanish(keeping)
        )

    def _will_vanish(self, keeping: _Keeping) -> bool:
        """The site's own folder goes with the job; one of ours stays for as long as there is something in it."""
        ours = os.path.exists(os.path.join(self._local, MARK))
        return (
            bool(self._local)
            and not ours
            and any(path.startswith(self._local + "/") for path in keeping.lost)
        )

    def remember_unsafe(self, trial: Trial, project: str) -> None:
        """Some outputs of a trial could not be kept: they are in `project`, its folder, which was set aside."""
        if not os.path.isdir(self._local):
            return
        try:
            with open(os.path.join(self._local, UNSAFE), "a", encoding="ascii") as file:
                file.write(json.dumps([trial.number, project]) + "\n")
        except OSError:
            pass  # the folder stays in any case: nothing in it is known to be safe

    def salvage(self, trial: Trial, place: Place, when: float) -> str:
        """Keep what a trial of a dead agent left in its folder. Returns what went wrong."""
        variables = {
            b"WINDLASS_TRIAL": trial.id.encode(),
            b"WINDLASS_TRIAL_NUMBER": b"%d" % trial.number,
        }
        variables[b"source_dir"] = os.fsencode(place.project)
        found, _ = self._finder.find(trial, variables, place, {})
        keeping = _Keeping(trial, found, self._left_behind(trial, found, place), when)
        keeping.first = -math.inf  # whoever comes next tries again
        self._keep(keeping)
        return keeping.note if keeping.lost else ""

    def spare(self, files: Iterable[KeptFile]) -> None:
        """Files of these names are not kept again if the ones kept are newer."""
        for file in files:
            self._spared[file.trial, file.path] = file.time

    def _leave_to_thread(self, keeping: _Keeping) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        self._queue.put(keeping)

    def _work(self) -> None:
        while True:
            self._keep(self._queue.get())

    def _keep(self, keeping: _Keeping) -> None:
        everything = [(keeping.trial.id, name, path) for name, path in keeping.found.items()]
        everything += [(LEFT_BEHIND, name, path) for name, path in keeping.left.items()]
        together = with_folders(keeping.found.values()), with_folders(keeping.left.values())
        for trial, name, path in everything:
            try:
                self._keep_one(trial, name, path, keeping.when, together[trial == LEFT_BEHIND])
            except OSError as error:
                if error.errno == errno.ENOENT and not os.path.lexists(path):
                    continue  # a temporary file that was renamed or removed meanwhile
                keeping.lost.append(path)
                keeping.why = keeping.why or (error.strerror or str(error))
                keeping.full = keeping.full or is_full(error)
                keeping.may_pass = keeping.may_pass or passing_error(error) is not None
        self._sync_now_and_then(keeping)
        if keeping.lost and keeping.may_pass and time.monotonic() - keeping.first < _PATIENCE_S:
            with self._lock:
                self._writer.reopen()
            keeping.lost, keeping.why, keeping.may_pass = [], "", False
            keeping.begun = False  # all of it is tried again
            return
        if keeping.lost:
            keeping.note = self._describe_lost(keeping)
        keeping.done = True

    def _keep_one(self, trial: str, name: str, path: str, when: float, together: Set[str]) -> None:
        """Keep a file, a link or an empty folder as what it is. `together` is what is kept with it."""
        status = os.lstat(path)
        if self._spared.get((trial, name), 0.0) >= when:
            return
        if stat.S_ISLNK(status.st_mode) and _stays_link(path, together):
            with self._lock:
                self._writer.add_link(trial, name, os.readlink(path), status, when)
        elif stat.S_ISDIR(status.st_mode):
            with self._lock:
                self._writer.add_folder(trial, name, status, when)
        elif os.path.isfile(path):
            self._keep_file(trial, name, path, when)

    def _keep_file(self, trial: str, name: str, path: str, when: float) -> None:
        status = os.stat(path)
        above = statuses_above(path, os.path.normpath(name).count(os.sep))
        if status.st_size > SMALL_BYTES:
            copied = copy_large(path, os.path.join(self._paths.outputs, trial, name), above)
            with self._lock:
                self._writer.add_copied(trial, name, copied.status, when, copied.checksum)
        else:
            data, status, is_sparse = _read_whole(path)
            with self._lock:
                self._writer.add(trial, name, data, status, when, is_sparse, above)

    def _sync_now_and_then(self, keeping: _Keeping) -> None:
        """On the disk before the end of the trial is; for very short trials once a second is enough."""
        if keeping.found and time.monotonic() - self._synced > _SYNC_S:
            problem = self.sync()
            if problem is not None:
                keeping.lost, keeping.why = (
                    list(keeping.found.values()),
                    problem.strerror or str(problem),
                )
                keeping.may_pass = passing_error(problem) is not None

    def sync(self) -> Optional[OSError]:
        """Returns what went wrong."""
        self._synced = time.monotonic()
        try:
            with self._lock:
                self._writer.sync()
        except OSError as error:
            return error
        return None

    def _describe_lost(self, keeping: _Keeping) -> str:
        where = f"still on {os.uname().nodename}"
        if self._will_vanish(keeping):
            where = "the trial has to be executed again"
        first = keeping.lost[0]
        more = f" and {len(keeping.lost) - 1} more" if len(keeping.lost) > 1 else ""
        return f"outputs: {first}{more} could not be kept: {keeping.why}; {where}"

    def close(self) -> bool:
        """Returns whether all that was kept has reached the disk."""
        while self._thread is not None and any(
            keeping.begun and not keeping.done for keeping in self._keeping.values()
        ):
            time.sleep(0.02)
        if self._left_count:
            files = counted(self._left_count, "file")
            self.notes.append(
                f"trials wrote {files} in their working folders that no pattern of `outputs:` names; "
                f"kept as {LEFT_BEHIND} (`windlass outputs {LEFT_BEHIND}`); name what you want under outputs:"
            )
        if self._left_over:
            files = counted(len(self._left_over), "file was", "files were")
            self.notes.append(
                f"{files} not kept that trials wrote in their working folders (more than "
                f"{LEFT_BEHIND_BYTES >> 20} MB or {_MOST_LEFT_BEHIND} files): {', '.join(self._left_over[:3])}; "
                "name them under outputs:"
            )
        try:
            with self._lock:
                self._writer.close()
        except OSError as error:
            self.notes.append(
                f"outputs: the last ones may not have reached the disk: {error.strerror}"
            )
            return False
        return True


def _modified(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _stays_link(path: str, together: Set[str]) -> bool:
    """Whether a link will lead to the same thing where it is taken out. Else the content of the file is kept."""
    target = os.readlink(path)
    if not os.path.isfile(path):
        return True  # it leads to a folder, or nowhere: there is no content to keep in its place
    return (
        not os.path.isabs(target)
        and os.path.normpath(os.path.join(os.path.dirname(path), target)) in together
    )


def _read_whole(path: str) -> Tuple[bytes, os.stat_result, bool]:
    """The content of a file as it was at one moment, as far as its size and time can tell; whether it has holes."""
    for _ in range(3):
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            data = file.read()
            after = os.fstat(file.fileno())
            is_sparse = has_holes(file.fileno(), after.st_size)
        if len(data) == after.st_size and before.st_mtime_ns == after.st_mtime_ns:
            break
    return data, after, is_sparse
