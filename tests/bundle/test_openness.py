"""What is copied is never more open than what it came from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.bundle.folder import close_like
from windlass.bundle.pack import pack_folder
from windlass.bundle.tree import PACKED
from windlass.core.journal.kept import KeptWriter, copy_large
from windlass.core.openness import ANYBODY, GROUP, readers, statuses_above

OTHER_GROUP = 65534


def mode(path: Path | str) -> int:
    return os.stat(path).st_mode & 0o777


def test_who_may_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("")
    own, other = file.stat().st_gid, OTHER_GROUP
    for bits, group, expected in (
        (0o644, other, ANYBODY),
        (0o640, own, GROUP),
        (0o640, other, 0),
        (0o604, other, ANYBODY),
        (0o600, own, 0),
    ):
        file.chmod(bits)
        assert readers(file.stat(), group) == expected
    tmp_path.chmod(0o711)
    assert readers(tmp_path.stat(), own) == 0
    assert readers(statuses_above(str(file), 1)[0], own) == ANYBODY, (
        "who knows the name can open the file"
    )
    tmp_path.chmod(0o700)


def test_an_archive_of_data_is_as_closed_as_its_most_closed_file(tmp_path: Path) -> None:
    data, spare = tmp_path / "home" / "data", tmp_path / "scratch"
    (data / "inner").mkdir(parents=True)
    (data / "inner" / "table").write_text("x")
    (data / "secret").write_text("y")
    data.chmod(0o755)
    spare.mkdir()

    def pack() -> str:
        return pack_folder(str(data), "none", str(spare), lambda _: None).archive

    before = os.umask(0o022)
    try:
        archive = pack()
        assert mode(archive) == 0o644
        (data / "secret").chmod(0o600)
        assert mode(pack()) == 0o600
        (data / "secret").chmod(0o644)
        (data / "inner").chmod(0o700)
        assert mode(pack()) == 0o600
        (data / "inner").chmod(0o755)
        data.parent.chmod(0o700)
        assert pack() == archive and mode(archive) == 0o644, (
            "beside the folder, behind the same door"
        )
        os.rename(data.parent / PACKED, spare / PACKED)
        (moved,) = (spare / PACKED).glob(os.path.basename(archive))
        assert pack() == str(moved) and mode(moved) == 0o600, (
            "one of an earlier version is closed too"
        )
    finally:
        os.umask(before)


def test_kept_outputs_are_as_closed_as_the_files(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("x")
    (tmp_path / "closed").write_text("y")
    (tmp_path / "closed").chmod(0o600)
    folder = tmp_path / "outputs"
    writer = KeptWriter(str(folder), "a")
    writer.add("ta", "open", b"x", (tmp_path / "open").stat(), 1.0)
    assert mode(folder / "a.tar") == 0o644
    writer.add("ta", "closed", b"y", (tmp_path / "closed").stat(), 1.0)
    writer.close()
    assert mode(folder / "a.tar") == 0o600

    inner = tmp_path / "inner"
    inner.mkdir(mode=0o700)
    (inner / "large").write_text("z")
    copy_large(
        str(inner / "large"), str(folder / "ta" / "large"), statuses_above(str(inner / "large"), 1)
    )
    assert mode(folder / "ta" / "large") == 0o600
    (tmp_path / "open").chmod(0o666)
    copy_large(str(tmp_path / "open"), str(folder / "ta" / "open"))
    assert mode(folder / "ta" / "open") == 0o644


def test_the_code_and_what_was_not_committed(project: Project) -> None:
    """A file of mode 600 that git knows: its changes are in the archive and in code.diff, for the owner alone."""
    project.write("private.txt", "before\n").chmod(0o600)
    project.write("study.yaml", "command: cat private.txt\ncode: frozen\n").chmod(0o600)
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=project.folder, check=True)
    project.write("private.txt", "after\n")
    project.run("run", "--on", "local", "-e", "s")
    folder = project.folder / ".windlass" / "s"
    (archive,) = folder.glob("code-*.tar.gz")
    assert "after" in (folder / "code.diff").read_text()
    assert [mode(path) for path in (archive, folder / "code.diff", folder)] == [0o600, 0o600, 0o700]


def test_a_study_file_that_others_may_read(tmp_path: Path) -> None:
    source, folder = tmp_path / "study.yaml", tmp_path / "study"
    source.write_text("")
    folder.mkdir()
    source.chmod(0o644)
    folder.chmod(0o755)
    close_like(str(folder), str(source))
    assert mode(folder) == 0o755
    source.chmod(0o640)
    close_like(str(folder), str(source))
    assert mode(folder) == 0o750
    close_like(str(folder), str(tmp_path / "none"))


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
def test_an_archive_that_anybody_could_have_made_is_not_used(tmp_path: Path) -> None:
    """Beside data in /tmp: the folder for archives may be another user's."""
    data, spare = tmp_path / "data", tmp_path / "spare"
    data.mkdir()
    spare.mkdir()
    (data / "table").write_text("x")

    def pack() -> str:
        return os.path.dirname(pack_folder(str(data), "none", str(spare), lambda _: None).archive)

    assert pack() == str(tmp_path / PACKED)
    os.chown(tmp_path / PACKED, 65534, -1)
    assert pack() == str(tmp_path / PACKED), "a colleague's archive is as good as one's own"
    tmp_path.chmod(0o1777)
    assert pack() == str(spare / PACKED)
