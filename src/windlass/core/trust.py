"""Decides whether a study's folder may be obeyed, and keeps what is written there closed to other users. Python 3.9.

A study's folder holds commands that its owner's next command, or a job that waited for days, executes. So nobody else
may write to it, unless the study has `share: group`: then the members of the folder's group may.
Nor is it obeyed in a copy of the project that it belongs to: its commands would be executed in the original.
"""

from __future__ import annotations

import functools
import os
import pwd
import shlex
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from windlass.core.errors import FolderError, InputError, input_error
from windlass.core.ids import slug
from windlass.core.openness import GROUP, OTHERS, readers
from windlass.core.paths import STUDIES, StudyPaths, find_project
from windlass.core.planfile import PlanFile, read_plan_file

SHARED = "shared"  # a file in a study's folder: the folder's owner lets its group write there
_SHARED_TEXT = "windlass: members of this folder's group may change this study.\n"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_DEFAULT_ACL = "system.posix_acl_default"
_ACL_ENTRY = struct.Struct("<HHI")
_ACL_HEAD = 4  # bytes: the version
_ACL_MASK, _ACL_GROUP, _ACL_ANYBODY, _ACL_WRITE = 0x10, 0x04, 0x20, 2
_MOST_SHOWN = 5
_WITH_PATHS = (
    "workdir",
    "project_dir",
    "scratch_dir",
    "source",
    "code",
    "data",
    "live",
    "environment",
    "terms",
)  # keys of plan.json


# -- what is written


def close_umask(shared: bool = False) -> None:
    """Close files that this process makes from now on to other users' writing; with `shared`, open them to the group.

    Members of the group then may read and write them, whatever the user's umask is. The umask that
    the user has set is kept for programs of the user's own: see `given_umask`.
    """
    given = given_umask()
    if shared:
        # A umask of 077 would leave the group the right to write and no right to read.
        os.umask((given & ~stat.S_IRWXG) | stat.S_IWOTH)
    else:
        os.umask(given | _OTHERS)


@functools.cache
def given_umask() -> int:
    """The umask that this process was started with."""
    given = os.umask(0o077)
    os.umask(given)
    return given


@contextmanager
def as_given() -> Iterator[None]:
    """For what belongs to the user and lies outside of studies' folders, and for starting the user's programs.

    For one thread only.
    """
    own = os.umask(given_umask())
    try:
        yield
    finally:
        os.umask(own)


def make_folders(paths: StudyPaths, share: bool) -> None:
    """Make the folders of a study, closed to other users' writing, or, with `share`, open to their group.

    Folders that are there keep their mode, except that their owner opens and closes them by `share`. Raises OSError,
    and FolderError where others could have written what would be obeyed.
    """
    close_umask(share)
    _make_folder(os.path.dirname(paths.folder), share)
    for folder in paths.folders():
        _make_folder(folder, share)
        _close_default_acl(folder)
        _close_private_group(folder)
    if os.stat(paths.folder).st_uid == os.geteuid() and share != is_shared(paths.folder):
        _change_sharing(paths, share)
    if not share:
        _close_checkpoints(paths.checkpoints)
    check_trust(paths)


def _make_folder(folder: str, share: bool) -> None:
    """Make a folder that is not there. Its mode is set, because the umask does not count where rights are inherited."""
    if os.path.isdir(folder):
        return
    os.makedirs(folder, exist_ok=True)
    if not share:
        _close_default_acl(folder)
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) & ~_OTHERS)


def close_like(folder: str, source: str) -> None:
    """Close a study's folder to those who may not read the study file: its commands and settings are written there."""
    try:
        wanted, found = os.stat(source), os.stat(folder)
    except OSError:
        return  # The study was given on the command line.
    allowed = readers(wanted, found.st_gid)
    closed = 0 if allowed & OTHERS else stat.S_IRWXO
    if not allowed & GROUP and not is_shared(folder):
        closed |= stat.S_IRWXG
    if found.st_mode & closed and found.st_uid == os.geteuid():
        os.chmod(folder, stat.S_IMODE(found.st_mode) & ~closed)


