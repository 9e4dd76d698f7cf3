"""Files that are kept of trials: on every way out, whole or not at all, few on the shared folder."""

from __future__ import annotations

import binascii
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_survival import agent_pids
from tests.conftest import Project, wait_for
from windlass.agent.child import Trial
from windlass.agent.keep.finder import Finder, Place
from windlass.agent.keep.outputs import OutputKeeper
from windlass.agent.keep.trial_folder import FrozenOrigin, TrialFolders
from windlass.agent.node.sweep import Mark, release_folder, sweep_dead
from windlass.collect.outputs import extract_outputs
from windlass.core.errors import FolderError
from windlass.core.journal.checksum import append_zeros
from windlass.core.journal.kept import KeptWriter, copy_large, find_cut, read_kept
from windlass.core.paths import StudyPaths


def make_trial(number: int = 0, **settings: Any) -> Trial:
    words = [f"--{name}={value}" for name, value in settings.items()]
    line = {"id": f"t{number}abc", "stages": [["main", words]], "settings": settings}
    return Trial(number, json.dumps(line, separators=(",", ":")).encode())


def found(tmp_path: Path, patterns: list[str], trial: Trial, **env: str) -> list[str]:
    return sorted(Finder(patterns, env).find(trial, {}, all_written(tmp_path), {})[0])


def all_written(project: Path) -> Place:
    """Everything that is there was written by the trial."""
    paths = list(project.rglob("*"))
    files = {str(path) for path in paths if path.is_file() or path.is_symlink()}
    return Place(str(project), str(project), files, {str(path) for path in paths if path.is_dir()})


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


class TestFinding:
    def test_placeholders_folders_and_hidden_files(self, tmp_path: Path) -> None:
        touch(tmp_path, "out/a/x.npz", "out/a/.hidden", "out/a/deep/y.npz", "out/b/x.npz")
        assert found(tmp_path, ["out/{name}"], make_trial(name="a")) == [
            "out/a/.hidden",
            "out/a/deep/y.npz",
            "out/a/x.npz",
        ]
        assert found(tmp_path, ["out/{name}/*.npz"], make_trial(name="a")) == ["out/a/x.npz"]

    def test_values_are_no_patterns(self, tmp_path: Path) -> None:
        touch(tmp_path, "a[1]*.txt", "a1.txt")
        assert found(tmp_path, ["{name}.txt"], make_trial(name="a[1]*")) == ["a[1]*.txt"]

    def test_numbers_as_the_command_has_them(self, tmp_path: Path) -> None:
        touch(tmp_path, "lr-1e-3.txt")
        line = b'{"id":"tx","stages":[["main",["--lr=1e-3"]]],"settings":{"lr":0.001}}'
        assert found(tmp_path, ["lr-{lr}.txt"], Trial(0, line)) == ["lr-1e-3.txt"]
        touch(tmp_path, "s-007.txt")
        line = b'{"id":"tx","stages":[["main",["007"]]],"written":{"s":"007"},"settings":{"s":7}}'
        assert found(tmp_path, ["s-{s}.txt"], Trial(0, line)) == ["s-007.txt"]

    def test_the_nodes_own_folder_and_absolute_paths(self, tmp_path: Path) -> None:
        local, other = tmp_path / "local", tmp_path / "other"
        touch(local, "model/w.pt")
        touch(other, "z.txt")
        work = tmp_path / "work"
        work.mkdir()
        env = {"SLURM_TMPDIR": str(local)}
        patterns = ["$SLURM_TMPDIR/model/*", "${SLURM_TMPDIR}/model", f"{other}/*.txt"]
        names = found(work, patterns, make_trial(), **env)
        assert names == sorted(["model/w.pt", f"{other}/z.txt".lstrip("/")])

    def test_what_nothing_matches_is_told(self, tmp_path: Path) -> None:
        _, missing = Finder(["no-{n}"], {}).find(make_trial(n=3), {}, all_written(tmp_path), {})
        assert missing == ["no-3"]

    def test_links_and_empty_folders(self, tmp_path: Path) -> None:
        touch(tmp_path, "out/a.pt", "out/deep/b.pt", "runs/3/c.pt")
        (tmp_path / "out/last").symlink_to("a.pt")
        (tmp_path / "out/nowhere").symlink_to("gone")
        (tmp_path / "out/folder").symlink_to("deep")
        (tmp_path / "best").symlink_to("runs/3")
        (tmp_path / "out/empty").mkdir()
        inside = ["out/a.pt", "out/deep/b.pt", "out/empty", "out/folder", "out/last", "out/nowhere"]
        assert found(tmp_path, ["out"], make_trial()) == inside
        assert found(tmp_path, ["best"], make_trial()) == ["best/c.pt"], (
            "what it leads to is not kept otherwise"
        )
        assert found(tmp_path, ["best", "runs"], make_trial()) == ["best", "runs/3/c.pt"]

    def test_only_what_the_trial_wrote(self, tmp_path: Path) -> None:
        """Neither a file of the project's own, nor one that lay outside before the trial began."""
        project, other = tmp_path / "project", tmp_path / "other"
        touch(project, "a.txt", "b.txt")
        touch(other, "c.txt", "d.txt")
        finder, trial = Finder(["*.txt", f"{other}/*.txt"], {}), make_trial()
        before = finder.look_outside(trial, {})
        (other / "d.txt").write_text("changed by the trial")
        place = Place(str(project), str(project), {str(project / "b.txt")})
        found, missing = finder.find(trial, {}, place, before)
        assert set(found) == {"b.txt", f"{other}/d.txt".lstrip("/")} and not missing


