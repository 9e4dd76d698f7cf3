"""One attempt at a trial: the process, its pipes, its limits, and why it ended. Python 3.9, standard library."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from windlass.agent.config import Slot
from windlass.agent.report.metrics import Curve, MetricBook
from windlass.agent.report.output import Stream
from windlass.core.fill import fill_variables
from windlass.core.paths import NODE_VARIABLES, SHELLS
from windlass.core.states import Cause
from windlass.core.trust import as_given

NOT_FOUND, NOT_EXECUTABLE = 127, 126
SHARED_STEPS = ("SLURM_OVERLAP", "SLURM_TASK_PROLOG")  # options of srun in trials that share a job
_TOKEN = re.compile(r"\{envvar:(\w+)\}")
# A trial whose line has none of these needs nothing from the node.
_NODE_MARKS = (b"{envvar:", b"{args_json_file}", b"{config}", *(b"$" + name.encode() for name in NODE_VARIABLES),
               *(b"${" + name.encode() for name in NODE_VARIABLES))  # fmt: skip


class Trial:
    """A trial as the agent knows it: its number and its line of trials.jsonl."""

    __slots__ = (
        "has_node_parts",
        "id",
        "number",
        "round",
        "sessions",
        "settings",
        "settings_json",
        "stages",
        "stumbles",
        "tried",
        "written",
    )

    def __init__(self, number: int, line: bytes) -> None:
        fields = json.loads(line)
        self.number = number
        self.id: str = fields["id"]
        self.settings: Dict[str, Any] = fields["settings"]
        # Settings stand last in the line, and quotes inside arguments are escaped: this cuts out just their text.
        self.settings_json = line[line.index(b',"settings":') + 12 : -1]
        # Settings whose text in the command is not that of JSON: 1e-3 is 0.001 there.
        self.written: Dict[str, str] = fields.get("written") or {}
        self.stages: List[Tuple[str, List[str]]] = fields["stages"]
        # Whether its arguments have parts that only the node can fill in.
        self.has_node_parts = any(mark in line for mark in _NODE_MARKS)
        # What the last one has brought, where that is not kept on disk.
        self.sessions: Optional[Dict[str, Any]] = None
        # How often it came back to the list after it had ended; see `Register.rounds`.
        self.round = 0
        self.stumbles = 0  # starts that the file system prevented
        self.tried: Dict[str, int] = {}  # cause → how often it ended so here


_UNSEEN_S = 3.0  # the guard notices the end of a trial within this time, once the agent cannot look

NO_METRICS = MetricBook()  # shared by all that have reported none; never written to


class Attempt:
    """A trial under way in a slot."""

    __slots__ = (
        "attempt",
        "before_s",
        "book",
        "cause",
        "checkpoint",
        "cpu_s",
        "curve",
        "deadline",
        "ended",
        "ends",
        "gauge",
        "kill_at",
        "late_s",
        "launched",
        "left_processes",
        "lost_at",
        "note",
        "out_began",
        "out_s",
        "pid",
        "ranks",
        "remarks",
        "rss_mb",
        "seen_end",
        "signal_number",
        "slot",
        "stage",
        "stage_began",
        "stage_s",
        "started",
        "started_wall",
        "status",
        "straggling",
        "streams",
        "trial",
        "variables",
        "warm",
        "warned",
        "why",
        "workdir",
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
        self.stage_began = now
        self.stage_s: List[float] = []  # how long each stage took that has ended
        self.out_began: Optional[float] = None  # when its outputs began to be copied
        self.out_s: Optional[float] = None  # how long that took; None without outputs
        self.deadline: Optional[float] = None  # when the time limit strikes
        self.kill_at: Optional[float] = None  # when a polite request turns into SIGKILL
        self.cause: Optional[Cause] = None  # set where the agent ends it
        self.ends: Dict[int, int] = {}  # open pipe → which stream comes out of it
        self.streams: Dict[int, Stream] = {}  # what came out so far
        self.launched = False
        self.book = NO_METRICS  # a book of its own is made for the first metric
        self.curve: Optional[Curve] = None
        self.variables: Dict[bytes, bytes] = {}  # environment of its own
        self.gauge: Any = None  # an AttemptGauge, once there is something to measure
        self.status = 0
        self.rss_mb = 0.0
        self.cpu_s = 0.0
        self.note = ""  # what the agent found out about its end
        self.why = ""  # why it failed, in its own words
        self.ranks: Any = None  # what its ranks have reported (Ranks), with a launcher
        # When ranks that go on alone are ended, and the reason.
        self.straggling: Optional[Tuple[float, str]] = None
        self.remarks: List[str] = []  # what else there is to know about it
        self.warm = False
        # It was notified that the end is near; to end with 0 is to be done all the same.
        self.warned = False
        self.signal_number = 0  # of the signal that asked it to end; 0: none was sent
        self.checkpoint = ""  # what it continues from
        self.workdir = ""  # a folder of its own; "" is the agent's
        self.left_processes = False  # processes of its group outlived it
        self.seen_end: Optional[float] = None  # when the guard saw its process end
        self.late_s = 0.0  # by how much its end may have been earlier than is known
        # Since when other agents may have the trial; None: it is this agent's.
        self.lost_at: Optional[float] = None
        self.before_s = 0.0  # Seconds spent in earlier sessions, up to the checkpoint this attempt resumes from.

    def begin_stage(self) -> None:
        self.stage_began = time.monotonic()

    def note_end(self, seen: Optional[float], unseen_s: float) -> None:
        """Its process was reaped: the guard has seen it end, or nobody has looked for `unseen_s`."""
        self.seen_end = seen
        if seen is not None or unseen_s > _UNSEEN_S:
            self.late_s = unseen_s if seen is None else _UNSEEN_S

    def end_stage(self) -> None:
        self.ended, self.seen_end = self.seen_end or time.monotonic(), None
        self.stage_s = [*self.stage_s[: self.stage], self.ended - self.stage_began]

    def begin_out(self) -> None:
        self.out_began = self.out_began or time.monotonic()

    def end_out(self) -> None:
        self.out_s = time.monotonic() - (self.out_began or time.monotonic())

    def send(self, number: int) -> None:
        """Signal the whole process group; it is no error if it is gone."""
        if not self.pid:
            return
        for tell in (
            os.killpg,
            os.kill,
        ):  # a process just forked may not have a group of its own yet
            try:
                tell(self.pid, number)
                return
            except OSError:
                pass


def trial_variables(trial: Trial, attempt: int, slot: Slot, seed: Any) -> Dict[bytes, bytes]:
    """The environment that differs from trial to trial."""
    variables = {
        b"WINDLASS_TRIAL": trial.id.encode(),
        b"WINDLASS_TRIAL_NUMBER": b"%d" % trial.number,
        b"WINDLASS_ATTEMPT": b"%d" % attempt,
        b"WINDLASS_SLOT": b"%d" % slot.number,
        b"WINDLASS_PARAMS": trial.settings_json,
    }
    if seed is not None:
        variables[b"WINDLASS_SEED"] = str(seed).encode()
    if slot.gpus is not None:
        variables[b"CUDA_VISIBLE_DEVICES"] = slot.gpus.encode()
    variables.update(slot.variables)
    if b"CUDA_VISIBLE_DEVICES" in variables:
        # Slurm sets the other one anew in job steps.
        variables[b"WINDLASS_GPUS"] = variables[b"CUDA_VISIBLE_DEVICES"]
    return variables


def fill_in(argv: List[str], env: Mapping[str, str], files: Mapping[str, str]) -> List[str]:
    """Replace what only the node knows: environment variables, and the paths of files made for the trial."""
    filled = []
    for argument in argv:
        text = _TOKEN.sub(lambda match: env.get(match.group(1), ""), argument)
        for mark, path in files.items():
            text = text.replace(mark, path)
        filled.append(text)
    is_shell = os.path.basename(argv[0]) in SHELLS
    return filled if is_shell else [fill_variables(argument, env) for argument in filled]


def asks_slurm(argv: List[str]) -> bool:
    """Whether a command is a job step that asks Slurm for resources of its own."""
    return os.path.basename(argv[0]) == "srun" and any(
        argument.startswith(("--exact", "--exclusive")) for argument in argv
    )


class Spawner:
    """Starts processes the quick way, and says what went wrong as a shell would."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._path = env.get("PATH", os.defpath)
        # Encoded once: turning some sixty variables into bytes for every trial would cost as much as all the rest.
        self._env = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        self._programs: Dict[str, str] = {}

    def spawn(
        self,
        argv: List[str],
        variables: Mapping[bytes, bytes],
        out: int,
        err: int,
        workdir: str = "",
    ) -> int:
        """Start `argv` in `workdir`, with `variables` beside the rest, in a new process group. Raises OSError."""
        actions = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, err, 2),
        )
        env = {**self._env, **variables}
        if asks_slurm(argv):
            for name in SHARED_STEPS:
                env.pop(name.encode(), None)
        program = argv[0]
        if os.sep not in program:
            own_path = variables.get(b"PATH")
            program = self._find(program, self._path if own_path is None else os.fsdecode(own_path))
        # The new process begins where we are: posix_spawn has no argument for another folder.
        back = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if workdir else -1
        try:
            if workdir:
                os.chdir(workdir)
            with as_given():
                return os.posix_spawn(
                    program,
                    argv,
                    env,
                    file_actions=actions,
                    setpgroup=0,
                    setsigmask=(),
                    setsigdef=_DEFAULTED,
                )
        finally:
            if workdir:
                os.fchdir(back)
                os.close(back)

    def _find(self, program: str, path: str) -> str:
        found = self._programs.get(program) if path == self._path else None
        if found is None:
            found = shutil.which(program, path=path)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "command not found", program)
            if path == self._path:
                self._programs[program] = found
        return found


