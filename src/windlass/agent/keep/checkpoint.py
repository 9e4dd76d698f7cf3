"""Where a trial's checkpoints are, which one it continues from, and the arguments that name it. Python 3.9."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import zlib
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Tuple

from windlass.agent.child import Trial
from windlass.agent.config import AgentConfig
from windlass.agent.keep.valid import find_damage, is_temporary
from windlass.core.errors import FolderError
from windlass.core.files import write_whole
from windlass.core.paths import StudyPaths

# Without a pattern of the study's own.
USUAL = tuple(
    f"*.{ending}"
    for ending in (
        "pt", "pth", "ckpt", "h5", "hdf5", "keras", "npz", "npy", "safetensors", "pkl", "pickle", "joblib", "msgpack",
        "eqx", "orbax", "state", "checkpoint", "zip",
    )
)  # fmt: skip
ASIDE = ".before-"  # behind the name of a folder of checkpoints that is not used any more, and before a date
# Behind the name of a folder whose checkpoints are another trial's, and before its id.
OF_ANOTHER = ".of-"
_SESSIONS = ".windlass-turns.json"
_OWNER = "trial"  # the key of that file which has the trial's id
_NO_SESSIONS: Dict[str, Any] = {"mark": None, "step": None, "idle": 0}
_VALIDATE_S = 300.0
_MARKS = ("{checkpoint}", "{checkpoint_dir}", "{resume}")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

Mark = Optional[List[Any]]  # of a checkpoint: name, time, size


class Checkpoints:
    """The checkpoints of a study's trials. Without `checkpoint:` in the study there is only a folder to name."""

    def __init__(self, config: AgentConfig, paths: StudyPaths, env: Mapping[str, str]) -> None:
        options: Dict[str, Any] = config.checkpoint or {}
        self.configured = config.checkpoint is not None
        self._env = env
        self._workdir = config.workdir
        self._patterns: Tuple[str, ...] = tuple(options.get("pattern") or USUAL)
        self._resume: List[str] = list(options.get("resume") or ())
        self._write: List[str] = list(options.get("write") or ())
        self._done: Optional[str] = options.get("done")
        self._validate: List[str] = list(options.get("validate") or ())
        self._keep: int = options.get("keep", 2)
        self._root = self._template = ""
        self._study = config.name
        self._own = ""
        if options.get("dir"):
            # Ids of trials are the same in two studies with the same command: each study has a folder of its own.
            self._own = f"{_one_name(config.name)}-{zlib.crc32(os.fsencode(paths.folder)):08x}"
            template = _expand(options["dir"], env)
            self._template = os.path.join(config.scratch_dir, template)
        else:
            self._root = paths.checkpoints + os.sep
        # Trials with a file about their sessions.
        self._begun = frozenset() if self.configured else _names_in(paths.checkpoints)

    def folder_of(self, trial: Trial) -> str:
        """A folder that no other trial has. Nothing is made."""
        if self._root:
            return self._root + trial.id
        path = self._template.replace("{trial_id}", trial.id)
        for name, value in trial.settings.items():
            path = path.replace("{" + name + "}", _one_name(value))
        path = path.replace("{study}", _one_name(self._study))
        return path if "{trial_id}" in self._template else os.path.join(path, self._own, trial.id)

    def claim_folder(self, trial: Trial) -> str:
        """See to it that a trial's folder has no checkpoints of another trial. Raises OSError.

        Folders may have been exchanged by hand, or put back in the wrong place. One of another trial is moved aside,
        and a text that says so is returned; "" where there is nothing to tell. The file that sessions write for each
        other has the trial's id. A folder without it, of an agent that was killed or of an earlier version, is taken
        for the trial's own. Nothing is written where there are no checkpoints: programs may expect an empty folder.
        """
        folder = self.folder_of(trial)
        owner = _read_owner(self._sessions_path(trial))
        if owner and owner != trial.id:
            aside = f"{folder}{OF_ANOTHER}{owner}-{time.strftime('%Y%m%d-%H%M%S')}"
            os.rename(folder, aside)
            return f"{folder} had checkpoints of another trial, {owner}; they are not used, and are now in {aside}"
        if not owner and self._candidates(folder):
            self._take_down(trial, _read_sessions(self._sessions_path(trial)) or {})
        return ""

    def forget(self, trial: Trial) -> None:
        """Nothing of what it has written is there any more: it will begin at its beginning."""
        shutil.rmtree(self.folder_of(trial), ignore_errors=True)

    # -- which one

    def _candidates(self, folder: str) -> List[str]:
        """The newest first. Of two of the same moment the later name is the newer one."""
        found = {}
        for pattern in self._patterns:
            for path in glob.glob(os.path.join(glob.escape(folder), pattern), recursive=True):
                if not is_temporary(path):
                    try:
                        found[path] = (os.stat(path).st_mtime_ns, path)
                    except OSError:
                        continue
        return sorted(found, key=lambda path: found[path], reverse=True)

    def newest(self, trial: Trial, note: Callable[[str], None]) -> str:
        """The newest whole checkpoint, or "". Damaged ones that are newer are reported."""
        for path in self._candidates(self.folder_of(trial)):
            damage = find_damage(path) or self._refused(path)
            if not damage:
                return path
            note(f"checkpoint {path} {damage}; the one before it is used, if there is one")
        return ""

    def written(self, trial: Trial) -> List[str]:
        """Checkpoints that look whole, the newest first."""
        return [path for path in self._candidates(self.folder_of(trial)) if not find_damage(path)]

    def _refused(self, path: str) -> str:
        """What the study's own command says of a checkpoint."""
        if not self._validate:
            return ""
        argv = [argument.replace("{checkpoint}", path) for argument in self._validate]
        try:
            done = subprocess.run(
                argv,
                cwd=self._workdir,
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_VALIDATE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"could not be validated within {_VALIDATE_S:g} s"
        except OSError as error:
            return f"could not be validated: {argv[0]}: {error.strerror}"
        return (
            f"was refused by `validate` with exit code {done.returncode}" if done.returncode else ""
        )

    def is_done(self, trial: Trial) -> str:
        """The file that says that the work is done; "" where there is none."""
        if not self._done:
            return ""
        pattern = os.path.join(
            glob.escape(self.folder_of(trial)), self._done.replace("{trial_id}", trial.id)
        )
        return next(iter(sorted(glob.glob(pattern))), "")

    @property
    def says_done(self) -> bool:
        return self._done is not None

    def prune(self, trial: Trial) -> None:
        """The work is done: of its checkpoints only the newest few stay, and nothing of what sessions took down."""
        self._end_series(trial)
        keep = self._keep if self.configured else 0
        for path in self._candidates(self.folder_of(trial))[keep:] if keep > 0 else ():
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                _remove(path)

    # -- arguments

    def fill_in(self, trial: Trial, stage: int, argv: List[str], checkpoint: str) -> List[str]:
        """The arguments of a stage with what is known of checkpoints put in, or added."""
        shell = argv[:2] == ["/bin/sh", "-c"] and len(argv) == 3
        replace = {"{checkpoint_dir}": self.folder_of(trial), "{checkpoint}": checkpoint}
        resume = _replaced(self._resume, replace) if checkpoint else []
        write = _replaced(self._write, replace)
        chosen = stage == self._stage_of(trial)
        if shell:
            return [*argv[:2], _fill_shell(argv[2], resume, write, chosen, replace)]
        filled: List[str] = []
        for argument in argv:
            if argument == "{resume}":
                filled += resume
            elif "{checkpoint}" in argument and not checkpoint:
                # As with a parameter that is not there: the argument goes, and the option it belongs to.
                if argument == "{checkpoint}" and filled and filled[-1].startswith("-"):
                    filled.pop()
            else:
                filled += _replaced([argument.replace("{resume}", shlex.join(resume))], replace)
        if chosen:
            filled += write
            filled += resume if "{resume}" not in argv else []
        return filled

    def _stage_of(self, trial: Trial) -> int:
        """Which stage gets the arguments: the one that speaks of checkpoints, or the first."""
        for number, (_, argv) in enumerate(trial.stages):
            if any(mark in argument for argument in argv for mark in _MARKS):
                return number
        return 0

    # -- progress

    def progress(self, trial: Trial, step: Optional[float]) -> int:
        """Take down what a turn has brought. Returns how many turns in a row have brought nothing."""
        mark = self.mark(trial)
        before = self._read(trial)
        higher = step is not None and (before["step"] is None or step > before["step"])
        moved = higher or (mark is not None and mark != before["mark"])
        best = step if higher else before["step"]
        idle: int = 0 if moved else before["idle"] + 1
        trial.sessions = {**before, "mark": mark, "step": best, "idle": idle}
        self._take_down(trial, trial.sessions)
        return idle

    def earlier(self, trial: Trial, checkpoint: str) -> Dict[str, Any]:
        """What is known of the sessions that an attempt goes on from: `spent_s`, and `m`, their metrics.

        An attempt goes on where it has a checkpoint, and where a session before it has asked for another one.
        """
        if not self.configured and trial.sessions is None and trial.id not in self._begun:
            return {}  # nearly all: no file is looked for
        trial.sessions = self._read(trial)
        return trial.sessions if checkpoint or trial.sessions.get("asked") else {}

    def carry(self, trial: Trial, asked: bool, spent_s: float, metrics: Mapping[str, Any]) -> None:
        """Take down for the next session how long all sessions took up to now, and their metrics."""
        if not (self.configured or asked or trial.sessions):
            return
        sessions = self._read(trial)
        asked = asked or bool(sessions.get("asked"))
        if asked or self._candidates(self.folder_of(trial)):
            trial.sessions = {
                **sessions,
                "asked": asked,
                "spent_s": round(spent_s, 3),
                "m": dict(metrics),
            }
            if asked:
                os.makedirs(self.folder_of(trial), exist_ok=True)
            self._take_down(trial, trial.sessions)

    def _end_series(self, trial: Trial) -> None:
        """The trial is done: what its sessions took down for each other is removed, but for the trial's id."""
        trial.sessions = None
        if self.configured and self._candidates(self.folder_of(trial)):
            self._take_down(trial, {})
            return
        _remove(self._sessions_path(trial))
        if not self.configured:
            try:
                # Which was made for that file alone, unless the trial wrote there.
                os.rmdir(self.folder_of(trial))
            except OSError:
                pass

    def put_back(self, trial: Trial, afresh: bool) -> str:
        """The user has put the trial back. Returns where its checkpoints are now, if they were moved. Raises OSError.

        `afresh`, the next attempt begins at the beginning. Else it goes on from a checkpoint, if there is one, and
        sessions without progress are counted anew.
        """
        folder = self.folder_of(trial)
        if not self.configured:
            self._end_series(trial)
        elif not afresh:
            sessions = _read_sessions(self._sessions_path(trial))
            if sessions is not None and sessions["idle"]:
                self._take_down(trial, {**sessions, "idle": 0})
        if not afresh or set(_names_in(folder)) <= {_SESSIONS}:
            if afresh:
                _remove(self._sessions_path(trial))
            return ""
        aside = folder + ASIDE + time.strftime("%Y%m%d-%H%M%S")
        while os.path.lexists(aside):
            aside += "x"
        os.rename(folder, aside)
        return aside

    def _take_down(self, trial: Trial, sessions: Mapping[str, Any]) -> None:
        _write_sessions(self._sessions_path(trial), {**sessions, _OWNER: trial.id})

    def _sessions_path(self, trial: Trial) -> str:
        return os.path.join(self.folder_of(trial), _SESSIONS)

    def _read(self, trial: Trial) -> Dict[str, Any]:
        sessions = _read_sessions(self._sessions_path(trial)) or {}
        is_own = sessions.get(_OWNER, trial.id) == trial.id
        return (sessions if is_own else None) or trial.sessions or _NO_SESSIONS

    def mark(self, trial: Trial) -> Mark:
        """What tells the newest whole checkpoint from any other."""
        path = self.newest(trial, lambda text: None)
        if not path:
            return None
        status = os.stat(path)
        return [os.path.basename(path), status.st_mtime_ns, status.st_size]


def _expand(text: str, env: Mapping[str, str]) -> str:
    """Variables and `~`, as they are on this node."""
    path = os.path.expanduser(
        _VARIABLE.sub(lambda match: env.get(match[1] or match[2], match[0]), text)
    )
    missing = _VARIABLE.search(path)
    if missing:
        raise FolderError(
            f"checkpoint: dir: {text}: {missing[0]} is not set on {os.uname().nodename}"
        )
    return path


def _one_name(value: Any) -> str:
    """A setting as part of a path; it never leads out of its folder."""
    name = (value if isinstance(value, str) else json.dumps(value)).replace(os.sep, "_")
    return "_" if name in (".", "..") else name


def _replaced(argv: List[str], replace: Mapping[str, str]) -> List[str]:
    # In one go: a path may itself hold what looks like a placeholder.
    pattern = re.compile("|".join(re.escape(mark) for mark in replace))
    return [pattern.sub(lambda match: replace[match[0]], argument) for argument in argv]


def _fill_shell(
    text: str, resume: List[str], write: List[str], chosen: bool, replace: Mapping[str, str]
) -> str:
    quoted = {mark: shlex.quote(path) if path else "" for mark, path in replace.items()}
    (filled,) = _replaced([text], {**quoted, "{resume}": shlex.join(resume)})
    added = (write if chosen else []) + (resume if chosen and "{resume}" not in text else [])
    return f"{filled} {shlex.join(added)}" if added else filled


def _read_sessions(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            sessions = json.load(file)
        return (
            sessions
            if isinstance(sessions, dict) and {"mark", "step", "idle"} <= set(sessions)
            else None
        )
    except (OSError, ValueError):
        return None


def _read_owner(path: str) -> str:
    """The id of the trial whose sessions wrote this file; "" where it is not known."""
    try:
        with open(path, encoding="utf-8") as file:
            owner = json.load(file)[_OWNER]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return owner if isinstance(owner, str) and re.fullmatch(r"\w{1,64}", owner) else ""


def _write_sessions(path: str, sessions: Dict[str, Any]) -> None:
    """Beside the checkpoints, where there are any: the next agent knows no more than what is there."""
    try:
        write_whole(path, json.dumps(sessions))
    except OSError:
        pass


def _names_in(folder: str) -> FrozenSet[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
