"""Freezes the project as it is now into one archive in the study's folder."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import stat
import sys
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.bundle.data import find_item
from windlass.bundle.links import find_lost_links, render_lost_links
from windlass.bundle.tree import CodeFile, check_limits, list_code, list_credentials
from windlass.bundle.words import command_words
from windlass.core.errors import input_error
from windlass.core.files import replacing
from windlass.core.journal.code import render_code
from windlass.core.openness import GROUP, private_opener, readers_of_all
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_if_there
from windlass.core.processes import ask, stream
from windlass.core.trust import is_shared
from windlass.model import Plan

_TIME = 1_000_000_000  # of all files in an archive: the same tree is the same bytes
_KEPT = 3  # older archives that stay: an agent may be about to read one
_TRIES = 5
_MOST_SHOWN = 5
_ABANDONED_S = 3600.0  # an archive that nobody has finished for so long never will be


def freeze_code(plan: Plan, paths: StudyPaths) -> dict[str, Any] | None:
    """What plan.json says of the code; None where trials are executed in the project itself."""
    if not plan.frozen:
        return None
    study = plan.study
    named = NamedPaths(command_words(study), study.outputs, [data.path for data in study.data])
    return freeze_project(study.project_dir, study.workdir, excluded_paths(plan), named, paths)


@dataclass(frozen=True)
class NamedPaths:
    """What a study's commands name, of which some may be files of the project that are not code."""

    words: Sequence[str]
    outputs: Sequence[str]
    data: Sequence[str]


