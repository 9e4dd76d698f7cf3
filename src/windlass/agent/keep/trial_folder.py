"""A working folder of its own for each trial. Python 3.9, standard library.

Each slot has a private copy of the project, below the agent's folder on the local disk: `slot-3/<project>`. The state
of every file in it is remembered. When a trial has ended, a look at all files tells what the trial wrote; then what it
added is removed and what it changed is restored, so that the next trial in the slot finds the project as it was. The
copy is made once a slot and costs as much as `cp -a`; a look costs about 3 µs a file.

What interpreters keep in `__pycache__` stays: it depends on the code alone and saves every trial from compiling it.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from typing import Dict, List, Mapping, Optional, Protocol, Sequence, Set, Tuple

from windlass.agent.keep.finder import Place
from windlass.agent.keep.output_paths import Meant, OutputPaths
from windlass.agent.node.trees import copy_tree, remove_tree

Signature = Tuple[int, int, int, int]  # size, times of change of content and of the file, inode
Manifest = Dict[str, Tuple[int, ...]]  # name → size and time
_CACHE = "__pycache__"
_SLOT = "slot-"
_FRESH_S = 0.05  # a look that is older is taken again before files are removed


class Origin(Protocol):
    """Where working folders are copied from."""

    root: str  # the project
    notes: Set[str]  # what a user should know of the copies

    def fill(self, target: str) -> None:
        """Make `target` a copy of the project. Raises OSError."""

    def restore(self, name: str, path: str) -> None:
        """Put the file or link `name` of the project back at `path`, where nothing is."""

    def refresh(self, target: str, known: "Tree") -> bool:
        """Bring a copy up to date with the project. Returns whether anything was changed."""

    def find_shared_writes(self) -> List[str]:
        """Folders of the project that trials share through links, and that have changed since the first trial."""


class Tree:
    """All files, links and folders below a folder, by relative path."""

    def __init__(self, root: str) -> None:
        """Raises OSError where a folder cannot be read."""
        self.files: Dict[str, Signature] = {}
        self.folders: Set[str] = set()
        pending = [""]
        while pending:
            below = pending.pop()
            with os.scandir(os.path.join(root, below)) as entries:
                for entry in entries:
                    name = below + entry.name
                    if not entry.is_dir(follow_symlinks=False):
                        self.files[name] = sign(entry.stat(follow_symlinks=False))
                    elif entry.name != _CACHE:
                        self.folders.add(name)
                        pending.append(name + os.sep)

    def changed_since(self, before: "Tree") -> List[str]:
        """Files and links that are new or different now."""
        known = before.files
        return sorted(
            name for name, signature in self.files.items() if known.get(name) != signature
        )


def sign(status: os.stat_result) -> Signature:
    """What differs once a file was written to, replaced, or had its mode or times changed."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class FrozenOrigin:
    """The agent's own copy of the frozen code. Nobody changes it once trials begin."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.notes: Set[str] = set()

    def fill(self, target: str) -> None:
        copy_tree(self.root, target)

    def restore(self, name: str, path: str) -> None:
        copy_file(os.path.join(self.root, name), path)

    def refresh(self, target: str, known: Tree) -> bool:
        return False

    def find_shared_writes(self) -> List[str]:
        return []


class _Copy:
    """The working folder of one slot."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.before = Tree(project)  # as it is when a trial begins
        self.now: Optional[Tree] = None  # as the trial left it, once that was looked at
        self.looked = 0.0  # when