class TestArchive:
    def write(self, folder: Path, count: int) -> KeptWriter:
        writer = KeptWriter(str(folder), "agent")
        source = folder.parent / "source"
        for number in range(count):
            source.write_bytes(b"x" * number)
            writer.add("ta", f"f{number}", source.read_bytes(), source.stat(), 1.0)
        return writer

    def test_any_tar_reads_it(self, tmp_path: Path) -> None:
        self.write(tmp_path / "outputs", 20).close()
        with tarfile.open(tmp_path / "outputs/agent.tar") as tar:
            assert [(member.name, member.size) for member in tar] == [
                (f"ta/f{n}", n) for n in range(20)
            ]
        listed = subprocess.run(
            ["tar", "tf", tmp_path / "outputs/agent.tar"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(listed.stdout.splitlines()) == 20 and not listed.stderr

    def test_a_torn_end_costs_only_what_was_not_complete(self, tmp_path: Path) -> None:
        folder = tmp_path / "outputs"
        self.write(folder, 6).close()
        whole_tar, whole_index = (
            (folder / "agent.tar").read_bytes(),
            (folder / "agent.idx").read_bytes(),
        )
        for cut in range(0, len(whole_tar), 200):
            (folder / "agent.tar").write_bytes(whole_tar[:cut])
            (folder / "agent.idx").write_bytes(whole_index)
            names = {file.path for file in read_kept(str(folder))}
            ends = [1024 * n + n if n else 512 for n in range(6)]
            assert names == {f"f{n}" for n in range(6) if ends[n] <= cut}
            for file in read_kept(str(folder)):
                file.extract(str(tmp_path / "out"))
                assert (tmp_path / "out").read_bytes() == b"x" * int(file.path[1:])

    def test_without_its_last_lines_the_index_is_made_up_from_the_archive(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "outputs"
        self.write(folder, 6).close()
        index = (folder / "agent.idx").read_bytes()
        for cut in range(0, len(index) + 1, 7):
            (folder / "agent.idx").write_bytes(index[:cut])
            assert [file.path for file in read_kept(str(folder))] == [f"f{n}" for n in range(6)]

    def test_nothing_is_written_through_a_link(self, tmp_path: Path) -> None:
        """One attempt left a link and a later one a folder of the same name; set-user-id bits stay behind."""
        tool = tmp_path / "tool"
        tool.write_text("")
        tool.chmod(0o6755)
        outside = tmp_path / "outside"
        outside.mkdir()
        writer = KeptWriter(str(tmp_path / "outputs"), "agent")
        writer.add_link("t0", "out", str(outside), os.lstat(tool), 1.0)
        writer.add("t1", "tool", b"content", os.stat(tool), 1.0)
        writer.close()
        target = tmp_path / "target"
        extract_outputs(read_kept(str(tmp_path / "outputs")), str(target))
        assert (target / "t1/tool").stat().st_mode & 0o7777 == 0o755
        writer = KeptWriter(str(tmp_path / "outputs"), "later")
        writer.add("t0", "out/file", b"content", os.stat(tool), 2.0)
        writer.close()
        with pytest.raises(FolderError, match="is a link"):
            extract_outputs(read_kept(str(tmp_path / "outputs")), str(target))
        assert os.listdir(outside) == []

    def test_links_folders_and_holes_keep_their_kind(self, tmp_path: Path) -> None:
        file = tmp_path / "sparse"
        with file.open("wb") as sparse:
            sparse.seek(1 << 20)
            sparse.write(b"end")
        writer = KeptWriter(str(tmp_path / "outputs"), "agent")
        status = os.lstat(file)
        writer.add_link("t0", "out/last", "a.pt", status, 1.0)
        writer.add_folder("t0", "out/empty", status, 1.0)
        writer.add("t0", "out/sparse", file.read_bytes(), status, 1.0, is_sparse=True)
        large = copy_large(str(file), str(tmp_path / "outputs/t0/out/large"))
        writer.add_copied("t0", "out/large", large.status, 1.0, large.checksum)
        writer.close()
        assert large.status.st_blocks < 100

        def check(folder: Path) -> None:
            extract_outputs(read_kept(str(tmp_path / "outputs")), str(folder))
            assert (
                os.readlink(folder / "t0/out/last") == "a.pt"
                and os.listdir(folder / "t0/out/empty") == []
            )
            for name in ("sparse", "large"):
                taken = folder / "t0/out" / name
                assert taken.read_bytes() == file.read_bytes() and taken.stat().st_blocks < 100

        check(tmp_path / "first")
        check(tmp_path / "first")  # once more, over what is there
        names = subprocess.run(
            ["tar", "-tvf", str(tmp_path / "outputs/agent.tar")],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        assert [line[0] for line in names] == ["l", "d", "-"], "any tar reads it"
        os.truncate(tmp_path / "outputs/agent.idx", 0)
        kinds = {
            file.path: (file.target, file.is_folder)
            for file in read_kept(str(tmp_path / "outputs"))
        }
        assert kinds["out/last"] == ("a.pt", False) and kinds["out/empty"] == (None, True)

    def test_names_that_are_long_or_no_text(self, tmp_path: Path) -> None:
        names = ["d" * 150 + "/" + "e" * 200, "né \n 'x'", os.fsdecode(b"\xff\xfe")]
        writer = KeptWriter(str(tmp_path / "outputs"), "agent")
        for name in names:
            writer.add("ta", name, name.encode("utf-8", "surrogateescape"), tmp_path.stat(), 1.0)
        writer.close()
        for index in (True, False):
            if not index:
                (tmp_path / "outputs/agent.idx").unlink()
            files = read_kept(str(tmp_path / "outputs"))
            assert sorted(file.path for file in files) == sorted(names)

    def test_the_latest_counts(self, tmp_path: Path) -> None:
        for name, when, text in (("b", 2.0, b"new"), ("a", 1.0, b"old"), ("c", 1.5, b"middle")):
            writer = KeptWriter(str(tmp_path / "outputs"), name)
            writer.add("ta", "f", text, tmp_path.stat(), when)
            writer.close()
        (file,) = read_kept(str(tmp_path / "outputs"))
        file.extract(str(tmp_path / "out"))
        assert (tmp_path / "out").read_bytes() == b"new"

    def test_a_full_disk_leaves_what_was_there(self, tmp_path: Path) -> None:
        """A limit on the size of files stands in for it."""
        program = (
            "import os, resource, signal, sys\n"
            "from windlass.core.journal.kept import KeptWriter, read_kept\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "writer = KeptWriter(sys.argv[1], 'agent')\n"
            "writer.add('ta', 'small', b'x' * 1000, os.stat('.'), 1.0)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
            "try:\n    writer.add('ta', 'big', b'y' * 20_000, os.stat('.'), 1.0)\n"
            "except OSError:\n    pass\n"
            "else:\n    sys.exit(3)\n"
            "writer.add('ta', 'after', b'z' * 1000, os.stat('.'), 1.0)\n"
            "writer.close()\n"
        )
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "outputs")], check=True, timeout=180
        )
        assert [file.path for file in read_kept(str(tmp_path / "outputs"))] == ["after", "small"]

    def test_a_large_file_that_grows_is_not_taken_for_whole(self, tmp_path: Path) -> None:
        (tmp_path / "source").write_bytes(b"x" * 100)
        assert copy_large(str(tmp_path / "source"), str(tmp_path / "out/big")).status.st_size == 100
        with pytest.raises(OSError):
            copy_large(str(tmp_path / "missing"), str(tmp_path / "out/none"))
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["big"]


WRITER = """
import os, sys, time
n, how = sys.argv[1:]
os.makedirs(f"out/{n}", exist_ok=True)
open(f"out/{n}/result.txt", "w").write(f"result {n}")
open(f"out/{n}/done", "w").close()
if how == "fail":
    sys.exit(3)
if how == "wait":
    time.sleep(1000)
"""


def study(project: Project, how: str, numbers: list[int], more: str = "") -> None:
    project.write("trial.py", WRITER)
    project.write(
        "study.yaml",
        f"command: {sys.executable} trial.py {{n}} {how}\nparameters:\n  n: {numbers}\noutputs: ['out/{{n}}']\n{more}",
    )


def kept(project: Project) -> dict[str, str]:
    """Path → content of all that is kept, taken out as a user does."""
    project.run("outputs", "--to", "taken")
    root = project.folder / "taken"
    return {
        str(path.relative_to(root)).split("/", 1)[1]: path.read_text()
        for path in root.rglob("*")
        if path.is_file()
    }


class TestEveryWayOut:
    def test_done(self, project: Project) -> None:
        study(project, "well", [1, 2, 3])
        project.run("run")
        assert kept(project) == {
            **{f"out/{n}/result.txt": f"result {n}" for n in (1, 2, 3)},
            **{f"out/{n}/done": "" for n in (1, 2, 3)},
        }

    def test_failed(self, project: Project) -> None:
        study(project, "fail", [1])
        project.run("run", code=1)
        assert kept(project)["out/1/result.txt"] == "result 1"

    def test_time_limit(self, project: Project) -> None:
        study(project, "wait", [1], "timeout: 4s\ngrace: 1s\n")
        project.run("run", code=1)
        assert kept(project)["out/1/result.txt"] == "result 1"

    @pytest.mark.parametrize("code", ["live", "frozen"])
    def test_interrupted(self, project: Project, code: str) -> None:
        study(project, "wait", [1], f"code: {code}\n")
        run = project.start("run", "--quiet")
        wait_for(
            lambda: (
                project.counts().get("running") if (project.folder / ".windlass").exists() else 0
            )
        )
        wait_for(lambda: wrote(project))
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=180)
        assert kept(project)["out/1/result.txt"] == "result 1"

    def test_cancelled(self, project: Project) -> None:
        study(project, "wait", [1])
        run = project.start("run", "--quiet")
        wait_for(lambda: wrote(project))
        project.run("cancel", "0")
        run.communicate(timeout=180)
        assert kept(project)["out/1/result.txt"] == "result 1"

    @pytest.mark.parametrize("code", ["live", "frozen"])
    def test_the_agent_is_killed(self, project: Project, code: str) -> None:
        """What trials wrote in their folders is copied out by the guard."""
        study(project, "wait", [1], f"code: {code}\n")
        run = project.start("run", "--quiet")
        wait_for(lambda: wrote(project))
        (local,) = local_folders(project)
        os.kill(agent_pids(project.folder)[0], signal.SIGKILL)
        wait_for(lambda: not local.exists())
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=180)
        assert kept(project)["out/1/result.txt"] == "result 1"


