"""Makes an unpacked tree read-only, and finds out later whether anybody has changed it. Python 3.9, standard library.

Permissions keep a program from writing by mistake, but they do not hold for root, and an owner can lift them. So the
store also writes down what every file is when the tree is made. The record is compared before the tree is used again.
Reading 20,000 records and files takes about a tenth of a second, because no content is read: whoever changes a file
changes its size, its times or its inode, and nobody can set the time of the last change of an inode (ctime).
"""

from __future__ import annotations

import os
import stat
from typing import Dict, List, Optional

_HEADER = b"windlass seal 1\n"
_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
# What a tree loses when it is sealed. A set-user-id program of an archive would run with the rights of its owner here.
_TAKEN = _WRITE | stat.S_ISUID | stat.S_ISGID
_SHOWN = 3  # changed files that are named


def seal_tree(root: str) -> bytes:
    """Take away all permissions to write below `root`, itself included, and all set-user-id and set-group-id bits.

    Returns the record for `find_changes`.
    """
    return _render(_walk(root, is_to_close=True))


def find_changes(root: str, record: bytes) -> str:
    """What is not as it was when the record was made, in a few words; "" if nothing has changed.

    Only links that are symbolic may lead into a sealed tree: a hard link changes the inode that it leads to.
    """
    before = _parse(record)
    if before is None:
        return "there is no record of what was unpacked"
    try:
        now = _walk(root, is_to_close=False)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    if now == before:
        return ""
    changes = [f"{name} is gone" for name in before if name not in now]
    changes += [f"{name} was added" for name in now if name not in before]
    changes += [f"{name} has changed" for name in now if before.get(name, now[name]) != now[name]]
    more = f", and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return ", ".join(sorted(changes)[:_SHOWN]) + more


def open_tree(root: str) -> None:
    """Let the owner write again to `root` and all below it: for copies of a sealed tree, or of one file."""
    _open(root)
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            _open(os.path.join(folder, name))


def _open(path: str) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISLNK(mode) and not mode & stat.S_IWUSR:
        os.chmod(path, stat.S_IMODE(mode) | stat.S_IWUSR)


def _walk(root: str, is_to_close: bool) -> Dict[str, str]:
    """Relative path → what identifies the state of a file, link or folder."""
    found = {}
    if is_to_close:
        _close(root, os.lstat(root))
    pending = [""]
    while pending:
        inside = pending.pop()
        for entry in _list(os.path.join(root, inside)):
            name = os.path.join(inside, entry.name)
            status = entry.stat(follow_symlinks=False)
            if is_to_close:
                status = _close(entry.path, status)
            found[name] = _describe(status)
            if stat.S_ISDIR(status.st_mode):
                pending.append(name)
    return found


def _list(folder: str) -> "List[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        return []  # an archive may hold a folder that is closed to its owner: nobody reads or writes there


def _close(path: str, status: os.stat_result) -> os.stat_result:
    if stat.S_ISLNK(status.st_mode) or not status.st_mode & _TAKEN:
        return status
    os.chmod(path, stat.S_IMODE(status.st_mode) & ~_TAKEN)
    return os.lstat(path)


def _describe(status: os.stat_result) -> str:
    if stat.S_ISDIR(status.st_mode):
        # Its times change with a lock file that comes and goes; what is in it is listed anyway.
        return f"{status.st_mode:o} {status.st_ino}"
    return f"{status.st_mode:o} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _render(found: Dict[str, str]) -> bytes:
    return (
        _HEADER + b"".join(os.fsencode(f"{name}\0{what}\0") for name, what in found.items()) + b"."
    )


def _parse(record: bytes) -> Optional[Dict[str, str]]:
    """None where the record is missing or cut short."""
    if not record.startswith(_HEADER) or not record.endswith(b"."):
        return None
    fields = os.fsdecode(record[len(_HEADER) : -1]).split("\0")
    return dict(zip(fields[:-1:2], fields[1::2]))  # noqa: B905 (Python 3.9)
