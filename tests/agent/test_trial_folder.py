"""A trial's working folder is its own: nothing of another trial in it, and its files are kept for it alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project, wait_for
from windlass.agent.keep.output_paths import OutputPaths
from windlass.agent.keep.trial_folder import FrozenOrigin, Tree, TrialFolders
from windlass.agent.node import live_origin
from windlass.agent.node.live_origin import LiveOrigin
from windlass.bundle import live
from windlass.bundle.live import list_live_files

# Writes as ordinary scripts do: where it stands, over a file of the project, into a folder of the project, beside
# itself and after a change of directory. All trials write at the same time: each waits until the others have.
ORDINARY = """
import os, sys, time
import helper
n, shared, together = sys.argv[1], sys.argv[2], int(sys.argv[3])
before = sorted(os.listdir("."))
if not sys.argv[4:]:
    open("model.txt", "w").write(n)
    open("notes.txt", "a").write(n)
    open("results/" + n + ".json", "w").write(n)
    open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "beside.txt"), "w").write(n)
    open(os.path.join(os.path.dirname(os.path.abspath(helper.__file__)), "helper.txt"), "w").write(n)
    os.chdir("results")
    open("inside.txt", "w").write(n)
    os.chdir("..")
open(os.path.join(shared, n), "w").write(repr(before))
while len(os.listdir(shared)) < together:
    time.sleep(0.02)
