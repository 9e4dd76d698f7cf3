"""Packing data: once for each content, all of it, by two clients at once, and clear words where it cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_store import check_tree
from tests.conftest import Project, wait_for
from windlass.agent.node import unpack
from windlass.agent.node.store import NodeStore
from windlass.bundle import pack
from windlass.bundle.data import pack_items
from windlass.bundle.pack import scan_folder
from windlass.bundle.small_files import find_small_files
from windlass.core.errors import InputError, NotReady
from windlass.model import Data, Plan, Space, Stage, Study
from windlass.plan.settings import resolve_settings
from windlass.plan.slurm import plan_slurm
from windlass.site.cluster import Cluster
from windlass.spec.words import mentions_variable


def make_set(folder: Path, files: int = 20, text: str = "some words ") -> Path:
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"file {number}").write_text(f"{number} {text}" * 50)
    (folder / ".hidden").write_text("hidden")
    (folder / "-strange").write_text("name")
    (folder / "empty").mkdir(mode=0o750)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("file 1")
    with open(os.fsencode(folder) + b"/\xff no text", "wb") as file:
        file.write(b"x")
    return folder


class Place:
    """A scratch and a project."""

    def __init__(self, folder: Path) -> None:
        self.scratch, self.project = folder / "scratch", folder / "project"
        self.scratch.mkdir()
        self.project.mkdir()
        self.said: list[str] = []

    def pack(self, *items: Data | str) -> list[dict[str, Any]]:
        wanted = [item if isinstance(item, Data) else Data(item) for item in items]
        return pack_items(wanted, str(self.scratch), str(self.project), "", self.said.append)

    def refusal(self, *items: str) -> str:
        with pytest.raises(InputError) as caught:
            self.pack(*items)
        return str(caught.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- packing


@pytest.mark.parametrize(
    "tar,compress",
    [
        ("gnu", "none"),
        ("gnu", "gzip"),
        ("gnu", "zstd"),
        ("gnu", "auto"),
        ("python", "none"),
        ("python", "gzip"),
    ],
)
def test_all_that_is_in_a_folder_survives(
    place: Place, tmp_path: Path, compress: Any, tar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tar == "python":
        monkeypatch.setattr(pack, "has_gnu_tar", lambda: False)
    source = make_set(place.scratch / "data sets/one")
    (entry,) = place.pack(Data("data sets/one", compress))
    assert entry["as"] == "data sets/one" and entry["inner"] == "one"
    assert entry["bytes"] == os.stat(entry["archive"]).st_size
    assert entry["files"] == sum(1 for _ in source.rglob("*")) + 1
    path = NodeStore(str(tmp_path / "root"), lambda text: None).unpack(entry, "data")
    check_tree(f"{path}/one", source)


def test_the_archive_lies_beside_the_folder_and_is_used_again(place: Place) -> None:
    source = make_set(place.scratch / "sets/one")
    first = place.pack("sets/one")
    archive = Path(first[0]["archive"])
    assert archive.parent == place.scratch / "sets/.windlass-data" and archive.suffix == ".tar"
    assert len(place.said) == 1 and "packing 26 files" in place.said[0]
    inode = archive.stat().st_ino
    assert (
        place.pack("sets/one") == first and archive.stat().st_ino == inode and len(place.said) == 1
    )
    (source / "file 1").write_text("changed")
    second = place.pack("sets/one")
    assert (
        second[0]["key"] != first[0]["key"]
        and second[0]["archive"] != first[0]["archive"]
        and len(place.said) == 2
    )


@pytest.mark.parametrize(
    "change", ["content", "time", "mode", "link", "name", "new", "gone", "folder"]
)
def test_what_changes_the_key(place: Place, change: str) -> None:
    source = make_set(place.scratch / "one")
    before = scan_folder(str(source)).key
    assert scan_folder(str(source)).key == before
    if change == "content":
        (source / ".hidden").write_text("longer than before")
    elif change == "time":
        os.utime(source / ".hidden", ns=(1, 1))
    elif change == "mode":
        (source / "run.sh").chmod(0o700)
    elif change == "link":
        (source / "link").unlink()
        (source / "link").symlink_to("file 2")
    elif change == "name":
        source = source.rename(place.scratch / "two")
    elif change == "new":
        (source / "new").touch()
    elif change == "gone":
        (source / "empty").rmdir()
    else:
        (source / "another").mkdir()
    assert scan_folder(str(source)).key != before


def test_archives_inside_a_folder_are_not_part_of_it(place: Place) -> None:
    make_set(place.scratch / "sets/one")
    key = scan_folder(str(place.scratch / "sets")).key
    place.pack("sets/one")
    assert scan_folder(str(place.scratch / "sets")).key == key
    (entry,) = place.pack("sets")
    with tarfile.open(entry["archive"]) as archive:
        assert not [name for name in archive.getnames() if ".windlass-data" in name]


def test_a_link_to_a_folder_is_that_folder(place: Place, tmp_path: Path) -> None:
    source = make_set(tmp_path / "elsewhere/big")
    (place.scratch / "set").symlink_to(source)
    (entry,) = place.pack("set")
    path = NodeStore(str(tmp_path / "root"), lambda text: None).unpack(entry, "data")
    assert entry["as"] == "set"
    check_tree(f"{path}/{entry['inner']}", source)


def test_who_may_not_read_the_folder_may_not_read_the_archive(place: Place) -> None:
    make_set(place.scratch / "one").chmod(0o750)
    (entry,) = place.pack("one")
    assert os.stat(entry["archive"]).st_mode & 0o777 == 0o640


def test_an_archive_that_was_cut_short_is_made_anew(place: Place) -> None:
    make_set(place.scratch / "one")
    (entry,) = place.pack("one")
    os.truncate(entry["archive"], 1000)
    assert place.pack("one") == [entry] and os.stat(entry["archive"]).st_size == entry["bytes"]


def flip_a_byte(path: str, is_time_kept: bool = False) -> None:
    """As a disk does it, whose file keeps its time, or a program."""
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(status.st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    if is_time_kept:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_an_archive_that_was_written_to_is_made_anew(place: Place) -> None:
    make_set(place.scratch / "one")
    (entry,) = place.pack("one")
    content = Path(entry["archive"]).read_bytes()
    assert place.pack("one") == [entry] and len(place.said) == 1
    flip_a_byte(entry["archive"])
    assert place.pack("one") == [entry] and Path(entry["archive"]).read_bytes() == content
    assert place.said[1].endswith(
        "may have been written to since it was packed: its checksum is compared"
    )
    assert place.said[2:3] == [f"{entry['archive']} is damaged: it is packed anew"]
    # One that is whole, whatever its time, is read once.
    os.utime(entry["archive"], (1e9, 1e9))
    del place.said[:]
    for _ in range(2):
        assert place.pack("one") == [entry]
    assert len(place.said) == 1 and "its checksum is compared" in place.said[0]


def test_an_archive_that_a_node_found_damaged_is_made_anew(place: Place, tmp_path: Path) -> None:
    make_set(place.scratch / "one")
    (entry,) = place.pack("one")
    flip_a_byte(entry["archive"], is_time_kept=True)
    assert (
        place.pack("one") == [entry] and len(place.said) == 1
    )  # nobody can know, without reading all of it
    store = NodeStore(str(tmp_path / "root"), lambda _: None)
    with pytest.raises(NotReady, match=r"is damaged: .* `windlass run` packs it anew"):
        store.unpack(entry, "data one")
    assert place.pack("one") == [entry] and place.said[2:3] == [
        f"{entry['archive']} is damaged: it is packed anew"
    ]
    check_tree(store.unpack(entry, "data one") + "/one", place.scratch / "one")
    # A node that was wrong about it costs one reading.
    unpack.mark_damaged(entry["archive"], "node7: is damaged")
    del place.said[:]
    for _ in range(2):
        assert place.pack("one") == [entry]
    assert place.said == ["node7: is damaged: its checksum is compared"]
    assert sorted(os.listdir(place.scratch / ".windlass-data")) == sorted(
        [
            ".gitignore",
            os.path.basename(entry["archive"]),
            os.path.basename(entry["archive"]) + ".json",
        ]
    )


def test_links_that_leave_the_folder_are_named_when_it_is_packed(place: Place) -> None:
    folder = make_set(place.scratch / "one")
    (place.scratch / "two").mkdir()
    (folder / "out").symlink_to("../two")
    (folder / "empty/back").symlink_to("../file 1")
    (folder / "absolute").symlink_to(place.scratch / "two")
    (folder / "broken").symlink_to("../three")
    for _ in range(2):
        place.pack("one")
    (warning,) = [text for text in place.said if text.startswith("warning:")]
    assert ": out -> ../two; put the files in their place" in warning


def test_no_place_beside_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    make_set(place.project / "one")
    (place.project / ".windlass-data").write_text("a file is in the way")
    (entry,) = place.pack("one")
    assert entry["archive"].startswith(str(place.scratch / ".windlass-data"))
    (place.scratch / ".windlass-data").rename(place.scratch / "away")
    (place.scratch / ".windlass-data").write_text("here, too")
    assert "no place for its archive" in place.refusal("one")


def test_auto_compresses_what_shrinks(place: Place) -> None:
    make_set(place.scratch / "text", text="the same words again and again ")
    (place.scratch / "noise").mkdir()
    for number in range(5):
        (place.scratch / f"noise/{number}").write_bytes(os.urandom(5000))
    text, noise = place.pack(Data("text", "auto"), Data("noise", "auto"))
    assert (text["kind"], noise["kind"]) == ("zstd", "tar")
    assert text["bytes"] < text["unpacked_bytes"] / 4


def test_without_zstd_it_is_gzip(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    make_set(place.scratch / "one")
    monkeypatch.setenv("PATH", "/nowhere")
    (entry,) = place.pack(Data("one", "zstd"))
    assert entry["kind"] == "gzip" and "no zstd" in place.said[0]


PACK = """
import sys
from windlass.bundle.data import pack_items
from windlass.model import Data
print(pack_items([Data("one")], sys.argv[1], sys.argv[1], "", print)[0]["key"])
"""


def start_packing(place: Place) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PACK, str(place.scratch)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_two_clients_at_once(place: Place, tmp_path: Path) -> None:
    source = make_set(place.scratch / "one", files=3000)
    clients = [start_packing(place) for _ in range(3)]
    assert len({client.communicate()[0].splitlines()[-1] for client in clients}) == 1
    (entry,) = place.pack("one")
    assert not place.said
    check_tree(
        NodeStore(str(tmp_path / "root"), lambda text: None).unpack(entry, "data") + "/one", source
    )
    assert not list((place.scratch / ".windlass-data").glob("*.part*"))


def test_a_client_is_killed_while_it_packs(place: Place) -> None:
    make_set(place.scratch / "one", files=10)
    with open(place.scratch / "one/large", "wb") as file:
        file.truncate(2_000_000_000)
    client = start_packing(place)
    folder = place.scratch / ".windlass-data"
    wait_for(lambda: any(path.stat().st_size for path in folder.glob(".*.part")))
    client.send_signal(signal.SIGKILL)
    client.communicate()
    assert list(folder.glob(".*.part")) and not list(folder.glob("*.tar"))
    os.truncate(place.scratch / "one/large", 100)
    (entry,) = place.pack("one")
    assert os.stat(entry["archive"]).st_size == entry["bytes"] and not list(folder.glob(".*.part"))


def test_a_folder_that_is_written_to_all_the_time(place: Place) -> None:
    make_set(place.scratch / "one", files=300)
    script = f"import time\nwhile True: open({str(place.scratch / 'one/busy')!r}, 'a').write('x')"
    writer = subprocess.Popen([sys.executable, "-c", script])
    try:
        wait_for((place.scratch / "one/busy").exists)
        assert "changes while it is packed" in place.refusal("one")
        assert not list((place.scratch / ".windlass-data").glob("*.tar"))
    finally:
        writer.kill()
        writer.wait()


# -- where data are


def test_the_scratch_comes_before_the_project(place: Place) -> None:
    make_set(place.project / "one")
    assert place.pack("one")[0]["source"] == str(place.project / "one")
    assert place.pack("one")[0]["project"] == "one"
    make_set(place.scratch / "one")
    assert place.pack("one")[0]["source"] == str(place.scratch / "one")
    assert place.pack("one")[0]["project"] is None


def test_what_is_refused(place: Place, tmp_path: Path) -> None:
    make_set(place.scratch / "one")
    make_set(place.scratch / "both/inner")
    make_set(place.project / "both/other")
    assert "absolute path, which only archives may have" in place.refusal(
        str(place.scratch / "one")
    )
    assert "leads outside" in place.refusal("one/../../x")
    assert "the whole project" in place.refusal(".")
    assert "there is no file /nowhere/x.tar" in place.refusal("/nowhere/x.tar")
    text = place.refusal("missing", "../x")
    assert (
        "there is no missing in" in text and "leads outside" in text and str(place.scratch) in text
    )


def test_items_inside_of_each_other(place: Place) -> None:
    make_set(place.scratch / "sets/one")
    make_set(place.scratch / "sets/two")
    assert [entry["as"] for entry in place.pack("sets/one", "sets", "sets/two/", "sets")] == [
        "sets"
    ]
    assert [entry["as"] for entry in place.pack("sets/one", "sets/two")] == ["sets/one", "sets/two"]
    make_set(place.project / "sets/three")
    assert "would both be sets on the node" in place.refusal("sets", "sets/three")


def test_archives_and_files_are_taken_as_they_are(place: Place, tmp_path: Path) -> None:
    make_set(tmp_path / "images")
    for name in ("images.tar", "images.tar.gz"):
        subprocess.run(
            ["tar", "-caf", str(place.scratch / name), "-C", str(tmp_path), "images"], check=True
        )
    (place.scratch / "weights.h5").write_text("weights")
    assert "would both be images" in place.refusal("images.tar", "images.tar.gz")
    found = place.pack(str(place.scratch / "images.tar.gz"), "weights.h5")
    assert [(entry["as"], entry["kind"]) for entry in found] == [
        ("images", "gzip"),
        ("weights.h5", "file"),
    ]
    assert not place.said


# -- on the command line and on the node


@pytest.fixture
def project(project: Project, tmp_path: Path) -> Project:
    """With a local disk of its own."""
    project.env["TMPDIR"] = str(tmp_path / "local disk")
    os.mkdir(project.env["TMPDIR"])
    return project


SHOW = "import os; d = os.environ['SLURM_TMPDIR']; print(sorted(os.listdir(d + '/datasets'))); print(open(d + '/{}').read())"


def make_study(project: Project, data: str, show: str) -> None:
    scratch = project.folder / "scratch"
    project.env["SCRATCH"] = str(scratch)
    project.write("pyproject.toml", "")
    project.write("show.py", show)
    project.write(
        "study.yaml",
        f"name: s\ncommand: python show.py {{n}}\nparameters: {{n: [1, 2]}}\ndata: {data}\n",
    )
    for name in ("dataset1", "dataset2"):
        make_set(scratch_of(project) / "datasets" / name, 3)


def scratch_of(project: Project) -> Path:
    return project.folder / "scratch" / "it-s-a-project-né"


def test_the_same_relative_paths_on_the_node(project: Project) -> None:
    make_study(
        project, "[datasets/dataset1, datasets/dataset2]", SHOW.format("datasets/dataset1/.hidden")
    )
    project.run("run", "--on", "local")
    assert project.run("logs", "0").stdout.splitlines() == ["['dataset1', 'dataset2']", "hidden"]
    project.write(
        "study.yaml",
        (project.folder / "study.yaml").read_text().replace("datasets/dataset2", "datasets"),
    )
    project.run("run", "--on", "local", "--param", "n=[7]", "--name", "other")
    lines = project.run("logs", "0", "--study", "other").stdout.splitlines()
    assert lines[:1] == ["['dataset1', 'dataset2']"]


def test_frozen_code_finds_data_of_the_project_where_they_were(project: Project) -> None:
    project.write("pyproject.toml", "")
    make_set(project.folder / "sets/one", 3)
    project.write(
        "study.yaml", "name: s\ncode: frozen\ndata: [sets/one]\ncommand: cat sets/one/.hidden\n"
    )
    project.run("run", "--on", "local")
    assert "hidden" in project.run("logs", "0").stdout
    plan = json.loads((project.study_folder() / "plan.json").read_text())
    with tarfile.open(plan["code"]["archive"]) as archive:
        assert not [name for name in archive.getnames() if name.startswith("sets")]


def test_archives_of_the_users_on_the_node(project: Project) -> None:
    """What is in them appears in a folder of the archive's name, however they were made."""
    names = "('with', 'in/without', 'other')"
    show = f"import os\nfor n in {names}: print(n, sorted(os.listdir(os.environ['SLURM_TMPDIR'] + '/' + n)))"
    make_study(project, "[]", show)
    root, scratch = project.folder / "sets/with", scratch_of(project)
    root.mkdir(parents=True)
    (root / "a").touch()
    (root / "b").touch()
    (scratch / "in").mkdir()
    other = project.folder / "other.tar"
    for archive, folder, members in (
        (scratch / "with.tar", root.parent, ["with"]),
        (scratch / "in/without.tar.gz", root, ["a", "b"]),
        (other, project.folder, ["sets/with/a"]),
    ):
        subprocess.run(["tar", "-caf", str(archive), "-C", str(folder), *members], check=True)
    project.write(
        "study.yaml",
        f"name: s\ncommand: python show.py\ndata:\n- with.tar\n- in/without.tar.gz\n- {json.dumps(str(other))}\n",
    )
    project.run("run", "--on", "local")
    lines = project.run("logs", "0").stdout.splitlines()
    assert lines == ["with ['a', 'b']", "in/without ['a', 'b']", "other ['sets']"]