def local_folders(project: Project) -> list[Path]:
    """The agents' own folders on local disk, by what is written in them."""
    return [
        path.parent
        for path in Path("/tmp").glob("*_local_*/.windlass-outputs.json")
        if json.loads(path.read_text())["study"].startswith(str(project.folder))
    ]


def wrote(project: Project) -> bool:
    return any(list(folder.rglob("out/1/done")) for folder in local_folders(project))


def test_five_thousand_small_files_are_two_on_the_shared_folder(project: Project) -> None:
    project.write(
        "trial.py",
        "import os, sys\nos.makedirs(sys.argv[1])\nfor i in range(500):\n    open(f'{sys.argv[1]}/{i}', 'w').write(str(i))\n",
    )
    project.write(
        "study.yaml",
        f"command: {sys.executable} trial.py out-{{n}}\nparameters:\n  n: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
        "outputs: ['out-{n}']\n",
    )
    project.run("run")
    files = [path for path in (project.study_folder() / "outputs").rglob("*") if path.is_file()]
    assert len(files) == 2
    assert len(project.json("outputs", "--json")) == 5000


def test_large_files_lie_under_their_own_names(project: Project) -> None:
    project.write(
        "trial.py", "import sys\nopen(f'model-{sys.argv[1]}', 'wb').write(bytes(70 << 20))\n"
    )
    project.write(
        "study.yaml",
        f"command: {sys.executable} trial.py {{n}}\nparameters:\n  n: [1, 2]\noutputs: ['model-{{n}}']\nslots: 2\n",
    )
    project.run("run")
    rows = {row["n"]: row["id"] for row in project.json("results", "--json")}
    for number, trial in rows.items():
        assert (
            project.study_folder() / "outputs" / trial / f"model-{number}"
        ).stat().st_size == 70 << 20
    assert {file["path"] for file in project.json("outputs", "--json")} == {"model-1", "model-2"}


