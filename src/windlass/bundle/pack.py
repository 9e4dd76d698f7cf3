"""Makes one archive of a folder: scanned, packed, checked for changes meanwhile, and named when it is whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import IO, Any, cast

from windlass.agent.node.store import render_contents
from windlass.agent.node.unpack import DAMAGED
from windlass.bundle.links import find_lost_links, render_lost_links
from windlass.bundle.tree import PACKED
from windlass.core.errors import input_error
from windlass.core.files import write_whole
from windlass.core.openness import ANYBODY, private_opener, readers, readers_of_all, statuses_above
from windlass.core.processes import ask, stream
from windlass.core.trust import given_umask

_ENDINGS = {"none": ".tar", "gzip": ".tar.gz", "zstd": ".tar.zst"}
_KINDS = {"none": "tar", "gzip": "gzip", "zstd": "zstd"}
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16
_PAYS = 0.7  # compressed to less than this, a dataset is worth the time
_TRIES = 3
_ABANDONED_S = 2 * 86400.0
_BLOCK = 4096  # what a small file takes on most disks


@dataclass(frozen=True)
class Scan:
    """What a folder holds. The key is the same while names, sizes, times, modes and links are."""

    key: str
    files: int  # all that takes an inode
    size: int
    disk_bytes: int
    statuses: tuple[os.stat_result, ...] = ()  # of what not everybody may read
    lost_links: tuple[str, ...] = ()  # relative ones that lead out of the folder


@dataclass(frozen=True)
class Packed:
    """An archive as it was made."""

    archive: str
    key: str
    kind: str
    bytes: int
    crc32: int
    files: int  # with the folder itself: what it takes of a disk that counts files
    unpacked_bytes: int  # in whole blocks: what it takes of a disk
    content_files: int = 0
    content_bytes: int = 0


def scan_folder(path: str) -> Scan:
    """Look at every file of a folder, without reading any.

    The digest changes with names, kinds, sizes, times and modes, so the same digest means that the archive made last
    time still fits. The sizes are what a node needs to unpack it.
    """
    digest = hashlib.sha256(os.fsencode(f"{os.path.basename(path)}\0{os.stat(path).st_mode:o}\0"))
    files = size = disk_bytes = 0
    links = []
    closed = [os.stat(path)]
    for name, status in _walk(path, ""):
        mode = status.st_mode
        is_file = stat.S_ISREG(mode)
        target = os.readlink(os.path.join(path, name)) if stat.S_ISLNK(mode) else ""
        # A folder's time changes with what is packed beside it, its size with the file system.
        detail = f"{status.st_size} {status.st_mtime_ns}" if is_file else target
        digest.update(os.fsencode(f"{name}\0{mode:o} {detail}\0"))
        if target:
            links.append(name)
        elif readers(status, -1) != ANYBODY:
            closed.append(status)
        files += 1
        size += status.st_size if is_file else 0
        disk_bytes += (
            -(-status.st_size // _BLOCK) * _BLOCK if is_file else _BLOCK * stat.S_ISDIR(mode)
        )
    lost = find_lost_links(path, links, lambda _: True)
    return Scan(digest.hexdigest()[:16], files, size, disk_bytes, _distinct(closed), tuple(lost))


def _distinct(statuses: Sequence[os.stat_result]) -> tuple[os.stat_result, ...]:
    """One of each mode and group: a dataset may have millions of files."""
    return tuple({(status.st_mode, status.st_gid): status for status in statuses}.values())


def _walk(root: str, inside: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(os.path.join(root, inside)) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name == PACKED:
            continue
        name = os.path.join(inside, entry.name)
        status = entry.stat(follow_symlinks=False)
        yield name, status
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(root, name)


def pack_folder(path: str, compress: str, spare: str, say: Callable[[str], None]) -> Packed:
    """The archive of a folder; made if there is none of this content. Beside it, or in `spare` if it must be."""
    scan = scan_folder(path)
    how = choose_compression(path, compress, say)
    places = packed_places(path, spare)
    for found in _candidates(path, scan, how, places):
        if _is_whole(found, say):
            _close(found.archive, path, scan)
            return found
    place = next((place for place in places if _can_write(place) and _is_trusted(place, path)), "")
    if not place:
        raise input_error(
            f"{path}: there is no place for its archive",
            f"make {places[0]} or {places[1]} writable",
        )
    if scan.lost_links:
        say(f"warning: {render_lost_links(path, list(scan.lost_links))}")
    say(f"{path}: packing {render_contents(scan.files, scan.size)}, into {place}")
    for _ in range(_TRIES):
        packed = _pack(path, scan, how, place)
        again = scan_folder(path)
        if again.key == scan.key:
            return _keep(packed, _base(place, path, scan, how))
        os.unlink(packed.archive)
        scan = again
    raise input_error(
        f"{path} changes while it is packed", "wait until whatever writes there is through"
    )


def packed_places(path: str, spare: str) -> list[str]:
    return [os.path.join(os.path.dirname(path), PACKED), os.path.join(spare, PACKED)]


def find_packed(path: str, scan: Scan, how: str, places: Sequence[str]) -> Packed | None:
    """The archive of what a folder holds now, if there is one."""
    return next(_candidates(path, scan, how, places), None)


def _candidates(path: str, scan: Scan, how: str, places: Sequence[str]) -> Iterator[Packed]:
    for place in places:
        packed = _find(_base(place, path, scan, how)) if _is_trusted(place, path) else None
        if packed is not None:
            yield packed


def _is_trusted(place: str, path: str) -> bool:
    """Whether a folder for archives is of somebody whose data would be used anyway.

    Where everybody can write, as in /tmp, anybody may have made such a folder beside the data of another user.
    """
    if not os.path.isdir(place) or not os.stat(os.path.dirname(place)).st_mode & stat.S_IWOTH:
        return True
    found = os.stat(place)
    owners = (os.geteuid(), 0, os.stat(path).st_uid)
    return found.st_uid in owners and not found.st_mode & stat.S_IWOTH


def choose_compression(path: str, wanted: str, say: Callable[[str], None]) -> str:
    if wanted == "auto":
        wanted = "zstd" if _sample_ratio(path) < _PAYS else "none"
        if wanted == "zstd" and shutil.which("zstd") is None:
            return "gzip"
    if wanted == "zstd" and (shutil.which("zstd") is None or not has_gnu_tar()):
        say(f"{path}: there is no zstd here, gzip is used")
        return "gzip"
    return wanted


def _sample_ratio(path: str) -> float:
    """How far some of the files shrink. Those looked at are spread over the folder."""
    names = [
        name for name, status in _walk(path, "") if stat.S_ISREG(status.st_mode) and status.st_size
    ]
    read = packed = 0
    for name in names[:: max(1, len(names) // _SAMPLES)][:_SAMPLES]:
        with open(os.path.join(path, name), "rb") as file:
            content = file.read(_SAMPLE_BYTES)
        read += len(content)
        packed += len(zlib.compress(content, 1))
    return packed / read if read else 1.0


def has_gnu_tar() -> bool:
    return "GNU tar" in ask(["tar", "--version"]).text


def _base(place: str, path: str, scan: Scan, how: str) -> str:
    return os.path.join(place, f"{os.path.basename(path)}-{scan.key}{_ENDINGS[how]}")


def _can_write(place: str) -> bool:
    try:
        os.makedirs(place, exist_ok=True)
        with (
            contextlib.suppress(FileExistsError),
            open(os.path.join(place, ".gitignore"), "x") as file,
        ):
            file.write("*\n")
    except OSError:
        return False
    return os.access(place, os.W_OK)


def _find(archive: str) -> Packed | None:
    """What was packed before, if it has the length that it had then."""
    try:
        record = _read_record(archive)
        if os.stat(archive).st_size == record["bytes"]:
            record.pop("modified_ns", None)
            return Packed(**{**record, "archive": archive})
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def find_doubt(packed: Packed) -> str:
    """Why an archive may not be what was packed: a node could not unpack it, or its time has changed; or ""."""
    archive = packed.archive
    try:
        with open(archive + DAMAGED, encoding="utf-8", errors="replace") as file:
            return file.read().strip() or "a node could not unpack it"
    except OSError:
        pass
    # Archives of earlier versions have no time on record. They are read once.
    if _read_record(archive).get("modified_ns") != os.stat(archive).st_mtime_ns:
        return f"{archive} may have been written to since it was packed"
    return ""


def _is_whole(packed: Packed, say: Callable[[str], None]) -> bool:
    """Whether an archive is what was packed. All of it is read only where there is a doubt."""
    doubt = find_doubt(packed)
    if not doubt:
        return True
    say(f"{doubt}: its checksum is compared")
    if _sum_up(packed.archive) != packed.crc32:
        say(f"{packed.archive} is damaged: it is packed anew")
        return False
    with contextlib.suppress(OSError):  # it may be somebody else's
        _write_record(packed)
    _forget(packed.archive + DAMAGED)
    return True


def _sum_up(path: str) -> int:
    crc32 = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            crc32 = zlib.crc32(piece, crc32)
    return crc32


def _keep(packed: Packed, archive: str) -> Packed:
    """Give the archive its name. Two who pack the same thing at once replace each other's by the same."""
    kept = Packed(**{**asdict(packed), "archive": archive})
    os.replace(packed.archive, archive)
    _write_record(kept)
    _forget(archive + DAMAGED)
    return kept


