"""Other users of the same disk: what they cannot write, and that nothing they wrote is executed."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import Project, write_program
from windlass.bundle.code import _archive
from windlass.bundle.folder import write_agent
from windlass.bundle.tree import CodeFile
from windlass.core import trust
from windlass.core.errors import FolderError, NotReady
from windlass.core.paths import StudyPaths
from windlass.core.queue.queue import read_last_queue
from windlass.core.verified import agent_command
from windlass.environments.build.recipe import _refuse_foreign

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")


@pytest.fixture(autouse=True)
def _umask() -> object:
    before = os.umask(0o022)
    trust.given_umask.cache_clear()
    yield
    os.umask(before)
    trust.given_umask.cache_clear()


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    made = StudyPaths(str(tmp_path / "root" / "study"))
    trust.make_folders(made, share=False)
    for path in (made.plan, made.trials, made.trials_index, made.agent, f"{made.claims}/00000001"):
        Path(path).write_text("{}")
    return made


def open_to_others(folder: Path) -> list[str]:
    found = [folder, *folder.rglob("*")]
    return [str(path) for path in found if not path.is_symlink() and path.stat().st_mode & 0o022]


def test_nobody_else_can_write_to_what_a_run_makes(project: Project) -> None:
    """Also with a umask that lets everybody write; the trials themselves keep that umask."""
    project.write(
        "t.py",
        "import os, sys, windlass\n"
        "windlass.log(loss=1)\n"
        "open('made.txt', 'w').write('x')\n"
        "open(os.environ['WINDLASS_CHECKPOINT_DIR'] + '/c.pt', 'w').write('x')\n"
        "before = os.umask(0); print('umask', before)\n",
    )
    project.write(
        "study.yaml", f"command: {sys.executable} t.py\noutputs: [made.txt]\ncheckpoint: {{}}\n"
    )
    before = os.umask(0)
    try:
        project.run("run", "--on", "local", fresh=True)
        assert "umask 0" in project.run("logs", "0").stdout
        project.run("results", "-o", "table.csv", fresh=True)
    finally:
        os.umask(before)
    study = project.study_folder()
    # What trials write there themselves has their umask, so that nobody else gets into the folder.
    assert stat.S_IMODE((study / "checkpoints").stat().st_mode) == 0o700
    assert [
        path for path in open_to_others(project.folder / ".windlass") if "/checkpoints/" not in path
    ] == []
    assert stat.S_IMODE((project.folder / "table.csv").stat().st_mode) == 0o666, (
        "the user's own file"
    )


def test_what_others_could_have_written_is_not_obeyed(paths: StudyPaths) -> None:
    trust.check_trust(paths)
    for path in (
        paths.folder,
        paths.claims,
        paths.plan,
        paths.trials,
        paths.trials_index,
        paths.hpc_outputs,
    ):
        mode = os.stat(path).st_mode
        os.chmod(path, mode | stat.S_IWOTH)
        with pytest.raises(
            FolderError, match=r"everybody can write to it[^$]*chmod -R g-w,o-w '?/"
        ):
            trust.check_trust(paths, every_file=False)
        os.chmod(path, mode)
    trust.check_trust(paths)
    trust.check_trust(StudyPaths(paths.folder + "-that-is-not-there"))


@needs_root
def test_files_of_another_user_are_not_obeyed(paths: StudyPaths) -> None:
    Path(paths.journal_of("a")).write_text("")
    for path in (paths.folder, paths.plan, f"{paths.claims}/00000001", paths.journal_of("a")):
        os.chown(path, NOBODY, -1)
        with pytest.raises(FolderError, match="belongs to nobody, not to you"):
            trust.check_trust(paths)
        os.chown(path, 0, -1)
    for path in (paths.folder, paths.trials):
        os.chown(path, 0, NOBODY)
        os.chmod(path, os.stat(path).st_mode | stat.S_IWGRP)
        with pytest.raises(FolderError, match="the group nogroup can write to it"):
            trust.check_trust(paths)
        os.chown(path, 0, 0)  # the user's own group, in which nobody else is
        trust.check_trust(paths)


@needs_root
def test_a_study_may_ask_for_its_group(paths: StudyPaths) -> None:
    for path in (paths.folder, paths.trials):
        os.chown(path, 0, NOBODY)
    trust.make_folders(paths, share=True)
    assert (
        os.stat(paths.folder).st_mode & 0o2070 == 0o2070 and os.stat(paths.trials).st_mode & 0o020
    )
    os.chown(paths.trials, NOBODY, NOBODY)  # another member has written it
    trust.check_trust(paths)
    os.chown(paths.trials, NOBODY, 0)
    with pytest.raises(FolderError, match="belongs to nobody"):
        trust.check_trust(paths)
    os.chown(paths.trials, 0, NOBODY)
    trust.make_folders(paths, share=False)
    assert not trust.is_shared(paths.folder) and not os.stat(paths.trials).st_mode & 0o020

    # The mark of somebody else is none.
    trust.make_folders(paths, share=True)
    os.chown(os.path.join(paths.folder, trust.SHARED), NOBODY, NOBODY)
    assert not trust.is_shared(paths.folder)


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o007, 0o022])
def test_what_is_made_in_a_shared_study_is_open_to_its_group_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    """With 077 files were -rw--w----: nobody else could read the register, the study's owner included."""
    os.umask(umask)
    trust.given_umask.cache_clear()
    paths = StudyPaths(str(tmp_path / "root" / "study"))
    trust.make_folders(paths, share=True)
    Path(paths.claims, "00000001").touch()
    Path(paths.outputs, "trial").mkdir(parents=True)
    others = 0o005 & ~umask
    assert stat.S_IMODE(os.stat(f"{paths.claims}/00000001").st_mode) == 0o660 | (others & 0o004)
    for folder in (*paths.folders(), f"{paths.outputs}/trial"):
        mode = stat.S_IMODE(os.stat(folder).st_mode)
        assert mode & 0o2770 == 0o2770 and mode & 0o007 == others, folder