def test_missing_data_is_said_before_anything_runs(project: Project) -> None:
    make_study(project, "[datasets/missing]", "")
    done = project.run("run", "--on", "local", code=2)
    assert "there is no datasets/missing" in done.stderr and "study.yaml" in done.stderr


def test_packing_ahead_of_time(project: Project) -> None:
    make_study(project, "[datasets/dataset1]", "")
    rows = project.json("data", "list", "--json")
    assert rows[0]["archive"] is None and rows[0]["files"] == 9
    assert "not packed" in project.run("data", "list").stdout
    assert "datasets/dataset1: packed" in project.run("data", "pack", "study.yaml").stdout
    assert "datasets/dataset1: unchanged" in project.run("data", "pack").stdout
    assert project.json("data", "list", "--json")[0]["archive"]
    assert (
        "datasets/dataset2: packed"
        in project.run("data", "pack", "datasets/dataset2", "--compress", "gzip").stdout
    )
    assert "packing" not in project.run("run", "--on", "local", code=None).stderr
    project.write("study.yaml", "command: 'true'\n")
    assert "names no data" in project.run("data", "pack", code=2).stderr


def test_a_study_is_told_of_data_that_changed_while_it_read_them(project: Project) -> None:
    """Permissions do not hold for root: the other trials of the agent may have read what one of them wrote."""
    project.write("datasets/one/a.txt", "before")
    write = 'cd "$SLURM_TMPDIR/datasets/one"; [ {n} = 0 ] || { chmod u+w a.txt; echo after > a.txt; }; cat a.txt'
    study = {
        "command": write,
        "shell": True,
        "parameters": {"n": [0, 1]},
        "data": ["datasets/one"],
        "slots": 1,
    }
    project.write("study.yaml", json.dumps(study))
    assert project.run("run", "--on", "local").stderr.count("may have read changed data") == 1
    text = "data datasets/one: it was changed on "
    told = "while this agent used it (one/a.txt has changed); the trials that this agent executed (2) may have read"
    for shown in (project.run("status").stdout, project.run("explain", "1").stdout):
        assert text in shown and told in shown
    assert project.run("status").stdout.count(told) == 1