class TrialFolders:
    """The working folders of an agent's slots."""

    def __init__(
        self, origin: Origin, root: str, workdir: str, outputs: Optional[OutputPaths] = None
    ) -> None:
        """`root` is a folder of the agent's own; `workdir` is where in the project commands are executed.

        What `outputs` mean is never a link to a place that trials share.
        """
        self._outputs = outputs or OutputPaths()
        # Links of the project that were replaced by what they lead to.
        self._unlinked: Set[str] = set()
        self._origin = origin
        self._root = root
        self._inside = os.path.relpath(workdir, origin.root)
        self._copies: Dict[int, _Copy] = {}
        self._aside = 0

    @property
    def root(self) -> str:
        return self._root

    def project_of(self, slot: int) -> str:
        """The slot's copy of the project, whether it is there yet or not."""
        return slot_project(self._root, self._origin.root, slot)

    def workdir_of(self, slot: int) -> str:
        return os.path.normpath(os.path.join(self.project_of(slot), self._inside))

    def enter(self, slot: int) -> str:
        """Make the folder ready for a trial and return where the command is to be executed. Raises OSError."""
        project = self.project_of(slot)
        copy = self._copies.get(slot)
        if copy is None:
            remove_tree(os.path.dirname(project))
            os.makedirs(os.path.dirname(project), mode=0o700)
            self._origin.fill(project)
            self._replace_links(project)
            os.makedirs(self.workdir_of(slot), exist_ok=True)
            self._copies[slot] = _Copy(project)
        elif self._origin.refresh(project, copy.before):
            copy.before = Tree(project)
        return self.workdir_of(slot)

    def written(self, slot: int) -> List[str]:
        """Files and links that the trial in the slot wrote, relative to the project; it has ended."""
        copy = self._copies.get(slot)
        if copy is None:
            return []
        try:
            copy.now = Tree(copy.project)
        except OSError:
            _open_folders(copy.project)
            copy.now = Tree(copy.project)
        copy.looked = time.monotonic()
        return copy.now.changed_since(copy.before)

    def clear(self, slot: int, discard: bool = False) -> None:
        """Put the folder back as it was. With `discard`, or where that fails, a new copy replaces it."""
        copy = self._copies.get(slot)
        if copy is None:
            return
        try:
            if not discard:
                self._put_back(copy)
                return
        except OSError:
            pass  # a folder that a trial has closed to us, or a full disk: begin anew
        remove_tree(os.path.dirname(self.set_aside(slot)))

    def place_of(self, slot: int) -> Place:
        """Where the trial in the slot was executed, and what it wrote there; it has ended."""
        project = self.project_of(slot)
        written = {os.path.join(project, name) for name in self.written(slot)}
        made = {os.path.join(project, name) for name in self._made(slot)}
        return Place(project, self.workdir_of(slot), written, made)

    def _made(self, slot: int) -> Set[str]:
        """Folders that the trial made, relative to the project, as of the last look."""
        copy = self._copies.get(slot)
        return set() if copy is None or copy.now is None else copy.now.folders - copy.before.folders

    def manifest(self, slot: int) -> Manifest:
        """Size and time of the files in a folder in which no trial has begun yet."""
        return {name: signature[:2] for name, signature in self._copies[slot].before.files.items()}

    def to_json(self) -> Dict[str, str]:
        """What `place_left` has to be given to find the folders of an agent that is gone."""
        return {"root": self._root, "code": self._origin.root, "inside": self._inside}

    def set_aside(self, slot: int) -> str:
        """Move the folder away with all that is in it; the slot's next trial gets another. Returns the new path."""
        copy = self._copies.pop(slot, None)
        if copy is None:
            return ""
        self._aside += 1
        folder = os.path.dirname(copy.project)
        aside = os.path.join(self._root, f"aside-{slot}-{self._aside}")
        os.rename(folder, aside)
        return os.path.join(aside, os.path.basename(copy.project))

    def _replace_links(self, project: str) -> None:
        """Links that outputs name become a folder, or a copy of the file: else all trials would write to one place."""
        for name in Tree(project).files:
            path = os.path.join(project, name)
            if not os.path.islink(path) or self._outputs.meaning(name) is Meant.NO:
                continue
            is_folder, is_file = os.path.isdir(path), os.path.isfile(path)
            if is_folder:
                os.unlink(path)
                os.mkdir(path)
            elif is_file:
                os.unlink(path)
                shutil.copyfile(os.path.join(self._origin.root, name), path)
                self._unlinked.add(name)

    def find_shared_writes(self) -> List[str]:
        return self._origin.find_shared_writes()

    @property
    def notes(self) -> List[str]:
        """What a user should know of the folders that were made."""
        return sorted(self._origin.notes)

    def _put_back(self, copy: _Copy) -> None:
        now, copy.now = copy.now, None
        if now is None or time.monotonic() - copy.looked > _FRESH_S:
            now = Tree(copy.project)
        before = copy.before
        dirty = [name for name in now.changed_since(before) if name in before.files]
        for name in now.files.keys() - before.files.keys():
            os.unlink(os.path.join(copy.project, name))
        for name in sorted(now.folders - before.folders, reverse=True):
            remove_tree(os.path.join(copy.project, name))  # with what interpreters left in it
        for name in sorted(before.folders - now.folders):
            os.mkdir(os.path.join(copy.project, name))
        for name in (*dirty, *(before.files.keys() - now.files.keys())):
            path = os.path.join(copy.project, name)
            if name in now.files:
                os.unlink(path)
            if name in self._unlinked:
                shutil.copyfile(os.path.join(self._origin.root, name), path)
            else:
                self._origin.restore(name, path)
            before.files[name] = sign(os.lstat(path))


def slot_project(root: str, project: str, slot: int) -> str:
    """Where the working folder of a slot is, below the agent's folder `root`."""
    return os.path.join(root, f"{_SLOT}{slot}", os.path.basename(project))


def place_left(
    folders: Mapping[str, str], slot: int, aside: str, manifest: Mapping[str, Sequence[int]]
) -> Place:
    """Where a trial of a dead agent was executed, and what it wrote there; `aside` is where its folder was moved to."""
    project = aside or slot_project(folders["root"], folders["code"], slot)
    files: Dict[str, Signature] = {}
    folders_there: Set[str] = set()
    try:
        tree = Tree(project)
        files, folders_there = tree.files, tree.folders
    except OSError:
        pass  # it had not begun
    written = {name for name, found in files.items() if tuple(manifest.get(name, ())) != found[:2]}
    links = {
        name for name in written if name in manifest and os.path.islink(os.path.join(project, name))
    }
    workdir = os.path.normpath(os.path.join(project, folders["inside"]))
    # Which folders there were before is not on record, but the code has no empty ones, and others are not kept.
    made = {os.path.join(project, name) for name in folders_there}
    return Place(project, workdir, {os.path.join(project, name) for name in written - links}, made)


def copy_file(source: str, path: str) -> None:
    """A copy of a file with its mode and times, or of a link."""
    status = os.lstat(source)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), path)
        return
    shutil.copyfile(source, path)
    os.chmod(path, stat.S_IMODE(status.st_mode) | stat.S_IWUSR)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _open_folders(root: str) -> None:
    """Folders that a trial has closed to everybody can be read again."""
    os.chmod(root, 0o700)
    for folder, names, _ in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(path, 0o700)
