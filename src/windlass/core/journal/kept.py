"""Files that trials leave to be kept: an archive an agent, and an index of it. Python 3.9, standard library.

outputs/<agent>.tar   small files, one behind the other; any tar reads it
outputs/<agent>.idx   one line a file: {"t": when, "id": trial, "p": path, "b": bytes, "m": mode, "x": time, "o": at}
outputs/<trial id>/…  large files, whole under their own names; their line has no "o"
A line with "l" is of a link to that target, one with "d" of an empty folder, one with "s" of a file with holes.
"c" is the CRC-32 of the file's content, compared when the file is handed out; the line itself has a checksum, too (see
core/sealed.py). Lines of earlier versions have neither.
Both are only ever appended to, by one process. A line is written when what it tells of is complete, so a torn end
of either costs nothing that was finished. Where several agents kept the same file of a trial, the latest counts.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import json
import os
import stat
import tarfile
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from windlass.core.files import PART, replacing
from windlass.core.journal.checksum import append_zeros
from windlass.core.openness import ANYBODY, limit_readers, private_opener, readers_of_all
from windlass.core.sealed import seal, unseal

LEFT_BEHIND = "left-behind"  # stands in for a trial's id: files that nobody can tell the trial of
# Files of others may come out of an archive: no set-user-id or set-group-id bit does.
_PERMISSIONS = 0o777
_WRITE_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_BLOCK = 512
_HOLE = 4096  # so many zeros in a row are left out of a file that had holes
# A large file that has been there for longer without a line in an index will not get one.
_TELLING_S = 60.0


class ContentChangedError(OSError):
    """A file that was kept has another content now."""


class Copied(NamedTuple):
    """A copy of a file under its own name: the copy's status, and the CRC-32 of what was copied."""

    status: os.stat_result
    checksum: int


class KeptFile:
    """One file that was kept, and where its content is."""

    __slots__ = (
        "checksum", "is_folder", "is_sparse", "mode", "modified", "offset", "path", "place", "size", "target", "time",
        "trial",
    )  # fmt: skip

    def __init__(self, record: Dict[str, Any], folder: str, archive: str) -> None:
        self.trial = str(record["id"])
        self.path = str(record["p"])
        self.size = int(record["b"])
        self.mode = int(record.get("m", 0o644))
        self.modified = float(record.get("x", 0.0))
        self.time = float(record["t"])
        self.offset: Optional[int] = record.get("o")
        self.target: Optional[str] = record.get("l")  # of a link
        self.is_folder = bool(record.get("d"))
        self.is_sparse = bool(record.get("s"))
        # Of its content; None where it was not recorded.
        self.checksum: Optional[int] = record.get("c")
        self.place = (
            archive if self.offset is not None else os.path.join(folder, self.trial, self.path)
        )

    def is_there(self) -> bool:
        """Whether its content is all there."""
        try:
            return self._has_room(os.stat(self.place).st_size) or self._has_room(
                _size_when_opened(self.place)
            )
        except OSError:
            return False

    def _has_room(self, size: int) -> bool:
        """Whether a file of this size, in the place that the output is kept in, can hold it."""
        return size == self.size if self.offset is None else size >= self.offset + self.size

    def extract(self, target: str) -> None:
        """Write it to `target`, whole or not at all. Raises OSError; ContentChangedError where that tells of it."""
        if self.is_folder:
            os.makedirs(target, exist_ok=True)
            return
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with replacing(target) as partial:
            if self.target is not None:
                os.symlink(self.target, partial)
                return
            with (
                open(self.place, "rb") as source,
                open(partial, "wb", opener=private_opener) as file,
            ):
                copied, checksum = self._copy_to(source.fileno(), file.fileno())
            if copied != self.size:
                raise ContentChangedError(5, "it is cut short", self.place)
            if self.checksum is not None and checksum != self.checksum:
                raise ContentChangedError(
                    5, "its content has changed since it was kept", self.place
                )
            os.chmod(partial, self.mode & _PERMISSIONS)
            os.utime(partial, (self.modified, self.modified))

    def _copy_to(self, source: int, target: int) -> Tuple[int, int]:
        """Returns how many bytes there were, and their CRC-32."""
        if self.offset is None:
            return _copy_with_holes(source, target)
        os.lseek(source, self.offset, os.SEEK_SET)
        if not self.is_sparse:
            return _copy(source, target, self.size)
        data = os.read(source, self.size)  # small files only
        for at in range(0, len(data), _HOLE):
            if data[at : at + _HOLE].strip(b"\0"):
                os.pwrite(target, data[at : at + _HOLE], at)
        os.ftruncate(target, len(data))
        return len(data), binascii.crc32(data)


