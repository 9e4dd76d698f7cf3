"""The process that trials are forked from: imports modules, starts trials on request and reports how they end.

Runs in the study's own interpreter (Python 3.9 and up, standard library). It imports little itself, has no threads, and
ends when the agent closes the socket. One line of JSON a message. The agent sends a token with three descriptors: what
to start, its stdout and its stderr. The server sends what `windlass.agent.warm.starts` reads as events.

With ``learn``, the first trial is forked with nothing imported and its imports are repeated here while it makes them.
Trials asked for meanwhile wait until there is nothing more to repeat: that is sooner than importing it all again.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import types
from importlib.machinery import all_suffixes

from windlass.agent.warm.child import Inheritance, Request, become, run_cold, run_warm
from windlass.agent.warm.load import Board, Follower, Loader, Unshareable
from windlass.core.hidden_file import write_hidden_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is slow to import, and this runs before every first trial
    from collections.abc import Callable
    from typing import Any, NoReturn

# Read once, by the interpreter or by C libraries when they are loaded: a trial that differs here must start cold.
_READ_ONCE = (
    *("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NUMEXPR_", "VECLIB_"),
    *("TORCH_", "PYTORCH_", "XLA_", "JAX_", "TF_"),
)
# A first trial that imported nothing for so long is taken to have imported what it needs.
_QUIET_S = 0.1
_POLL_S = 0.005
_LONGEST_POLL_S = 0.25
# Learning ends with the first trial that ends well, or after so many that did not.
_MOST_TEACHERS = 3
_MOST_RESTARTS = 12
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Job:
    """What a forked process has to do."""

    def __init__(
        self, request: Request, out: int, err: int, is_cold: bool, board: Board | None
    ) -> None:
        self.request = request
        self.out = out
        self.err = err
        self.is_cold = is_cold
        self.board = board


class Server:
    """`config` holds all that outlives a restart of the server in a fresh interpreter; see `_restart`."""

    def __init__(
        self, channel: socket.socket, config: dict[str, Any], chatter: int, started_with: set[str]
    ) -> None:
        self._channel = channel
        self._config = config
        self._started_with = started_with
        self._chatter = chatter
        self._environment = dict(os.environb)
        self._loader = Loader(chatter, config["excluded"])
        self._follower = Follower(self._loader)
        self._waiting: list[list[int]] = config["waiting"]  # [token, request, stdout, stderr]
        self._running: dict[int, int] = {
            int(process): token for process, token in config["running"].items()
        }
        self._boards: dict[int, Board] = {}
        self._ended_boards: list[tuple[Board, bool]] = []
        self._descriptors: list[int] = []
        self._text = b""
        self._is_importing = False
        self._last_news_s = time.monotonic()
        self._folders: dict[str, tuple[int, set[str]]] = {}
        self._module_count = 0
        self._imported_names: set[str] = set()
        self.inheritance = Inheritance({})
        self._wake, self._waker = os.pipe()

    def serve(self) -> Job:
        """Serve until the agent closes the socket, which ends the process. Returns only in forked processes."""
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, self._on_child)
        signal.siginterrupt(signal.SIGCHLD, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._load_first()
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            self._reap()
            self._learn()
            job = self._start_waiting()
            if job is not None:
                return job
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == self._wake:
                    self._drain()
                else:
                    self._receive()

    def own_descriptors(self) -> list[int]:
        """What a forked process must close."""
        mine = [self._channel.fileno(), self._wake, self._waker, self._chatter, *self._descriptors]
        return mine + [descriptor for request in self._waiting for descriptor in request[1:]]

    # Messages

    def send(self, event: str, **fields: Any) -> None:
        try:
            self._channel.sendall(json.dumps({"event": event, **fields}).encode() + b"\n")
        except OSError:
            os._exit(0)  # nobody is left to serve

    def _receive(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._channel, 65536, 250, _CLOSE_ON_EXEC)
        if not data:
            os._exit(0)
        self._descriptors += descriptors
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            request, out, err, *self._descriptors = self._descriptors
            self._waiting.append([int(line), request, out, err])

    def _patience_ms(self) -> float | None:
        if not self._boards:
            return None
        quiet_s = time.monotonic() - self._last_news_s
        return 1000 * min(max(_POLL_S, quiet_s / 10), _LONGEST_POLL_S)

    def _drain(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass

    # Importing

    def _load_first(self) -> None:
        """Import what the study names, or what an earlier agent learned with this very Python."""
        is_list = bool(self._config["named"])
        remembered = self._config.pop("remembered", None)
        if remembered and remembered["version"] == sys.version:
            self._config["modules"] += remembered["modules"]
            self._config["excluded"].update(remembered["excluded"])
            self._config["learn"] = False
        for name in self._config["modules"]:
            self._load_guarded(self._loader.load, name)
            if is_list and name in self._loader.failed:
                self._refuse(f"{name} cannot be imported: {self._loader.failed[name]}")
        if not self._config["is_ready"]:
            self._config["is_ready"] = True
            loaded = [name for name in self._config["modules"] if name in sys.modules]
            self.send("ready", modules=loaded, notes=self._notes())

    def _refuse(self, reason: str) -> NoReturn:
        """Only while the list is imported: no trial has been started yet."""
        self.send("refused", reason=reason)
        os._exit(0)

    def _load_guarded(self, load: Callable[[Any], None], what: Any) -> None:
        """Import; reap meanwhile; where the process is spoilt by it, start again without the module."""
        self._is_importing = True
        try:
            load(what)
        except Unshareable as trouble:
            if self._config["named"] and not trouble.is_output:
                self._refuse(str(trouble))
            else:
                self._restart(trouble)
        finally:
            self._is_importing = False

    def _notes(self) -> list[str]:
        notes = [
            f"{name} {why} on import, so each trial imports it"
            for name, why in self._config["excluded"].items()
        ]
        return notes + ([self._follower.note] if self._follower.note else [])

    def _restart(self, trouble: Unshareable) -> NoReturn:
        """Become a fresh interpreter that imports the same except one module. Trials go on as its children."""
        # From here on a trial that ends is left to the fresh one: what is reported of it now would be reported twice.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        config = self._config
        config["excluded"][trouble.module] = trouble.trouble
        config["restarts"] += 1
        names = dict.fromkeys([*config["modules"], *self._follower.learned])
        config["modules"] = [name for name in names if name not in config["excluded"]]
        if config["restarts"] > _MOST_RESTARTS:
            config.update(modules=[], learn=False)
        config["running"] = self._running
        config["waiting"] = self._waiting
        signal.set_wakeup_fd(-1)
        state = write_hidden_file(json.dumps(config).encode())
        kept = [
            self._channel.fileno(),
            state,
            *(fd for request in self._waiting for fd in request[1:]),
        ]
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        _, unseekable = os.pipe()
        os.dup2(unseekable, 1)
        os.dup2(unseekable, 2)
        command = [*config["command"], str(self._channel.fileno()), str(state)]
        os.execve(config["interpreter"], command, self._environment)

    # Learning

    def _learn(self) -> None:
        """Import what the first trials imported since the last look."""
        ended, self._ended_boards = self._ended_boards, []
        for board in [*self._boards.values(), *(board for board, _ in ended)]:
            lines = board.read()
            if lines:
                self._load_guarded(self._follower.follow, lines)
                self._last_news_s = time.monotonic()
        for _, is_done in ended:
            self._config["teachers"] += 1
            if self._config["learn"] and (is_done or self._config["teachers"] >= _MOST_TEACHERS):
                self._end_learning()

    def _end_learning(self) -> None:
        self._config["learn"] = False
        self._boards.clear()
        names = dict.fromkeys([*self._config["modules"], *self._follower.learned])
        loaded = [name for name in names if name in sys.modules]
        excluded = self._config["excluded"]
        self.send(
            "learned", modules=loaded, excluded=excluded, notes=self._notes(), version=sys.version
        )

    # Trials

    def _on_child(self, signal_number: int, frame: types.FrameType | None) -> None:
        if self._is_importing:  # otherwise the loop sees the wake-up at once
            self._reap()

    def _reap(self) -> None:
        for process in list(self._running):
            ended, status, usage = os.wait4(process, os.WNOHANG)
            if not ended:
                continue
            token = self._running.pop(process)
            if process in self._boards:
                self._ended_boards.append((self._boards.pop(process), status == 0))
            cpu_s = usage.ru_utime + usage.ru_stime
            self.send("ended", token=token, status=status, max_rss_kb=usage.ru_maxrss, cpu_s=cpu_s)

    def _may_start(self) -> bool:
        return not self._boards or time.monotonic() - self._last_news_s > _QUIET_S

    def _start_waiting(self) -> Job | None:
        while self._waiting and self._may_start():
            if _is_closed(self._channel):
                os._exit(0)  # the agent is gone: a trial started now would be a stray
            job = self._start(*self._waiting.pop(0))
            if job is not None:
                return job
        return None

    def _start(self, token: int, payload: int, out: int, err: int) -> Job | None:
        with open(payload, "rb") as file:
            file.seek(0)
            request = Request(file.read())
        self._settle()
        cold_because = self._cold_because(request)
        board = Board() if self._config["learn"] and not cold_because else None
        if board is not None:
            self._last_news_s = time.monotonic()
        process = os.fork()
        if process == 0:
            return Job(request, out, err, bool(cold_because), board)
        os.close(out)
        os.close(err)
        self._running[process] = token
        if board is not None:
            self._boards[process] = board
        self.send("started", token=token, pid=process, cold_because=cold_because)
        return None

    def _cold_because(self, request: Request) -> str:
        """Why this trial would see a difference to a cold start here; empty when it would not."""
        here, there = self._environment, request.environment
        for key in {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}:
            name = os.fsdecode(key)
            if name.startswith(_READ_ONCE) or name in self._loader.variables_read:
                return f"{name} is different for this trial"
        if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
            return ""
        shadowed = self._importable_names(request.script_folder()) & self._imported_names
        if shadowed:
            return f"{min(shadowed)} beside the script goes before the module of that name"
        return ""

    def _settle(self) -> None:
        """Take stock of what is imported, where that has changed."""
        if len(sys.modules) != self._module_count:
            self._module_count = len(sys.modules)
            self._loader.settle()
            self.inheritance = Inheritance(self._loader.environment_changes())
            # What a cold start would not have yet, and would look for beside the script first.
            names = {name for name in sys.modules if "." not in name} - self._started_with
            self._imported_names = {name for name in names if not _is_built_in(name)}

    def _importable_names(self, folder: str) -> set[str]:
        """What ``import`` finds in a folder. Remembered until the folder changes."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns
            if folder not in self._folders or self._folders[folder][0] != changed_ns:
                self._folders[folder] = changed_ns, _list_importable(folder)
        except OSError:
            return set()
        return self._folders[folder][1]


