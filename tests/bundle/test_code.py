"""Freezing a project: what is part of it, what is not, and that the same tree is the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from windlass.bundle import tree
from windlass.bundle.code import hash_files
from windlass.bundle.tree import list_code
from windlass.core.errors import InputError

GIT = [
    "git",
    "-c",
    "user.name=A",
    "-c",
    "user.email=a@example.org",
    "-c",
    "protocol.file.allow=always",
]


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def names(folder: Path, *excluded: str) -> list[str]:
    return [file.name for file in list_code(str(folder), excluded)]


def write(folder: Path, *files: str) -> None:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo né"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    write(folder, "train.py", "package/model.py", ".gitignore", "gone.py")
    (folder / ".gitignore").write_text("*.log\nscratch/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


# -- what is code


def test_tracked_changed_and_untracked_but_not_ignored(repo: Path) -> None:
    write(repo, "new.py", "a.log", "scratch/big", "with space/ü.py", ".windlass-data/x.tar")
    (repo / "gone.py").unlink()
    (repo / "link").symlink_to("train.py")
    (repo / "broken").symlink_to("nowhere")
    expected = [
        ".gitignore",
        "broken",
        "link",
        "new.py",
        "package/model.py",
        "train.py",
        "with space/ü.py",
    ]
    assert names(repo) == expected


def test_names_that_are_no_text(repo: Path) -> None:
    path = os.fsencode(repo) + b"/\xff\xfe\n.py"
    with open(path, "wb") as file:
        file.write(b"x")
    assert os.fsdecode(b"\xff\xfe\n.py") in names(repo)


def test_submodules_and_repositories_inside(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    write(other, "library.py", ".gitignore")
    (other / ".gitignore").write_text("ignored\n")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "first")
    git(repo, "submodule", "--quiet", "add", str(other), "sub")
    git(repo, "clone", "-q", str(other), "nested")
    write(repo, "sub/changed.py", "sub/ignored", "nested/ignored")
    found = names(repo)
    assert {"sub/library.py", "sub/changed.py", "nested/library.py"} <= set(found)
    assert not [name for name in found if name.endswith("/ignored") or ".git/" in name]
    git(repo, "submodule", "--quiet", "deinit", "-f", "sub")
    assert not [name for name in names(repo) if name.startswith("sub/")]


def test_a_project_inside_a_repository(repo: Path) -> None:
    assert names(repo / "package") == ["model.py"]


def test_without_git_the_usual_litter_stays_behind(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        "env/gym.py",
        "a.pyc",
        ".venv/x",
        "wandb/run",
        "__pycache__/a",
        "my env/pyvenv.cfg",
    )
    write(tmp_path, ".windlass/s/plan.json", "node_modules/x/y.js", ".hidden", "data.csv")
    (tmp_path / "to folder").symlink_to("env")
    assert names(tmp_path) == [".hidden", "data.csv", "env/gym.py", "to folder", "train.py"]
    assert names(tmp_path, "env", str(tmp_path / "data.csv")) == [
        ".hidden",
        "to folder",
        "train.py",
    ]


def test_too_large_names_what_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "train.py", "results/a/b", "results/c")
    (tmp_path / "results/weights.pt").write_bytes(b"x" * (3 << 20))
    monkeypatch.setattr(tree, "CODE_LIMIT_BYTES", 2 << 20)
    with pytest.raises(InputError) as caught:
        tree.check_limits(str(tmp_path), list_code(str(tmp_path)))
    text = str(caught.value)
    assert (
        "3 MB, the limit is 2 MB" in text
        and "results/ 3 MB" in text
        and "results/weights.pt 3 MB" in text
    )
    assert ".gitignore" in text and "code: live" in text
    monkeypatch.setattr(tree, "CODE_LIMIT_BYTES", 1 << 40)
    monkeypatch.setattr(tree, "CODE_LIMIT_FILES", 3)
    with pytest.raises(InputError, match="4 files, the limit is 3") as caught:
        tree.check_limits(str(tmp_path), list_code(str(tmp_path)))
    assert "results/ 3 files" in str(caught.value)


def test_the_key_is_that_of_names_modes_and_contents(repo: Path) -> None:
    def key() -> str:
        return hash_files(str(repo), list_code(str(repo)))

    first = key()
    os.utime(repo / "train.py", (0, 0))
    assert key() == first
    keys = {first}
    (repo / "train.py").write_text("changed")
    keys.add(key())
    (repo / "train.py").chmod(0o755)
    keys.add(key())
    (repo / "train.py").rename(repo / "other.py")
    keys.add(key())
    assert len(keys) == 4


# -- `run` and `diff`


@pytest.fixture
def project(project: Project, tmp_path: Path) -> Project:
    """With a local disk of its own."""
    project.env["TMPDIR"] = str(tmp_path / "local disk")
    os.mkdir(project.env["TMPDIR"])
    return project


TRAIN = """
import os, pathlib, sys
import package.model
print("value", package.model.VALUE)
print("cwd", os.getcwd())
print("source_dir", os.environ["source_dir"], "project_name", os.environ["project_name"])
"""


def make_study(project: Project, more: str = "code: frozen\n") -> None:
    git(project.folder, "init", "-q", "-b", "main")
    project.write("train.py", TRAIN)
    project.write("package/model.py", "VALUE = 1\n")
    project.write("run.sh", "#!/bin/sh\necho ran\n").chmod(0o755)
    project.write(".gitignore", "config\ncache\nignored\n")
    project.write("study.yaml", f"command: python train.py {{n}}\nparameters: {{n: [1]}}\n{more}")
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "first")


def run(project: Project, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return project.run("run", "study.yaml", "--on", "local", *words, code=code)


def planned(project: Project) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((project.study_folder() / "plan.json").read_text())
    return plan


def output(project: Project) -> dict[str, str]:
    lines = project.run("logs", "0").stdout.splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)


def test_trials_are_executed_in_a_copy(project: Project) -> None:
    make_study(project)
    run(project)
    said = output(project)
    assert said["value"] == "1"
    assert (
        said["cwd"] != str(project.folder) and os.path.basename(said["cwd"]) == project.folder.name
    )
    assert said["source_dir"].startswith(said["cwd"])
    assert not os.path.exists(said["cwd"])


def test_local_studies_are_live_unless_they_say_otherwise(project: Project) -> None:
    make_study(project, "")
    run(project)
    assert output(project)["cwd"] == str(project.folder)
    assert planned(project)["code"] is None
    assert "`code: frozen`" in project.run("diff", code=2).stderr


def test_what_is_recorded(project: Project) -> None:
    make_study(project)
    run(project)
    code = planned(project)["code"]
    folder = project.study_folder()
    assert (code["commit"], code["branch"]) == (git(project.folder, "rev-parse", "HEAD"), "main")
    assert code["dirty"] is False and not (folder / "code.diff").exists()
    assert code["bytes"] == os.stat(code["archive"]).st_size and code["workdir"] == "."
    with tarfile.open(code["archive"]) as archive:
        members = {member.name: member for member in archive}
    assert sorted(members) == [".gitignore", "package/model.py", "run.sh", "study.yaml", "train.py"]
    assert code["files"] == 5 and members["run.sh"].mode & stat.S_IXUSR
    assert stat.S_IMODE(os.stat(code["archive"]).st_mode) == 0o600
    project.write("package/model.py", "VALUE = 2\n")
    assert "the code has changed since the last run" in run(project).stderr
    assert planned(project)["code"]["dirty"] is True
    assert "+VALUE = 2" in (folder / "code.diff").read_text()


def test_the_same_tree_is_the_same_archive(project: Project) -> None:
    make_study(project)
    run(project)
    first = planned(project)
    archive = Path(first["code"]["archive"])
    inode, content = archive.stat().st_ino, archive.read_bytes()
    run(project)
    assert planned(project)["code"] == first["code"] and archive.stat().st_ino == inode
    archive.unlink()
    run(project)
    assert archive.read_bytes() == content


def test_a_damaged_archive_is_made_anew(project: Project) -> None:
    make_study(project)
    project.write("bin/tool", "#!/bin/sh\n").chmod(0o755)
    (project.folder / "link").symlink_to("bin/tool")
    with open(os.fsencode(project.folder) + b"/\xff no text", "wb") as file:
        file.write(b"x")
    run(project)
    archive = Path(planned(project)["code"]["archive"])
    content = archive.read_bytes()
    assert "is damaged" not in run(project).stderr
    for place in (len(content) // 3, len(content) - 6):
        archive.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert "is damaged: the code is packed anew" in run(project).stderr
        assert archive.read_bytes() == content
    os.truncate(archive, len(content) // 2)
    assert "is damaged: the code is packed anew" in run(project).stderr
    assert archive.read_bytes() == content


def test_links_that_will_lead_nowhere_are_named(project: Project) -> None:
    make_study(project)
    project.write("package/.gitignore", "big\n")
    project.write("package/big/file", "")
    (project.folder.parent / "elsewhere").mkdir()
    for name, target in {
        "good": "package/model.py",
        "folder": "package",
        "absolute": "/usr",
        "broken": "nowhere",
        "package/out": "../../elsewhere",
        "package/link": "big/file",
    }.items():
        (project.folder / name).symlink_to(target)
    (line,) = [line for line in run(project).stderr.splitlines() if "lead nowhere" in line]
    assert ": package/link -> big/file, package/out -> ../../elsewhere; put" in line
    assert "lead nowhere" not in run(project).stderr, "said once for each state of the code"


def test_old_archives_go(project: Project) -> None:
    make_study(project)
    for value in range(6):
        project.write("package/model.py", f"VALUE = {value}\n")
        run(project)
    kept = list(project.study_folder().glob("code-*.tar.gz"))
    assert len(kept) == 4 and Path(planned(project)["code"]["archive"]) in kept


def test_diff_shows_what_changed(project: Project) -> None:
    make_study(project)
    run(project)
    assert project.run("diff").stdout == ""
    project.write("package/model.py", "VALUE = 2\n")
    project.write("new.py", "")
    (project.folder / "run.sh").unlink()
    (project.folder / "train.py").chmod(0o755)
    assert project.run("diff").stdout.splitlines() == [
        "A new.py",
        "M package/model.py",
        "D run.sh",
        "M train.py",
    ]
    patch = project.run("diff", "--patch").stdout
    assert (
        "-VALUE = 1\n+VALUE = 2\n" in patch and "mode of train.py" in patch and "-echo ran" in patch
    )
    rows = project.json("diff", "--json")["changes"]
    assert {"name": "new.py", "change": "A"} in rows
    run(project)
    assert project.run("diff").stdout == ""


def test_a_patch_of_what_is_no_text(project: Project) -> None:
    make_study(project)
    (project.folder / "weights").write_bytes(b"\xff\x00")
    run(project)
    (project.folder / "weights").write_bytes(b"\xff\x01")
    assert project.run("diff", "-p").stdout == "Binary file weights differs\n"


def test_a_workdir_below_the_project(project: Project) -> None:
    make_study(project)
    project.write("sub/study.yaml", "command: sh -c 'pwd; cat ../package/model.py'\ncode: frozen\n")
    project.run("run", "sub/study.yaml", "--on", "local")
    text = project.run("logs", "0").stdout
    assert "/sub\n" in text and "VALUE = 1" in text
    assert planned(project)["code"]["workdir"] == "sub"


def test_ignored_paths_that_the_command_names_stay_where_they_are(project: Project) -> None:
    make_study(project)
    project.write("ignored/deep/data.csv", "the data\n")
    project.write("study.yaml", "command: cat ignored/deep/data.csv\ncode: frozen\n")
    done = run(project)
    assert "the data" in project.run("logs", "0").stdout
    assert "note: ignored is not part of the frozen code" in done.stderr
    assert planned(project)["code"]["links"] == ["ignored"]


def test_code_named_with_its_whole_path_is_warned_about(project: Project) -> None:
    make_study(project)
    script = json.dumps(str(project.folder / "run.sh"))
    project.write("study.yaml", f"command: [sh, {script}]\ncode: frozen\n")
    assert "whole path" in run(project).stderr


def test_modules_come_from_the_copy(project: Project) -> None:
    """Also those that PYTHONPATH or an editable installation takes from the project."""
    make_study(project)
    project.write("pyproject.toml", "[project]\nname = 'x'\n")
    project.write("src/library.py", "")
    project.write("elsewhere/show.py", "import library; print('library', library.__file__)")
    project.write("study.yaml", "command: python elsewhere/show.py\ncode: frozen\n")
    project.env["PYTHONPATH"] = str(project.folder / "src")
    run(project)
    assert output(project)["library"] and not output(project)["library"].startswith(
        str(project.folder)
    )
    del project.env["PYTHONPATH"]
    project.write("study.yaml", "command: python elsewhere/show.py --again\ncode: frozen\n")
    run(project)
    assert "src/library.py" in project.run("logs", "0").stdout


def test_too_much_code_is_refused_before_anything_starts(project: Project) -> None:
    make_study(project)
    (project.folder / "weights.pt").touch()
    os.truncate(project.folder / "weights.pt", 200 << 20)
    done = run(project, code=2)
    assert "weights.pt 200 MB" in done.stderr and "Traceback" not in done.stderr


def test_a_tree_that_changes_while_it_is_read(project: Project) -> None:
    """The archive is whole and its name says what is in it, whatever was written meanwhile."""
    make_study(project)
    writer = subprocess.Popen(
        ["sh", "-c", "i=0; while :; do i=$((i+1)); seq $((i % 500)) > busy.txt; sleep 0.01; done"],
        cwd=project.folder,
    )
    try:
        for _ in range(3):
            done = project.run("run", "study.yaml", "--on", "local", code=None)
            assert done.returncode == 0 or "busy.txt changes while it is read" in done.stderr
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    for path in project.study_folder().glob("code-*.tar.gz"):
        with tarfile.open(path) as archive:
            file = archive.extractfile("busy.txt")
            assert file is not None
            lines = file.read().decode().splitlines()
        assert lines == [str(number + 1) for number in range(len(lines))]


def test_studies_are_never_part_of_the_code(project: Project) -> None:
    make_study(project)
    for folder in (".", "studies", ".windlass"):
        project.run("run", "study.yaml", "--on", "local", "--folder", folder)
        plan = json.loads(next((project.folder / folder).glob("*/plan.json")).read_text())
        with tarfile.open(plan["code"]["archive"]) as archive:
            assert not [
                name for name in archive.getnames() if "plan.json" in name or "journal" in name
            ]


# -- which code an attempt runs


STEP = """
import json, os, sys
print("code", "{version}")
if os.path.exists(os.path.join(os.environ["HOME_OF_STUDY"], "extra")):
    print("extra", open("ignored/extra").read())