def plan_words(project: Path, *words: str, small_files: Any = None, **more: Any) -> Plan:
    study = Study("s", (Stage("main", words),), Space(), str(project), str(project), **more)
    settings = resolve_settings({"small_files": small_files}, {}, {}, "")
    return plan_slurm(study, 1, settings, Cluster("c"), str(project / "f/s"))


def test_many_small_files_are_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for number in range(1001):
        path = project / f"sets/many/{number % 7}/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    make_set(project / "sets/few")
    words = ("python", "train.py", "--data=sets/many", "sets/few", "{x}", "/usr")
    (problem,) = find_small_files(plan_words(project, *words))
    assert "sets/many, a folder of more than 1,000 files" in problem.message
    assert (
        "add `--data sets/many`, and let the command read $SLURM_TMPDIR/sets/many" in problem.hint
    )
    assert "`--small-files allow`" in problem.hint
    assert len(find_small_files(plan_words(project, str(project / "sets/many")))) == 1
    (tmp_path / "other").mkdir()
    (problem,) = find_small_files(plan_words(tmp_path / "other", str(project / "sets/many")))
    assert f"`tar -cf many.tar -C {project}/sets many`" in problem.hint
    allowed: list[dict[str, Any]] = [
        {"data": (Data("sets/many"),)},
        {"outputs": ("sets/many/*.json",)},
        {"small_files": "allow"},
        {"small_files": 1001},
    ]
    for more in allowed:
        assert find_small_files(plan_words(project, *words, **more)) == []
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    assert len(find_small_files(plan_words(project, *words))) == 1
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    assert find_small_files(plan_words(project, *words)) == [], "it travels with the code"
    assert len(find_small_files(plan_words(project, str(project / "sets/many")))) == 1


