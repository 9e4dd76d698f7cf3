"""Unpacks an archive into a folder, whole or not at all. Python 3.9, standard library.

The archive is read once, here, and handed to GNU tar through a pipe: its length and checksum are seen on the way, and
tar cannot outlive us, because its input ends with us. Where there is no GNU tar, Python's own does the work.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional

DAMAGED = ".damaged"  # ending of the note beside an archive that could not be unpacked
_PIECE = 1 << 18
_PIPE_SIZE = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which `fcntl` names from Python 3.10 on
_PERMISSIONS = 0o777  # Set-user-id, set-group-id and sticky bits of an archive are dropped.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_PHRASES = ("No space left", "Disk quota exceeded")


class BadArchive(Exception):
    """The archive is cut short, changed or damaged; the text says which."""


class UnreadArchive(BadArchive):
    """The archive is missing, or this node lacks what it takes to read it."""


class NoRoom(Exception):
    """The disk became full on the way."""


def mark_damaged(archive: str, why: str) -> None:
    """Leave a note beside the archive, because of which the next client looks at its checksum before it is used."""
    try:
        with open(archive + DAMAGED, "w", encoding="utf-8") as file:
            file.write(why)
    except OSError:
        pass  # the folder may be read-only here


def unpack_archive(entry: Mapping[str, Any], target: str) -> None:
    """Unpack what `entry` of plan.json names into the folder `target`. What is there after an error is of no use."""
    source = _Source(entry)
    try:
        if entry["kind"] == "file":
            _copy_file(source, os.path.join(target, os.path.basename(entry["archive"])))
        else:
            tar = _gnu_tar()
            if tar:
                _feed_tar(tar, source, target, entry["kind"])
            elif entry["kind"] == "zstd":
                raise UnreadArchive(
                    f"{entry['archive']}: there is no GNU tar on this node to read it with zstd"
                )
            else:
                _use_python(source, target)
        source.finish()
    except zlib.error as error:
        raise BadArchive(f"{entry['archive']} is damaged: {error}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom from error
        raise UnreadArchive(f"{entry['archive']}: {error.strerror or error}") from error
    finally:
        source.close()


class _Source:
    """The archive's bytes, uncompressed where that is gzip, counted and summed up while they are read."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.path: str = entry["archive"]
        self._size: int = entry["bytes"]
        self._crc32: Optional[int] = entry.get("crc32")
        self._sum = 0
        self._count = 0
        try:
            self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise UnreadArchive(f"{self.path}: {error.strerror}") from error
        size = os.fstat(self._file.fileno()).st_size
        if size != self._size:
            self._file.close()
            what = "is cut short" if size < self._size else "has changed"
            raise BadArchive(
                f"{self.path} {what}: {size:,} bytes, {self._size:,} when it was submitted"
            )
        raw = self._read()
        self._pieces = self._inflate(raw) if entry["kind"] == "gzip" else raw

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def _read(self) -> Iterator[bytes]:
        while True:
            piece = self._file.read(_PIECE)
            if not piece:
                return
            self._count += len(piece)
            if self._crc32 is not None:
                self._sum = zlib.crc32(piece, self._sum)
            yield piece

    def _inflate(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        """A gzip file may be several, one after the other."""
        inflate = zlib.decompressobj(31)
        begun = False
        for piece in raw:
            rest = piece
            while rest:
                if inflate.eof:
                    rest = rest.lstrip(b"\0")
                    inflate = zlib.decompressobj(31) if rest else inflate
                if rest:
                    begun = True
                    yield inflate.decompress(rest)
                    rest = inflate.unused_data
        if not begun or not inflate.eof:
            raise BadArchive(f"{self.path} is damaged: it ends in the middle")

    def finish(self) -> None:
        """Read what tar did not care for, and compare."""
        for _ in self._pieces:
            pass
        if self._count != self._size:
            raise BadArchive(f"{self.path} is cut short: {self._count:,} bytes of {self._size:,}")
        if self._crc32 is not None and self._sum != self._crc32:
            raise BadArchive(
                f"{self.path} is damaged: its checksum is not the one it was packed with"
            )

    def close(self) -> None:
        self._file.close()


def _gnu_tar() -> str:
    path = shutil.which("tar")
    if path is None:
        return ""
    try:
        printed = subprocess.run(
            [path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
    except OSError:
        return ""
    return path if b"GNU tar" in printed.stdout else ""


def _feed_tar(tar: str, source: _Source, target: str, kind: str) -> None:
    argv = [
        tar,
        "--extract",
        "--file=-",
        "--blocking-factor=512",
        "--same-permissions",
        "--no-same-owner",
    ]
    if kind == "zstd":
        if shutil.which("zstd") is None:
            raise UnreadArchive(f"{source.path}: there is no zstd on this node to read it with")
        argv.append("--use-compress-program=zstd")
    env: Dict[str, str] = {**os.environ, "LC_ALL": "C"}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*argv, "--directory", target], stdin=subprocess.PIPE, stderr=errors, env=env
        )
        assert process.stdin is not None
        try:
            _write_all(source, process.stdin)
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        errors.seek(0)
        printed = errors.read().decode("utf-8", "replace")
    if code:
        if any(phrase in printed for phrase in _FULL_PHRASES):
            raise NoRoom
        lines = [line for line in printed.splitlines() if "Exiting with failure" not in line] or [
            f"tar ended with {code}"
        ]
        raise BadArchive(f"{source.path} cannot be unpacked: {lines[0]}")


def _write_all(source: _Source, pipe: IO[bytes]) -> None:
    _widen(pipe)
    try:
        for piece in source:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(pipe.fileno(), rest) :]
        pipe.close()
    except BrokenPipeError:
        pass  # tar has read enough, or has died: its exit code tells
    finally:
        try:
            pipe.close()
        except BrokenPipeError:
            pass


