"""A cache on the node's own disk, shared by all agents of the user there. Python 3.9, standard library.

    <root>/<key>        a complete entry; it appears by renaming and is never changed
    <root>/<key>~1      the same again, where agents still use a <key> that somebody has changed
    <root>/<key>.part   one that is being made or taken away
    <root>/<key>.make   locked by whoever makes or drops the entry: one at a time
    <root>/<key>.use    locked by all who use it, for as long as they live; its time is that of the last use. It holds
                        the record by which changes of an unpacked archive are found (agent/node/seal.py)

The locks are the kernel's, on a local disk: they are gone with the process that held them, however it ended.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from windlass.agent.node.seal import find_changes, open_tree, seal_tree
from windlass.agent.node.trees import copy_tree, remove_tree
from windlass.agent.node.unpack import (
    BadArchive,
    NoRoom,
    UnreadArchive,
    mark_damaged,
    unpack_archive,
)
from windlass.core.counted import counted
from windlass.core.errors import NotReady
from windlass.core.journal.write import is_full
from windlass.core.paths import make_own_folder
from windlass.core.units import render_bytes, render_duration

FULL = "NODE_SCRATCH_FULL"  # before a node's name: collect/fullnodes.py looks for it, and so may a person
_PART, _MAKE, _USE = ".part", ".make", ".use"
_OWN = "own-"
_AGAIN = "~"
# For how many tenths of a second an agent may look at an entry before it counts as in use.
_LOOKING_TRIES = 20
_FORGOTTEN_S = 14 * 86400.0  # an entry that nobody used for so long is dropped


class _Entry(NamedTuple):
    """What an agent wants to find in the store."""

    key: str
    make: Callable[[str], None]  # fills the folder it is given
    need_bytes: int
    need_files: int
    what: str  # for people
    sealed: bool
    holds: str = ""  # for people; ends with a blank

    def beside(self) -> "_Entry":
        """The same under the next key."""
        key, _, number = self.key.partition(_AGAIN)
        return self._replace(key=f"{key}{_AGAIN}{int(number or 0) + 1}")


class NodeStore:
    """Archives unpacked once for all agents of this user on this node."""

    def __init__(
        self, root: str, say: Callable[[str], None], mention: Optional[Callable[[str], None]] = None
    ) -> None:
        self._root = root
        self._say = say
        self.mention = mention or say  # for what is as it should be
        self._held: List[int] = []
        self._own: List[str] = []
        self._read_in_place: List[Tuple[str, str]] = []  # what it is, and its folder
        self._opened = False

    @property
    def root(self) -> str:
        """The folder of the cache itself."""
        return self._root

    def unpack(self, entry: Mapping[str, Any], what: str) -> str:
        """The folder in which the archive of an entry of plan.json lies unpacked, exactly as it was packed.

        It is read-only, because others use it too. One that was changed all the same is made anew. Lead to it with
        symbolic links only, and use `make_private` for a copy that may be written to. Raises NotReady, with nothing
        left behind, where it cannot be unpacked.
        """

        def make(folder: str) -> None:
            try:
                unpack_archive(entry, folder)
            except UnreadArchive as error:
                raise NotReady(f"{what}: {error}") from error
            except BadArchive as error:
                raise NotReady(f"{what}: {error}; {_mend(entry, str(error))}") from error

        need_bytes = entry["unpacked_bytes"]
        holds = render_contents(entry["files"], need_bytes) if entry["files"] else ""
        if entry.get(
            "content_files"
        ):  # archives of earlier versions tell only what they take of a disk
            holds = render_contents(entry["content_files"], entry["content_bytes"])
        return self.provide(
            entry["key"], make, need_bytes, entry["files"], what, sealed=True, holds=holds
        )

    def provide(
        self,
        key: str,
        make: Callable[[str], None],
        need_bytes: int,
        need_files: int,
        what: str,
        sealed: bool = False,
        holds: str = "",
    ) -> str:
        """The folder of that key; if there is none, `make` fills one, while all others who want it wait.

        `make` may raise NoRoom: then it is tried again once something else was dropped. A `sealed` folder is
        read-only and is compared with the record of what it was before it is used again.
        """
        try:
            self._open()
            return self._provide(
                _Entry(
                    key, make, need_bytes, need_files, what, sealed, f"{holds} " if holds else ""
                )
            )
        except OSError as error:
            place = error.filename or self._root
            raise NotReady(
                f"{mark_full(error)}{what}: {error.strerror or error}: {place} on {_node()}"
            ) from error

    def make_private(
        self, tree: str, name: str, near: str = "", stays: bool = False, at: str = ""
    ) -> str:
        """A copy of a tree or file, called `name`, that this agent may write to; gone after `close`, unless it `stays`.

        It is made in a folder of its own, see `make_folder`; `at` is the path that it has on another node of the job.
        """
        if at and os.path.isdir(at):
            return at  # the nodes share this disk after all
        folder = self.make_folder(near, stays, os.path.dirname(at))
        copy = os.path.join(folder, name)
        try:
            copy_tree(tree, copy)
            open_tree(copy)
        except OSError as error:
            place = near or self._root
            why = error.strerror or error
            raise NotReady(
                f"{mark_full(error)}{name} cannot be copied into {place} on {_node()}: {why}"
            ) from error
        return copy

    def make_folder(self, near: str = "", stays: bool = False, at: str = "") -> str:
        """An empty folder of this agent's own; gone after `close`, unless it `stays`.

        It is made in the folder `near`, which its owner removes if we cannot, or in the store, whose next user does;
        or `at` the path that it has on another node of the job.
        """
        try:
            self._open()
            if at:
                folder = at
            elif near:
                folder = os.path.join(near, f"windlass-own-{secrets.token_hex(4)}")
            else:
                folder = self._path(_OWN + secrets.token_hex(8))
                lock = self._lock(os.path.basename(folder) + _USE, fcntl.LOCK_EX)
                assert lock is not None
                self._held.append(lock)
            os.makedirs(folder, mode=0o700, exist_ok=bool(at))
        except OSError as error:
            why = error.strerror or error
            raise NotReady(f"{mark_full(error)}{why}: {near or self._root} on {_node()}") from error
        if not stays:
            self._own.append(folder)
        return folder

    def watch(self, tree: str, what: str) -> None:
        """Trials read this folder, which `unpack` has returned, where it is: have `find_changed` look at it."""
        self._read_in_place.append((what, tree))

    def find_changed(self) -> List[str]:
        """What trials read in place and somebody has changed since it was found whole here. One text for each."""
        found = []
        for what, tree in self._read_in_place:
            changes = self._changes_of(os.path.basename(tree))
            if changes:
                found.append(
                    f"{what}: it was changed on {_node()} while this agent used it ({changes})"
                )
        return found

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

    def _provide(self, entry: _Entry) -> str:
        was_made = False
        while True:
            path = self._path(entry.key)
            use = self._lock(entry.key + _USE, fcntl.LOCK_SH)
            assert use is not None
            if os.path.isdir(path):
                changes = "" if was_made or not entry.sealed else find_changes(path, _read_all(use))
                if not changes:
                    os.utime(use)
                    self._held.append(use)
                    if not was_made:
                        self.mention(f"{entry.what}: found on this node")
                    return path
                os.close(use)
                entry = self._replace_changed(entry, changes)
                continue
            os.close(use)
            try:
                with self._making(entry):
                    if not os.path.isdir(path):
                        self._make(entry)
                        was_made = True
            except BaseException:
                self._drop(entry.key)
                raise

    def _replace_changed(self, entry: _Entry, changes: str) -> _Entry:
        """What is to be made in place of an entry that was changed: the same once dropped, or one beside it."""
        path = self._path(entry.key)
        with self._making(entry):
            if not os.path.isdir(path) or not self._changes_of(entry.key):
                return entry  # another agent found the same and was faster
            was_dropped = self._clear(entry.key)
            for _ in range(_LOOKING_TRIES):
                if was_dropped:
                    break
                time.sleep(0.1)  # whoever is only looking at it lets go of it soon
                was_dropped = self._clear(entry.key)
        text = f"{entry.what}: it was changed on {_node()} after it had been unpacked ({changes}); it is unpacked anew"
        self._say(
            text if was_dropped else f"{text}, beside the changed one, which other agents still use"
        )
        return entry if was_dropped else entry.beside()

    def _changes_of(self, key: str) -> str:
        try:
            with open(self._path(key) + _USE, "rb") as file:
                return find_changes(self._path(key), file.read())
        except FileNotFoundError:
            return find_changes(self._path(key), b"")

    @contextmanager
    def _making(self, entry: _Entry) -> Iterator[None]:
        lock = self._lock(entry.key + _MAKE, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            self.mention(f"{entry.what}: another agent on this node is unpacking it, waiting")
            lock = self._lock(entry.key + _MAKE, fcntl.LOCK_EX)
        assert lock is not None
        try:
            yield
        finally:
            os.close(lock)

    def _make(self, entry: _Entry) -> None:
        path = self._path(entry.key)
        part = path + _PART
        while True:
            remove_tree(part)
            self._make_room(entry)
            began = time.monotonic()
            try:
                os.mkdir(part, 0o700)
                entry.make(part)
                if entry.sealed:
                    _write_record(path + _USE, seal_tree(part))
                os.rename(part, path)
            except NoRoom:
                remove_tree(part)
                if not self._drop_oldest():
                    raise self._full(entry) from None
                continue
            except BaseException:
                remove_tree(part)
                raise
            seconds = time.monotonic() - began
            self.mention(f"{entry.what}: {entry.holds}unpacked in {render_duration(seconds)}")
            return

    # -- room

    def _make_room(self, entry: _Entry) -> None:
        """Drop what was not used for longest, until it fits."""
        while True:
            free_bytes, free_files = self._free()
            if free_bytes >= entry.need_bytes and (
                free_files is None or free_files >= entry.need_files
            ):
                return
            if not self._drop_oldest():
                raise self._full(entry)

    def _free(self) -> Tuple[int, Optional[int]]:
        disk = os.statvfs(self._root)
        return disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else None

    def _full(self, entry: _Entry) -> NotReady:
        free_bytes, free_files = self._free()
        files = "" if free_files is None else f" and {counted(free_files, 'file')}"
        needs = f"{render_bytes(entry.need_bytes)} and {counted(entry.need_files, 'file')}"
        return NotReady(
            f"{FULL} {_node()}: the local disk of {_node()} is full: {entry.what} needs {needs}, "
            f"{self._root} has room for {render_bytes(free_bytes)}{files}"
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
        """Remove an entry, unless agents make or use it. Returns whether it is gone."""
        lock = self._lock(key + _MAKE, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            return False
        try:
            return self._clear(key)
        finally:
            os.close(lock)

    def _clear(self, key: str) -> bool:
        """The same for an agent that has the lock on making it."""
        lock = self._lock(key + _USE, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            return False
        try:
            path = self._path(key)
            if os.path.isdir(path):
                remove_tree(path + _PART)
                os.rename(path, path + _PART)
            remove_tree(path + _PART)
            _unlink(path + _USE)
            _unlink(path + _MAKE)
            return True
        finally:
            os.close(lock)

    # -- the folder itself

    def _open(self) -> None:
        """Make the root, or see that it is ours alone: others can write to the folder it is in.

        Where somebody else has taken its name, a folder of another name beside it is used.
        """
        if self._opened:
            return
        try:
            os.makedirs(os.path.dirname(self._root), mode=0o700, exist_ok=True)
            wanted, self._root = self._root, make_own_folder(self._root)
        except OSError as error:
            raise NotReady(f"{self._root} on {_node()} cannot be made: {error.strerror}") from error
        if self._root != wanted:
            self._say(
                f"{wanted} on {_node()} was made by somebody else; {self._root} is used instead"
            )
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


def _mend(entry: Mapping[str, Any], why: str) -> str:
    """What is to be done about a damaged archive; the client that does it is left a note."""
    if entry.get("crc32") is None:
        return "put a whole one in its place, then `windlass run`"
    if entry["key"].startswith("data-"):  # an archive of code is read whole before each submission
        mark_damaged(entry["archive"], f"{_node()}: {why}")
    return "`windlass run` packs it anew"


def _read_all(descriptor: int) -> bytes:
    with open(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def _write_record(path: str, record: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(record)
    except OSError as error:
        if is_full(error):
            raise NoRoom from error
        raise


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def mark_full(error: OSError) -> str:
    """The mark of a full disk, if that is what the error is about."""
    return f"{FULL} {_node()}: " if is_full(error) else ""


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def render_contents(files: int, size: int) -> str:
    """What a folder holds. Sizes are those of the files themselves, wherever a folder is spoken of."""
    return f"{counted(files, 'file')}, {render_bytes(size)}"