sys.exit(3 if "{version}" == "old" and sys.argv[1] == "0" else 0)
"""


def write_step(project: Project, version: str) -> None:
    project.write("step.py", STEP.replace("{version}", version))


def make_steps(project: Project, more: str = "code: frozen\n") -> None:
    git(project.folder, "init", "-q", "-b", "main")
    project.write(".gitignore", "config\ncache\nignored\nextra\ndatasets\n")
    project.write("datasets/one/a.txt", "before")
    home = json.dumps(str(project.folder))
    project.write(
        "study.yaml",
        "command: python step.py {n} ignored/extra\nparameters: {n: [0, 1]}\n"
        f"env: {{HOME_OF_STUDY: {home}}}\n{more}",
    )
    write_step(project, "old")
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "first")


def attempts(project: Project, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.json("explain", str(number), "--json")["attempts"]
    return found


def by_hand(project: Project) -> list[str]:
    found: list[str] = project.json("explain", "0", "--json")["by_hand"]
    return found


def test_retry_uses_the_project_as_it_is_now_and_tells_so(project: Project) -> None:
    """As `run` does: also a file that is not code and that the command names, and data."""
    make_steps(project, "code: frozen\ndata: [datasets/one]\n")
    assert (
        f"code: commit {git(project.folder, 'rev-parse', 'HEAD')[:10]}\n"
        in run(project, code=1).stderr
    )
    before = planned(project)
    assert not [
        line for line in by_hand(project) if line.startswith("#")
    ]  # still the code that ran
    project.write(
        "study.yaml", (project.folder / "study.yaml").read_text() + "# trials do not read this\n"
    )
    assert not [line for line in by_hand(project) if line.startswith("#")]
    write_step(project, "new")
    comments = [line[1:].strip() for line in by_hand(project) if line.startswith("#")]
    assert f"other code: commit {before['code']['commit'][:10]}; step.py differs" in comments[0]
    assert comments[0] in project.run("explain", "--ticket", "0").stdout
    script = "\n".join([*comments[2:], "cat step.py"])
    assert (
        '"old"'
        in subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True).stdout
    )
    project.write("ignored/extra", "found")
    project.write("extra", "")
    project.write("datasets/one/a.txt", "after!")
    done = project.run("retry")
    assert (
        "the code has changed since the last run" in done.stderr
        and "+ uncommitted (code-" in done.stderr
    )
    said = output(project)
    assert said["code"] == "new" and said["extra"] == "found"
    assert planned(project)["data"][0]["key"] != before["data"][0]["key"]
    commit = git(project.folder, "rev-parse", "HEAD")
    first, second = (attempt["code"] for attempt in attempts(project, 0))
    assert first == {"key": before["code"]["key"], "commit": commit, "dirty": False}
    assert second == {"key": planned(project)["code"]["key"], "commit": commit, "dirty": True}
    text = project.run("explain", "0").stdout
    assert (
        f"code: commit {commit[:10]}\n" in text
        and f"code: commit {commit[:10]} + uncommitted ({second['key']})" in text
    )
    again = project.run("retry", "--done", "--yes", "--no-run").stderr
    assert "the code has changed" not in again and f"({second['key']})" in again


def test_retry_without_the_project_says_that_it_uses_the_former_code(project: Project) -> None:
    make_steps(project)
    run(project, code=1)
    away, kept = project.folder.with_name("moved"), project.folder.with_name("kept")
    kept.mkdir()
    shutil.copytree(project.folder / ".windlass", kept / ".windlass")
    project.folder.rename(away)
    project.folder = away
    alone = project.run("retry", "--no-run", "--folder", str(kept / ".windlass"))
    assert "is not there: trials use the code of the last run, commit" in alone.stderr
    moved = project.run("retry", "--no-run")
    assert "is not there" not in moved.stderr and "code: commit" in moved.stderr, (
        "the project is in its new place"
    )


def test_each_attempt_of_live_code_has_its_commit(project: Project) -> None:
    make_steps(project, "")
    run(project, code=1)
    assert not [line for line in by_hand(project) if line.startswith("#")]
    write_step(project, "new")
    assert "changed since the attempt began: step.py." in by_hand(project)[0]
    project.run("retry")
    commit = git(project.folder, "rev-parse", "HEAD")
    expected = [
        {"live": True, "commit": commit, "dirty": False},
        {"live": True, "commit": commit, "dirty": True},
    ]
    assert [attempt["code"] for attempt in attempts(project, 0)] == expected
    assert f"code: commit {commit[:10]} + uncommitted, live" in project.run("explain", "0").stdout


HELD = """
import os, sys, time
print("code", "{version}", flush=True)
while sys.argv[1] == "0" and os.path.exists(os.path.join(os.environ["HOME_OF_STUDY"], "hold")):
    time.sleep(0.05)
