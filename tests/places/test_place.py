"""Projects that were copied or moved with their studies in them."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from tests.conftest import Project
from windlass.core.paths import StudyPaths
from windlass.core.planfile import decode_plan, read_plan_file
from windlass.core.trust import follow_move, refuse_copy


def test_a_copy_does_not_execute_the_code_of_the_original(project: Project, tmp_path: Path) -> None:
    """`retry` refuses as `run` does; what only looks tells that another folder is meant."""
    project.write("study.yaml", "name: s\ncommand: 'false {n}'\nparameters: {n: [0]}\n")
    project.run("run", "--on", "local", "--quiet", code=1)
    copy = Project(tmp_path / "copy of it")
    shutil.copytree(project.folder, copy.folder)
    words = f"has the trials of {project.folder}/study.yaml, which run in {project.folder}"
    for verb in ("run", "retry"):
        refused = copy.run(verb, "--on", "local", code=2).stderr
        assert f"{copy.folder}/.windlass/s {words}" in refused
    for verb in (["status"], ["explain", "0"]):
        shown = copy.run(*verb).stderr
        assert words in shown and "which is another than this one" in shown
        assert words not in project.run(*verb).stderr


def test_a_moved_project_goes_on_in_its_new_place(tmp_path: Path) -> None:
    now = tmp_path / "now"
    paths = StudyPaths(str(now / ".windlass" / "s"))
    Path(paths.folder).mkdir(parents=True)
    (now / "sub").mkdir()
    before = str(tmp_path / "before")
    plan = {
        "version": 1,
        "workdir": f"{before}/sub",
        "project_dir": before,
        "scratch_dir": f"{before}/.windlass",
        "source": f"{before}/study.yaml",
        "code": {"origin": before, "links": [f"{before}-other/x"]},
        "env": {"A": before},
    }
    Path(paths.plan).write_bytes(decode_plan(plan).encode())
    refuse_copy(paths)
    assert follow_move(read_plan_file(paths.plan), paths).to_json() == plan, (
        "only the studies' folders were moved"
    )
    (now / "study.yaml").touch()
    moved = follow_move(read_plan_file(paths.plan), paths).to_json()
    assert moved == {
        **plan,
        "workdir": f"{now}/sub",
        "project_dir": str(now),
        "scratch_dir": f"{now}/.windlass",
        "source": f"{now}/study.yaml",
        "code": {"origin": str(now), "links": [f"{before}-other/x"]},
    }
    (now / "sub").rmdir()
    assert follow_move(read_plan_file(paths.plan), paths).to_json() == plan, (
        "where there is no such folder the plan stays as it is"
    )


def test_a_project_whose_folder_was_renamed_names_its_former_study(
    project: Project, tmp_path: Path
) -> None:
    project.write("study.yaml", "command: true {n}\nparameters: {n: [0, 1]}\n")
    project.run("run", "--on", "local", "--quiet")
    (former,) = [
        path.name
        for path in (project.folder / ".windlass").iterdir()
        if (path / "plan.json").exists()
    ]
    moved = Project(tmp_path / "renamed")
    project.folder.rename(moved.folder)
    former = shlex.quote(former)
    note = f"note: the study {former} (2 done) looks like this one: `-e {former}` goes on with it"
    assert note in moved.run("run", "--on", "local", "--sample", "1").stderr
    assert (
        "looks like" not in moved.run("run", "--on", "local", "-e", shlex.split(former)[0]).stderr
    )
