"""Warm starts, the agent's side: which commands are Python scripts, and the server their trials are forked from.

A trial started through a WarmServer is not a child of the agent: its end is reported by the server as an `Ended` event.
Python 3.9, standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
from collections import deque
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from windlass.agent.warm.command import PythonCommand, WarmRefused
from windlass.core.files import write_whole
from windlass.core.hidden_file import write_hidden_file
from windlass.core.trust import given_umask

# Where the interpreter starts; everything else is read from the two descriptors named behind it.
_BOOTSTRAP = """\
import sys
started_with = set(sys.modules)
if sys.path and sys.path[0] == "":
    del sys.path[0]
sys.path.insert(0, {agent_zip!r})
from windlass.agent.warm.server import main
del sys.path[0]
for name in [name for name in sys.modules if name.partition(".")[0] == "windlass"]:
    del sys.modules[name]
main(started_with)
"""
_MOST_REMEMBERED = 16  # scripts of one study


class Ready(NamedTuple):
    """The server has imported what it was asked to. Trials may be asked for before."""

    modules: Tuple[str, ...]
    notes: Tuple[str, ...]


class Refused(NamedTuple):
    """A module of the list must not be shared. No trial was started and none will be; `Gone` follows."""

    reason: str


class Started(NamedTuple):
    """A trial runs, in a session of its own. `cold_because` says why it did not start warm; empty when it did."""

    token: int
    pid: int
    cold_because: str


class Ended(NamedTuple):
    token: int
    status: int  # as from os.wait4
    max_rss_kb: int
    cpu_s: float


class Learned(NamedTuple):
    """What the first trials imported is now in the server, and remembered in the study's folder."""

    modules: Tuple[str, ...]
    notes: Tuple[str, ...]


class Gone(NamedTuple):
    """The server has ended. Tokens without `Started` were not started; others run on, and nobody reports their end."""

    reason: str


Event = Union[Ready, Refused, Started, Ended, Learned, Gone]