def is_shared(folder: str) -> bool:
    """Whether the owner of a study's folder has opened it to its group.

    The mark counts only if it is the owner's own file, with our text, and closed to others: whoever can write to the
    folder cannot make one.
    """
    try:
        with open(os.path.join(folder, SHARED), encoding="utf-8", errors="replace") as file:
            mark, owner = os.fstat(file.fileno()), os.stat(folder)
            text = file.read(len(_SHARED_TEXT) + 1)
    except OSError:
        return False
    return mark.st_uid == owner.st_uid and not mark.st_mode & _OTHERS and text == _SHARED_TEXT


def _change_sharing(paths: StudyPaths, share: bool) -> None:
    """Open or close what is there. The folder of the scheduler's logs stays open: other studies share it."""
    folders = [*paths.folders(), paths.outputs]
    if not share:
        os.unlink(os.path.join(paths.folder, SHARED))
        folders.remove(paths.hpc_outputs)
    for folder in folders:
        for path in [folder, *_files_in(folder)]:
            _set_group_write(path, share)
    if share:
        _write_mark(paths.folder)
        if os.stat(paths.hpc_outputs).st_uid == os.geteuid():
            _write_mark(paths.hpc_outputs)


def _write_mark(folder: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(os.path.join(folder, SHARED), flags, 0o644)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        os.fchmod(descriptor, 0o644)
        file.write(_SHARED_TEXT)


def _set_group_write(path: str, share: bool) -> None:
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid():
        return
    mode = stat.S_IMODE(status.st_mode)
    if not share:
        os.chmod(path, mode & ~_OTHERS)
    elif stat.S_ISDIR(status.st_mode):
        os.chmod(path, mode | stat.S_ISGID | stat.S_IRWXG)
    elif status.st_mode & stat.S_IRGRP:  # what the group may not read stays closed
        os.chmod(path, mode | stat.S_IWGRP)


def _files_in(folder: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []


def _close_checkpoints(folder: str) -> None:
    """Let nobody else enter, if the user's umask lets others write: trials write checkpoints with that umask.

    Loading a checkpoint may execute what is in it.
    """
    status = os.stat(folder)
    may_write = _OTHERS & ~given_umask()
    if _is_private_group(status.st_gid):
        may_write &= ~stat.S_IWGRP
    if may_write and status.st_uid == os.geteuid():
        os.chmod(folder, stat.S_IMODE(status.st_mode) & stat.S_IRWXU)


def _close_private_group(folder: str) -> None:
    """Nobody but its owner is in this group: writing is taken from it in case that somebody joins."""
    status = os.stat(folder)
    if (
        status.st_uid == os.geteuid()
        and status.st_mode & stat.S_IWGRP
        and _is_private_group(status.st_gid)
    ):
        os.chmod(folder, stat.S_IMODE(status.st_mode) & ~stat.S_IWGRP)


def _close_default_acl(folder: str) -> None:
    """Take the right to write out of the list of rights that new files inherit: it stands in the place of the umask."""
    try:
        rights = os.getxattr(folder, _DEFAULT_ACL)
        if os.stat(folder).st_uid == os.geteuid() and not is_shared(folder):
            os.setxattr(folder, _DEFAULT_ACL, without_write(rights))
    except OSError:
        pass  # There is none, which is the usual case, or the file system has none.


def without_write(rights: bytes) -> bytes:
    """A POSIX access control list, as Linux stores it, in which only the owner may write."""
    entries = []
    for tag, permissions, number in _ACL_ENTRY.iter_unpack(rights[_ACL_HEAD:]):
        left = (
            permissions & ~_ACL_WRITE
            if tag in (_ACL_MASK, _ACL_GROUP, _ACL_ANYBODY)
            else permissions
        )
        entries.append(_ACL_ENTRY.pack(tag, left, number))
    return rights[:_ACL_HEAD] + b"".join(entries)


# -- what is obeyed


def check_trust(paths: StudyPaths, every_file: bool = True) -> None:
    """Raise FolderError where somebody else could have written what the folder's next command would obey.

    With `every_file`, all journals are looked at too; agents leave that out, because there may be thousands of both.
    A study that does not exist yet is in order. Sets the umask for what is written there.
    """
    shared = is_shared(paths.folder)
    close_umask(shared)
    faults = find_faults(paths, shared, every_file)
    if not faults:
        return
    shown = [f"{path}: {fault}" for path, fault in list(faults.items())[:_MOST_SHOWN]]
    if len(faults) > _MOST_SHOWN:
        shown.append(f"and {len(faults) - _MOST_SHOWN} more")
    raise FolderError("\n".join([*shown, f"  hint: {_advise(paths, faults)}"]))


def find_faults(paths: StudyPaths, shared: bool, every_file: bool) -> dict[str, str]:
    """Path → what is wrong, for each folder and file that others could have written. Empty: all is in order."""
    obeyed = _obeyed(paths, every_file)
    if not obeyed:
        return {}
    group = obeyed[0][1].st_gid if shared else None
    faults = {path: _fault(status, os.geteuid(), True, group) for path, status in obeyed}
    if any(faults.values()):
        uid, keeps_modes = _look_at_file_system(paths.folder)
        faults = {path: _fault(status, uid, keeps_modes, group) for path, status in obeyed}
    return {path: fault for path, fault in faults.items() if fault}


def find_fault(path: str) -> str:
    """Why what lies in this folder must not be executed; "" where it is in order, or not there."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    fault = _fault(status, os.geteuid(), True)
    if not fault:
        return ""
    fault = _fault(status, *_look_at_file_system(path))
    return f"{path}: {fault}; what lies there would be executed with your rights" if fault else ""


def _obeyed(paths: StudyPaths, every_file: bool) -> list[tuple[str, os.stat_result]]:
    """What a command or an agent executes, or takes its orders from; the study's folder comes first."""
    names = ("measured.json", "environment.json")
    files = [
        paths.plan,
        paths.trials,
        paths.trials_index,
        paths.agent,
        paths.warm,
        paths.study_file,
        paths.job_script,
    ]
    found = [
        paths.folder,
        paths.claims,
        paths.journal,
        paths.output,
        paths.outputs,
        paths.checkpoints,
        *files,
    ]
    found += [os.path.join(paths.folder, name) for name in names]
    found += _files_in(paths.claims)
    if not is_shared(paths.hpc_outputs):
        # The scheduler writes logs there, with our rights, also through links.
        found.append(paths.hpc_outputs)
    if every_file:
        found += _files_in(paths.journal)
    looked = []
    for path in found:
        try:
            looked.append((path, os.stat(path)))
        except OSError:
            continue
    return looked if looked and looked[0][0] == paths.folder else []


def _fault(status: os.stat_result, uid: int, keeps_modes: bool, group: int | None = None) -> str:
    if status.st_uid not in (uid, 0) and not (group is not None and status.st_gid == group):
        return f"belongs to {_user_name(status.st_uid)}, not to you"
    if not keeps_modes:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "everybody can write to it"
    if status.st_mode & stat.S_IWGRP and group is None and not _is_private_group(status.st_gid):
        return f"the group {_group_name(status.st_gid)} can write to it"
    return ""


def _look_at_file_system(folder: str) -> tuple[int, bool]:
    """The user that owns what we make in this folder, and whether the file system keeps modes.

    A server may map root to nobody, and a mounted Windows disk shows the same owner and mode for every file.
    """
    import tempfile  # slow to import, and seldom needed

    try:
        with tempfile.NamedTemporaryFile(prefix=".mode-", dir=folder) as probe:
            os.fchmod(probe.fileno(), 0o600)
            status = os.fstat(probe.fileno())
    except OSError:
        return os.geteuid(), True
    return status.st_uid, not status.st_mode & _OTHERS


def _is_private_group(number: int) -> bool:
    """Whether a group is that of one user alone, as Debian and Fedora make one for each account."""
    import grp  # needed only for folders that a group may write to

    user = _user_name(os.geteuid())
    try:
        found = grp.getgrgid(number)
    except (KeyError, OSError):
        return number == os.geteuid()
    return found.gr_name == user and all(member == user for member in found.gr_mem)


def _advise(paths: StudyPaths, faults: dict[str, str]) -> str:
    folder = " ".join(
        shlex.quote(path) for path in (paths.folder, paths.hpc_outputs) if _concerns(path, faults)
    )
    if any(fault.startswith("belongs to") for fault in faults.values()):
        return (
            "what lies in a study's folder is executed with your rights; if others are meant to work in it, its owner "
            "sets `share: group` in the study; else use a folder of your own (--folder PATH)"
        )
    return (
        "what lies in a study's folder is executed with your rights; if nobody has changed it, "
        f"`chmod -R g-w,o-w {folder}` closes it; if others are meant to work in it, set `share: group` in the study"
    )


def _concerns(folder: str, faults: dict[str, str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for path in faults)


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OSError):
        return str(number)


def _group_name(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except (KeyError, OSError):
        return str(number)


# -- which project it belongs to: that may have been copied or moved, with the folder in it


def refuse_another(paths: StudyPaths, workdir: str) -> None:
    """Raise InputError where the folder has a study of the same name that runs elsewhere: its results are not ours."""
    try:
        plan_file = read_plan_file(paths.plan, is_checked=False)
        if plan_file.workdir == workdir or os.path.samefile(plan_file.workdir, workdir):
            return
    except (FolderError, OSError, TypeError, ValueError):
        return  # there is none yet, or its project was moved
    raise _belongs_elsewhere(
        paths, plan_file, "give this study another name (`-e NAME`) or place (`--folder PATH`)"
    )


def refuse_copy(paths: StudyPaths) -> None:
    """Raise InputError where the project that we are in is a copy, and the study's trials run in the original."""
    plan_file = _original(paths)
    if plan_file is not None:
        hint = (
            f"`cd {shlex.quote(plan_file.workdir)}` goes to the folder that they run in; "
            "`windlass run -e NAME` makes a study of this folder"
        )
        raise _belongs_elsewhere(paths, plan_file, hint)


def describe_copy(paths: StudyPaths) -> str:
    """A note for whoever looks at a study in a copy of its project; "" where this is the study's own project."""
    plan_file = _original(paths)
    if plan_file is None:
        return ""
    return f"{_where(paths, plan_file)}: commands and paths below are of that folder, which is another than this one"


def follow_move(plan: PlanFile, paths: StudyPaths) -> PlanFile:
    """The plan with the project's paths as they are now, where the project was moved; else the plan as it is."""
    here = _project_here(paths, plan)
    if here is None or os.path.isdir(plan.workdir):
        return plan
    former = plan.project_dir or plan.workdir
    moved = {key: _with_prefix(getattr(plan, key), former, here) for key in _WITH_PATHS}
    # Studies' folders may have been moved alone: what they lie in then is not the project.
    has_source = not moved.get("source") or os.path.isfile(moved["source"])
    return replace(plan, **moved) if has_source and os.path.isdir(moved["workdir"]) else plan


def _with_prefix(value: Any, former: str, now: str) -> Any:
    if isinstance(value, str):
        is_inside = value == former or value.startswith(former + os.sep)
        return now + value[len(former) :] if is_inside else value
    if isinstance(value, list):
        return [_with_prefix(entry, former, now) for entry in value]
    if isinstance(value, dict):
        return {key: _with_prefix(entry, former, now) for key, entry in value.items()}
    return value


def _original(paths: StudyPaths) -> PlanFile | None:
    """The plan of a study whose project is there and is not the one that its folder belongs to here; else None."""
    try:
        plan_file = read_plan_file(paths.plan, is_checked=False)
        here = _project_here(paths, plan_file)
        if here is None or not os.path.isdir(plan_file.workdir):
            return None
        former = plan_file.project_dir or plan_file.workdir
        return None if os.path.samefile(former, here) else plan_file
    except (FolderError, OSError, TypeError, ValueError):
        return None


def _project_here(paths: StudyPaths, plan: PlanFile) -> str | None:
    """The project that a study's folder belongs to by its place; None where its place does not tell."""
    root = os.path.dirname(os.path.realpath(paths.folder))
    if os.path.basename(root) == STUDIES:
        # Where the user has put the folder into another project's, with `--folder`, it lies where the plan says.
        is_put_there = os.path.realpath(plan.scratch_dir) == root
        return None if is_put_there else os.path.dirname(root)
    here = find_project(os.getcwd())
    scratch = os.environ.get("SCRATCH")
    if scratch and os.path.realpath(os.path.join(scratch, slug(os.path.basename(here)))) == root:
        return here
    return None


def _belongs_elsewhere(paths: StudyPaths, plan_file: PlanFile, hint: str) -> InputError:
    return input_error(_where(paths, plan_file), hint)


def _where(paths: StudyPaths, plan_file: PlanFile) -> str:
    source = plan_file.source or plan_file.workdir
    return f"{paths.folder} has the trials of {source}, which run in {plan_file.workdir}"