@needs_root
def test_a_member_of_the_group_goes_on_with_the_archive_of_another() -> None:
    """Only the owner of a file can set its time."""
    with tempfile.TemporaryDirectory() as name:
        project, folder = Path(name, "project"), Path(name, "study")
        for made in (Path(name), project, folder):
            made.mkdir(exist_ok=True)
            made.chmod(0o755)
        (project / "train.py").write_text("print(1)")
        os.chown(folder, 0, NOBODY)
        trust.make_folders(StudyPaths(str(folder)), share=True)
        files = [CodeFile("train.py", stat.S_IFREG | 0o644, 8)]
        before = _archive(str(project), files, str(folder))
        assert os.stat(before[0]).st_gid == NOBODY
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            assert _archive(str(project), files, str(folder)) == before
        finally:
            os.seteuid(0)
            os.setegid(0)


def test_set_ups_that_are_in_order(paths: StudyPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that maps us to another user, and a disk without modes, show what we make ourselves so too."""
    monkeypatch.setattr(trust, "_look_at_file_system", lambda _: (NOBODY, True))
    if os.getuid() == 0:
        os.chown(paths.plan, NOBODY, -1)
    trust.check_trust(paths)
    monkeypatch.setattr(trust, "_look_at_file_system", lambda _: (os.getuid(), False))
    os.chmod(paths.trials, 0o777)
    if os.getuid() == 0:
        os.chown(paths.plan, 0, -1)
    trust.check_trust(paths)


def test_inherited_rights_do_not_let_others_write(tmp_path: Path) -> None:
    """user::rwx, user:1000:rwx, group::rwx, mask::rwx, other::rwx, for all that is made in a folder."""
    entries = [
        (0x01, 7, 2**32 - 1),
        (0x02, 7, 1000),
        (0x04, 7, 2**32 - 1),
        (0x10, 7, 2**32 - 1),
        (0x20, 7, 2**32 - 1),
    ]
    rights = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    closed = trust.without_write(rights)
    assert [entry[1] for entry in struct.iter_unpack("<HHI", closed[4:])] == [7, 7, 5, 5, 5]
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", rights)
    except OSError:
        return  # this file system has no such lists
    paths = StudyPaths(str(tmp_path / "root" / "study"))
    trust.make_folders(paths, share=False)
    Path(paths.plan).write_text("")
    Path(paths.claims, "00000001").write_text("")
    assert open_to_others(tmp_path / "root") == []


def test_only_the_agent_that_was_submitted_is_started(tmp_path: Path) -> None:
    """A job that waited: the folder was writable meanwhile, and somebody has exchanged the agent."""
    agent = tmp_path / "study" / "agent.pyz"
    agent.parent.mkdir()
    digest = write_program(agent, "print('submitted', sys.argv[1:])")

    def start() -> subprocess.CompletedProcess[str]:
        words = agent_command(sys.executable, str(agent), digest, ["FOLDER"])
        return subprocess.run(words, capture_output=True, text=True, check=False)

    agent.chmod(0o666)
    assert start().stdout == "submitted ['FOLDER']\n", (
        "what was compared is what is executed, whoever can write it"
    )
    write_program(agent, "print('another', sys.argv[1:])")
    refused = start()
    assert (refused.returncode, refused.stdout) == (2, "") and "was not executed" in refused.stderr
    agent.chmod(0o644)
    assert start().stdout == "another ['FOLDER']\n", "the user's own newer version"
    agent.parent.chmod(0o777)
    assert start().returncode == 2
    before = agent.read_bytes()
    write_program(agent, "print('submitted', sys.argv[1:])")
    assert write_agent(StudyPaths(str(agent.parent))) not in (
        digest,
        hashlib.sha256(before).hexdigest(),
    )
    assert start().stdout == "submitted ['FOLDER']\n", (
        "a later run has kept it beside the one that it wrote"
    )
    for number in range(6):
        write_program(agent, f"print({number})")
        write_agent(StudyPaths(str(agent.parent)))
    kept = list(agent.parent.glob("agent-*.pyz"))
    assert len(kept) == 4
    kept[0].rename(agent.parent / f"agent-{digest[:12]}.pyz")
    assert start().returncode == 2, "its name alone proves nothing"
    agent.parent.chmod(0o755)
    if os.getuid() == 0:
        os.chown(agent, NOBODY, -1)
        assert start().returncode == 2


@needs_root
def test_an_agent_of_another_user_is_not_executed(project: Project) -> None:
    marker = project.folder / "executed"
    project.run(
        "run",
        "--on",
        "local",
        "-e",
        "s",
        "--param",
        "x=[0,1]",
        "--",
        "sh",
        "-c",
        "exit {x}",
        code=1,
    )
    folder = project.folder / ".windlass" / "s"
    agent = folder / "agent.pyz"
    with zipfile.ZipFile(agent, "w") as archive:
        archive.writestr("__main__.py", f"open({str(marker)!r}, 'w')")
    os.chown(agent, NOBODY, -1)
    done = project.run("retry", "1", code=2)
    assert "belongs to nobody" in done.stderr and not marker.exists()
    os.chown(agent, 0, -1)
    project.run("retry", "1", code=1)
    assert not marker.exists(), "it is written anew"
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["agent"] == hashlib.sha256(agent.read_bytes()).hexdigest()


@needs_root
def test_the_queue_is_not_believed_from_another_user(tmp_path: Path) -> None:
    queue = tmp_path / "squeue.json"
    queue.write_text(
        json.dumps({"v": 1, "user": 0, "number": 1, "asked": 1.0, "text": "", "good": [1.0, ""]})
    )
    assert read_last_queue(str(queue)) is not None
    os.chown(queue, NOBODY, -1)
    assert read_last_queue(str(queue)) is None


def test_environments_that_others_could_have_built_are_not_used(tmp_path: Path) -> None:
    build = {
        "engine": "uv",
        "root": str(tmp_path / "made"),
        "wheels": str(tmp_path / "wheels"),
        "file": "r.txt",
    }
    recipe = SimpleNamespace(build=build, root=build["root"])
    _refuse_foreign(recipe)  # type: ignore[arg-type]
    for folder in (build["root"], build["wheels"]):
        os.makedirs(folder, mode=0o700)
        _refuse_foreign(recipe)  # type: ignore[arg-type]
        os.chmod(folder, 0o777)
        with pytest.raises(NotReady, match=r"everybody can write to it.*chmod -R g-w,o-w"):
            _refuse_foreign(recipe)  # type: ignore[arg-type]
        os.chmod(folder, 0o700)