"""


def test_the_key_of_settings_is_that_of_what_trials_get(project: Project) -> None:
    """Agents compare it: what a job was given, and what tells trials apart, must not end them."""
    make_study(project, "")
    project.write("datasets/a.txt", "one")
    study = (project.folder / "study.yaml").read_text()

    def key(more: str = "", *words: str) -> str:
        project.write("study.yaml", study + more)
        run(project, *words)
        return str(planned(project)["settings_key"])

    first = key()
    assert (
        first
        == key("", "-j", "3")
        == key("needs: {memory: 100MB}\n")
        == key("description: other\n")
    )
    changes = [
        "env: {A: b}",
        "env: {A: c}",
        "metrics: [loss]",
        "outputs: ['*.pt']",
        "timeout: 1h",
        "retries: 2",
    ]
    changes += ["on_nan: stop", "checkpoint: {dir: ckpt}", "data: [datasets]", "grace: 3s"]
    keys = [key(f"{change}\n") for change in changes]
    project.write("datasets/a.txt", "another")
    keys.append(key("data: [datasets]\n"))
    assert len({first, *keys}) == 1 + len(keys)


def test_an_agent_takes_no_trial_once_the_code_has_changed(project: Project) -> None:
    """The trial under way ends with the code it began with; all others, also those taken already, use the new."""
    make_steps(project)
    project.write("hold", "")
    project.write("step.py", HELD.replace("{version}", "old"))
    first = project.start("run", "study.yaml", "--on", "local", "--slots", "1")
    try:
        wait_for(lambda: project.counts().get("running"))
        project.write("step.py", HELD.replace("{version}", "new"))
        second = project.start("retry", "1")
        try:
            # By the second agent, while the first is busy.
            wait_for(lambda: project.counts() == {"running": 1, "done": 1}, 60)
            (project.folder / "hold").unlink()
            assert "the code has changed" in second.communicate(timeout=60)[1]
        finally:
            second.kill()
        _, errors = first.communicate(timeout=60)
    finally:
        first.kill()
    assert first.returncode == 0, errors
    assert "another agent goes on" in errors
    assert [project.run("logs", number).stdout.strip() for number in "01"] == [
        "code old",
        "code new",
    ]
    keys = [attempts(project, number)[0]["code"]["key"] for number in (0, 1)]
    assert keys[0] != keys[1] and keys[1] == planned(project)["code"]["key"]
