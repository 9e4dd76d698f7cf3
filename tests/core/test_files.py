"""A file is replaced whole or not at all, and of several that would be the first one is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from windlass.core.files import replacing, write_first, write_whole


def test_text_and_bytes_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(str(path), b"bytes")
    write_whole(str(path), "text ü \udcff", sync=True)
    assert path.read_bytes() == "text ü ".encode() + b"\xff"
    assert os.listdir(tmp_path) == ["file"]


def test_a_mode_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(str(path), "x", mode=0o640)
    assert path.stat().st_mode & 0o777 == 0o640


def test_an_error_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(RuntimeError), replacing(str(path)) as partial:
        Path(partial).write_text("half")
        raise RuntimeError
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("has_links", [True, False])
def test_the_first_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    assert write_first(str(path), "first") and not write_first(str(path), "second")
    assert path.read_text() == "first" and os.listdir(tmp_path) == ["file"]
