"""One attempt at a trial: the process, its pipes, its limits, and why it ended. Python 3.9, standard library."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from typing import Any, Dict, List, Mapping, Optional, Tuple

from windlass.agent.config import Slot
from windlass.agent.metrics import Curve, MetricBook
from windlass.agent.output import Stream
from windlass.states import Cause

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_TOKEN = re.compile(r"\{envvar:(\w+)\}")


class Trial:
    """A trial as the agent knows it: its number and its line of trials.jsonl."""

    __slots__ = ("id", "node_words", "number", "settings", "stages", "tried")

    def __init__(self, number: int, line: Mapping[str, Any]) -> None:
        self.number = number
        self.id: str = line["id"]
        self.settings: Dict[str, Any] = line["settings"]
        self.stages: List[Tuple[str, List[str]]] = line["stages"]
        # Whether its words have parts that only the node can fill in.
        self.node_words = any("{envvar:" in w or "{args_json_file}" in w for _, words in self.stages for w in words)
        self.tried: Dict[str, int] = {}  # cause → how often it ended so here


class Attempt:
    """A trial under way in a slot."""

    __slots__ = (
        "attempt", "book", "cause", "cpu_s", "curve", "deadline", "ended", "ends", "kill_at", "launched", "note", "pid",
        "rss_mb", "slot", "stage", "started", "started_wall", "status", "streams", "trial", "variables", "warm",
    )  # fmt: skip

    def __init__(self, trial: Trial, attempt: int, slot: Slot, now: float, wall: float) -> None:
        self.trial = trial
        self.attempt = attempt
        self.slot = slot
        self.stage = 0
        self.pid = 0
        self.started = now
        self.started_wall = wall
        self.ended = now
        self.deadline: Optional[float] = None  # when the time limit strikes
        self.kill_at: Optional[float] = None  # when a polite request turns into SIGKILL
        self.cause: Optional[Cause] = None  # set when it is us who end it
        self.ends: Dict[int, int] = {}  # open pipe → which stream comes out of it
        self.streams: Dict[int, Stream] = {}  # what came out so far
        self.launched = False
        self.book = MetricBook()
        self.curve = Curve()
        self.variables: Dict[str, str] = {}  # environment of its own
        self.status = 0
        self.rss_mb = 0.0
        self.cpu_s = 0.0
        self.note = ""
        self.warm = False

    def send(self, number: int) -> None:
        """Signal the whole process group; it is no error if it is gone."""
        if self.pid:
            try:
                os.killpg(self.pid, number)
            except OSError:
                pass


def trial_variables(trial: Trial, attempt: int, slot: Slot, settings_json: str, seed: Any) -> Dict[str, str]:
    """The environment that differs from trial to trial."""
    variables = {
        "WINDLASS_TRIAL": trial.id,
        "WINDLASS_TRIAL_NUMBER": str(trial.number),
        "WINDLASS_ATTEMPT": str(attempt),
        "WINDLASS_SLOT": str(slot.number),
        "WINDLASS_PARAMS": settings_json,
    }
    if seed is not None:
        variables["WINDLASS_SEED"] = str(seed)
    if slot.gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = slot.gpus
    return variables


def fill_in(words: List[str], env: Mapping[str, str], arguments_file: str) -> List[str]:
    """Replace what only the node knows: an environment variable, or the path of the file with the settings."""
    return [
        _TOKEN.sub(lambda match: env.get(match.group(1), ""), word).replace("{args_json_file}", arguments_file)
        for word in words
    ]


class Spawner:
    """Starts processes the quick way, and says what went wrong as a shell would."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._path = env.get("PATH", os.defpath)
        # Encoded once: turning some sixty variables into bytes for every trial would cost as much as all the rest.
        self._env = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        self._programs: Dict[str, str] = {}

    def spawn(self, words: List[str], variables: Mapping[str, str], out: int, err: int) -> int:
        """Start `words` in a process group of its own, with `variables` beside the rest. Raises OSError."""
        actions = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, err, 2),
        )
        env = self._env.copy()
        for name, value in variables.items():
            env[os.fsencode(name)] = os.fsencode(value)
        program = words[0] if os.sep in words[0] else self._find(words[0], variables.get("PATH", self._path))
        return os.posix_spawn(
            program, words, env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_DEFAULTED
        )

    def _find(self, program: str, path: str) -> str:
        found = self._programs.get(program) if path == self._path else None
        if found is None:
            found = shutil.which(program, path=path)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "command not found", program)
            if path == self._path:
                self._programs[program] = found
        return found


_DEFAULTED = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def explain_start_error(error: OSError, words: List[str]) -> Tuple[int, str]:
    """Exit code and message for a command that could not be started."""
    program = words[0] if words else ""
    if error.errno == errno.E2BIG:
        return NOT_EXECUTABLE, "windlass: the arguments and environment are too long for this system"
    if isinstance(error, FileNotFoundError):
        if os.path.exists(program):
            return NOT_FOUND, f"windlass: {program}: the interpreter named in its first line does not exist"
        return NOT_FOUND, f"windlass: {program}: command not found"
    if error.errno == errno.ENOEXEC:
        return NOT_EXECUTABLE, f"windlass: {program}: not a program; does its first line lack '#!'?"
    return NOT_EXECUTABLE, f"windlass: {program}: {error.strerror}"


def cause_of(status: int) -> Tuple[Cause, int, int]:
    """Cause, exit code and signal of a process that ended by itself."""
    if os.WIFSIGNALED(status):
        return Cause.KILLED, 0, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    return (Cause.DONE if code == 0 else Cause.FAILED), code, 0
