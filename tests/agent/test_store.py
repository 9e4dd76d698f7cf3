"""The cache on a node's disk: one unpacks, the others wait; killed, cut short, full and strange, nothing is left."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_for
from windlass.agent.node import unpack
from windlass.agent.node.store import NodeStore
from windlass.core.errors import NotReady

ONE_AGENT = """
import json, os, sys
from windlass.agent.node.store import NodeStore
entry = json.loads(sys.argv[2])
store = NodeStore(sys.argv[1], lambda text: print(text, flush=True))
path = store.unpack(entry, "data")
print(len(os.listdir(path)), flush=True)
sys.stdin.read()
store.close()
"""


def make_archive(
    folder: Path, name: str = "set", files: int = 20, kind: str = "tar", size: int = 100
) -> dict[str, Any]:
    """An archive as `bundle` packs it, with its entry of plan.json."""
    source = folder / name
    source.mkdir()
    for number in range(files):
        (source / f"file {number}").write_bytes(bytes([number % 256]) * size)
    (source / ".hidden").write_text("hidden")
    (source / "empty").mkdir(mode=0o750)
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("file 1")
    path = folder / f"{name}.{kind}"
    modes: dict[str, Any] = {"tar": "w", "gzip": "w:gz"}
    if kind == "zstd":
        subprocess.run(["tar", "--zstd", "-cf", str(path), "-C", str(folder), name], check=True)
    else:
        with tarfile.open(path, modes[kind]) as archive:
            archive.add(source, name)
    return entry_of(path, kind, files + 5, files * 4096)


def entry_of(path: Path, kind: str, files: int, unpacked_bytes: int) -> dict[str, Any]:
    content = path.read_bytes()
    crc32 = zlib.crc32(content)
    return {
        "archive": str(path),
        "key": f"data-{crc32:08x}",
        "kind": kind,
        "bytes": len(content),
        "crc32": crc32,
        "files": files,
        "unpacked_bytes": unpacked_bytes,
    }


def left_in(root: Path) -> list[str]:
    return sorted(os.listdir(root)) if root.exists() else []


def check_tree(path: str, source: Path) -> None:
    """Names, contents, modes and links are those of the source, except that nobody may write."""

    def look(folder: Path) -> dict[str, tuple[Any, ...]]:
        found = {}
        for file in folder.rglob("*"):
            status = file.lstat()
            content = (
                os.readlink(file)
                if file.is_symlink()
                else file.read_bytes()
                if file.is_file()
                else None
            )
            mode = stat.S_IMODE(status.st_mode) & ~0o222 if not file.is_symlink() else 0
            found[str(file.relative_to(folder))] = (stat.S_IFMT(status.st_mode), mode, content)
        return found

    assert look(Path(path)) == look(source)
    assert not any(
        file.lstat().st_mode & 0o222 for file in Path(path).rglob("*") if not file.is_symlink()
    )


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> NodeStore:
    return NodeStore(str(tmp_path / "root"), said.append)


@pytest.mark.parametrize("kind", ["tar", "gzip", "zstd"])
def test_all_that_is_in_a_folder_arrives(
    tmp_path: Path, store: NodeStore, kind: str, said: list[str]
) -> None:
    entry = make_archive(tmp_path, kind=kind)
    path = store.unpack(entry, "data set")
    check_tree(f"{path}/set", tmp_path / "set")
    assert said[0].startswith("data set: 25 files, 80 kB unpacked in ")
    assert store.unpack(entry, "data set") == path
    assert said[1:] == ["data set: found on this node"]
    store.close()


@pytest.mark.parametrize("kind", ["tar", "gzip"])
def test_without_gnu_tar(
    tmp_path: Path, store: NodeStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = make_archive(tmp_path, kind=kind)
    monkeypatch.setattr(unpack, "_gnu_tar", lambda: "")
    check_tree(store.unpack(entry, "data") + "/set", tmp_path / "set")


def test_a_single_file(tmp_path: Path, store: NodeStore) -> None:
    path = tmp_path / "weights.h5"
    path.write_bytes(b"weights")
    found = store.unpack(entry_of(path, "file", 1, 7), "data weights.h5")
    assert Path(found, "weights.h5").read_bytes() == b"weights"


def test_gzip_files_in_a_row_are_one(tmp_path: Path, store: NodeStore) -> None:
    """As `pigz` and `cat a.gz b.gz` make them."""
    entry = make_archive(tmp_path)
    content = Path(entry["archive"]).read_bytes()
    path = tmp_path / "parts.tar.gz"
    middle = len(content) // 2 + 100
    deflate = [zlib.compressobj(wbits=31) for _ in range(2)]
    parts = [deflate[0].compress(content[:middle]) + deflate[0].flush()]
    path.write_bytes(parts[0] + deflate[1].compress(content[middle:]) + deflate[1].flush())
    check_tree(store.unpack(entry_of(path, "gzip", 25, 1000), "data") + "/set", tmp_path / "set")


def cut_short(entry: dict[str, Any]) -> None:
    os.truncate(entry["archive"], entry["bytes"] // 2)


def cut_short_before_it_was_submitted(entry: dict[str, Any]) -> None:
    cut_short(entry)
    del entry["crc32"]
    entry["bytes"] = os.stat(entry["archive"]).st_size


def one_byte(entry: dict[str, Any]) -> None:
    with open(entry["archive"], "r+b") as file:
        file.seek(entry["bytes"] // 3)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def no_archive(entry: dict[str, Any]) -> None:
    os.unlink(entry["archive"])


@pytest.mark.parametrize("kind", ["tar", "gzip", "zstd"])
@pytest.mark.parametrize(
    "harm", [cut_short, cut_short_before_it_was_submitted, one_byte, no_archive]
)
@pytest.mark.parametrize("tar", ["gnu", "python"])
def test_a_damaged_archive_leaves_nothing(
    tmp_path: Path,
    store: NodeStore,
    kind: str,
    harm: Any,
    tar: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = make_archive(tmp_path, kind=kind, files=50, size=3000)
    harm(entry)
    if tar == "python":
        monkeypatch.setattr(unpack, "_gnu_tar", lambda: "")
    with pytest.raises(NotReady) as caught:
        store.unpack(entry, "data set")
    assert entry["archive"] in str(caught.value)
    assert left_in(tmp_path / "root") == []


@pytest.mark.parametrize("tar", ["gnu", "python"])
@pytest.mark.parametrize(
    "name", ["../outside", "/tmp/windlass-test-outside", "set/../../outside", "link/outside"]
)
def test_members_stay_inside(
    tmp_path: Path, store: NodeStore, name: str, tar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "evil.tar"
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo(name))
    if tar == "python":
        monkeypatch.setattr(unpack, "_gnu_tar", lambda: "")
    with contextlib.suppress(NotReady):  # GNU tar takes the slash away, which is as good
        store.unpack(entry_of(path, "tar", 2, 10), "data")
    assert not os.path.exists("/tmp/windlass-test-outside")
    assert not any(
        (folder / "outside").exists() for folder in (outside, tmp_path, tmp_path / "root")
    )


def member(
    name: str, kind: bytes = tarfile.REGTYPE, to: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, to, mode
    return info


@pytest.mark.parametrize("tar", ["gnu", "python"])
def test_nothing_is_written_through_a_link(
    tmp_path: Path, store: NodeStore, tar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member may have the name of a link before it, or be a hard link to one; set-user-id bits do not arrive."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("mine")
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(member("file", tarfile.SYMTYPE, str(outside / "file")))
        content = member("file", mode=0o666)
        content.size = 6
        archive.addfile(content, io.BytesIO(b"theirs"))
        if tar == "python":  # GNU tar refuses an archive with such a folder
            archive.addfile(member("folder", tarfile.SYMTYPE, str(outside)))
        archive.addfile(member("folder", tarfile.DIRTYPE, mode=0o777))
        archive.addfile(member("folder/inner"))
        archive.addfile(member("link", tarfile.SYMTYPE, str(outside / "file")))
        archive.addfile(member("hard", tarfile.LNKTYPE, "link", 0o777))
        archive.addfile(member("tool", mode=0o6755))
        archive.addfile(member("shared", tarfile.DIRTYPE, mode=0o2755))
    if tar == "python":
        monkeypatch.setattr(unpack, "_gnu_tar", lambda: "")
    found = Path(store.unpack(entry_of(path, "tar", 8, 10), "data"))
    assert [(file.name, file.read_text()) for file in outside.iterdir()] == [("file", "mine")]
    modes = [stat.S_IMODE(file.stat().st_mode) for file in (outside, outside / "file")]
    assert modes == [0o755, 0o644]
    if tar == "python":  # GNU tar puts the link there at last, which is as good
        assert (found / "file").read_text() == "theirs"
    assert not (found / "folder").is_symlink()
    assert (found / "folder/inner").is_file()
    assert stat.S_IMODE((found / "tool").stat().st_mode) == 0o555
    assert stat.S_IMODE((found / "shared").stat().st_mode) == 0o555


@pytest.mark.parametrize(
    "name", ["hard link through a link", "file in place of a folder", "hard link to nothing"]
)
def test_members_that_contradict_each_other(
    tmp_path: Path, store: NodeStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("mine")
    members = {
        "hard link through a link": [
            member("link", tarfile.SYMTYPE, str(tmp_path)),
            member("hard", tarfile.LNKTYPE, "link/secret"),
        ],
        "file in place of a folder": [member("a", tarfile.DIRTYPE, mode=0o755), member("a")],
        "hard link to nothing": [member("hard", tarfile.LNKTYPE, "nothing")],
    }
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        for info in members[name]:
            archive.addfile(info)
    monkeypatch.setattr(unpack, "_gnu_tar", lambda: "")
    with pytest.raises(NotReady, match=r"outside of its folder|cannot be unpacked"):
        store.unpack(entry_of(path, "tar", 2, 10), "data")
    assert os.stat(tmp_path / "secret").st_nlink == 1


def start(root: Path, entry: dict[str, Any]) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", ONE_AGENT, str(root), json.dumps(entry)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_eight_agents_at_the_same_moment_unpack_once(tmp_path: Path) -> None:
    entry = make_archive(tmp_path, files=2000)
    agents = [start(tmp_path / "root", entry) for _ in range(8)]
    said = [agent.communicate()[0].splitlines() for agent in agents]
    assert sum("unpacked in" in line for lines in said for line in lines) == 1
    assert sum("found on this node" in line for lines in said for line in lines) == 7
    assert {lines[-1] for lines in said} == {"1"}


def test_killed_while_unpacking(tmp_path: Path, said: list[str]) -> None:
    """Its tar goes with it, and the next one begins anew."""
    entry = make_archive(tmp_path, files=3000)
    fifo = tmp_path / "slow.tar"
    os.mkfifo(fifo)  # an archive that takes as long as we like
    slow = {**entry, "archive": str(fifo), "bytes": 0, "key": "slow"}
    root = tmp_path / "root"
    agent = start(root, slow)
    with open(fifo, "wb") as pipe:
        pipe.write(Path(entry["archive"]).read_bytes()[:300_000])
        pipe.flush()
        wait_for((root / "slow.part/set").exists)
        tars = children_of(agent.pid)
        assert tars
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in tars))
    assert "slow.part" in left_in(root) and "slow" not in left_in(root)
    store = NodeStore(str(root), said.append)
    check_tree(store.unpack({**entry, "key": "slow"}, "data") + "/set", tmp_path / "set")
    assert "slow.part" not in left_in(root)


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def fill(store: NodeStore, tmp_path: Path, names: str) -> dict[str, dict[str, Any]]:
    entries = {}
    for number, name in enumerate(names):
        entries[name] = make_archive(tmp_path, name, files=number + 1)
        store.unpack(entries[name], name)
    return entries


def set_free(monkeypatch: pytest.MonkeyPatch, root: Path, entries_that_fit: int, kind: str) -> None:
    """A disk with room for so many entries."""

    def free(_: NodeStore) -> tuple[int, int]:
        there = len(
            [name for name in os.listdir(root) if name.startswith("data-") and "." not in name]
        )
        left = max(0, entries_that_fit - there) * 1_000_000
        return (left, 1 << 40) if kind == "bytes" else (1 << 40, left)

    monkeypatch.setattr(NodeStore, "_free", free)


@pytest.mark.parametrize("kind", ["bytes", "files"])
def test_what_was_not_used_for_longest_is_dropped(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    root = tmp_path / "root"
    old = NodeStore(str(root), said.append)
    entries = fill(old, tmp_path, "abc")
    old.close()
    for name, used in (("a", 3000), ("b", 1000), ("c", 2000)):
        os.utime(root / f"{entries[name]['key']}.use", (used + 4e9, used + 4e9))
    set_free(monkeypatch, root, 3, kind)
    store = NodeStore(str(root), said.append)
    store.unpack(make_archive(tmp_path, "d", files=30), "d")
    there = left_in(root)
    assert entries["b"]["key"] not in there and f"{entries['b']['key']}.use" not in there
    assert {entries["a"]["key"], entries["c"]["key"]} <= set(there)


def test_what_is_in_use_is_never_dropped(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    entry = make_archive(tmp_path, "a")
    agent = start(root, entry)
    assert agent.stdout is not None
    wait_for(lambda: agent.stdout is not None and agent.stdout.readline() == "1\n")
    set_free(monkeypatch, root, 1, "bytes")
    store = NodeStore(str(root), said.append)
    other = make_archive(tmp_path, "b", files=200)
    with pytest.raises(NotReady, match="is full: b needs 800 kB and 205 files") as caught:
        store.unpack(other, "b")
    assert os.uname().nodename in str(caught.value)
    check_tree(str(root / entry["key"] / "a"), tmp_path / "a")
    agent.kill()  # the lock goes with it, in whatever way it ends
    agent.communicate()
    store.unpack(other, "b")
    assert entry["key"] not in left_in(root)


def test_entries_that_nobody_uses_for_long_go(tmp_path: Path, said: list[str]) -> None:
    root = tmp_path / "root"
    old = NodeStore(str(root), said.append)
    entry = fill(old, tmp_path, "a")["a"]
    old.close()
    os.utime(root / f"{entry['key']}.use", (1e9, 1e9))
    store = NodeStore(str(root), said.append)
    store.unpack(make_archive(tmp_path, "b", files=7), "b")
    assert entry["key"] not in left_in(root)


def change_content(tree: Path) -> str:
    """With the size and the time of before, as a program that restores times does it."""
    file = tree / "set/file 3"
    status = file.stat()
    file.chmod(0o644)
    file.write_bytes(b"x" * status.st_size)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    file.chmod(0o444)
    return "set/file 3 has changed"


def add_a_file(tree: Path) -> str:
    (tree / "set").chmod(0o755)
    (tree / "set/cache.pt").write_text("cache")
    (tree / "set").chmod(0o555)
    return "set/cache.pt was added"


def remove_a_file(tree: Path) -> str:
    (tree / "set").chmod(0o755)
    (tree / "set/file 3").unlink()
    (tree / "set").chmod(0o555)
    return "set/file 3 is gone"


def turn_a_link(tree: Path) -> str:
    (tree / "set").chmod(0o755)
    (tree / "set/link").unlink()
    (tree / "set/link").symlink_to("file 2")
    (tree / "set").chmod(0o555)
    return "set/link has changed"


def lose_the_record(tree: Path) -> str:
    os.truncate(f"{tree}.use", 0)  # as older versions leave it, and as the death of a machine may
    return "there is no record of what was unpacked"


@pytest.mark.parametrize(
    "change", [change_content, add_a_file, remove_a_file, turn_a_link, lose_the_record]
)
def test_a_changed_entry_is_made_anew(tmp_path: Path, said: list[str], change: Any) -> None:
    entry = make_archive(tmp_path)
    first = NodeStore(str(tmp_path / "root"), said.append)
    changes = change(Path(first.unpack(entry, "data set")))
    second = NodeStore(str(tmp_path / "root"), said.append)
    # The first agent still uses it: nothing is taken away from it.
    beside = second.unpack(entry, "data set")
    assert beside.endswith("~1")
    check_tree(f"{beside}/set", tmp_path / "set")
    assert f"({changes}); it is unpacked anew, beside the changed one" in said[1]
    second.watch(beside, "data set")
    assert second.find_changed() == first.find_changed() == []
    first.watch(beside.removesuffix("~1"), "data set")
    assert [
        text
        for text in first.find_changed()
        if changes in text and "while this agent used it" in text
    ]
    first.close()
    second.close()
    third = NodeStore(str(tmp_path / "root"), said.append)
    path = third.unpack(entry, "data set")
    assert path == str(tmp_path / "root" / entry["key"])
    check_tree(f"{path}/set", tmp_path / "set")
    assert f"({changes}); it is unpacked anew" in said[-2] and " unpacked in " in said[-1]
    assert third.unpack(entry, "data set") == path and said[-1] == "data set: found on this node"


def test_many_agents_that_find_a_change_make_it_anew_once(tmp_path: Path, store: NodeStore) -> None:
    entry = make_archive(tmp_path, files=2000)
    add_a_file(Path(store.unpack(entry, "data")))
    store.close()
    agents = [start(tmp_path / "root", entry) for _ in range(4)]
    said = [line for agent in agents for line in agent.communicate()[0].splitlines()]
    assert sum("unpacked in" in line for line in said) == 1
    check_tree(str(tmp_path / "root" / entry["key"] / "set"), tmp_path / "set")


def test_a_file_that_comes_and_goes_is_no_change(
    tmp_path: Path, store: NodeStore, said: list[str]
) -> None:
    """Such as a lock file; only root gets that far."""
    entry = make_archive(tmp_path)
    tree = Path(store.unpack(entry, "data"))
    add_a_file(tree)
    (tree / "set").chmod(0o755)
    (tree / "set/cache.pt").unlink()
    (tree / "set").chmod(0o555)
    store.unpack(entry, "data")
    assert said[1:] == ["data: found on this node"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_permissions_hold_for_everybody_but_root(tmp_path: Path) -> None:
    entry = make_archive(tmp_path)
    with tempfile.TemporaryDirectory() as folder:
        archive = shutil.copy(entry["archive"], folder)
        os.chmod(archive, 0o644)
        os.chmod(folder, 0o777)
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setuid(65534)
                store = NodeStore(f"{folder}/root", lambda _: None)
                tree = Path(store.unpack({**entry, "archive": archive}, "data"), "set")
                for path in (tree / "file 1", tree / "new", tree / "empty/new"):
                    with pytest.raises(PermissionError):
                        path.write_text("changed")
                with pytest.raises(PermissionError):
                    (tree / "file 1").unlink()
                copy = Path(store.make_private(str(tree), "project"))
                (copy / "file 1").write_text("changed")
                (copy / "empty/new").write_text("new")
                store.close()
                assert not copy.exists() and store._drop(entry["key"]) and not tree.exists()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_a_disk_that_is_full_without_having_said_so(tmp_path: Path, said: list[str]) -> None:
    """The entry promises less than it holds, so it is only seen on the way: dropped things make room, or it fails."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(disk)], check=True)
    try:
        old = NodeStore(str(disk / "root"), said.append)
        first = make_archive(tmp_path, "a", files=400)
        old.unpack(first, "a")
        old.close()
        store = NodeStore(str(disk / "root"), said.append)
        second = {**make_archive(tmp_path, "b", files=500), "unpacked_bytes": 1, "files": 1}
        check_tree(store.unpack(second, "b") + "/b", tmp_path / "b")
        assert first["key"] not in left_in(disk / "root")
        third = {**make_archive(tmp_path, "c", files=900), "unpacked_bytes": 1, "files": 1}
        with pytest.raises(NotReady, match=r"the local disk of .* is full"):
            store.unpack(third, "c")
        assert not any(name.startswith(third["key"]) for name in left_in(disk / "root"))
        store.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_root_that_is_not_ours(tmp_path: Path, said: list[str]) -> None:
    """In a folder that all can write to, somebody may have been there before us: another folder beside it serves."""
    entry = make_archive(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = tmp_path / "root"
    root.symlink_to(elsewhere)
    first = NodeStore(str(root), said.append)
    path = first.unpack(entry, "data")
    assert path.startswith(f"{root}-")
    assert not os.listdir(elsewhere)
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert said[0].startswith(f"{root} on ")
    assert "was made by somebody else" in said[0]
    assert NodeStore(str(root), said.append).unpack(entry, "data") == path, (
        "the agents of a node share it"
    )
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReady, match="cannot be made"):
        NodeStore(str(tmp_path / "file/root"), said.append).unpack(entry, "data")
    if os.getuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir(mode=0o777)
        os.chown(theirs, 12345, 12345)
        planted = tmp_path / "theirs-planted"
        planted.mkdir()
        os.chown(planted, 12345, 12345)
        path = NodeStore(str(theirs), said.append).unpack(entry, "data")
        assert path.startswith(f"{theirs}-")
        assert not path.startswith(str(planted))


