"""Keeps the files that a study wants to keep, on every way out of a trial. Python 3.9, standard library."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import queue
import re
import stat
import threading
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from windlass.agent.child import Trial
from windlass.agent.config import AgentConfig
from windlass.journal.kept import LEFT_BEHIND, KeptFile, KeptWriter, copy_large
from windlass.journal.write import is_full
from windlass.paths import StudyPaths

SMALL_BYTES = 4 << 20  # files up to this size go into the agent's archive
LEFT_BEHIND_BYTES = 100 << 20
MARK = ".windlass-job"  # in a local folder that we made: whose it is
TOLD, UNSAFE, MANIFEST = ".windlass-outputs.json", ".windlass-unsafe", ".windlass-manifest"
_AT_ONCE_BYTES = 64 << 20  # a trial with more is left to a thread, so that no slot waits for it
_SYNC_S = 1.0
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_LITTER = ("__pycache__", ".git", ".windlass")
Found = Dict[str, str]  # name under which it is kept → path
Manifest = Dict[str, Tuple[int, int]]  # path → size and time


class Finder:
    """Finds the files that the patterns mean for one trial."""

    def __init__(self, patterns: List[str], workdir: str, env: Mapping[str, str]) -> None:
        self._env = env
        self.workdir = os.path.abspath(workdir)
        self._local = os.path.abspath(env["SLURM_TMPDIR"]) if env.get("SLURM_TMPDIR") else ""
        self.patterns = [_fill_variables(pattern, env) for pattern in patterns]

    def find(self, trial: Trial, variables: Mapping[bytes, bytes]) -> Tuple[Found, List[str]]:
        """The files, and the patterns that nothing matches."""
        own = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}
        found: Found = {}
        missing = []
        for pattern in self.patterns:
            paths: List[str] = []
            study = glob.escape(self._env.get("WINDLASS_STUDY", "{study}"))
            filled = [text.replace("{study}", study) for text in _fill_settings(_fill_variables(pattern, own), trial)]
            for text in filled:
                paths += glob.glob(os.path.join(glob.escape(self.workdir), text), recursive=True)
            if not paths:
                missing.append(filled[0])
            for path in paths:
                for file in _files_below(path):
                    self._name(os.path.abspath(file), found)
        return found, missing

    def _name(self, path: str, found: Found) -> None:
        """The same relative path as where it lies: in the working folder, or in the node's own."""
        name = path.lstrip("/")
        for root in (self.workdir, self._local):
            if root and path.startswith(root + "/"):
                name = os.path.relpath(path, root)
                break
        if found.get(name, path) != path:
            name = path.lstrip("/")
        found[name] = path


def _fill_variables(text: str, env: Mapping[str, str]) -> str:
    def value(match: "re.Match[str]") -> str:
        known = env.get(match.group(1) or match.group(2))
        return match.group(0) if known is None else glob.escape(known)

    return _VARIABLE.sub(value, text)


def _fill_settings(pattern: str, trial: Trial) -> List[str]:
    """The pattern with the trial's values, in each form that a value may have been written in."""
    texts = [pattern.replace("{trial_id}", trial.id)]
    for name, value in trial.settings.items():
        token = "{" + name + "}"
        if token in pattern:
            texts = [text.replace(token, glob.escape(form)) for text in texts for form in _forms(value, trial)]
    return texts


def _forms(value: Any, trial: Trial) -> List[str]:
    if isinstance(value, str):
        return [value]
    forms = [json.dumps(value, separators=(",", ":"), ensure_ascii=False), str(value)]
    if isinstance(value, float):
        # The command has it as the user wrote it: 1e-3, not 0.001.
        words = [word for _, stage in trial.stages for word in stage]
        forms = [text for word in words for text in _NUMBER.findall(word) if float(text) == value] + forms
    return list(dict.fromkeys(forms))


def _files_below(path: str) -> List[str]:
    """The file itself, or all files in the folder; links inside a folder are not followed to other folders."""
    if not os.path.isdir(path):
        return [path] if os.path.isfile(path) else []
    return [
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in names
        if os.path.isfile(os.path.join(folder, name))
    ]


class _Keeping:
    """The files of one attempt on their way."""

    def __init__(self, trial: Trial, found: Found, missing: List[str], when: float) -> None:
        self.trial = trial
        self.found = found
        self.when = when
        self.done = False
        self.lost: List[str] = []  # paths that could not be kept
        self.why = ""
        self.full = False  # for want of room
        self.note = f"outputs: nothing matched {', '.join(missing)}" if missing else ""


