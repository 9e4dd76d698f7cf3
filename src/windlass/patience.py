"""Waits for a file system that does not answer for a while: the one place where the command line tries calls again.

A server of a network file system that is away, or starts anew, lets calls fail with EIO, ESTALE, ENOTCONN and the like.
While `patient_calls` is entered, calls of the standard library that read, or that make and remove names, are made again
until they succeed or the limit is over. It stands below all other code on purpose: whatever asks `os.path.exists`, or
takes an error of `open` for a file that is not there, would otherwise take an outage for an answer. Once the limit is
over the calls raise OutOfReach, which is no OSError, so that nobody takes that for an answer either.

Calls that write and sync are not repeated here: their caller alone knows what has to be written again. `insist` repeats
a whole step that can be taken twice.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from windlass.core.errors import FolderError, OutOfReach
from windlass.core.passing import PASSING
from windlass.core.units import render_duration
from windlass.hanging import reporting, watch, watched

LIMIT_S = 120.0
LIMIT_VARIABLE = "WINDLASS_PATIENCE_S"
_QUIET_S = 1.0  # an outage as short as this is not worth a line
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0
# A call that only reads has no use for room: what it fails with there is no answer about the file either.
_PASSING_READS = PASSING | {errno.ENOSPC, errno.EDQUOT}
_NOT_FILES = ("/proc/", "/sys/", "/dev/")  # there such an error is an answer
Result = TypeVar("Result")
Call = Callable[..., Any]


def is_passing(error: BaseException | None) -> bool:
    """Whether an error, or the one that it was raised for, is one that a file system out of reach gives."""
    if isinstance(error, FolderError):
        error = error.__cause__
    return isinstance(error, OSError) and error.errno in PASSING


class _Outage:
    """What is being waited for in this process. It begins with a failed call and ends when that call succeeds."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.is_shown = False
        # Whether somebody has something better to do than to wait.
        self.ends_early: Callable[[], bool] | None = None
        # Ctrl-C: the system tells the main thread alone, and others may wait as well.
        self.is_interrupted = False

    def wait(self, place: str, error: OSError) -> None:
        """Wait before the next attempt. Raises OutOfReach when the limit is over."""
        now = time.monotonic()
        if self.began is None:
            self.began = now
        waited_s, limit_s = now - self.began, _limit_s()
        if (
            waited_s >= limit_s
            or self.is_interrupted
            or (self.ends_early is not None and self.ends_early())
        ):
            raise out_of_reach(place, error, waited_s) from error
        if waited_s >= _QUIET_S and not self.is_shown:
            self.is_shown = True
            print(
                f"waiting for {place}: {error.strerror}; "
                f"trying again for up to {render_duration(limit_s)} (Ctrl-C ends it)",
                file=sys.stderr,
                flush=True,
            )
        pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, waited_s / 2))
        time.sleep(min(pause_s, max(0.0, limit_s - waited_s)))

    def end(self) -> None:
        if self.is_shown and self.began is not None:
            print(
                f"it answers again after {render_duration(time.monotonic() - self.began)}",
                file=sys.stderr,
                flush=True,
            )
        self.began, self.is_shown = None, False


_outage = _Outage()


def _limit_s() -> float:
    try:
        return float(os.environ.get(LIMIT_VARIABLE, LIMIT_S))
    except ValueError:
        return LIMIT_S


def out_of_reach(place: str, error: OSError, waited_s: float) -> OutOfReach:
    """The error for a file or folder whose file system does not answer."""
    waited = f", also after {render_duration(waited_s)} of trying" if waited_s >= _QUIET_S else ""
    return OutOfReach(
        f"{place}: out of reach ({error.strerror}{waited})\n"
        "  hint: the file system there does not answer; see whether `ls` does, and run the command again once it does. "
        "Nothing is lost by that"
    )


@contextlib.contextmanager
def ending_early(condition: Callable[[], bool]) -> Iterator[None]:
    """While this is entered, waiting ends as soon as `condition` is true, as if the limit were over."""
    before, _outage.ends_early = _outage.ends_early, condition
    try:
        yield
    finally:
        _outage.ends_early = before


def insist(step: Callable[[], Result], place: str) -> Result:
    """Take a step that can be taken twice, again if need be: until no call in it fails for an outage."""
    began: float | None = None
    while True:
        try:
            result = step()
        except (OSError, FolderError) as error:
            cause = error.__cause__ if isinstance(error, FolderError) else error
            if not is_passing(error) or not isinstance(cause, OSError):
                raise
            began = time.monotonic() if began is None else began
            # Also where calls within the step have succeeded at the second attempt.
            _outage.began = began
            _outage.wait(place, cause)
            continue
        if began is not None:
            _outage.end()
        return result