def test_nobody_else_may_look(tmp_path: Path, said: list[str]) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o755)
    NodeStore(str(root), said.append).unpack(make_archive(tmp_path), "data")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_private_copy_goes_with_its_agent(
    tmp_path: Path, store: NodeStore, said: list[str]
) -> None:
    tree = store.unpack(make_archive(tmp_path), "code")
    copy = store.make_private(tree, "project")
    Path(copy, "set", "file 1").write_text("changed")
    assert Path(tree, "set", "file 1").read_bytes() == bytes([1]) * 100
    NodeStore(str(tmp_path / "root"), said.append).make_private(
        tree, "project"
    )  # an agent that is still there
    assert os.path.isdir(copy)
    store.close()
    assert not os.path.exists(copy)


def test_a_private_copy_of_a_killed_agent_is_swept(
    tmp_path: Path, store: NodeStore, said: list[str]
) -> None:
    tree = store.unpack(make_archive(tmp_path), "code")
    copy = store.make_private(tree, "project")
    for descriptor in store._held:
        os.close(descriptor)  # what the kernel does for the killed
    NodeStore(str(tmp_path / "root"), said.append).unpack(make_archive(tmp_path, "other"), "data")
    assert not os.path.exists(copy)
    assert not [name for name in left_in(tmp_path / "root") if name.startswith("own-")]


def test_folders_that_are_closed_are_removed(tmp_path: Path, store: NodeStore) -> None:
    entry = make_archive(tmp_path)
    tree = store.unpack(entry, "data")
    copy = store.make_private(tree, "project", str(tmp_path))
    store.close()
    assert not os.path.exists(copy)