_DEFAULTED = (
    signal.SIGPIPE,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def explain_start_error(error: OSError, argv: List[str]) -> Tuple[int, str]:
    """Exit code and message for a command that could not be started."""
    program = argv[0] if argv else ""
    if error.errno == errno.E2BIG:
        return (
            NOT_EXECUTABLE,
            "windlass: the arguments and environment are too long for this system",
        )
    if isinstance(error, FileNotFoundError):
        if os.path.exists(program):
            return (
                NOT_FOUND,
                f"windlass: {program}: the interpreter named in its first line does not exist",
            )
        return NOT_FOUND, f"windlass: {program}: command not found"
    if error.errno == errno.ENOEXEC:
        return NOT_EXECUTABLE, f"windlass: {program}: not a program; does its first line lack '#!'?"
    return NOT_EXECUTABLE, f"windlass: {program}: {error.strerror}"


def cause_of(status: int) -> Tuple[Cause, int, int]:
    """Cause, exit code and signal of a process that ended by itself."""
    if status == 0:
        return Cause.DONE, 0, 0
    if os.WIFSIGNALED(status):
        return Cause.KILLED, 0, os.WTERMSIG(status)
    return Cause.FAILED, os.WEXITSTATUS(status), 0


def kill_group(group: int, number: int) -> bool:
    """Whether there was anybody in the group."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True