def _read_record(archive: str) -> dict[str, Any]:
    with open(archive + ".json", encoding="utf-8") as file:
        record: dict[str, Any] = json.load(file)
    return record


def _write_record(packed: Packed) -> None:
    """Write what an archive is into a file beside it."""
    record = {**asdict(packed), "modified_ns": os.stat(packed.archive).st_mtime_ns}
    write_whole(packed.archive + ".json", json.dumps(record))


def _partial(place: str) -> str:
    """A file that is being written; `_sweep` knows by its name who writes it."""
    return os.path.join(place, f".{socket.gethostname()}.{os.getpid()}.part")


def _pack(path: str, scan: Scan, how: str, place: str) -> Packed:
    _sweep(place)
    partial = _partial(place)
    try:
        with open(partial, "wb", opener=private_opener) as file:
            writer = _Writer(file, how == "gzip")
            _write(path, how, writer)
            writer.finish()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644 & ~given_umask())
        _close(partial, path, scan)
    except OSError as error:
        _forget(partial)
        raise input_error(
            f"{path} cannot be packed: {error.strerror or error}", f"look at {place}"
        ) from error
    except BaseException:
        _forget(partial)
        raise
    return Packed(
        partial,
        scan.key,
        _KINDS[how],
        writer.size,
        writer.crc32,
        scan.files + 1,
        scan.disk_bytes + _BLOCK,
        scan.files,
        scan.size,
    )