def forget_outage() -> None:
    """The file system answers, after somebody went on although it was out of reach: the next outage is a new one."""
    _outage.end()


# -- calls of the standard library


@contextlib.contextmanager
def patient_calls() -> Iterator[None]:
    """While this is entered, calls that read, or that change names, outlast an outage. For the command line."""
    _outage.__init__()  # type: ignore[misc]
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, _interrupt)
    descriptors = ("fstat", "read", "pread")
    others = ("open", "scandir", "access", "close")
    before = {name: getattr(os, name) for name in (*_READS, *_CHANGES, *descriptors, *others)}
    plain = {name: watched(call) for name, call in before.items()}
    wrapped = {name: _wrap(plain[name]) for name in _READS}
    wrapped |= {name: _wrap(plain[name], PASSING, accept) for name, accept in _CHANGES.items()}
    wrapped |= {name: _wrap_descriptor(plain[name]) for name in descriptors}
    wrapped |= {
        "open": _open(plain["open"]),
        "scandir": _scandir(plain["scandir"]),
        "access": _access(plain["access"], plain["stat"]),
        "close": _close(plain["close"]),
    }
    plain_open = builtins.open
    supporting = (
        os.supports_fd,
        os.supports_dir_fd,
        os.supports_follow_symlinks,
        os.supports_effective_ids,
    )
    for name, function in wrapped.items():
        for names in supporting:
            if before[name] in names:
                names.add(function)
        setattr(os, name, function)
    builtins.open = io.open = _opener(plain_open)
    try:
        with reporting(_name):
            yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        builtins.open = io.open = plain_open
        for name, function in before.items():
            setattr(os, name, function)
            for names in supporting:
                names.discard(wrapped[name])


def _interrupt(number: int, frame: Any) -> None:
    _outage.is_interrupted = True
    signal.default_int_handler(number, frame)


_READS = ("stat", "lstat", "listdir", "readlink", "statvfs")


def _is_gone(path: Any, *_: Any, **__: Any) -> bool:
    return not os.path.lexists(path)


def _is_renamed(source: Any, target: Any, **_: Any) -> bool:
    return not os.path.lexists(source) and os.path.lexists(target)


def _is_linked(source: Any, target: Any, **_: Any) -> bool:
    return os.path.lexists(target) and os.path.samestat(os.lstat(source), os.lstat(target))


# Calls that change names, and how to find out that all is well: a server may have done what it was asked and lost the
# answer, so that the second attempt fails.
_CHANGES: dict[str, Callable[..., bool] | None] = {
    "mkdir": None,
    "chmod": None,
    "utime": None,
    "truncate": None,
    "unlink": _is_gone,
    "remove": _is_gone,
    "rmdir": _is_gone,
    "rename": _is_renamed,
    "replace": _is_renamed,
    "link": _is_linked,
}


