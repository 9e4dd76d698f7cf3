"""What is missing of a study, as `plan` shows it and `run` does it; and what `plan` shows first."""

from __future__ import annotations

import os
import re

import pytest

from tests.conftest import Project
from windlass.collect import index as index_module
from windlass.collect.index import StudyIndex
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.places.local import LocalPlace
from windlass.planning import make_plan, read_missing
from windlass.site.local import Site
from windlass.spec import Overrides, study_from_command
from windlass.view.plan import render_plan_text

SITE = ["--site", "narval", "-a", "def-x", "-G", "a100", "-t", "30m"]


def test_a_study_that_is_partly_done(project: Project) -> None:
    """Cost, time, jobs, commands and the batch script are of the trials that are left."""
    project.write(
        "study.yaml",
        "name: part\ncommand: test {lr} != 3 || test -e mended\nparameters: {lr: [1, 2, 3]}\nshell: true\noutputs: [r.txt]\n",
    )
    project.run("run", "--on", "local", "--quiet", code=1)
    lines = project.run("plan", *SITE, "--param", "lr=[1,2,3,4,5,6,7,8]").stdout.splitlines()
    assert lines[0] == "study      part  (8 trials, grid; 6 to do)"
    commands = lines[2:6]
    assert lines[1] == "commands" and " 3 " in commands[0]
    assert "… 3 more" in commands[2] and " 8 " in commands[3], (
        "the first that are missing, and the last"
    )
    first = "\n".join(lines[: lines.index("settings")])
    for label in ("site       narval", "agents     6 jobs of", "each has   1 a100 GPU", "estimate   about", "cost       3 GPU-hours",
                  "outputs    r.txt", "folder     "):  # fmt: skip
        assert label in first
    assert "#SBATCH --array=0-5" in lines and not any("from default" in line for line in lines)
    everything = project.run("plan", *SITE, "--all").stdout
    assert (
        "  unit  " in everything
        and re.search(r"  1 d +from default", everything)
        and "86400" not in everything
    )
    asked = project.json("plan", *SITE, "--json")
    assert (asked["trials"], asked["missing"], asked["cost"]["gpu_hours"]) == (3, 1, 0.5)
    project.write("mended", "")
    project.run("run", "--on", "local", "--quiet")
    done = project.run("plan", *SITE).stdout
    assert "nothing is left to do" in done and "#SBATCH" not in done and "cost" not in done


def test_trials_of_a_study_that_was_never_run() -> None:
    study = study_from_command(("true", "{n}"), Overrides(params=("n=[1,2,3,4,5]",)))
    missing = read_missing(study, "/nowhere")
    assert missing.count == 5 and [trial.settings["n"] for trial in missing.examples] == [1, 2, 5]
    assert "  … 2 more\n  true 5\n" in render_plan_text(
        make_plan(LocalPlace(Site(2, 8000)), study, {})
    )
    many = study_from_command(
        ("true", "{n}", "{m}"), Overrides(params=(f"n={list(range(200))}", f"m={list(range(200))}"))
    )
    assert "  true 0 2\n  … 39,997 more\n" in render_plan_text(
        make_plan(LocalPlace(Site(2, 8000)), many, {})
    ), "the last is not known"
    assert (
        read_missing(study, "/nowhere", 2).count == 2
        and read_missing(study, "/nowhere", 9).count == 5
    )


@pytest.mark.parametrize("looks", [1, 2])
def test_a_listing_that_is_older_than_the_journal(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    looks: int,
) -> None:
    """A network file system shows an earlier listing until this process changes the folder, or a little longer."""
    project.write("study.yaml", "command: 'true {n}'\nparameters: {n: [1, 2]}\n")
    project.run("run", "--on", "local", "--quiet")
    paths = StudyPaths(str(project.study_folder()))
    real_listdir, real_open = os.listdir, os.open
    changes = 0

    def listdir(folder: str) -> list[str]:
        return [] if folder == paths.journal and changes < looks else real_listdir(folder)

    def open_file(path: str, flags: int, *more: int) -> int:
        nonlocal changes
        changes += os.path.dirname(path) == paths.journal and bool(flags & os.O_CREAT)
        return real_open(path, flags, *more)

    monkeypatch.setattr(index_module, "may_be_behind", lambda folder: True)
    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(os, "open", open_file)
    index = StudyIndex(paths)
    index.refresh()
    assert index.counts(2)[State.DONE] == 2
    index.close()
    assert "no record tells" not in capsys.readouterr().err
    assert not [name for name in real_listdir(paths.journal) if not name.endswith(".jsonl")], (
        "nothing is left there"
    )
