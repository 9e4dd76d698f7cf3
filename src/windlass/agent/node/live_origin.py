"""Working folders made from a project that is used as it is, not frozen. Python 3.9, standard library.

Code is copied, and copied again when it was edited since. So are small folders and files that are no code, and whatever
the study names as outputs: trials write there. Large ones (data, environments) are reached through links.
"""

from __future__ import annotations

import os
import stat
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from windlass.agent.keep.output_paths import Meant, OutputPaths
from windlass.agent.keep.trial_folder import Tree, copy_file
from windlass.agent.node.trees import remove_tree

_OURS = ("__pycache__", ".windlass")
_SMALL_BYTES = 1 << 20  # files that are no code are copied up to this size
_MOST_ENTRIES = 1000  # of a folder that outputs go to
_MOST_NEIGHBOURS = 256  # of the project, for paths that begin with ../
# A folder that is no code is copied up to so many, and up to the size of a small file.
_FEW_ENTRIES = 200
# A file that outputs name is copied up to this size: trials may write over it.
_LARGE_BYTES = 256 << 20


class LiveOrigin:
    """The project itself. `code` are the names of its code files, `outputs` patterns relative to the project."""

    def __init__(self, root: str, code: Sequence[str], outputs: Sequence[str]) -> None:
        self.root = root
        self._code = list(code)
        self._known: Set[str] = set(code)
        self._folders = sorted({"", *(folder for name in code for folder in _folders_above(name))})
        self._outputs = OutputPaths(outputs)
        # Folder that trials reach through a link → time of its last change.
        self._linked: Dict[str, int] = {}
        self.notes: Set[str] = set()  # what a user should know of the folders
        # Copy → code file → size and time it had.
        self._copied: Dict[str, Dict[str, Tuple[int, int]]] = {}
        self._listed: Dict[str, Dict[str, int]] = {}  # copy → folder → time of its last change

    def fill(self, target: str) -> None:
        self._copied[target] = {}
        self._listed[target] = {}
        os.mkdir(target)
        for name in self._folders[1:]:
            os.makedirs(os.path.join(target, name), exist_ok=True)
        self._link_neighbours(os.path.dirname(target))
        self._bring(target)

    def refresh(self, target: str, known: Tree) -> bool:
        return self._bring(target)

    def restore(self, name: str, path: str) -> None:
        if name in self._known:
            self._copy_code(name, path)
        else:
            self._add(name, path)

    def _bring(self, target: str) -> bool:
        """Copy code that is new or was edited, and link what has come since."""
        changed = False
        copied = self._copied[target]
        for name in self._code:
            try:
                status = os.lstat(os.path.join(self.root, name))
                if copied.get(name) == (status.st_size, status.st_mtime_ns):
                    continue
                self._copy_code(name, os.path.join(target, name))
                copied[name] = (status.st_size, status.st_mtime_ns)
            except FileNotFoundError:  # deleted, or an editor is about to replace it
                if copied.pop(name, None) is None:
                    continue
                _unlink(os.path.join(target, name))
            changed = True
        for folder in self._folders:
            changed = self._bring_others(target, folder) or changed
        return changed

    def _copy_code(self, name: str, path: str) -> None:
        source = os.path.join(self.root, name)
        _unlink(path)
        try:
            copy_file(source, path)
        except PermissionError:  # whoever may not read it finds out when a program tries
            _unlink(path)
            os.symlink(source, path)

    def _bring_others(self, target: str, folder: str) -> bool:
        """What is in a folder of the project and is no code. A folder that has not changed is not read again."""
        source = os.path.join(self.root, folder)
        try:
            when = os.stat(source).st_mtime_ns
        except FileNotFoundError:
            return False
        if self._listed[target].get(folder) == when:
            return False
        self._listed[target][folder] = when
        for entry in os.listdir(source):
            name = os.path.join(folder, entry)
            path = os.path.join(target, name)
            if (
                name not in self._known
                and name not in self._folders
                and entry not in _OURS
                and not os.path.lexists(path)
            ):
                self._add(name, path)
        return True

    def _add(self, name: str, path: str) -> None:
        """Bring what is no code: a copy where it is small or trials write there, a link where it is large."""
        source = os.path.join(self.root, name)
        meant = self._outputs.meaning(name)
        # An output is never a link.
        status = os.lstat(source) if meant is Meant.NO else _stat(source)
        if meant is Meant.ABOVE and not stat.S_ISDIR(status.st_mode):
            meant, status = Meant.NO, os.lstat(source)
        if stat.S_ISDIR(status.st_mode) and (meant is not Meant.NO or _is_small(source)):
            os.makedirs(path, exist_ok=True)
            entries = os.listdir(source)
            if len(entries) > _MOST_ENTRIES:
                self.notes.add(
                    f"{name} has more than {_MOST_ENTRIES} entries: trials find it empty, as they write there"
                )
                entries = []
            for entry in entries:
                self._add(os.path.join(name, entry), os.path.join(path, entry))
        elif stat.S_ISREG(status.st_mode) and status.st_size <= (
            _SMALL_BYTES if meant is Meant.NO else _LARGE_BYTES
        ):
            self._copy_code(name, path)
        elif meant is Meant.NO:
            os.symlink(source, path)
            if stat.S_ISDIR(status.st_mode):
                self._linked.setdefault(name, status.st_mtime_ns)
        elif stat.S_ISREG(status.st_mode):
            self.notes.add(
                f"{name} is too large to be copied for each trial: as outputs name it, trials do not find it"
            )

    def find_shared_writes(self) -> List[str]:
        """Folders that all trials share, because they are linked, and that have changed since the first trial began."""
        changed = []
        for name, before in sorted(self._linked.items()):
            if (
                not name.startswith(".")
                and _stat(os.path.join(self.root, name)).st_mtime_ns != before
            ):
                changed.append(name)
        return changed

    def _link_neighbours(self, folder: str) -> None:
        """What lies beside the project, for programs that open ../data."""
        parent = os.path.dirname(self.root)
        try:
            names = os.listdir(parent)
        except OSError:
            return
        for name in names if len(names) <= _MOST_NEIGHBOURS else []:
            path = os.path.join(folder, name)
            if name != os.path.basename(self.root) and not os.path.lexists(path):
                os.symlink(os.path.join(parent, name), path)


def _stat(path: str) -> os.stat_result:
    """Of what a link leads to, where there is anything."""
    try:
        return os.stat(path)
    except OSError:
        return os.lstat(path)


def _is_small(folder: str) -> bool:
    """Whether a folder with all that is in it is quickly copied, for each slot."""
    pending, count, size = [folder], 0, 0
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            return False
        count += len(entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            else:
                size += entry.stat(follow_symlinks=False).st_size
        if count > _FEW_ENTRIES or size > _SMALL_BYTES:
            return False
    return True


def _folders_above(name: str) -> Iterator[str]:
    while name := os.path.dirname(name):
        yield name


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:  # made in the place of a link that outputs name
        remove_tree(path)