class OutputKeeper:
    """Copies what trials leave into the study's folder: small files into one archive, large ones under their names.

    Nothing is taken away from where it lies; what could not be copied is remembered in the job's local folder.
    """

    def __init__(
        self, finder: Finder, paths: StudyPaths, agent: str, local: str, code: str, rest: Optional[Manifest] = None
    ) -> None:
        """`local` is the job's own folder, where there is one, `code` the root of the agent's copy of the project.

        Whoever stands in for an agent that is gone gives `rest`, what that copy was at the beginning.
        """
        self.notes: List[str] = []  # about the agent as a whole
        self.full = False  # something could not be kept for want of room
        self._finder = finder
        self._paths = paths
        self._name = agent
        self._local = local
        self._code = code
        self._writer = KeptWriter(paths.outputs, agent if rest is None else f"{agent}-rest")
        self._lock = threading.Lock()  # of the writer
        self._keeping: Dict[int, _Keeping] = {}
        self._queue: "queue.SimpleQueue[_Keeping]" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._synced = time.monotonic()
        self._kept: Manifest = {}  # what is safe
        self._spared: Dict[Tuple[str, str], float] = {}
        self._known: Set[Tuple[str, int, float]] = set()  # path, size and time of what others have kept
        self._manifest = take_manifest(code) if code and rest is None else rest or {}

    @classmethod
    def of(cls, config: AgentConfig, paths: StudyPaths, agent: str, env: Mapping[str, str]) -> Optional["OutputKeeper"]:
        """None where there is nothing to look after."""
        code = config.project_dir if config.code is not None else ""
        if config.keep == "none" or not (config.outputs or code):
            return None
        keeper = cls(Finder(config.outputs, config.workdir, env), paths, agent, env.get("SLURM_TMPDIR", ""), code)
        keeper.describe()
        return keeper

    def describe(self) -> None:
        """Write down in the job's folder what somebody else has to know to keep its outputs should we be killed."""
        if not os.path.isdir(self._local):
            return
        told = {"study": self._paths.folder, "agent": self._name, "workdir": self._finder.workdir, "code": self._code}
        if self._code:
            with open(os.path.join(self._local, MANIFEST), "w", encoding="utf-8") as file:
                json.dump(self._manifest, file)
        partial = os.path.join(self._local, TOLD + ".new")
        with open(partial, "w", encoding="utf-8") as file:
            json.dump({**told, "patterns": self._finder.patterns}, file)
        os.replace(partial, os.path.join(self._local, TOLD))

    def safe(self, number: int, trial: Trial, variables: Mapping[bytes, bytes]) -> bool:
        """Whether all that attempt `number` leaves is settled; the first call begins with it. False: ask again."""
        keeping = self._keeping.get(number)
        if keeping is None:
            keeping = _Keeping(trial, *self._finder.find(trial, variables), when=time.time())
            self._keeping[number] = keeping
            if sum(_size(path) for path in keeping.found.values()) <= _AT_ONCE_BYTES:
                self._keep(keeping)
            else:
                self._leave_to_thread(keeping)
        return keeping.done

    def settle(self, number: int) -> Tuple[str, bool]:
        """What is to be said of an attempt whose outputs are settled, and whether they are lost with the job.

        It is forgotten here.
        """
        keeping = self._keeping.pop(number)
        self.full = self.full or keeping.full
        return keeping.note, self._will_vanish(keeping)

    def _will_vanish(self, keeping: _Keeping) -> bool:
        """The site's own folder goes with the job; one of ours stays for as long as there is something in it."""
        ours = os.path.exists(os.path.join(self._local, MARK))
        return bool(self._local) and not ours and any(path.startswith(self._local + "/") for path in keeping.lost)

    def salvage(self, trial: Trial, when: float) -> str:
        """Keep what a trial of a dead agent left. Returns what went wrong."""
        variables = {b"WINDLASS_TRIAL": trial.id.encode(), b"WINDLASS_TRIAL_NUMBER": b"%d" % trial.number}
        found, _ = self._finder.find(trial, variables)
        keeping = _Keeping(trial, found, [], when)
        self._keep(keeping)
        return keeping.note

    def spare(self, files: Iterable[KeptFile]) -> None:
        """Files of these names are not kept again if the ones kept are newer."""
        for file in files:
            self._spared[file.trial, file.path] = file.time
            self._known.add((file.path, file.size, round(file.modified, 3)))

    def _leave_to_thread(self, keeping: _Keeping) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        self._queue.put(keeping)

    def _work(self) -> None:
        while True:
            self._keep(self._queue.get())

    def _keep(self, keeping: _Keeping) -> None:
        for name, path in keeping.found.items():
            try:
                self._keep_file(keeping.trial.id, name, path, keeping.when)
            except OSError as error:
                if error.errno == errno.ENOENT and not os.path.exists(path):
                    continue  # a temporary file that was renamed or removed meanwhile
                keeping.lost.append(path)
                keeping.why = keeping.why or (error.strerror or str(error))
                keeping.full = keeping.full or is_full(error)
        self._sync_now_and_then(keeping)
        if keeping.lost:
            keeping.note = self._tell_lost(keeping)
        keeping.done = True

    def _keep_file(self, trial: str, name: str, path: str, when: float) -> None:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return
        if self._spared.get((trial, name), 0.0) >= when:
            self._kept[path] = (status.st_size, status.st_mtime_ns)
            return
        if status.st_size > SMALL_BYTES:
            copied = copy_large(path, os.path.join(self._paths.outputs, trial, name))
            with self._lock:
                self._writer.add_copied(trial, name, copied, when)
        else:
            data, status = _read_whole(path)
            with self._lock:
                self._writer.add(trial, name, data, status, when)
        self._kept[path] = (status.st_size, status.st_mtime_ns)

    def _sync_now_and_then(self, keeping: _Keeping) -> None:
        """On the disk before the end of the trial is; for very short trials once a second is enough."""
        if keeping.found and time.monotonic() - self._synced > _SYNC_S:
            problem = self.sync()
            if problem:
                keeping.lost, keeping.why = list(keeping.found.values()), problem

    def sync(self) -> str:
        """Returns what went wrong."""
        self._synced = time.monotonic()
        try:
            with self._lock:
                self._writer.sync()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _tell_lost(self, keeping: _Keeping) -> str:
        if os.path.isdir(self._local):
            try:
                with open(os.path.join(self._local, UNSAFE), "a", encoding="ascii") as file:
                    file.write(f"{keeping.trial.number}\n")
            except OSError:
                pass  # the folder stays in any case: nothing in it is known to be safe
        where = f"still on {os.uname().nodename}"
        if self._will_vanish(keeping):
            where = "the trial has to be executed again"
        first = keeping.lost[0]
        more = f" and {len(keeping.lost) - 1} more" if len(keeping.lost) > 1 else ""
        return f"outputs: {first}{more} could not be kept: {keeping.why}; {where}"

    def close(self, when: Optional[float] = None) -> bool:
        """Keep what else trials wrote in the agent's copy of the project. Returns whether all of it is safe."""
        well = True
        while self._thread is not None and not all(keeping.done for keeping in self._keeping.values()):
            time.sleep(0.02)
        if self._code:
            well = self._keep_left_behind(time.time() if when is None else when)
        try:
            with self._lock:
                self._writer.close()
        except OSError as error:
            self.notes.append(f"outputs: the last ones may not have reached the disk: {error.strerror}")
            well = False
        if well and self._code:
            self._code = ""  # nobody needs to look there again
            with contextlib.suppress(OSError):
                self.describe()
        return well

    def _is_safe(self, name: str, what: Tuple[int, int]) -> bool:
        """Whether a file of the copy was kept as a trial's, by us or by the agent that we stand in for."""
        path = os.path.join(self._code, name)
        inside = os.path.relpath(path, self._finder.workdir)
        known = {(known_as, what[0], round(what[1] / 1e9, 3)) for known_as in (inside, f"{self._name}/{name}")}
        return self._kept.get(path) == what or bool(known & self._known)

    def _keep_left_behind(self, when: float) -> bool:
        """Files that are new in the copy of the project and that no pattern names."""
        fresh = [
            (name, (size, modified))
            for name, (size, modified) in take_manifest(self._code).items()
            if tuple(self._manifest.get(name, ())) != (size, modified)
        ]
        fresh = [(name, what) for name, what in fresh if not self._is_safe(name, what)]
        room, kept, lost = LEFT_BEHIND_BYTES, 0, []
        for name, (size, _) in sorted(fresh, key=lambda item: item[1][0]):
            room -= size
            try:
                if room < 0:
                    raise OSError(errno.EFBIG, f"more than {LEFT_BEHIND_BYTES >> 20} MB")
                self._keep_file(LEFT_BEHIND, f"{self._name}/{name}", os.path.join(self._code, name), when)
                kept += 1
            except OSError as error:
                lost.append((name, error))
        if kept:
            self.notes.append(
                f"trials wrote {kept} files in their working folder; they are kept, as {LEFT_BEHIND}; "
                "name what you want under outputs:"
            )
        if lost:
            names = ", ".join(name for name, _ in lost[:3])
            self.notes.append(
                f"{len(lost)} files that trials wrote in their working folder were not kept "
                f"({lost[0][1].strerror}): {names}; name them under outputs:"
            )
        return all(error.errno == errno.EFBIG for _, error in lost)


def take_manifest(root: str) -> Manifest:
    """Size and time of every file below a folder, without what interpreters leave there."""
    found: Manifest = {}
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(root, below)))
        except OSError:
            continue
        for entry in entries:
            name = os.path.join(below, entry.name)
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _LITTER:
                        pending.append(name)
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(".nfs"):
                    status = entry.stat(follow_symlinks=False)
                    found[name] = (status.st_size, status.st_mtime_ns)
            except OSError:
                continue
    return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _read_whole(path: str) -> Tuple[bytes, os.stat_result]:
    """The content of a file as it was at one moment, as far as its size and time can tell."""
    for _ in range(3):
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            data = file.read()
            after = os.fstat(file.fileno())
        if len(data) == after.st_size and before.st_mtime_ns == after.st_mtime_ns:
            break
    return data, after