class KeptWriter:
    """Appends to one archive and its index. The files appear with the first that is kept."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder = folder
        self._tar_path = os.path.join(folder, name + ".tar")
        self._index_path = os.path.join(folder, name + ".idx")
        self._tar = -1
        self._index = -1
        self._end = 0

    def add(
        self,
        trial: str,
        path: str,
        data: bytes,
        status: os.stat_result,
        when: float,
        is_sparse: bool = False,
        above: Sequence[os.stat_result] = (),
    ) -> None:
        """Keep a small file. Raises OSError, with nothing left of it, where there is no room.

        From now on the archive can be read only by those who may read this file; `above` are the folders it was in.
        """
        self._open(archive=True)
        limit_readers(self._tar, readers_of_all([status, *above], os.fstat(self._tar).st_gid))
        more = {"c": binascii.crc32(data), **({"s": 1} if is_sparse else {})}
        self._append(tarfile.TarInfo(f"{trial}/{path}"), trial, path, data, status, when, more)

    def add_link(
        self, trial: str, path: str, target: str, status: os.stat_result, when: float
    ) -> None:
        """Keep a symbolic link. Raises OSError."""
        info = tarfile.TarInfo(f"{trial}/{path}")
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._append(info, trial, path, b"", status, when, {"l": target})

    def add_folder(self, trial: str, path: str, status: os.stat_result, when: float) -> None:
        """Keep an empty folder. Raises OSError."""
        info = tarfile.TarInfo(f"{trial}/{path}")
        info.type = tarfile.DIRTYPE
        self._append(info, trial, path, b"", status, when, {"d": 1})

    def _append(
        self,
        info: tarfile.TarInfo,
        trial: str,
        path: str,
        data: bytes,
        status: os.stat_result,
        when: float,
        more: Dict[str, Any],
    ) -> None:
        self._open(archive=True)
        info.size, info.mode, info.mtime = (
            len(data),
            stat.S_IMODE(status.st_mode),
            int(status.st_mtime),
        )
        header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        block = header + data + b"\0" * (-len(data) % _BLOCK)
        self._end = _append(self._tar, self._end, block)
        offset = self._end - len(block) + len(header)
        self._tell(trial, path, len(data), status, when, {"o": offset, **more})

    def add_copied(
        self,
        trial: str,
        path: str,
        status: os.stat_result,
        when: float,
        checksum: Optional[int] = None,
    ) -> None:
        """Tell of a file that lies under its own name; `checksum` is that of its content where it is known."""
        self._open(archive=False)
        self._tell(
            trial, path, status.st_size, status, when, {} if checksum is None else {"c": checksum}
        )

    def _tell(
        self,
        trial: str,
        path: str,
        size: int,
        status: os.stat_result,
        when: float,
        more: Dict[str, Any],
    ) -> None:
        record: Dict[str, Any] = {"t": round(when, 3), "id": trial, "p": path, "b": size}
        record.update(m=stat.S_IMODE(status.st_mode), x=round(status.st_mtime, 3), **more)
        # Half characters, from names that are no UTF-8, stay what they are through the escapes of JSON.
        line = seal(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        _append(self._index, os.fstat(self._index).st_size, line)

    def _open(self, archive: bool) -> None:
        if self._index < 0:
            os.makedirs(self.folder, exist_ok=True)
            self._index = os.open(
                self._index_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
            )
        if archive and self._tar < 0:
            self._tar = os.open(self._tar_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._tar).st_size
            self._end = size + -size % _BLOCK

    def sync(self) -> None:
        """Everything is on the disk when this returns. Raises OSError."""
        for descriptor in (self._tar, self._index):
            if descriptor >= 0:
                os.fsync(descriptor)

    def reopen(self) -> None:
        """Use new descriptors from now on: after an error of the network the old ones may be worthless."""
        for descriptor in (self._tar, self._index):
            try:
                if descriptor >= 0:
                    os.close(descriptor)
            except OSError:
                pass
        self._tar = self._index = -1

    def close(self) -> None:
        """Raises OSError where what was written did not reach the disk."""
        try:
            self.sync()
        finally:
            for descriptor in (self._tar, self._index):
                if descriptor >= 0:
                    os.close(descriptor)
            self._tar = self._index = -1


def copy_large(source: str, target: str, above: Sequence[os.stat_result] = ()) -> Copied:
    """Copy a file under its own name: it appears when it is whole and on the disk. Raises OSError.

    Only those can read the copy who may read the file; `above` are the folders it was in.
    """
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with replacing(target) as partial:
        with open(source, "rb") as reading, open(partial, "wb", opener=private_opener) as writing:
            before = os.fstat(reading.fileno())
            copied, checksum = _copy_with_holes(reading.fileno(), writing.fileno())
            os.fsync(writing.fileno())
            made = os.fstat(writing.fileno())
            written = made.st_size
        if not copied == written == os.stat(source).st_size:
            raise OSError(5, "it changed while it was copied", source)
        closed = ANYBODY & ~readers_of_all([before, *above], made.st_gid)
        # Open only in a study that is shared.
        closed |= _WRITE_OF_OTHERS & ~os.stat(os.path.dirname(target)).st_mode
        os.chmod(partial, before.st_mode & _PERMISSIONS & ~closed)
        os.utime(partial, ns=(before.st_atime_ns, before.st_mtime_ns))
    return Copied(os.stat(target), checksum)


def has_holes(descriptor: int, size: int) -> bool:
    """Whether a file has parts that take no room on the disk; its position is changed."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_HOLE) < size
    except OSError:
        return False


