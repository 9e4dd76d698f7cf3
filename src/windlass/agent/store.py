"""A cache on the node's own disk, shared by all agents of the user there. Python 3.9, standard library.

    <root>/<key>        a complete entry; it appears by renaming and is never changed
    <root>/<key>.part   one that is being made or taken away
    <root>/<key>.make   locked by whoever makes or drops the entry: one at a time
    <root>/<key>.use    locked by all who use it, for as long as they live; its time is that of the last use

The locks are the kernel's, on a local disk: they are gone with the process that held them, however it ended.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import subprocess
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple

from windlass.agent.unpack import BadArchive, NoRoom, unpack_archive

_PART, _MAKE, _USE = ".part", ".make", ".use"
_OWN = "own-"
_FORGOTTEN_S = 14 * 86400.0  # an entry that nobody used for so long is dropped


class NotReady(Exception):
    """The node cannot be made ready for trials; the text says why. No trial is begun."""


class NodeStore:
    """Archives unpacked once for all agents of this user on this node."""

    def __init__(self, root: str, say: Callable[[str], None]) -> None:
        self._root = root
        self._say = say
        self._held: List[int] = []
        self._own: List[str] = []
        self._opened = False

    def unpack(self, entry: Mapping[str, Any], what: str) -> str:
        """The folder in which the archive of an entry of plan.json lies unpacked. Others may use it: only read there.

        Raises NotReady, with nothing left behind, where it cannot be.
        """

        def make(folder: str) -> None:
            try:
                unpack_archive(entry, folder)
            except BadArchive as error:
                raise NotReady(f"{what}: {error}") from error

        need_bytes = entry["unpacked_bytes"]
        return self.provide(entry["key"], make, need_bytes, entry["files"], what)

    def provide(self, key: str, make: Callable[[str], None], need_bytes: int, need_files: int, what: str) -> str:
        """The folder of that key; if there is none, `make` fills one, while all others who want it wait.

        `make` may raise NoRoom: then it is tried again once something else was dropped.
        """
        try:
            self._open()
            return self._provide(key, make, need_bytes, need_files, what)
        except OSError as error:
            raise NotReady(f"{what}: {error.strerror or error}: {error.filename or self._root} on {_node()}") from error

    def make_private(self, tree: str, name: str, near: str = "", stays: bool = False, at: str = "") -> str:
        """A copy of a tree, called `name`, that this agent may write to; gone after `close`, unless it `stays`.

        It is made in the folder `near`, which its owner removes if we cannot, or in the store, whose next user does;
        or `at` the path that it has on another node of the job.
        """
        try:
            self._open()
            if at:
                if os.path.isdir(at):
                    return at  # the nodes share this disk after all
                folder, name = os.path.split(at)
            elif near:
                folder = os.path.join(near, f"windlass-code-{secrets.token_hex(4)}")
            else:
                folder = self._path(_OWN + secrets.token_hex(8))
                lock = self._lock(os.path.basename(folder) + _USE, fcntl.LOCK_EX)
                assert lock is not None
                self._held.append(lock)
            os.mkdir(folder, 0o700)
            if not stays:
                self._own.append(folder)
            copy = os.path.join(folder, name)
            _copy_tree(tree, copy)
            return copy
        except OSError as error:
            raise NotReady(f"code: {error.strerror or error} in {near or self._root} on {_node()}") from error

    def close(self) -> None:
        """Let go of what this agent used, and remove what was its own."""
        for folder in self._own:
            remove_tree(folder)
            if os.path.dirname(folder) == self._root:
                _unlink(folder + _USE)
        for descriptor in self._held:
            os.close(descriptor)
        self._own, self._held = [], []

    # -- one entry

    def _provide(self, key: str, make: Callable[[str], None], need_bytes: int, need_files: int, what: str) -> str:
        path, found = self._path(key), True
        while True:
            use = self._lock(key + _USE, fcntl.LOCK_SH)
            assert use is not None
            if os.path.isdir(path):
                os.utime(use)
                self._held.append(use)
                if found:
                    self._say(f"{what}: found on this node")
                return path
            os.close(use)
            try:
                with self._making(key, what):
                    if not os.path.isdir(path):
                        self._make(key, make, need_bytes, need_files, what)
                        found = False
            except BaseException:
                self._drop(key)
                raise

    @contextmanager
    def _making(self, key: str, what: str) -> Iterator[None]:
        lock = self._lock(key + _MAKE, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            self._say(f"{what}: another agent on this node is unpacking it, waiting")
            lock = self._lock(key + _MAKE, fcntl.LOCK_EX)
        assert lock is not None
        try:
            yield
        finally:
            os.close(lock)

    def _make(self, key: str, make: Callable[[str], None], need_bytes: int, need_files: int, what: str) -> None:
        path = self._path(key)
        part = path + _PART
        while True:
            remove_tree(part)
            self._make_room(need_bytes, need_files, what)
            began = time.monotonic()
            try:
                os.mkdir(part, 0o700)
                make(part)
                os.rename(part, path)
            except NoRoom:
                remove_tree(part)
                if not self._drop_oldest():
                    raise self._full(need_bytes, need_files, what) from None
                continue
            except BaseException:
                remove_tree(part)
                raise
            seconds = time.monotonic() - began
            count = f"{need_files:,} files, {render_size(need_bytes)} " if need_files else ""
            self._say(f"{what}: {count}unpacked in {seconds:.1f} s")
            return

    # -- room

    def _make_room(self, need_bytes: int, need_files: int, what: str) -> None:
        """Drop what was not used for longest, until it fits."""
        while True:
            free_bytes, free_files = self._free()
            if free_bytes >= need_bytes and (free_files is None or free_files >= need_files):
                return
            if not self._drop_oldest():
                raise self._full(need_bytes, need_files, what)

    def _free(self) -> Tuple[int, Optional[int]]:
        disk = os.statvfs(self._root)
        return disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else None

    def _full(self, need_bytes: int, need_files: int, what: str) -> NotReady:
        free_bytes, free_files = self._free()
        files = "" if free_files is None else f" and {free_files:,} files"
        return NotReady(
            f"the local disk of {_node()} is full: {what} needs {render_size(need_bytes)} and {need_files:,} files, "
            f"{self._root} has room for {render_size(free_bytes)}{files}"
        )

    def _drop_oldest(self) -> bool:
        """Drop the entry that was not used for longest, of those that nobody uses. False where there is none."""
        return any(self._drop(key) for _, key in sorted(self._entries()))

    def _entries(self) -> List[Tuple[float, str]]:
        """When each entry was last used, and its key."""
        found = []
        for name in os.listdir(self._root):
            if name.endswith((_PART, _MAKE, _USE)) or name.startswith(_OWN):
                continue
            try:
                found.append((os.stat(self._path(name) + _USE).st_mtime, name))
            except FileNotFoundError:
                found.append((0.0, name))
        return found

    def _drop(self, key: str) -> bool:
        locks = [self._lock(key + _MAKE, fcntl.LOCK_EX | fcntl.LOCK_NB)]
        try:
            locks.append(self._lock(key + _USE, fcntl.LOCK_EX | fcntl.LOCK_NB) if locks[0] is not None else None)
            if None in locks:
                return False
            path = self._path(key)
            if os.path.isdir(path):
                remove_tree(path + _PART)
                os.rename(path, path + _PART)
            remove_tree(path + _PART)
            _unlink(path + _USE)
            _unlink(path + _MAKE)
            return True
        finally:
            for lock in locks:
                if lock is not None:
                    os.close(lock)

    # -- the folder itself

    def _open(self) -> None:
        """Make the root, or see that it is ours alone: others can write to the folder it is in."""
        if self._opened:
            return
        try:
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            found = os.lstat(self._root)
        except OSError as error:
            raise NotReady(f"{self._root} on {_node()} cannot be made: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise NotReady(f"{self._root} on {_node()} is not a folder of ours; somebody else has made it")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.chmod(self._root, 0o700)
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise NotReady(f"{self._root} on {_node()} cannot be written to")
        self._opened = True
        self._sweep()

    def _sweep(self) -> None:
        """Take away what agents left that were killed, and what nobody has used for long."""
        for name in os.listdir(self._root):
            if name.endswith(_PART):
                key = name[: -len(_PART)]
                lock = self._lock(key + _MAKE, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock is not None:
                    remove_tree(self._path(name))
                    os.close(lock)
            elif name.startswith(_OWN) and name.endswith(_USE):
                lock = self._lock(name, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock is not None:
                    remove_tree(self._path(name[: -len(_USE)]))
                    _unlink(self._path(name))
                    os.close(lock)
        for used, key in self._entries():
            if time.time() - used > _FORGOTTEN_S:
                self._drop(key)

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)

    def _lock(self, name: str, how: int) -> Optional[int]:
        """A lock on a file that is still the one of that name; None where `how` does not wait and others have it."""
        path = self._path(name)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, how)
                mine, there = os.fstat(descriptor), os.stat(path)
                if (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except FileNotFoundError:
                pass  # dropped while we waited: begin anew
            os.close(descriptor)


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, also folders that are closed to us."""
    if not os.path.lexists(path):
        return
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        for folder, _, _ in os.walk(path):
            for name in os.listdir(folder) if os.access(folder, os.R_OK) else []:
                below = os.path.join(folder, name)
                if os.path.isdir(below) and not os.path.islink(below):
                    os.chmod(below, 0o700)
            os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def _copy_tree(tree: str, copy: str) -> None:
    """With `cp`, which is several times faster than Python at it."""
    program = shutil.which("cp")
    if program is not None:
        words = [program, "-a", "--", tree, copy]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode == 0:
            return
        remove_tree(copy)
    try:
        shutil.copytree(tree, copy, symlinks=True)
    except shutil.Error as error:
        raise OSError(f"the code cannot be copied: {error.args[0][0][2]}") from error


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def render_size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
