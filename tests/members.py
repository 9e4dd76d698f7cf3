"""Shows that a file in the folder of a seam is all that a new member takes."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT
from tests.conftest import Project


def add_member(
    monkeypatch: pytest.MonkeyPatch, package: ModuleType, folder: Path, name: str, text: str
) -> None:
    """Let `package` have one more module for the time of a test, as if the file stood in its folder."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
    importlib.invalidate_caches()


def install_with(project: Project, path: str, text: str) -> Path:
    """Have `project` use a copy of Windlass that has one more file. Returns the folder of the copy's package."""
    copy = project.folder / "copy of windlass" / "windlass"
    shutil.copytree(ROOT / "src" / "windlass", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / path).write_text(text)
    project.env["PYTHONPATH"] = str(copy.parent)
    return copy