def _list_importable(folder: str) -> set[str]:
    names = set()
    suffixes = tuple(all_suffixes())
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffixes):
                names.add(entry.name.partition(".")[0])
            elif entry.is_dir() and os.path.exists(os.path.join(entry.path, "__init__.py")):
                names.add(entry.name)
    return names


def _is_built_in(name: str) -> bool:
    spec = getattr(sys.modules[name], "__spec__", None)
    return getattr(spec, "origin", None) in ("built-in", "frozen")


def _is_closed(channel: socket.socket) -> bool:
    poll = select.poll()
    poll.register(channel, 0)
    return bool(poll.poll(0))


def main(started_with: set[str]) -> None:
    """Serve on the socket and with the state whose descriptors the command line names."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    with open(int(sys.argv[2]), "rb") as file:
        config = json.load(file)
    channel.set_inheritable(False)
    chatter = write_hidden_file(b"")
    os.dup2(chatter, 1)
    os.dup2(chatter, 2)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    sys.argv[:] = [""]
    # Some modules take a __main__ without one for a notebook.
    sys.modules["__main__"].__file__ = config["script"]
    server = Server(channel, config, chatter, started_with)
    is_parent = os.getpid()
    try:
        job = server.serve()
    except Exception as error:
        if os.getpid() == is_parent:
            server.send("failed", reason=f"{type(error).__name__}: {error}")
        os._exit(70)
    become(job.request, job.out, job.err, mask)  # type: ignore[arg-type]
    for descriptor in [*server.own_descriptors(), job.out, job.err]:
        os.close(descriptor)
    channel.detach()
    if job.is_cold:
        run_cold(job.request)
    run_warm(job.request, server.inheritance, job.board)
