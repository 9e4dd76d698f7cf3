"""Commands that are printed mean the study they are printed for, also where another one is newer."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.conftest import Project


def commands_in(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in re.findall(r"`(windlass [^`]+)`", text)]


def test_hints_of_an_older_study_name_it(project: Project, tmp_path: Path) -> None:
    project.write(
        "a.yaml", "name: a\ncommand: sh -c 'echo of-a; exit {n}'\nparameters: {n: [0, 3]}\n"
    )
    first = project.run("run", "a.yaml", "--on", "local", code=1).stderr
    assert "`windlass results`" in first and "--study" not in first, (
        "as long as there is one study, none is named"
    )
    project.write("b.yaml", "name: b\ncommand: sh -c 'echo of-b {n}'\nparameters: {n: [0, 1]}\n")
    end = project.run("run", "b.yaml", "--on", "local").stderr
    assert ["results", "b"] in commands_in(end)

    retry = commands_in(project.json("explain", "a", "1", "--json")["verdict"])
    assert retry == [["retry", "a", "1"]] == commands_in(project.run("explain", "a", "1").stdout)
    assert commands_in(project.run("results", "a", "--failed").stdout) == [["logs", "a", "1"]]
    assert commands_in(project.run("status", "a").stdout) == [["logs", "a", "--failed"]]
    for words in (["logs", "a", "1"], ["logs", "a", "--failed"]):
        assert "of-a" in project.run(*words).stdout
    project.run(*retry[0], "--no-run")
    waiting = commands_in(project.run("status", "a").stdout)
    assert waiting == [["run", "a.yaml"]] == commands_in(project.run("explain", "a").stdout)
    assert project.json("status", "b", "--json")["counts"]["done"] == 2

    elsewhere = tmp_path / "elsewhere"
    project.run("run", "a.yaml", "--on", "local", "--folder", str(elsewhere), code=1)
    (elsewhere_logs,) = commands_in(
        project.run("results", "a", "--failed", "--folder", str(elsewhere)).stdout
    )
    assert elsewhere_logs == ["logs", str(elsewhere / "a"), "1"], (
        "there is another study of that name"
    )
    assert "of-a" in project.run(*elsewhere_logs).stdout