class WarmServer:
    """A process of the study's interpreter that trials are forked from.

    Never blocks, except in `close` for a second. Wait for `fileno()` to be readable, then call `read`. `spawn` may be
    called as soon as `start` has returned: what the server does not take yet waits here and in the socket.
    `modules` with `learn` False is the user's list: one that cannot be shared makes the server refuse. With `learn`,
    the server finds out itself, or uses what `learned_path` remembers of the same interpreter and script.
    """

    def __init__(
        self,
        command: PythonCommand,
        env: Mapping[str, str],
        modules: Sequence[str],
        learn: bool,
        agent_zip: str,
        learned_path: str,
        enter: Optional[Callable[[List[str]], List[str]]] = None,
    ) -> None:
        """`enter` puts a command into an environment that has an interpreter of its own, such as a container."""
        self._command = command
        self._env = dict(env)
        self.is_learning = False  # what trials import is not known yet
        self._modules = list(modules)
        self._learn = learn
        self._agent_zip = os.path.abspath(agent_zip)
        self._learned_path = learned_path
        self._enter = enter
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._channel: Optional[socket.socket] = None
        # What the interpreter prints before the server runs: why it did not.
        self._early_output = -1
        self._unsent: Deque[Tuple[bytes, List[int]]] = deque()
        self._text = b""
        self._failure = ""
        self._is_gone = False
        self.pid = 0

    def start(self) -> None:
        """Start the server in a session of its own. Raises WarmRefused when the interpreter cannot be started."""
        command = self._command
        bootstrap = _BOOTSTRAP.format(agent_zip=self._agent_zip)
        parts = [command.program, *command.flags, "-c", bootstrap]
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        config = write_hidden_file(json.dumps(self._config(parts)).encode())
        self._early_output, output = os.pipe()
        os.set_blocking(self._early_output, False)
        started = [*parts, str(theirs.fileno()), str(config)]
        if self._enter is not None:
            started = self._enter([command.interpreter, *started[1:]])
        try:
            self._process = subprocess.Popen(
                started,
                executable=command.interpreter if self._enter is None else None,
                cwd=command.cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                # A pipe, though nothing is read from it later: Python notes at start that stdout cannot seek.
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(), config),
                start_new_session=True,
                umask=given_umask(),
            )
        except OSError as error:
            self.close()
            raise WarmRefused(
                f"{command.interpreter} cannot be started: {error.strerror}"
            ) from None
        finally:
            theirs.close()
            os.close(config)
            os.close(output)
        self.pid = self._process.pid

    def _config(self, parts: List[str]) -> Dict[str, Any]:
        remembered = self._read_learned() if self._learn else None
        self.is_learning = self._learn and remembered is None
        return {
            "command": parts,
            "interpreter": self._command.interpreter,
            "script": os.path.join(self._command.cwd, self._command.target),
            "named": not self._learn,
            "learn": self._learn,
            "modules": self._modules,
            "remembered": remembered,
            "excluded": {},
            "restarts": 0,
            "teachers": 0,
            "is_ready": False,
            "running": {},
            "waiting": [],
        }

    def fileno(self) -> int:
        if self._channel is None:
            raise ValueError("the warm server is not running")
        return self._channel.fileno()

    def accepts(self, command: PythonCommand) -> bool:
        """Whether this server runs the interpreter, with the flags, that the command asks for."""
        mine = self._command
        return (command.interpreter, command.flags) == (mine.interpreter, mine.flags)

    def spawn(
        self, token: int, command: PythonCommand, env: Mapping[str, str], out_fd: int, err_fd: int
    ) -> None:
        """Ask for a trial. The descriptors are copied: the caller may close its own at once.

        Raises WarmRefused when the command needs another interpreter or other flags.
        """
        if not self.accepts(command):
            raise WarmRefused(
                f"{command.program} is not the interpreter of this server, or has other flags"
            )
        request = write_hidden_file(render_request(command, env))
        self._unsent.append((b"%d\n" % token, [request, os.dup(out_fd), os.dup(err_fd)]))
        self._flush()

    def _flush(self) -> None:
        while self._unsent and self._channel is not None:
            data, descriptors = self._unsent[0]
            try:
                socket.send_fds(self._channel, [data], descriptors)
            except BlockingIOError:
                return  # every request is answered, so `read` is called again when there is room
            except OSError:
                return  # the server is gone, and `read` says so
            self._unsent.popleft()
            for descriptor in descriptors:
                os.close(descriptor)

    def read(self) -> List[Event]:
        """What has happened since the last call. After `Gone` there is nothing more, and only `close` is left."""
        events: List[Event] = []
        while self._channel is not None and not self._is_gone:
            try:
                data = self._channel.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                events.append(Gone(self._reason_of_end()))
                self._is_gone = True
                break
            *lines, self._text = (self._text + data).split(b"\n")
            events += [event for event in map(self._event, lines) if event is not None]
        self._flush()
        return events

    def _event(self, line: bytes) -> Optional[Event]:
        fields = json.loads(line)
        event = fields.pop("event")
        if event == "started":
            return Started(**fields)
        if event == "ended":
            return Ended(**fields)
        if event == "ready":
            return Ready(tuple(fields["modules"]), tuple(fields["notes"]))
        if event == "refused":
            return Refused(fields["reason"])
        if event == "learned":
            self._write_learned(fields["modules"], fields["excluded"], fields["version"])
            self.is_learning = False
            return Learned(tuple(fields["modules"]), tuple(fields["notes"]))
        self._failure = fields["reason"]
        return None

    def _reason_of_end(self) -> str:
        if self._failure:
            return self._failure
        try:
            lines = os.read(self._early_output, 1 << 16).decode("utf-8", "replace").split("\n")
        except OSError:
            lines = []
        printed = [line for line in lines if line.strip()]
        code = self._end_process()
        return printed[-1] if printed else f"the warm server ended (exit code {code})"

    def close(self) -> None:
        """End the server. Trials that it has started are left alone."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        while self._unsent:
            for descriptor in self._unsent.popleft()[1]:
                os.close(descriptor)
        if self._early_output >= 0:
            os.close(self._early_output)
            self._early_output = -1
        self._end_process()

    def _end_process(self) -> Optional[int]:
        """Its exit code, once the socket is closed at one end or the other."""
        if self._process is None:
            return None
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:  # in the middle of an import
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code

    # What was learned

    def _identity(self) -> Dict[str, Any]:
        command = self._command
        digest = ""
        if command.kind == "script":
            with open(os.path.join(command.cwd, command.target), "rb") as file:
                digest = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        return {
            "interpreter": command.interpreter,
            "flags": list(command.flags),
            "kind": command.kind,
            "target": command.target,
            "digest": digest,
        }

    def _read_learned(self) -> Optional[Dict[str, Any]]:
        try:
            for entry in self._read_entries():
                if entry["identity"] == self._identity():
                    modules, excluded = entry["modules"], entry.get("excluded") or {}
                    return {
                        "version": str(entry["version"]),
                        "modules": list(modules),
                        "excluded": dict(excluded),
                    }
        except (OSError, KeyError, TypeError):
            pass  # of no use: it is learned again
        return None

    def _read_entries(self) -> List[Dict[str, Any]]:
        try:
            with open(self._learned_path, "rb") as file:
                entries = json.load(file)
        except (OSError, ValueError):
            return []
        return entries if isinstance(entries, list) else []

    def _write_learned(self, modules: List[str], excluded: Dict[str, str], version: str) -> None:
        try:
            entry = {
                "identity": self._identity(),
                "version": version,
                "modules": modules,
                "excluded": excluded,
            }
            others = [
                other
                for other in self._read_entries()
                if other.get("identity") != entry["identity"]
            ]
            write_whole(self._learned_path, json.dumps([entry, *others[: _MOST_REMEMBERED - 1]]))
        except (OSError, AttributeError):
            pass  # only speed is lost


def render_request(command: PythonCommand, env: Mapping[str, str]) -> bytes:
    """What the server gets of a trial: parts separated by zero bytes, which no argument can hold."""
    head = [command.kind, command.target, command.program, command.interpreter, command.cwd]
    counts = [str(len(command.flags)), str(len(command.arguments))]
    pairs = [f"{key}={value}" for key, value in env.items()]
    return b"\0".join(
        map(os.fsencode, [*head, *counts, *command.flags, *command.arguments, *pairs])
    )
