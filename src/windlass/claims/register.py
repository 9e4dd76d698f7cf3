"""Who may execute which trial: one register, changed by compare-and-swap with nothing but link(). Python 3.9.

The register's whole content is in the file of the highest number in ``claims/``. To change it, a process reads number
n and links its new content as n + 1; the file system lets exactly one process do that, so everybody else reads again
and tries anew. No locks, no server, and the number of files does not depend on the number of trials: old files are
removed, a margin behind the newest.

A process may be so slow that its number n + 1 has been used and removed when it links it. So every state carries the
tokens of the changes that led to it: a change is in force if, and only if, the newest state has its token.

A state is on disk before it gets its number, and has a checksum. Where the newest is damaged all the same, the newest
that is whole counts. A process that only reads leaves the damaged one where it is. One that makes a change moves it
aside first, so that there is again a newest state n whose successor n + 1 exactly one process can link. It does so only
with a file whose content was read and is damaged, and that nobody has written to for some seconds: an error of the
network or of permissions is raised instead, because another process may well be able to read the file.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from windlass.claims import ranges as rs
from windlass.claims.alive import seconds_silent
from windlass.claims.ranges import Ranges
from windlass.damage import report_damage
from windlass.errors import FolderError
from windlass.journal.write import DiskFull, is_full
from windlass.sealed import seal, unseal

REGISTER_VERSION = 1
_KEPT_FILES = 6
_WRITING_S = 5.0  # without hard links a state gets its number before its content: its writer has so long
_READ_S = 1.0  # that a reader waits for it
_KEPT_TOKENS = 64  # more than _KEPT_FILES, by as many changes as others may make while one looks whether its own holds


class RegisterVersionError(FolderError):
    """The register was written by a newer Windlass."""


class RegisterLost(FolderError):
    """The folder has trials, and no state of the register can be read. `windlass run` rebuilds it."""


class Overtaken(FolderError):
    """It cannot be known whether a change is in force. Whoever made it must end without touching the register again.

    Then the others take it for dead and take back whatever it may hold, which is right in both cases.
    """


class Register:
    """One state of the register. Every trial is in at most one of `todo` and `held`."""

    def __init__(
        self,
        count: int,
        current: Ranges,
        todo: Ranges,
        held: Dict[str, Ranges],
        cancelled: Ranges,
        preparer: Optional[Dict[str, Any]] = None,
        tokens: Optional[List[str]] = None,
        learned: Optional[Dict[str, Any]] = None,
        throttle: Optional[int] = None,
        ended: Optional[Ranges] = None,
        leaving: Optional[List[str]] = None,
    ) -> None:
        self.count = count  # trials that exist in trials.jsonl
        self.current = current  # those that the study as it stands now consists of
        self.todo = todo  # nobody's: to be taken
        self.held = held  # agent → what it may execute
        self.cancelled = cancelled  # whoever executes one of these stops it
        self.preparer = preparer  # the one process that may add trials now
        self.tokens = tokens or []  # of the changes that led here, the newest first
        self.throttle = throttle  # how many agents may hold trials; None: any number
        self.leaving = leaving or []  # agents with former code, which take no more trials: `throttle` is of the others
        self.ended = ended or []  # let go of by the agents that held them: a journal tells how each of them ended
        self.learned = learned or {}  # what agents found out for the rest of the study; see claims/learned.py

    @classmethod
    def empty(cls) -> Register:
        return cls(0, [], [], {}, [])

    def copy(self) -> Register:
        held = {agent: list(ranges) for agent, ranges in self.held.items()}
        return Register(
            self.count,
            list(self.current),
            list(self.todo),
            held,
            list(self.cancelled),
            self.preparer,
            self.tokens,
            self.learned,
            self.throttle,
            list(self.ended),
            list(self.leaving),
        )

    def is_beyond_throttle(self, agent: str) -> bool:
        """Whether this agent is to take no more trials. The agents that began first stay."""
        if self.throttle is None:
            return False
        earlier = [other for other in self.held if other < agent and other not in self.leaving]
        return len(earlier) >= self.throttle

    def held_ranges(self) -> Ranges:
        return rs.normalise(pair for held in self.held.values() for pair in held)

    def to_json(self) -> Dict[str, Any]:
        more: Dict[str, Any] = {"learned": self.learned} if self.learned else {}
        more["ended"] = self.ended
        if self.throttle is not None:
            more["throttle"] = self.throttle
        if self.leaving:
            more["leaving"] = self.leaving
        return {
            "v": REGISTER_VERSION,
            "count": self.count,
            "current": self.current,
            "todo": self.todo,
            "held": self.held,
            "cancelled": self.cancelled,
            "preparer": self.preparer,
            "tokens": self.tokens,
            **more,
        }

    @classmethod
    def from_json(cls, data: Dict[str, Any]) -> Register:
        if data["v"] > REGISTER_VERSION:
            raise RegisterVersionError(
                f"the claims are of version {data['v']}, this Windlass reads up to {REGISTER_VERSION}; upgrade windlass"
            )
        return cls(
            data["count"],
            rs.normalise(data["current"]),
            rs.normalise(data["todo"]),
            {agent: rs.normalise(held) for agent, held in data["held"].items()},
            rs.normalise(data["cancelled"]),
            data["preparer"],
            data["tokens"],
            data.get("learned"),  # not in registers of the first days
            data.get("throttle"),
            rs.normalise(data.get("ended") or []),
            data.get("leaving"),
        )

    def follow(self, before: Register) -> None:
        """Work out `ended` of the state that comes after `before`: what is held no more, nor open, nor cancelled."""
        let_go = rs.subtract(before.held_ranges(), self.cancelled)
        self.ended = rs.subtract(rs.union(before.ended, let_go), rs.union(self.todo, self.held_ranges()))


class RegisterFile:
    """Reads and changes the register of one study's folder."""

    def __init__(self, folder: str, who: str) -> None:
        self._folder = folder
        self._who = who
        self._seen = 0

    def newest_number(self) -> int:
        """The number of the newest state; 0 when there is none yet. One directory listing."""
        return max(self._numbers(), default=0)

    def _numbers(self) -> List[int]:
        try:
            return [int(name) for name in os.listdir(self._folder) if name.isdigit()]
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._lost(str(error.strerror)) from error
        except OSError as error:
            raise FolderError(
                f"{self._folder}: cannot be read ({error.strerror})\n  hint: make it readable for this user"
            ) from error

    def _lost(self, problem: str) -> RegisterLost:
        remedy = "`windlass run` with the study file rebuilds it from trials.jsonl and the journals"
        return RegisterLost(f"{self._folder}: the register of trials cannot be read ({problem})\n  hint: {remedy}")

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:08d}")

    def read(self) -> Register:
        """The newest state that is whole. Raises RegisterLost where there is none although there are trials."""
        return self._read_newest()[1]

    def read_if_changed(self) -> Optional[Register]:
        """The register if it has changed since this object last looked, else None."""
        if self.newest_number() == self._seen:
            return None
        return self.read()

    def _read_newest(self, to_change: bool = False) -> Tuple[int, Register]:
        """The newest whole state and its number; with `to_change`, no damaged state has a higher number."""
        deadline = time.monotonic() + _READ_S
        while True:
            numbers = sorted(self._numbers(), reverse=True)
            if not numbers:
                self._check_new()
                return 0, Register.empty()
            register = self._read_state(self._path(numbers[0]))
            if register is not None:
                self._seen = numbers[0]
                return numbers[0], register
            path = self._path(numbers[0])
            # Overtaken and removed, or a file system without link() shows it half written: look again.
            if os.path.exists(path):
                is_final = seconds_silent(path) > _WRITING_S
                if is_final or (not to_change and time.monotonic() > deadline):
                    number, register = self._read_older(numbers)
                    if not to_change:
                        self._seen = numbers[0]
                        return number, register
                    self._set_aside(path)
            time.sleep(0.005)

    def _check_new(self) -> None:
        """Raise RegisterLost where the register is empty although the folder has trials."""
        trials = os.path.join(os.path.dirname(os.path.abspath(self._folder)), "trials.jsonl")
        if os.path.exists(trials) and os.path.getsize(trials):
            raise self._lost("it has no file")

    def _read_state(self, path: str) -> Optional[Register]:
        """The state in that file; None where the file is gone or damaged. Raises FolderError for other errors."""
        try:
            with open(path, "rb") as file:
                content = unseal(file.read())
        except (FileNotFoundError, IsADirectoryError):
            return None
        except OSError as error:
            raise FolderError(
                f"{path}: cannot be read ({error.strerror})\n  hint: make it readable for this user"
            ) from error
        try:
            return None if content is None else Register.from_json(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def _read_older(self, numbers: List[int]) -> Tuple[int, Register]:
        """The newest whole state behind the first of `numbers`, which is damaged."""
        for number in numbers[1:]:
            register = self._read_state(self._path(number))
            if register is not None:
                problem = f"this state of the register is damaged; the one before it, {number:08d}, counts"
                remedy = "nothing to do: trials that were handed out just before may be executed once more"
                report_damage(self._path(numbers[0]), problem, remedy)
                return number, register
        raise self._lost("none of its files is whole")

    def _set_aside(self, path: str) -> None:
        """Take the number from a damaged state, and give it back if it turns out to be whole after all."""
        aside = os.path.join(self._folder, f".damaged-{os.path.basename(path)}-{self._who}")
        try:
            os.rename(path, aside)
            if self._read_state(aside) is not None:
                os.link(aside, path)
        except OSError:
            pass  # another process was sooner

    def begin_anew(self, register: Register) -> None:
        """Write a first state where none is whole. Another process may be sooner: then its state counts."""
        try:
            number = self.newest_number()
        except RegisterLost:
            os.makedirs(self._folder, exist_ok=True)
            number = 0
        self._swap(number + 1, register)

    def update(self, change: Callable[[Register], Optional[Register]]) -> Register:
        """Apply `change` to the newest state, atomically; it may be called several times.

        `change` returns the new state, or None to leave things as they are. Returns the state that holds afterwards.
        """
        while True:
            number, register = self._read_newest(to_change=True)
            changed = change(register.copy())
            if changed is None:
                return register
            changed.follow(register)
            token = os.urandom(4).hex()
            changed.tokens = [token, *register.tokens[: _KEPT_TOKENS - 1]]
            if self._swap(number + 1, changed) and self._holds(number + 1, token):
                self._seen = number + 1
                self._remove_old(number + 1)
                return changed
            time.sleep(0.001 + os.urandom(1)[0] / 13000)  # up to 20 ms, by chance

    def _swap(self, number: int, register: Register) -> bool:
        temporary = os.path.join(self._folder, f".{self._who}.tmp")
        target = self._path(number)
        data = seal(json.dumps(register.to_json(), separators=(",", ":")).encode())
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # a number whose content a power cut could take away would stop the study
            won = self._link(temporary, target, data)
        except OSError as error:
            if is_full(error):
                raise DiskFull(self._folder) from error
            raise
        finally:
            try:
                os.unlink(temporary)
            except OSError:
                pass
        return won

    def _holds(self, number: int, token: str) -> bool:
        """Whether the change that was linked as `number` is in force, or the number was one of the past."""
        newest, register = self._read_newest()
        if token in register.tokens:
            return True
        if newest - number >= _KEPT_TOKENS:
            text = f"{self._folder}: overtaken by {newest - number} changes while making one"
            raise Overtaken(f"{text}\n  hint: run again; nothing is lost")
        try:
            os.unlink(self._path(number))
        except FileNotFoundError:
            pass
        return False

    def _link(self, temporary: str, target: str, data: bytes) -> bool:
        try:
            os.link(temporary, target)
            return True
        except FileExistsError:
            return False
        except PermissionError:
            pass  # a file system without hard links: fall through to O_EXCL
        except OSError as error:
            if is_full(error):
                raise
            # NFS may report a failure for a link that was made: the link count tells.
            if os.stat(temporary).st_nlink == 2:
                return True
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return True

    def _remove_old(self, newest: int) -> None:
        for number in self._numbers():
            if number <= newest - _KEPT_FILES:
                try:
                    os.unlink(self._path(number))
                except OSError:
                    pass