LINKS = """
import os
os.makedirs("out/empty")
open("out/epoch-3", "w").write("weights")
os.symlink("epoch-3", "out/last")
os.symlink(os.path.abspath("out/epoch-3"), "out/whole-path")
with open("out/holes", "wb") as file:
    os.ftruncate(file.fileno(), 64 << 20)
"""


def test_links_empty_folders_and_holes_keep_their_kind(project: Project) -> None:
    project.write("trial.py", LINKS)
    project.write(
        "study.yaml", f"command: {sys.executable} trial.py\noutputs: [out]\ncode: frozen\n"
    )
    project.run("run", "--on", "local")
    project.run("outputs", "--to", "all")
    (out,) = (project.folder / "all").glob("*/out")
    assert os.readlink(out / "last") == "epoch-3" and (out / "last").read_text() == "weights"
    assert not (out / "whole-path").is_symlink() and (out / "whole-path").read_text() == "weights"
    assert os.listdir(out / "empty") == []
    assert (out / "holes").stat().st_size == 64 << 20 and (out / "holes").stat().st_blocks < 100
    kinds = {row["path"]: row["kind"] for row in project.json("outputs", "--json")}
    assert (
        kinds["out/last"] == "link"
        and kinds["out/empty"] == "folder"
        and kinds["out/holes"] == "file"
    )
    assert "out/last -> epoch-3" in project.run("outputs").stdout


