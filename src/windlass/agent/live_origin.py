"""Working folders made from a project that is used as it is, not frozen. Python 3.9, standard library.

Code is copied, and copied again when it was edited since. What is no code (data, environments, large files) is reached
through links. What the study keeps as outputs is neither: a trial finds no output of anybody else in its folder.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from windlass.agent.trial_folder import Tree, copy_file

_PLACEHOLDER = re.compile(r"\{[^{}]*\}|\$\w+|\$\{\w+\}")
_OURS = ("__pycache__", ".windlass")
_SMALL_BYTES = 1 << 20  # files that are no code are copied up to this size
_MOST_ENTRIES = 1000  # of a folder that outputs go to
_MOST_NEIGHBOURS = 256  # of the project, for paths that begin with ../
_NO, _ABOVE, _YES = 0, 1, 2  # whether an output pattern means a path, or something below it


class LiveOrigin:
    """The project itself. `code` are the names of its code files, `outputs` patterns relative to the project."""

    def __init__(self, root: str, code: Sequence[str], outputs: Sequence[str]) -> None:
        self.root = root
        self._code = list(code)
        self._known: Set[str] = set(code)
        self._folders = sorted({"", *(folder for name in code for folder in _folders_above(name))})
        self._outputs = [pattern for pattern in map(_components, outputs) if pattern]
        self._copied: Dict[str, Dict[str, Tuple[int, int]]] = {}  # copy → code file → size and time it had
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
        source = os.path.join(self.root, name)
        status = os.lstat(source)
        meant = self._is_output(name)
        if stat.S_ISDIR(status.st_mode) and meant != _NO:
            os.makedirs(path, exist_ok=True)
            entries = os.listdir(source) if meant == _ABOVE else []
            for entry in entries if len(entries) <= _MOST_ENTRIES else []:
                self._add(os.path.join(name, entry), os.path.join(path, entry))
        elif meant == _YES:
            return
        elif stat.S_ISREG(status.st_mode) and status.st_size <= _SMALL_BYTES:
            self._copy_code(name, path)
        else:
            os.symlink(source, path)

    def _is_output(self, name: str) -> int:
        parts = name.split(os.sep)
        found = _NO
        for pattern in self._outputs:
            if len(parts) > len(pattern) or not all(map(fnmatch.fnmatchcase, parts, pattern)):
                continue
            if len(parts) == len(pattern):
                return _YES
            if pattern[len(parts) - 1] != "**":
                found = _ABOVE
        return found

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


def _components(pattern: str) -> List[str]:
    """A pattern as folder names; nothing where it leads out of the project."""
    if pattern.startswith(("/", "$", "~")):
        return []
    parts = os.path.normpath(_PLACEHOLDER.sub("*", pattern)).split(os.sep)
    return [] if parts[0] == os.pardir else parts


def _folders_above(name: str) -> Iterator[str]:
    while name := os.path.dirname(name):
        yield name


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
