"""Compares a project with the code that a study was submitted with."""

from __future__ import annotations

import difflib
import os
import stat
import tarfile
from dataclasses import dataclass
from typing import Literal

from windlass.bundle.code import read_stable
from windlass.bundle.tree import CodeFile, list_code
from windlass.core.errors import FolderError
from windlass.core.paths import StudyPaths
from windlass.core.planfile import PlanFile

Held = tuple[int, bytes]  # mode with its type, content or target of a link


@dataclass(frozen=True)
class Change:
    """A file that is not what it was. None: it was or is not there."""

    name: str
    before: Held | None
    after: Held | None

    @property
    def kind(self) -> Literal["A", "M", "D"]:
        if self.before is None:
            return "A"
        return "M" if self.after is not None else "D"

    def render_patch(self) -> str:
        """As `diff -u` writes it."""
        old, new = (_lines(held) for held in (self.before, self.after))
        if old is None or new is None:
            return f"Binary file {self.name} differs\n"
        before = f"a/{self.name}" if self.before is not None else os.devnull
        after = f"b/{self.name}" if self.after is not None else os.devnull
        lines = list(difflib.unified_diff(old, new, before, after))
        if self.before is not None and self.after is not None and self.before[0] != self.after[0]:
            lines.insert(0, f"mode of {self.name}: {self.before[0]:o} → {self.after[0]:o}\n")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def _lines(held: Held | None) -> list[str] | None:
    if held is None:
        return []
    try:
        return held[1].decode("utf-8").splitlines(keepends=True)
    except UnicodeDecodeError:
        return None


def find_changes(plan: PlanFile, paths: StudyPaths) -> list[Change]:
    """By name. `plan` is plan.json of a study with frozen code."""
    code = plan.code or {}
    before = _read_archive(code["archive"])
    data = [entry["project"] for entry in plan.data or [] if entry.get("project")]
    files = {
        file.name: file
        for file in list_code(code["origin"], [*_study_folders(code["origin"], paths), *data])
    }
    changes = []
    for name in sorted({*before, *files}):
        after = _read(code["origin"], files[name]) if name in files else None
        if before.get(name) != after:
            changes.append(Change(name, before.get(name), after))
    return changes


def _study_folders(project: str, paths: StudyPaths) -> list[str]:
    root = os.path.dirname(paths.folder)
    return [paths.folder, paths.hpc_outputs, *([root] if root != project else [])]


def _read(project: str, file: CodeFile) -> Held | None:
    content = read_stable(os.path.join(project, file.name), file.mode)
    return None if content is None else (file.mode, content)


def _read_archive(path: str) -> dict[str, Held]:
    held: dict[str, Held] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.issym():
                    held[member.name] = (stat.S_IFLNK | member.mode, os.fsencode(member.linkname))
                elif (content := archive.extractfile(member)) is not None:
                    held[member.name] = (stat.S_IFREG | member.mode, content.read())
    except (OSError, tarfile.TarError, EOFError) as error:
        raise FolderError(f"{path}: the code of this study cannot be read: {error}") from error
    return held