def test_what_no_pattern_names_is_kept_all_the_same(project: Project) -> None:
    project.write("trial.py", "import sys\nopen(f'plot-{sys.argv[1]}.png', 'w').write('png')\n")
    project.write(
        "study.yaml",
        f"command: {sys.executable} trial.py {{n}}\nparameters:\n  n: [1, 2]\ncode: frozen\n",
    )
    project.run("run")
    assert not list(project.folder.glob("*.png"))
    assert [
        note for note in project.json("status", "--json")["notes"] if "trials wrote 2 files" in note
    ]
    project.run("outputs", "left-behind", "--to", "taken")
    assert sorted(path.name for path in (project.folder / "taken").rglob("*.png")) == [
        "plot-1.png",
        "plot-2.png",
    ]
    assert project.json("outputs", "0", "--json") == []


def test_keep_none_and_best(project: Project) -> None:
    text = (
        "import sys, windlass\nopen(f'model-{sys.argv[1]}', 'w').write(sys.argv[1])\n"
        "open(f'big-{sys.argv[1]}', 'wb').write(bytes(5 << 20))\nwindlass.log(loss=abs(float(sys.argv[1]) - 2))\n"
    )
    project.write("trial.py", text)
    base = f"command: {sys.executable} trial.py {{n}}\nparameters:\n  n: [1, 2, 3]\noutputs: ['*-{{n}}']\n"
    project.write("study.yaml", base + "name: none\nkeep: none\n")
    project.run("run")
    assert not (project.study_folder() / "outputs").exists()
    project.write("study.yaml", base + "name: best\nkeep: best\nmetric: loss\n")
    project.run("run")
    project.run("outputs", "--prune", "--study", "best")
    assert [file["path"] for file in project.json("outputs", "--study", "best", "--json")] == [
        "big-2",
        "model-2",
    ]
    assert [
        file["path"] for file in project.json("outputs", "--study", "best", "--best", "--json")
    ] == [
        "big-2",
        "model-2",
    ]
    left = [path for path in (project.study_folder() / "outputs").rglob("*") if path.is_file()]
    assert len(left) == 3, left
    project.run("retry", "1", "--yes", "--no-run", "--study", "best")
    said = project.run("outputs", "--best", "--study", "best").stderr
    assert (
        "is the best of those that are done, and no outputs of it are kept: those of all but the best"
        in said
    )
    assert "1 trial was put back with `retry`" in said and "`windlass outputs best --all" in said