assert open("model.txt").read() == n
"""
OUTPUTS = "[model.txt, notes.txt, 'results/*', beside.txt, helper.txt]"


def ordinary_study(project: Project, code: str, trials: int, together: int, more: str = "") -> Path:
    """A project that has been tried by hand before: results of that lie in it."""
    project.write("train.py", ORDINARY)
    project.write("helper.py", "")
    project.write("model.txt", "of yesterday")
    project.write("notes.txt", "notes: ")
    project.write("results/old.json", "of yesterday")
    shared = project.folder / "shared"
    shared.mkdir()
    project.write(
        "study.yaml",
        f"command: {sys.executable} train.py {{n}} {{shared}} {together}\n"
        f"parameters:\n  n: {list(range(trials))}\n  shared: [{json.dumps(str(shared))}]\n"
        f"outputs: {OUTPUTS}\ncode: {code}\nslots: 4\n{more}",
    )
    return shared


def kept_files(project: Project) -> dict[str, dict[str, str]]:
    """Value of n → path → content of what was kept for that trial."""
    project.run("outputs", "--to", "taken")
    found = {}
    for row in project.json("results", "--json"):
        folder = project.folder / "taken" / row["id"]
        found[str(row["n"])] = {
            str(path.relative_to(folder)): path.read_text()
            for path in folder.rglob("*")
            if path.is_file()
        }
    return found


@pytest.mark.parametrize("warm", ["off", "auto"])
@pytest.mark.parametrize("code", ["live", "frozen"])
def test_trials_side_by_side_keep_their_own_files(project: Project, code: str, warm: str) -> None:
    shared = ordinary_study(project, code, 8, 4, f"warm: {warm}\n")
    project.run("run")
    for n, files in kept_files(project).items():
        assert files == {
            "model.txt": n,
            "notes.txt": f"notes: {n}",
            f"results/{n}.json": n,
            "results/inside.txt": n,
            "beside.txt": n,
            "helper.txt": n,
        }
    # Trials of the second wave found the project as it was, and so does the user.
    listings = {path.read_text() for path in shared.iterdir()}
    assert len(listings) == 1 and "beside.txt" not in listings.pop()
    assert (project.folder / "model.txt").read_text() == "of yesterday"
    assert (project.folder / "notes.txt").read_text() == "notes: "
    assert [path.name for path in (project.folder / "results").iterdir()] == ["old.json"]
    assert not (project.folder / "beside.txt").exists()


def test_a_file_is_kept_once_for_the_trial_that_wrote_it(project: Project) -> None:
    """Not again for each trial that comes after it in the same folder."""
    project.write("t.py", "import sys\nopen(f'out/{sys.argv[1]}.json', 'w').write('{}')\n")
    project.write("out/readme.txt", "")
    numbers = list(range(40))
    project.write(
        "study.yaml",
        f"command: {sys.executable} t.py {{n}}\nparameters: {{n: {numbers}}}\noutputs: ['out/*.json']\nslots: 2\n",
    )
    project.run("run")
    files = project.json("outputs", "--json")
    assert sorted(file["path"] for file in files) == sorted(f"out/{n}.json" for n in numbers)
    assert len({file["trial"] for file in files}) == 40


def test_without_anything_to_keep_trials_run_in_the_project(project: Project) -> None:
    project.write("t.py", "import sys\nopen(f'{sys.argv[1]}.txt', 'w').write('')\n")
    project.write(
        "study.yaml", f"command: {sys.executable} t.py {{n}}\nparameters: {{n: [1, 2]}}\nslots: 2\n"
    )
    assert "which all trials share" in project.run("plan").stdout
    project.run("run")
    assert sorted(path.name for path in project.folder.glob("*.txt")) == ["1.txt", "2.txt"]
    text = (project.folder / "study.yaml").read_text()
    project.write("study.yaml", text + "outputs: ['*.txt']\n")
    assert "a folder of its own for each trial" in project.run("plan").stdout


def test_live_code_and_what_is_no_code(project: Project) -> None:
    """An edit counts for trials that begin later; ignored folders and neighbours of the project are found."""
    project.write(".gitignore", "data/\nout/\n.windlass/\n")
    project.write("data/numbers.txt", "42")
    project.write("out/old.txt", "of yesterday")
    project.write("code.txt", "first")
    project.folder.parent.joinpath("neighbour.txt").write_text("7")
    project.write(
        "t.py",
        "import os, sys, time\n"
        "assert open('data/numbers.txt').read() == '42'\n"
        "assert open('../neighbour.txt').read() == '7'\n"
        "assert os.listdir('out') == ['old.txt']\n"
        "open('out/seen.txt', 'w').write(open('code.txt').read())\n"
        "open(sys.argv[2], 'w').close()\n"
        "while not os.path.exists(sys.argv[3]):\n    time.sleep(0.02)\n",
    )
    subprocess.run(["git", "init", "-q"], cwd=project.folder, check=True)
    begun, go = project.folder.parent / "begun", project.folder.parent / "go"
    project.write(
        "study.yaml",
        f"command: {sys.executable} t.py {{n}} {{begun}} {{go}}\n"
        f"parameters:\n  n: [0, 1]\n  begun: [{json.dumps(str(begun))}]\n  go: [{json.dumps(str(go))}]\n"
        "outputs: ['out/*']\nslots: 1\n",
    )
    run = project.start("run", "--quiet")
    wait_for(begun.exists)
    project.write("code.txt", "edited")
    go.touch()
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, out + err
    assert kept_files(project) == {"0": {"out/seen.txt": "first"}, "1": {"out/seen.txt": "edited"}}
    assert [path.name for path in (project.folder / "out").iterdir()] == ["old.txt"]


@pytest.mark.parametrize("code", ["live", "frozen"])
def test_trials_import_windlass_also_where_the_studys_folder_is_in_the_project(
    project: Project, code: str
) -> None:
    """Without `site` Python finds no windlass that happens to be installed, only the one that the agent brings."""
    project.write(
        "train.py",
        "import windlass\nwindlass.log(step=1, loss=0.5)\nopen('model.txt', 'w').write('x')\n",
    )
    project.write(
        "study.yaml", f"command: {sys.executable} -S train.py\noutputs: [model.txt]\ncode: {code}\n"
    )
    project.run("run", "--on", "local")
    assert [row["loss"] for row in project.json("results", "--json")] == [0.5]


def test_a_process_that_a_trial_left_does_not_write_to_the_next_one(project: Project) -> None:
    project.write(
        "t.sh",
        "[ \"$1\" = 1 ] || (trap '' TERM; i=0; while [ $i -lt 15 ]; do echo late > late.txt; sleep 0.1; i=$((i+1)); done) "
        ">/dev/null 2>&1 &\n[ $1 = 0 ] || sleep 1.5\necho $1 > own.txt\n",
    )
    project.write(
        "study.yaml",
        "command: sh t.sh {n}\nparameters: {n: [0, 1]}\noutputs: ['*.txt']\nslots: 1\nwarm: false\n",
    )
    project.run("run")
    assert kept_files(project)["1"] == {"own.txt": "1\n"}


def test_outputs_outside_of_the_folder_must_tell_trials_apart(project: Project) -> None:
    command = f"command: {sys.executable} -c pass {{n}}\nparameters: {{n: [1, 2]}}\n"
    project.write("study.yaml", command + "slots: 2\noutputs: ['$SLURM_TMPDIR/samples/*']\n")
    refused = project.run("run", code=2).stderr
    assert "study.yaml:4" in refused and "{trial_id}" in refused, refused
    project.write("study.yaml", command + "slots: 2\noutputs: ['$SLURM_TMPDIR/{trial_id}/*']\n")
    project.run("plan")
    project.write("study.yaml", command + "slots: 1\noutputs: ['$SLURM_TMPDIR/samples/*']\n")
    project.run("plan")


@pytest.mark.parametrize("code", ["live", "frozen"])
def test_links_and_empty_folders_of_the_project(project: Project, code: str) -> None:
    """Trials write through a link that outputs name, and into an empty folder, at the same time."""
    elsewhere = project.folder.parent / "elsewhere"
    elsewhere.mkdir()
    (project.folder / "runs").symlink_to(elsewhere)
    (project.folder / "work").mkdir()
    project.write("work/.keep" if code == "frozen" else "other/x", "")
    shared = project.folder.parent / "shared"
    shared.mkdir()
    project.write(
        "t.py",
        "import os, sys, time\nn, shared = sys.argv[1:]\n"
        "for name in ('runs/model.pt', 'work/stage1.txt'):\n    open(name, 'w').write(n)\n"
        "open(os.path.join(shared, n), 'w').close()\n"
        "while len(os.listdir(shared)) < 3:\n    time.sleep(0.02)\n"
        "assert open('runs/model.pt').read() == open('work/stage1.txt').read() == n\n",
    )
    project.write(
        "study.yaml",
        f"command: {sys.executable} t.py {{n}} {{shared}}\nparameters:\n  n: [1, 2, 3]\n"
        f"  shared: [{json.dumps(str(shared))}]\noutputs: [runs/model.pt]\ncode: {code}\nslots: 3\n",
    )
    project.run("run")
    assert kept_files(project) == {n: {"runs/model.pt": n} for n in "123"}
    assert list(elsewhere.iterdir()) == []


def test_the_studys_own_python_path_does_not_hide_the_copy(project: Project) -> None:
    """A package that is installed as editable is imported from the copy, whatever PYTHONPATH the study sets."""
    project.write("pyproject.toml", "[project]\nname = 'pkg'\nversion = '1'\n")
    project.write("pkg/__init__.py", "")
    project.write(
        "scripts/t.py", "import os, pkg\nassert os.getcwd() in pkg.__file__, pkg.__file__\n"
    )
    project.write("sitecustomize.py", f"import sys\nsys.path.append({str(project.folder)!r})\n")
    project.write(
        "study.yaml",
        f"command: {sys.executable} scripts/t.py\ncode: frozen\nenv: {{PYTHONPATH: {json.dumps(str(project.folder))}}}\n",
    )
    project.run("run")
    project.write(
        "study.yaml",
        f"command: {sys.executable} scripts/t.py\ncode: frozen\nenv: {{PYTHONPATH: lib}}\n",
    )
    project.run("run")


def test_a_checkpoint_folder_that_studies_have_in_common(project: Project) -> None:
    """Trials of another study have the same ids, because they have the same command: their checkpoints are not ours."""
    project.write(
        "t.py",
        "import os, sys\nfolder = sys.argv[1]\nassert not os.listdir(folder), os.listdir(folder)\n"
        "open(os.path.join(folder, 'last.pt'), 'w').write('done')\n",
    )
    project.write(
        "study.yaml",
        f"command: {sys.executable} t.py {{checkpoint_dir}}\n"
        f"checkpoint: {{dir: {json.dumps(str(project.folder.parent / 'common'))}, pattern: '*.pt'}}\n",
    )
    project.run("run", "-e", "one")
    project.run("run", "-e", "two")


class TestPuttingBack:
    @pytest.fixture
    def folders(self, tmp_path: Path) -> TrialFolders:
        code = tmp_path / "agent/code"
        for name in ("train.py", "conf/a.yaml", "conf/deep/b.yaml", "data.csv"):
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            (code / name).write_text(name)
        (code / "empty").mkdir()
        (code / "link").symlink_to("train.py")
        return TrialFolders(FrozenOrigin(str(code)), str(tmp_path / "agent"), str(code))

    def contents(self, project: Path) -> dict[str, str]:
        return {
            str(path.relative_to(project)): path.read_text() if path.is_file() else "folder"
            for path in project.rglob("*")
            if "__pycache__" not in path.parts
        }

    def test_whatever_a_trial_does(self, folders: TrialFolders, tmp_path: Path) -> None:
        project = Path(folders.enter(3))
        before = self.contents(project)
        (project / "train.py").write_text("broken")
        status = (project / "data.csv").stat()
        (project / "data.csv").write_text("data.CSV")
        os.utime(
            project / "data.csv", ns=(status.st_atime_ns, status.st_mtime_ns)
        )  # same size, same time
        (project / "conf/a.yaml").unlink()
        (project / "conf/a.yaml").mkdir()
        (project / "conf/deep/b.yaml").unlink()
        (project / "conf/deep").rmdir()
        (project / "conf/deep").write_text("a file now")
        (project / "new/one").mkdir(parents=True)
        (project / "new/one/file").write_text("")
        (project / "link").unlink()
        (project / "link").symlink_to("elsewhere")
        (project / "empty").rmdir()
        assert folders.written(3) == ["conf/deep", "data.csv", "link", "new/one/file", "train.py"]
        folders.clear(3)
        assert self.contents(project) == before
        assert os.readlink(project / "link") == "train.py"
        assert folders.enter(3) == str(project) and folders.written(3) == []
        assert self.contents(tmp_path / "agent/code") == before

    def test_folders_that_are_closed(self, folders: TrialFolders) -> None:
        project = Path(folders.enter(0))
        before = self.contents(project)
        (project / "conf").chmod(0)
        (project / "conf/deep").chmod(0) if os.getuid() == 0 else None
        folders.written(0)
        folders.clear(0)
        assert self.contents(Path(folders.enter(0))) == before

    def test_what_interpreters_keep_stays(self, folders: TrialFolders) -> None:
        project = Path(folders.enter(0))
        (project / "conf/__pycache__").mkdir()
        (project / "conf/__pycache__/x.pyc").write_text("")
        assert folders.written(0) == []
        folders.clear(0)
        assert (project / "conf/__pycache__/x.pyc").exists()

    def test_set_aside(self, folders: TrialFolders) -> None:
        project = Path(folders.enter(0))
        (project / "unsafe").write_text("")
        aside = Path(folders.set_aside(0))
        assert (aside / "unsafe").exists() and not project.exists()
        assert not (Path(folders.enter(0)) / "unsafe").exists()


class TestLiveOrigin:
    def test_what_trials_write_to_is_a_copy_and_large_things_are_links(
        self, tmp_path: Path
    ) -> None:
        root, other = tmp_path / "project", tmp_path / "other"
        other.mkdir()
        for name in (
            "train.py",
            "out/x.json",
            "lr-0.1/model.pt",
            "model.pt",
            "small/a",
            "photos/many/1",
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
        for name in ("large.bin", "photos/large.bin", "deep/out/large.json"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(bytes(2 << 20))
        (root / "empty").mkdir()
        (root / "runs").symlink_to(other)
        (root / "latest.txt").symlink_to(root / "train.py")
        outputs = ["out/*.json", "lr-{lr}/model.pt", "*.txt", "deep/out", "runs/*"]
        origin = LiveOrigin(str(root), ["train.py"], outputs)
        folders = TrialFolders(origin, str(tmp_path / "slots"), str(root), OutputPaths(outputs))
        copy = Path(folders.enter(0))
        names = {str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_symlink()}
        assert names >= {
            "train.py",
            "out/x.json",
            "lr-0.1/model.pt",
            "model.pt",
            "small/a",
            "empty",
            "runs",
            "latest.txt",
        }
        assert "deep/out/large.json" in names, "it is an output: trials may write over it"
        assert {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_symlink()} == {
            "large.bin",
            "photos",
        }
        assert folders.find_shared_writes() == [] and folders.notes == []
        (copy / "photos/new").touch()
        assert folders.find_shared_writes() == ["photos"]

    def test_what_is_too_large_to_copy_is_noted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live_origin, "_LARGE_BYTES", 10)
        monkeypatch.setattr(live_origin, "_MOST_ENTRIES", 2)
        root = tmp_path / "project"
        (root / "out").mkdir(parents=True)
        (root / "model.pt").write_text("more than ten")
        for number in range(3):
            (root / f"out/{number}").touch()
        origin = LiveOrigin(str(root), [], ["model.pt", "out/*"])
        origin.fill(str(tmp_path / "copy"))
        assert len(origin.notes) == 2 and os.listdir(tmp_path / "copy") == ["out"]

    def test_what_has_changed_since(self, tmp_path: Path) -> None:
        root, copy = tmp_path / "project", tmp_path / "slot/project"
        copy.parent.mkdir()
        (root / "pkg").mkdir(parents=True)
        for name in ("a.py", "pkg/b.py", "pkg/gone.py"):
            (root / name).write_text("1")
        origin = LiveOrigin(str(root), ["a.py", "pkg/b.py", "pkg/gone.py"], [])
        origin.fill(str(copy))
        assert not origin.refresh(str(copy), Tree(str(copy)))
        (root / "pkg/b.py").write_text("22")
        (root / "pkg/gone.py").unlink()
        (root / "pkg/new.py").write_text("3")
        assert origin.refresh(str(copy), Tree(str(copy)))
        assert {path.name: path.read_text() for path in (copy / "pkg").iterdir()} == {
            "b.py": "22",
            "new.py": "3",
        }


def test_of_a_live_project_only_what_is_small_enough_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.py", "lib/a.py", "lib/b.py", "pictures/1", "pictures/2", "pictures/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * (1000 if name.startswith("pictures") else 10))
    assert len(list_live_files(str(tmp_path), [])["files"]) == 6
    monkeypatch.setattr(live, "LIVE_LIMIT_BYTES", 2000)
    assert list_live_files(str(tmp_path), [])["files"] == ["lib/a.py", "lib/b.py", "train.py"]
    monkeypatch.setattr(live, "_MOST_LOOKED_AT", 4)
    assert list_live_files(str(tmp_path), [])["files"] == ["train.py"]


def test_a_command_that_names_the_local_disk_has_one_here_too(project: Project) -> None:
    """Also with live code and nothing to keep; it is gone afterwards."""
    project.write(
        "t.py", "import os, sys\nassert os.path.isdir(sys.argv[1]), sys.argv\nprint(sys.argv[1])\n"
    )
    project.write("study.yaml", f"command: {sys.executable} t.py ${{SLURM_TMPDIR}}\n")
    project.run("run", "--quiet")
    folder = project.run("logs", "0").stdout.strip()
    assert folder.startswith("/") and not os.path.exists(folder)