def _widen(pipe: IO[bytes]) -> None:
    try:
        fcntl.fcntl(pipe.fileno(), _SET_PIPE_SIZE, _PIPE_SIZE)
    except OSError:
        pass


def _copy_file(source: _Source, path: str) -> None:
    with open(path, "wb") as file:
        for piece in source:
            file.write(piece)
    shutil.copystat(source.path, path)


class _Reader(io.RawIOBase):
    """Pieces as a file that tarfile can read from."""

    def __init__(self, source: _Source) -> None:
        self._pieces = iter(source)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _use_python(source: _Source, target: str) -> None:
    try:
        with tarfile.open(fileobj=io.BufferedReader(_Reader(source), _PIECE), mode="r|") as archive:
            folders: List[tarfile.TarInfo] = []
            for member in archive:
                _check_place(member, target, source.path)
                if member.isdir():
                    folders.append(member)
                    _make_folder(os.path.join(target, member.name))
                else:
                    _extract(archive, member, target)
            for member in reversed(folders):  # their modes last: a folder may be closed to us
                path = os.path.join(target, member.name)
                os.chmod(path, member.mode & _PERMISSIONS)
                os.utime(path, (member.mtime, member.mtime))
    except tarfile.TarError as error:
        raise BadArchive(f"{source.path} cannot be unpacked: {error}") from error
    except (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        # Members contradict each other: a file where a folder is, or a hard link to what is not in the archive.
        raise BadArchive(
            f"{source.path} cannot be unpacked: {error.filename}: {error.strerror}"
        ) from error


def _check_place(member: tarfile.TarInfo, target: str, path: str) -> None:
    """Raise BadArchive for a member that would land outside of `target`, or that is linked to what lies outside.

    An earlier member may have made a symbolic link, so the folders are looked at as they are on the disk now.
    """
    places = [member.name]
    if member.islnk():
        places.append(member.linkname)
    for place in places:
        name = os.path.normpath(place)
        if name.startswith(("/", "../")) or name == ".." or _has_link_above(target, name):
            raise BadArchive(f"{path}: {member.name!r} would be unpacked outside of its folder")


def _has_link_above(target: str, name: str) -> bool:
    above = os.path.dirname(name)
    while above:
        if os.path.islink(os.path.join(target, above)):
            return True
        above = os.path.dirname(above)
    return False


def _make_folder(path: str) -> None:
    """Make a folder. A link of that name is replaced, as GNU tar does it, and not followed."""
    if os.path.islink(path):
        os.unlink(path)
    os.makedirs(path, mode=0o700, exist_ok=True)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    """Unpack a file or a link. What has its name already is removed first: nothing is written through a link."""
    path = os.path.join(target, member.name)
    if os.path.lexists(path):
        os.unlink(path)
    if member.islnk():
        # `os.link` follows a symbolic link in some versions of Python unless it is asked not to.
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.link(os.path.join(target, member.linkname), path, follow_symlinks=False)
    elif member.isreg() or member.issym():
        member.mode &= _PERMISSIONS
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        if hasattr(tarfile, "fully_trusted_filter"):  # `_check_place` has decided what is safe
            archive.extract(member, target, set_attrs=True, filter="fully_trusted")
        else:
            archive.extract(member, target, set_attrs=True)