def _close(archive: str, path: str, scan: Scan) -> None:
    """Whoever may not read one of the files in an archive may not read the archive. One of another user stays as is."""
    status = os.stat(archive)
    # Whoever reaches the archive has passed the folders that both are in.
    inside = os.path.relpath(os.path.dirname(path), os.path.commonpath([archive, path]))
    above = statuses_above(path, len(PurePath(inside).parts))
    closed = ANYBODY & ~readers_of_all([*scan.statuses, *above], status.st_gid)
    if status.st_mode & closed and status.st_uid == os.geteuid():
        os.chmod(archive, stat.S_IMODE(status.st_mode) & ~closed)


class _Writer:
    """Counts and sums up what goes into the archive; compresses it where that is gzip."""

    def __init__(self, file: IO[bytes], compress: bool) -> None:
        self._file = file
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, 31) if compress else None
        self.size = 0
        self.crc32 = 0

    def write(self, piece: bytes) -> int:
        self._put(self._deflate.compress(piece) if self._deflate is not None else piece)
        return len(piece)

    def _put(self, piece: bytes) -> None:
        self.size += len(piece)
        self.crc32 = zlib.crc32(piece, self.crc32)
        self._file.write(piece)

    def finish(self) -> None:
        if self._deflate is not None:
            self._put(self._deflate.flush())
        self._file.flush()


def _write(path: str, how: str, writer: _Writer) -> None:
    """With GNU tar, which is several times faster, or with Python's."""
    parent, name = os.path.split(path)
    if not has_gnu_tar():
        with tarfile.open(fileobj=cast(IO[bytes], writer), mode="w|", bufsize=1 << 18) as archive:
            archive.add(
                path,
                name,
                filter=lambda member: None if PACKED in member.name.split("/") else member,
            )
        return
    words = [
        "tar",
        "--create",
        "--file=-",
        "--blocking-factor=512",
        f"--exclude={PACKED}",
        "--warning=no-file-changed",
    ]
    if how == "zstd":
        words.append("--use-compress-program=zstd -3 -T2")
    answer = stream([*words, "--directory", parent, "--", name], writer.write)
    if answer.code not in (0, 1):  # 1: something changed meanwhile, which is looked at later
        raise input_error(
            f"{path} cannot be packed: {answer.errors.strip().splitlines()[0]}",
            "see that it can be read",
        )


def _sweep(place: str) -> None:
    """Remove what was begun and never ended: by a process of this machine that is gone, or days ago."""
    for name in os.listdir(place):
        match = re.fullmatch(r"\.(.+)\.(\d+)\.part(\.json)?", name)
        if match is None:
            continue
        is_here = match[1] == socket.gethostname()
        path = os.path.join(place, name)
        with contextlib.suppress(FileNotFoundError):
            is_old = time.time() - os.stat(path).st_mtime > _ABANDONED_S
            if is_old or (is_here and not os.path.exists(f"/proc/{match[2]}")):
                _forget(path)


def _forget(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        os.unlink(path)