class TestSweeping:
    def make_dead(self, root: Path, name: str, pid: int) -> Path:
        """A folder whose agent is gone."""
        folder = root / name
        folder.mkdir(parents=True)
        mark = Mark(str(folder), None)
        mark.close()
        said = json.loads((folder / ".windlass-job").read_text())
        (folder / ".windlass-job").write_text(json.dumps({**said, "pid": pid, "began": "1"}))
        return folder

    def user(self) -> str:
        return subprocess.run(
            ["id", "-un"], capture_output=True, text=True, check=True
        ).stdout.strip()

    def test_only_folders_of_the_dead_go(self, tmp_path: Path) -> None:
        user = self.user()
        dead = self.make_dead(tmp_path, f"{user}_12_3_0", 999_999)
        (dead / "data").mkdir()
        (dead / "data/file").write_text("x")
        (dead / "data").chmod(0o500)
        strange = self.make_dead(tmp_path, "somebody_12_3_0", 999_999)
        other_name = self.make_dead(tmp_path, f"{user}_important", 999_999)
        unmarked = tmp_path / f"{user}_13_0"
        unmarked.mkdir()
        (unmarked / "precious").write_text("x")
        living = tmp_path / f"{user}_14_0"
        living.mkdir()
        mark = Mark(str(living), {"array": 14, "task": None, "id": 14, "restart": 0})
        link = tmp_path / f"{user}_15_0"
        link.symlink_to(unmarked)
        looked = sweep_dead([str(tmp_path)], "", lambda text: None, look=True)
        assert {(swept.path, swept.what) for swept in looked} == {
            (str(dead), "dead"),
            (str(living), "in use"),
        }
        said: list[str] = []
        sweep_dead([str(tmp_path)], "", said.append)
        assert not dead.exists() and [str(dead) in text for text in said] == [True]
        assert strange.exists() and other_name.exists() and living.exists() and link.is_symlink()
        assert (unmarked / "precious").exists()
        mark.close()

    def test_a_living_lock_protects_whatever_the_mark_says(self, tmp_path: Path) -> None:
        folder = tmp_path / f"{self.user()}_12_0"
        folder.mkdir()
        mark = Mark(str(folder), None)
        said = json.loads((folder / ".windlass-job").read_text())
        with (folder / ".windlass-job").open("r+") as file:
            file.write(json.dumps({**said, "pid": 999_999, "began": "1"}))
            file.truncate()
        assert [swept.what for swept in sweep_dead([str(tmp_path)], "", lambda text: None)] == [
            "in use"
        ]
        mark.close()
        assert [swept.what for swept in sweep_dead([str(tmp_path)], "", lambda text: None)] == [
            "removed"
        ]

    @pytest.mark.parametrize(
        ("state", "what"),
        [(None, "removed"), ("COMPLETED", "removed"), ("RUNNING", "in use"), ("silent", "in use")],
    )
    def test_where_processes_cannot_be_seen_the_scheduler_decides(
        self, tmp_path: Path, state: str | None, what: str
    ) -> None:
        folder = self.make_dead(tmp_path / "disk", f"{self.user()}_12_3_0", 1)
        said = json.loads((folder / ".windlass-job").read_text())
        job = {"array": 12, "task": 3, "id": 15, "restart": 0}
        mark = {**said, "boot": said["boot"][:36] + "elsewhere", "job": job, "t": time.time() - 100}
        (folder / ".windlass-job").write_text(json.dumps(mark))
        row = f"15|12|3|{state}|None|node1|{time.time() - 110:.0f}|N/A|1:00|N/A|main|me||name\n"
        text = "" if state is None else row
        answer = {
            "v": 1,
            "user": os.getuid(),
            "number": 1,
            "asked": time.time(),
            "text": text,
            "good": None,
        }
        cache = tmp_path / "squeue.json"
        cache.write_text(json.dumps({**answer, "text": None} if state == "silent" else answer))
        swept = sweep_dead([str(tmp_path / "disk")], str(cache), lambda text: None)
        assert [found.what for found in swept] == [what]
        assert folder.exists() is (what == "in use")

    def test_outputs_are_copied_out_first_and_nothing_newer_is_covered(
        self, project: Project, tmp_path: Path
    ) -> None:
        study(project, "well", [1, 2])
        project.run("run")
        paths = StudyPaths(str(project.study_folder()))
        agent = next(Path(paths.journal).glob("*.jsonl")).stem
        journal = Path(paths.journal_of(agent))
        lines = journal.read_text().splitlines()
        ends = [line for line in lines if '"e":"end"' in line]
        journal.write_text("\n".join(line for line in lines if line != ends[0]) + "\n")
        os.utime(journal, (time.time() - 100, time.time() - 100))
        number = json.loads(ends[0])["i"]
        local = self.make_dead(tmp_path / "disk", f"{self.user()}_7_0", 999_999)
        written = [f"out/{number + 1}/result.txt", f"out/{number + 1}/more.txt"]
        slots = {
            start["i"]: start["s"] for start in map(json.loads, lines) if start["e"] == "start"
        }
        leave_folder(local, paths, agent, slots[number], written)
        assert [
            swept.what for swept in sweep_dead([str(tmp_path / "disk")], "", lambda text: None)
        ] == ["removed"]
        taken = kept(project)
        assert taken[f"out/{number + 1}/result.txt"] == f"result {number + 1}", (
            "the newer one counts"
        )
        assert taken[f"out/{number + 1}/more.txt"] == f"out/{number + 1}/more.txt"

    def test_a_folder_stays_while_its_outputs_cannot_be_kept(
        self, project: Project, tmp_path: Path
    ) -> None:
        study(project, "well", [1])
        project.run("run")
        paths = StudyPaths(str(project.study_folder()))
        agent = next(Path(paths.journal).glob("*.jsonl")).stem
        local = tmp_path / "local"
        late = leave_folder(local, paths, agent, 0, ["out/1/late.txt"])
        (local / ".windlass-unsafe").write_text(json.dumps([0, str(late)]) + "\n")
        away = project.folder / "away"
        Path(paths.folder).rename(away)
        assert "is not there" in release_folder(str(local)) and (late / "out/1/late.txt").exists()
        away.rename(paths.folder)
        assert release_folder(str(local)) == "" and not local.exists()
        assert kept(project)["out/1/late.txt"] == "out/1/late.txt"
        leave_folder(local, paths, agent, 0, ["out/1/late.txt"])
        Path(paths.folder).rename(away)
        assert release_folder(str(local)) and local.exists()
        os.utime(local, (time.time() - 15 * 86400,) * 2)
        assert release_folder(str(local)) == "" and not local.exists(), (
            "the study was removed long ago"
        )


def leave_folder(local: Path, paths: StudyPaths, agent: str, slot: int, written: list[str]) -> Path:
    """The working folder of a slot as an agent leaves it that was killed while a trial had written these files."""
    code = local / "agent/code"
    touch(code, "train.py")
    folders = TrialFolders(FrozenOrigin(str(code)), str(local / "agent"), str(code))
    folders.enter(slot)
    OutputKeeper(
        Finder(["out/{n}"], {"SLURM_TMPDIR": str(local)}), paths, agent, str(local)
    ).describe(folders, slot)
    project = Path(folders.project_of(slot))
    touch(project, *written)
    return project