def freeze_project(
    project: str, workdir: str, excluded: Sequence[str], named: NamedPaths, paths: StudyPaths
) -> dict[str, Any] | None:
    """Pack the project as it is now. Returns the entry `code` of plan.json; None where `workdir` is outside of it."""
    project = os.path.abspath(project)
    inside = os.path.relpath(workdir, project)
    if inside.split(os.sep)[0] == os.pardir:
        return None
    files = list_code(project, excluded)
    check_limits(project, files)
    before = set(os.listdir(paths.folder))
    archive, key, size, crc32 = _archive(project, files, paths.folder)
    _drop_old(paths.folder, archive)
    links, live = _find_named(named, workdir, project, {file.name for file in files})
    _say_of(project, links, live)
    left_out = render_left_out(
        name for name in list_credentials(project, excluded) if name not in links
    )
    if left_out:
        print(f"note: {left_out}", file=sys.stderr)
    if os.path.basename(archive) not in before:
        _warn_of_links(
            project, files, [*(os.path.join(project, name) for name in links), *excluded]
        )
    code = {
        "archive": archive,
        "kind": "gzip",
        "key": f"code-{key}",
        "bytes": size,
        "crc32": crc32,
        "files": len(files),
        "unpacked_bytes": sum(-(-file.size // 4096) * 4096 for file in files),
        "content_files": len(files),
        "content_bytes": sum(file.size for file in files),
        "workdir": inside,
        "origin": project,
        "links": links,
        **_describe_git(project, paths.folder),
    }
    _say_if_changed(paths, code)
    return code


def render_left_out(names: Iterable[str]) -> str:
    """A sentence about files that usually hold passwords or keys; "" where none was left out."""
    found = list(names)
    if not found:
        return ""
    shown = ", ".join(found[:_MOST_SHOWN])
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return (
        f"{shown}{more} may hold passwords or keys and do not travel with the code, because git does not track them; "
        "trials reach a file that their command names, and inherit what you export in your shell"
    )


def find_left_out(plan: Plan) -> list[str]:
    """Files with passwords or keys that trials of this plan do not get, because they are no part of the frozen code."""
    if not plan.frozen:
        return []
    project = os.path.abspath(plan.study.project_dir)
    named = {
        os.path.normpath(os.path.join(plan.study.workdir, word))
        for word in command_words(plan.study)
    }
    names = list_credentials(project, excluded_paths(plan))
    return [name for name in names if os.path.join(project, name) not in named]


def excluded_paths(plan: Plan) -> list[str]:
    """What is never code: the study's folder and its neighbours, and folders that are named as data."""
    project, root = os.path.abspath(plan.study.project_dir), os.path.dirname(plan.folder)
    excluded = [
        plan.folder,
        StudyPaths(plan.folder).hpc_outputs,
        *([root] if root != project else []),
    ]
    places = [find_item(data, root, project) for data in plan.study.data]
    return excluded + [place for place in places if isinstance(place, str)]


# -- the archive


def _archive(project: str, files: Sequence[CodeFile], folder: str) -> tuple[str, str, int, int]:
    """Path, key, size and checksum of the archive of these files; made only if there is none yet."""
    key = hash_files(project, files)
    path = _path_of(folder, key)
    if not os.path.exists(path) or not _is_whole(path, key):
        partial = os.path.join(folder, f"code.{os.getpid()}.part")
        try:
            # Files may change between the two readings: the key is that of what is in the archive.
            key = _write_archive(project, files, partial)
            path = _path_of(folder, key)
            _open_to_group(project, files, partial, folder)
            os.replace(partial, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
    else:
        _mark_used(path)
    crc32 = size = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            crc32 = zlib.crc32(piece, crc32)
            size += len(piece)
    return path, key, size, crc32


def _mark_used(path: str) -> None:
    """The archives that were used last are kept. Only its owner can set the time of a file; another member of a group
    that shares a study uses the archive as it is."""
    with contextlib.suppress(PermissionError):
        os.utime(path)


def _open_to_group(project: str, files: Iterable[CodeFile], path: str, folder: str) -> None:
    """In a study that is shared, the group may read what it may read in the project: its members' agents unpack it."""
    if not is_shared(folder):
        return
    held = [os.lstat(os.path.join(project, file.name)) for file in files if stat.S_ISREG(file.mode)]
    bits = readers_of_all([*held, os.stat(project)], os.stat(path).st_gid)
    os.chmod(path, 0o600 | (bits & GROUP))


def _is_whole(path: str, key: str) -> bool:
    """Whether an archive that was made before can be unpacked, to exactly the files of that key."""
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                _add_member(digest.update, archive, member)
            while packed.read(1 << 20):
                pass  # the checksum of the whole is compared at its end
    except (OSError, EOFError, zlib.error, tarfile.TarError):
        return _say_damaged(path)
    return digest.hexdigest()[:12] == key or _say_damaged(path)


def _say_damaged(path: str) -> bool:
    print(f"note: {path} is damaged: the code is packed anew", file=sys.stderr)
    return False


def find_differing(project: str, files: Sequence[CodeFile], archive: str) -> set[str] | None:
    """Names of files that an archive of the project has and the project has not now, or otherwise, and of new ones.

    None where the archive is not there or is damaged.
    """
    now = {file.name: hash_files(project, [file]) for file in files}
    differing = set(now)
    try:
        with tarfile.open(archive, mode="r:gz") as packed:
            for member in packed:
                digest = hashlib.sha256()
                _add_member(digest.update, packed, member)
                if now.get(member.name) == digest.hexdigest()[:12]:
                    differing.discard(member.name)
                else:
                    differing.add(member.name)
    except (OSError, EOFError, zlib.error, tarfile.TarError):
        return None
    return differing


def _add_member(
    update: Callable[[bytes], object], archive: tarfile.TarFile, member: tarfile.TarInfo
) -> None:
    if member.issym():
        content, kind = os.fsencode(member.linkname), stat.S_IFLNK
    else:
        file = archive.extractfile(member)
        content, kind = b"" if file is None else file.read(), stat.S_IFREG
    _add(update, CodeFile(member.name, kind | member.mode, len(content)), content)


def _path_of(folder: str, key: str) -> str:
    return os.path.join(folder, f"code-{key}.tar.gz")


def hash_files(project: str, files: Iterable[CodeFile]) -> str:
    """The same for the same names, modes and contents."""
    digest = hashlib.sha256()
    for file in files:
        content = read_stable(os.path.join(project, file.name), file.mode)
        if content is not None:
            _add(digest.update, file, content)
    return digest.hexdigest()[:12]


def _add(update: Callable[[bytes], object], file: CodeFile, content: bytes) -> None:
    head = f"{stat.S_IFMT(file.mode):o} {stat.S_IMODE(file.mode):o} {len(content)} ".encode()
    update(head + os.fsencode(file.name) + b"\0")
    update(content)


def _write_archive(project: str, files: Iterable[CodeFile], path: str) -> str:
    digest = hashlib.sha256()
    with (
        open(
            path, "wb", opener=private_opener
        ) as raw,  # files that nobody else may read may be in it
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in files:
            content = read_stable(os.path.join(project, file.name), file.mode)
            if content is None:
                continue
            _add(digest.update, file, content)
            archive.addfile(*_member(file, content))
    return digest.hexdigest()[:12]


def _member(file: CodeFile, content: bytes) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    member = tarfile.TarInfo(file.name)
    member.mtime, member.mode = _TIME, stat.S_IMODE(file.mode)
    if stat.S_ISLNK(file.mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(content)
        return member, None
    member.size = len(content)
    return member, io.BytesIO(content)


def read_stable(path: str, mode: int) -> bytes | None:
    """A file's content, or a link's target; not half of a file that is being written. None where it is gone."""
    for attempt in range(_TRIES):
        try:
            if stat.S_ISLNK(mode):
                return os.fsencode(os.readlink(path))
            with open(path, "rb") as file:
                before = os.fstat(file.fileno())
                content = file.read()
                after = os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise input_error(
                f"{path}: cannot be read ({error.strerror})",
                "mend its mode, or name it in .gitignore",
            ) from error
        if (before.st_mtime_ns, before.st_size, before.st_ino) == (
            after.st_mtime_ns,
            len(content),
            after.st_ino,
        ):
            return content
        time.sleep(0.02 * 2**attempt)
    raise input_error(
        f"{path} changes while it is read", "name it in .gitignore if it is no code, or run again"
    )


def _drop_old(folder: str, current: str) -> None:
    for path in (
        os.path.join(folder, name)
        for name in os.listdir(folder)
        if re.fullmatch(r"code\.\d+\.part", name)
    ):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - os.stat(path).st_mtime > _ABANDONED_S:
                os.unlink(path)
    paths = [
        os.path.join(folder, name)
        for name in os.listdir(folder)
        if re.fullmatch(r"code-\w+\.tar\.gz", name)
    ]
    others = sorted(
        (path for path in paths if path != current), key=lambda path: -os.stat(path).st_mtime
    )
    for path in others[_KEPT:]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


# -- what git says


def _describe_git(project: str, folder: str) -> dict[str, Any]:
    """Commit, branch and whether something is not committed; that difference goes to code.diff."""
    commit = ask(["git", "-C", project, "rev-parse", "HEAD"])
    branch = ask(["git", "-C", project, "symbolic-ref", "--short", "--quiet", "HEAD"])
    changed = ask(["git", "--no-optional-locks", "-C", project, "status", "--porcelain", "--", "."])
    dirty = bool(changed.ok and changed.text.strip())
    diff = os.path.join(folder, "code.diff")
    if dirty and commit.ok:
        # Readable by its owner alone: it may hold lines of a file that nobody else may read.
        _write_diff(project, diff)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(diff)
    return {
        "commit": commit.text.strip() if commit.ok else None,
        "branch": branch.text.strip() if branch.ok else None,
        "dirty": dirty,
    }


def _write_diff(project: str, path: str) -> None:
    with replacing(path) as partial, open(partial, "wb", opener=private_opener) as file:
        stream(
            [
                "git",
                "-C",
                project,
                "--no-pager",
                "diff",
                "--binary",
                "--no-ext-diff",
                "HEAD",
                "--",
                ".",
            ],
            file.write,
        )


# -- what the command names


def _find_named(
    named: NamedPaths, workdir: str, project: str, code: set[str]
) -> tuple[list[str], list[str]]:
    """Paths that commands name: those in the project that are no code, and files of the project named absolutely."""
    known = {*code, *(folder for name in code for folder in _folders_above(name))}
    kept = [pattern.partition("*")[0].rstrip("/") for pattern in named.outputs]
    others = [item for item in (*named.data, *kept) if item]
    links, live = [], []
    for word in named.words:
        path = os.path.normpath(os.path.join(workdir, word))
        if os.path.isabs(word):
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        name = os.path.relpath(path, os.path.realpath(project) if os.path.isabs(word) else project)
        if name.split(os.sep)[0] in (os.pardir, os.curdir) or not os.path.exists(path):
            continue
        if os.path.isabs(word):
            live += [word] if name in known else []
        elif name not in known and not any(
            name == item or name.startswith(item + os.sep) for item in others
        ):
            # The whole of what is not code: half of an environment or of a dataset is of no use.
            top = [folder for folder in _folders_above(name) if folder not in known]
            links.append(top[-1] if top else name)
    return sorted(set(links)), sorted(set(live))


def _folders_above(name: str) -> Iterator[str]:
    """The folders that a relative path is in, the innermost first."""
    while name := os.path.dirname(name):
        yield name


def _say_of(project: str, links: Sequence[str], live: Sequence[str]) -> None:
    for name in links:
        print(
            f"note: {name} is not part of the frozen code: trials use it where it is, in {project}",
            file=sys.stderr,
        )
    for name in live:
        print(
            f"warning: {name} is named with its whole path: trials use it as it will be then, not as it is now",
            file=sys.stderr,
        )


def _warn_of_links(project: str, files: Sequence[CodeFile], others: Sequence[str]) -> None:
    """Name links that lead to nothing in a copy of the project. `others` are paths that a node has besides the code."""
    known = {file.name for file in files}
    known |= {folder for name in known for folder in _folders_above(name)}

    def travels(name: str) -> bool:
        path = os.path.join(project, name)
        return name in known or any(
            path == other or path.startswith(other + os.sep) for other in others
        )

    lost = find_lost_links(
        project, (file.name for file in files if stat.S_ISLNK(file.mode)), travels
    )
    if lost:
        print(f"warning: {render_lost_links('the code', lost)}", file=sys.stderr)


def _say_if_changed(paths: StudyPaths, code: Mapping[str, Any]) -> None:
    before = read_plan_if_there(paths.plan).code
    if before and before.get("key") != code["key"]:
        print(
            f"note: the code has changed since the last run: it was {render_code(before)} and is {render_code(code)} "
            "now; trials that have not begun yet use it as it is now",
            file=sys.stderr,
        )