def test_variables_in_names_of_folders_are_read_as_trials_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a shell they reach the program as they stand, which is what `plan` warns of."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a", "b", "c"):
        (tmp_path / "home data").mkdir(exist_ok=True)
        (tmp_path / "home data" / name).touch()
    words = ("python", "train.py", "--data=$HOME/home data", "~/home data")
    assert find_small_files(plan_words(tmp_path, *words, small_files=2)) == []
    assert mentions_variable(words) == "$HOME" and mentions_variable(["train", "~/x"]) == "~/x"
    shell = ("sh", "-c", "python train.py --data='~/x' \"$HOME/home data\"")
    assert mentions_variable(shell) is None
    assert len(find_small_files(plan_words(tmp_path, *shell, small_files=2))) == 1
    text = Stage("main", ("train.py ~/home\\ data",), shell=True)
    plan = plan_words(tmp_path, "true", small_files=2)
    assert len(find_small_files(replace(plan, study=replace(plan.study, stages=(text,))))) == 1


def test_counting_files_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deep tree of folders without files is not walked to its end."""
    monkeypatch.setattr("windlass.bundle.small_files._MOST_LOOKED_AT", 5)
    for number in range(1200):
        (tmp_path / f"deep/{number}/inner").mkdir(parents=True)
    looked: list[str] = []
    scan = os.scandir
    monkeypatch.setattr("os.scandir", lambda path: looked.append(path) or scan(path))  # type: ignore[func-returns-value]
    assert find_small_files(plan_words(tmp_path, "deep", small_files=2)) == [] and len(looked) == 1