def _wrap(
    call: Call, passing: frozenset[int] = _PASSING_READS, accept: Callable[..., bool] | None = None
) -> Call:
    def patient(*arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except OSError as error:
            if error.errno not in passing:
                raise
            place = _name(arguments[0] if arguments else named.get("path", "."))
            if place is None:
                raise
            first = error
        is_done = None if accept is None else lambda: accept(*arguments, **named)
        return _repeat(lambda: call(*arguments, **named), place, first, passing, is_done)

    patient.__name__ = call.__name__
    return patient


def _repeat(
    call: Callable[[], Result],
    place: str,
    error: OSError,
    passing: frozenset[int] = _PASSING_READS,
    is_done: Callable[[], bool] | None = None,
) -> Result | None:
    """Make a call until it succeeds or fails for another reason."""
    while True:
        _outage.wait(place, error)
        try:
            result = call()
        except OSError as later:
            if later.errno in passing:
                error = later
                continue
            _outage.end()
            if is_done is not None and later.errno in (errno.ENOENT, errno.EEXIST) and is_done():
                return None
            raise
        _outage.end()
        return result


def _name(path: Any) -> str | None:
    """The path as text, absolute; None where it is none of a file system that could be away."""
    if isinstance(path, int):
        try:
            path = os.readlink(f"/proc/self/fd/{path}")
        except OSError:
            return None
        if not path.startswith("/") or path.endswith(" (deleted)"):
            return None
    try:
        text = os.fsdecode(path)
    except TypeError:
        return None
    if text.startswith(_NOT_FILES):
        return None
    return text if os.path.isabs(text) else os.path.join(os.environ.get("PWD", "."), text)


def _wrap_descriptor(call: Call) -> Call:
    """A call on a descriptor. After an outage the old one may be dead for ever: the file is opened anew by its name."""

    def patient(descriptor: int, *arguments: Any) -> Any:
        """The call, repeated after an outage on a descriptor that was opened anew."""
        try:
            return call(descriptor, *arguments)
        except OSError as error:
            if error.errno not in _PASSING_READS:
                raise
            place = _name(descriptor)
            if place is None:
                raise
            first = error

        def again() -> Any:
            _open_anew(descriptor, place, first)
            return call(descriptor, *arguments)

        return _repeat(again, place, first)

    patient.__name__ = call.__name__
    return patient


def _open_anew(descriptor: int, path: str, error: OSError) -> None:
    """Put a file that was opened for reading behind its descriptor once more; FileNotFoundError if it was removed.

    A file that was written to stays as it is: what the system has not passed on yet would be lost without a trace.
    """
    if descriptor not in _only_read:
        return
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    fresh = _plain_open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if position and not _is_same(descriptor, fresh):
            raise FolderError(
                f"{path}: was replaced while it was being read\n  hint: run the command again"
            ) from error
        os.dup2(fresh, descriptor, inheritable=False)
        os.lseek(descriptor, position, os.SEEK_SET)
    finally:
        _plain_close(fresh)


_plain_open, _plain_close, _plain_fstat = os.open, os.close, os.fstat


def _is_same(old: int, new: int) -> bool:
    try:
        return os.path.samestat(_plain_fstat(old), _plain_fstat(new))
    except OSError:
        return False


_only_read: set[int] = set()  # descriptors of files that were opened for reading alone


def _open(call: Call) -> Call:
    to_read, to_write = _wrap(call), _wrap(call, PASSING)

    def patient_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
        only_read = flags & (os.O_ACCMODE | os.O_CREAT) == os.O_RDONLY
        descriptor: int = (to_read if only_read else to_write)(path, flags, *more, **named)
        if only_read:
            _only_read.add(descriptor)
        else:
            _only_read.discard(descriptor)
        return descriptor

    return patient_open


class _Names:
    """The answer of os.scandir, read to the end at once: an error half way would lose names."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Names:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Names:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _scandir(call: Call) -> Call:
    def read(path: Any = ".") -> _Names:
        with call(path) as found:
            return _Names(list(found))

    read.__name__ = "scandir"
    return _wrap(read)


def _access(call: Call, stat: Call) -> Call:
    """os.access says no for every error: what it returns for a file that cannot be looked at is not an answer."""
    patient_stat = _wrap(stat)

    def access(path: Any, mode: int, **named: Any) -> bool:
        if call(path, mode, **named):
            return True
        with contextlib.suppress(OSError):
            patient_stat(path)
        return bool(call(path, mode, **named))

    return access


def _close(call: Call) -> Call:
    """A descriptor is gone also where close() fails. Of a file that was only read, nothing can be lost by that."""

    def close(descriptor: int) -> None:
        only_read = descriptor in _only_read
        _only_read.discard(descriptor)
        try:
            call(descriptor)
        except OSError as error:
            if error.errno not in _PASSING_READS or not only_read:
                raise

    return close


class _PatientFile(io.FileIO):
    """A file that is read, by its name. Each read outlasts an outage."""

    def readinto(self, buffer: Any) -> Any:
        return self._read(lambda: io.FileIO.readinto(self, buffer))

    def read(self, size: int | None = -1) -> Any:
        if size is None or size < 0:
            return self.readall()
        return self._read(lambda: io.FileIO.read(self, size))

    def readall(self) -> Any:
        # It may fail after it has read a part, which is lost then.
        return self._read(lambda: io.FileIO.readall(self), self.tell() if self.seekable() else None)

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:
            if error.errno not in _PASSING_READS:
                raise

    def _read(self, call: Callable[[], Result], position: int | None = None) -> Result | None:
        try:
            return watch(self.name, call)
        except OSError as error:
            place = _name(self.fileno()) if error.errno in _PASSING_READS else None
            if place is None or not self.seekable():
                raise
            first = error
        begin = self.tell() if position is None else position

        def again() -> Result:
            self.seek(begin)
            _open_anew(self.fileno(), place, first)
            return call()

        return _repeat(again, place, first)


def _opener(plain: Call) -> Call:
    opened = _wrap(plain, PASSING)

    def patient_open(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None,
        closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        """Open a file as `open` does; one that is only read survives an outage while it is being read."""
        if (
            isinstance(file, int)
            or opener is not None
            or not set(mode) <= set("rbt")
            or buffering == 0
        ):
            return opened(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if os.fsdecode(file).startswith(_NOT_FILES):
            return plain(file, mode, buffering, encoding, errors, newline)
        raw = _PatientFile(file, "rb", opener=os.open)
        try:
            buffer = io.BufferedReader(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
            if "b" in mode:
                return buffer
            text = io.TextIOWrapper(buffer, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise
        text.mode = mode  # type: ignore[misc]
        return text

    return patient_open