def _copy_with_holes(source: int, target: int) -> Tuple[int, int]:
    """Copy a whole file; what takes no room in it takes none in the copy.

    Returns how many bytes there were, and their CRC-32. The zeros of holes count as zeros, so that it does not matter
    which of them a file system stores.
    """
    size, position, checksum = os.fstat(source).st_size, 0, 0
    while position < size:
        try:
            begin = os.lseek(source, position, os.SEEK_DATA)
            end = os.lseek(source, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # only a hole is left
            begin, end = position, size  # a file system that cannot tell
        os.lseek(source, begin, os.SEEK_SET)
        os.lseek(target, begin, os.SEEK_SET)
        copied, checksum = _copy(
            source, target, end - begin, append_zeros(checksum, begin - position)
        )
        position = begin + copied
        if position < end:
            return position, checksum  # it became shorter meanwhile
    os.ftruncate(target, size)
    return size, append_zeros(checksum, size - position)


def _copy(source: int, target: int, size: int, checksum: int = 0) -> Tuple[int, int]:
    """Copy so many bytes. Returns how many there were, and the CRC-32 that goes on with them from `checksum`."""
    copied = 0
    while copied < size:
        data = os.read(source, min(1 << 20, size - copied))
        if not data:
            break
        checksum = binascii.crc32(data, checksum)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
        copied += len(data)
    return copied, checksum


def _append(descriptor: int, end: int, data: bytes) -> int:
    """Write all of it behind `end`, or nothing. Returns the new end."""
    view = memoryview(data)
    try:
        os.lseek(descriptor, end, os.SEEK_SET)
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise
    return end + len(data)


def _size_when_opened(path: str) -> int:
    """The size of a file. A network file system may show an earlier one until the file is opened."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def read_kept(folder: str) -> List[KeptFile]:
    """Every file that is kept in `outputs/` and complete, the latest of each name; by trial and path."""
    newest: Dict[Tuple[str, str], KeptFile] = {}
    for file in iterate_kept(folder):
        known = newest.get((file.trial, file.path))
        if (known is None or file.time >= known.time) and file.is_there():
            newest[file.trial, file.path] = file
    return [newest[key] for key in sorted(newest)]


def find_cut(folder: str, trials: Sequence[str] = ()) -> Dict[str, int]:
    """Files that should hold kept outputs and are cut short or gone → how many outputs are missing there; of these
    trials, or of all.

    An output that is whole in another place, because it was kept again, is not missing.
    """
    whole = {(file.trial, file.path) for file in read_kept(folder)}
    missing: Dict[str, Set[Tuple[str, str]]] = {}
    for file in iterate_kept(folder):
        key = (file.trial, file.path)
        if key in whole or (trials and file.trial not in trials):
            continue
        missing.setdefault(file.place, set()).add(key)
    return {place: len(keys) for place, keys in sorted(missing.items())}


def find_unlisted(folder: str) -> Dict[str, int]:
    """Indexes with damaged lines → how many; and large files that no line of any index tells of → 0."""
    found: Dict[str, int] = {}
    listed = {file.place for file in iterate_kept(folder) if file.offset is None}
    for name in _names(folder):
        path = os.path.join(folder, name)
        if name.endswith(".idx"):
            damaged = sum(record is None for record in _lines(path))
            if damaged:
                found[path] = damaged
        elif os.path.isdir(path) and not name.startswith("."):
            for above, _, files in os.walk(path):
                for file in files:
                    place = os.path.join(above, file)
                    if place not in listed and PART not in file and _is_settled(place):
                        found[place] = 0
    return found


def _is_settled(path: str) -> bool:
    try:
        return time.time() - os.lstat(path).st_ctime > _TELLING_S
    except OSError:
        return False


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def iterate_kept(folder: str) -> Iterator[KeptFile]:
    """Every line of every index, and what an archive has that no line tells of."""
    stems = dict.fromkeys(name[:-4] for name in _names(folder) if name.endswith((".idx", ".tar")))
    for stem in stems:
        archive = os.path.join(folder, stem + ".tar")
        end, listed, is_damaged = 0, set(), False
        for record in _lines(os.path.join(folder, stem + ".idx")):
            try:
                file = None if record is None else KeptFile(record, folder, archive)
            except (KeyError, TypeError, ValueError):
                file = None
            if file is None:
                is_damaged = True
                continue
            if file.offset is not None:
                end = max(end, file.offset + file.size + -file.size % _BLOCK)
                listed.add(file.offset)
            yield file
        # Where the writer was killed between the two, the archive has more than its index; it may have more anywhere
        # where lines of the index are damaged.
        for file in _behind(archive, 0 if is_damaged else end, folder):
            if file.offset not in listed:
                yield file


def _lines(path: str) -> Iterator[Optional[Dict[str, Any]]]:
    """The lines of an index; None for a damaged one. A last line without its newline is still being written."""
    try:
        with open(path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                content = unseal(line)
                try:
                    record = None if content is None else json.loads(content)
                except (ValueError, RecursionError):
                    record = None
                yield record if isinstance(record, dict) else None
    except OSError:
        return


def _behind(archive: str, end: int, folder: str) -> Iterator[KeptFile]:
    """Complete files of an archive from `end` on, as the archive itself tells of them."""
    try:
        size, modified = os.stat(archive).st_size, os.stat(archive).st_mtime
        if size <= end:
            return
        with open(archive, "rb") as file:
            file.seek(end)
            with tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as tar:
                for info in tar:
                    trial, _, path = info.name.partition("/")
                    if path and info.offset_data + info.size <= size:
                        record = {
                            "t": modified,
                            "id": trial,
                            "p": path,
                            "b": info.size,
                            "m": info.mode,
                        }
                        record.update(x=info.mtime, o=info.offset_data, d=info.isdir())
                        record["l"] = info.linkname if info.issym() else None
                        yield KeptFile(record, folder, archive)
    except (OSError, tarfile.TarError):
        return