def test_files_from_before_a_retry_are_not_the_trials_outputs(project: Project) -> None:
    """Those of an earlier session of the same execution are."""
    code = (
        "import os, sys\n"
        "session = len(os.listdir(sys.argv[1]))\n"
        "open(os.path.join(sys.argv[1], str(session)), 'w').close()\n"
        "open(f'acc_VERSION_{session}.json', 'w').write('VERSION')\n"
        "open(f'other_VERSION.txt', 'w').write('VERSION')\n"
        "sys.exit([42, END][session % 2])\n"
    )
    project.write("sessions/.none", "")
    os.remove(project.folder / "sessions/.none")
    project.write("train.py", code.replace("VERSION", "v1").replace("END", "1"))
    command = [sys.executable, "train.py", str(project.folder / "sessions"), "{n}"]
    project.write(
        "study.yaml",
        json.dumps({"command": command, "parameters": {"n": [1]}, "outputs": ["acc_*.json"]}),
    )
    project.run("run", "study.yaml", code=None)

    def names(*words: str) -> list[str]:
        return sorted(
            file["path"].rpartition("/")[2] for file in project.json("outputs", *words, "--json")
        )

    assert names("0") == ["acc_v1_0.json", "acc_v1_1.json"] and names("left-behind") == [
        "other_v1.txt"
    ]
    project.write("train.py", code.replace("VERSION", "v2").replace("END", "0"))
    project.run("retry")
    assert names("0") == ["acc_v2_2.json", "acc_v2_3.json"] and names("left-behind") == [
        "other_v2.txt"
    ]
    told = project.run("outputs", "--to", "here").stderr
    assert "3 files" in told and "--all" in told
    assert not list((project.folder / "here").rglob("*v1*"))
    assert names("0", "--all") == [
        "acc_v1_0.json",
        "acc_v1_1.json",
        "acc_v2_2.json",
        "acc_v2_3.json",
    ]


def test_what_is_cut_short_or_gone_is_reported(project: Project) -> None:
    """Kept files and what trials printed: the file is named, and the exit code tells it too."""
    project.write(
        "study.yaml",
        "name: s\ncommand: sh -c 'echo hello; echo {n} > r.txt'\nparameters: {n: [0, 1]}\noutputs: [r.txt]\n",
    )
    project.run("run", "--on", "local", "--quiet")
    folder = project.folder / ".windlass" / "s"
    (archive,) = (folder / "outputs").glob("*.tar")
    assert find_cut(str(folder / "outputs")) == {}
    os.truncate(archive, 1030)
    half = project.run("outputs", code=1)
    assert (
        f"{archive}: is cut short: 1 file that was kept is missing" in half.stderr
        and "1 file," in half.stdout
    )
    archive.unlink()
    assert (
        f"{archive}: is gone: 2 files that were kept are missing"
        in project.run("outputs", code=1).stderr
    )

    (log,) = (folder / "output").glob("*.log")
    (index,) = (folder / "output").glob("*.idx")
    content = index.read_bytes()
    assert project.run("logs", "0").stdout == "hello\n"
    index.unlink()
    assert f"{index}: is gone" in project.run("logs", "0", code=1).stderr
    index.write_bytes(content)
    os.truncate(log, 3)
    assert f"{log}: is cut short" in project.run("logs", code=1).stderr
    log.unlink()
    assert f"{log}: is gone" in project.run("logs", "0", code=1).stderr


def test_content_that_has_changed_is_not_handed_out(project: Project) -> None:
    """A file of an archive, a large file, and a line of the index: each is named, the others are written."""
    project.write(
        "study.yaml",
        "name: s\ncommand: sh -c 'echo {n}{n}{n} > r.txt; yes {n} | head -c 5000000 > big.bin'\nparameters: {n: [4, 5]}\noutputs: [r.txt, big.bin]\n",
    )
    project.run("run", "--on", "local", "--quiet")
    folder = project.folder / ".windlass" / "s" / "outputs"
    (archive,) = folder.glob("*.tar")
    (index,) = folder.glob("*.idx")
    big = next(folder.glob("*/big.bin"))
    owner = big.parent.name
    whole = {path: path.read_bytes() for path in (archive, index, big)}

    def take(code: int) -> tuple[str, set[str]]:
        done = project.run("outputs", "--to", "taken", code=code)
        names = {
            str(path.relative_to(project.folder / "taken"))
            for path in (project.folder / "taken").rglob("*.*")
        }
        shutil.rmtree(project.folder / "taken")
        return done.stderr, names

    everything = take(0)[1]
    assert len(everything) == 4
    archive.write_bytes(whole[archive].replace(b"444\n", b"454\n"))
    told, names = take(1)
    assert (
        f"{archive}: 'r.txt' of trial t" in told
        and "its content has changed since it was kept" in told
    )
    assert len(names) == 3
    archive.write_bytes(whole[archive])
    big.write_bytes(whole[big][:-2] + b"7\n")
    told, names = take(1)
    assert f"{big}: 'big.bin' of trial {owner}" in told and everything - names == {
        f"{owner}/big.bin"
    }
    big.write_bytes(whole[big])
    for line in whole[index].splitlines():
        # One digit of a line that tells of a file: its name, the trial that it is of, or its place in the archive.
        index.write_bytes(whole[index].replace(line, line.replace(b'"p":"', b'"p":"x')))
        told = project.run("outputs", code=1).stderr
        assert f"{index}: 1 line is damaged" in told and "/xr.txt" not in take(1)[1]
    assert project.run("outputs", "--prune", code=None).returncode == 2
    index.write_bytes(whole[index])
    assert take(0)[1] == everything


