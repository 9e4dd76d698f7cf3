"""Files that stay open and cannot be read any more once the server of their file system was away."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Project
from windlass.core.errors import FolderError
from windlass.core.passing import passing_error
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile


def lose_open_files(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """What is open now answers EIO, as on sshfs after its server was away. The function sets whether the server is."""
    real_open, real_pread = os.open, os.pread
    lost, away = True, True

    def open_file(path: Any, *more: Any, **options: Any) -> int:
        nonlocal lost
        if away:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        lost = False
        return real_open(path, *more, **options)

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        if lost:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real_pread(descriptor, count, offset)

    def set_away(is_away: bool) -> None:
        nonlocal away
        away = is_away

    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "pread", pread)
    return set_away


def test_trials_are_read_after_the_server_was_away(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("study.yaml", "command: 'true {n}'\nparameters: {n: [1, 2, 3]}\n")
    project.run("run", "--on", "local", "--quiet")
    trials = TrialFile(StudyPaths(str(project.study_folder())))
    set_away = lose_open_files(monkeypatch)
    with pytest.raises(FolderError) as error:
        trials.read(1)
    assert passing_error(error.value) is not None, "whoever is patient tries again"
    set_away(False)
    assert trials.read(1)["settings"]["n"] == 2
    assert not trials.is_index_damaged
    trials.close()