def test_checksums_of_files_with_holes(tmp_path: Path) -> None:
    """They do not depend on which zeros the file system stores, and take no time for the zeros."""
    data = b"begin" + bytes(300_000) + b"middle" + bytes(1_000_001)
    for cut in (0, 1, 5, 5000, len(data)):
        assert append_zeros(binascii.crc32(data[:cut]), 77) == binascii.crc32(
            data[:cut] + bytes(77)
        )
    assert append_zeros(append_zeros(5, 1 << 50), 1 << 50) == append_zeros(5, 1 << 51)
    plain, sparse = tmp_path / "plain", tmp_path / "sparse"
    plain.write_bytes(data)
    with open(sparse, "wb") as file:
        file.write(b"begin")
        file.seek(300_005)
        file.write(b"middle")
        file.truncate(len(data))
    assert sparse.read_bytes() == data
    checksums = {
        copy_large(str(path), str(tmp_path / "out" / path.name)).checksum
        for path in (plain, sparse)
    }
    assert checksums == {binascii.crc32(data)}


def test_files_that_were_kept_by_an_earlier_version(tmp_path: Path) -> None:
    """Their index has no checksums."""
    writer = KeptWriter(str(tmp_path / "outputs"), "agent")
    (tmp_path / "f").write_bytes(b"abc")
    writer.add("t0", "r.txt", b"abc", os.lstat(tmp_path / "f"), 1.0)
    writer.close()
    index = tmp_path / "outputs" / "agent.idx"
    record = json.loads(index.read_bytes())
    del record["crc"], record["c"]
    index.write_text(json.dumps(record) + "\n")
    assert extract_outputs(read_kept(str(tmp_path / "outputs")), str(tmp_path / "to")).count == 1
    assert (tmp_path / "to" / "t0" / "r.txt").read_bytes() == b"abc"


def test_output_that_has_changed_is_left_out(project: Project) -> None:
    """What trials printed, and the index that tells which trial printed what; also where a metric is read from it."""
    project.write("study.yaml", "name: s\ncommand: sh -c 'echo a={n}5'\nparameters: {n: [1, 2]}\n")
    project.run("run", "--on", "local", "--quiet")
    folder = project.folder / ".windlass" / "s" / "output"
    (log,), (index,) = folder.glob("*.log"), folder.glob("*.idx")
    assert [row["a"] for row in project.json("results", "--metric", "a", "--format", "json")] == [
        15.0,
        25.0,
    ]
    text, entries = log.read_bytes(), index.read_bytes()
    log.write_bytes(text.replace(b"a=15", b"a=75"))
    assert "some of it is left out" in project.run("logs", "0", code=1).stderr
    done = project.run("results", "--metric", "a", "--format", "json")
    assert [row.get("a") for row in json.loads(done.stdout)] == [
        None,
        25.0,
    ] and "left out" in done.stderr
    log.write_bytes(text)
    swapped = bytearray(entries)
    swapped[20:28], swapped[52:60] = (
        entries[52:60],
        entries[20:28],
    )  # trial and attempt of the two pieces
    index.write_bytes(swapped)
    done = project.run("results", "--metric", "a", "--format", "json")
    assert [row.get("a") for row in json.loads(done.stdout)] == [
        None,
        None,
    ] and "left out" in done.stderr


def test_a_number_that_is_cut_off_is_not_read(project: Project) -> None:
    """The end of a line is missing in what was kept: its beginning is no value of the metric."""
    project.write("study.yaml", "name: s\ncommand: sh -c 'echo a={n}'\nparameters: {n: [1234]}\n")
    project.run("run", "--on", "local", "--quiet")
    (log,) = (project.folder / ".windlass" / "s" / "output").glob("*.log")
    os.truncate(log, 4)
    done = project.run("results", "--metric", "a", "--format", "json")
    assert [row.get("a") for row in json.loads(done.stdout)] == [
        None
    ] and "is cut short" in done.stderr
