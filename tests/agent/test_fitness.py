"""`windlass doctor --folder`: what a folder's file system promises, and how late others see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from tests.sshfs import sshfs
from windlass.agent.node import fitness
from windlass.view.fitness import FIT, LIMITED, UNFIT, judge, render_fitness

RACE = {"problem": "", "rounds": 30, "wrong": 0}
OTHER = {
    "host": "n2",
    "file_system": "nfs4",
    "file_clock_ahead_s": 0.0,
    "lines_s": {"median": 0.01, "longest": 0.02},
    "listings_s": {"median": 0.01, "longest": 0.02},
    "race": RACE,
    "clock_ahead_s": {"seconds": 0.0, "uncertain_s": 0.01},
}
WELL: dict[str, Any] = {
    "folder": "/scratch/me",
    "host": "login1",
    "file_system": "nfs4",
    "job": "7",
    "link": RACE,
    "exclusive": RACE,
    "counts_links": True,
    "fsync_s": {"problem": "", "median": 0.01, "longest": 0.02},
    "clock_ahead_s": 0.0,
    "mkfifo": "",
    "rename": "",
    "free_bytes": 1 << 40,
    "free_files": 1_000_000,
    "quota": [],
    "other": OTHER,
}


def test_nothing_is_wrong() -> None:
    assert judge(WELL) == (FIT, [])


@pytest.mark.parametrize(
    "found,verdict,reason",
    [
        ({"link": {**RACE, "wrong": 2}}, UNFIT, "link() is not atomic: in 2 of 30 races"),
        (
            {"link": {**RACE, "problem": "Operation not permitted"}},
            LIMITED,
            "no hard links (Operation not permitted)",
        ),
        (
            {"link": {**RACE, "problem": "x"}, "exclusive": {**RACE, "wrong": 1}},
            UNFIT,
            "O_EXCL is not atomic: in 1 of 30 races",
        ),
        ({"exclusive": {**RACE, "wrong": 1}}, LIMITED, "O_EXCL is not atomic"),
        ({"counts_links": False}, LIMITED, "shown as having one"),
        (
            {"fsync_s": {"problem": "Invalid argument", "median": None, "longest": None}},
            UNFIT,
            "fsync() does not work",
        ),
        (
            {"fsync_s": {"problem": "", "median": 0.9, "longest": 2.0}},
            LIMITED,
            "fsync() takes 0.9 s",
        ),
        (
            {"clock_ahead_s": -7.0},
            LIMITED,
            "the clocks of the file system and of login1 are 7 s apart",
        ),
        ({"free_bytes": 5_000_000}, LIMITED, "only 4.77 MB are free"),
        ({"free_files": 12}, LIMITED, "only 12 more files can be made"),
        ({"other": None}, UNFIT, "a job on another node did not answer in this folder"),
        (
            {"other": {**OTHER, "listings_s": {"median": 20.0, "longest": 20.0}}},
            LIMITED,
            "listings on n2 after 20 s",
        ),
        (
            {
                "other": {
                    **OTHER,
                    "listings_s": {"median": None, "longest": None, "more_than": 15.0},
                }
            },
            LIMITED,
            "listings on n2 after more than 15 s",
        ),
        (
            {"other": {**OTHER, "lines_s": {"median": None, "longest": None}}},
            UNFIT,
            "are seen too late on n2",
        ),
        ({"other": {**OTHER, "race": {**RACE, "wrong": 3}}}, UNFIT, "taking a name is not atomic"),
        (
            {"other": {**OTHER, "clock_ahead_s": {"seconds": -90.0, "uncertain_s": 0.1}}},
            LIMITED,
            "the clocks of this machine and of n2 are 1 min 30 s apart: an agent may be taken for dead",
        ),
    ],
)
def test_what_is_wrong_is_named(found: dict[str, Any], verdict: str, reason: str) -> None:
    judged, reasons = judge({**WELL, **found})
    assert judged == verdict and reason in " / ".join(reasons)
    assert reason in render_fitness({**WELL, **found, "verdict": judged, "reasons": reasons})


def test_a_race_that_two_processes_win_is_noticed(tmp_path: Path) -> None:
    """As on a file system whose clients each believe that they made the name."""
    found = fitness._race(str(tmp_path), "both", lambda own, target: True)
    assert found == {"problem": "", "rounds": fitness.ROUNDS, "wrong": fitness.ROUNDS}


def test_this_disk_is_fit_and_run_says_nothing(project: Project) -> None:
    place = project.folder / "studies"
    found = project.json("doctor", "--folder", str(place), "--on", "local", "--json")
    assert found["verdict"] in (FIT, LIMITED), found  # a full or very slow disk is no error of ours
    assert found["link"] == found["exclusive"] == RACE and found["other"]["race"] == RACE
    assert found["other"]["host"] == found["host"] and found["job"] is None
    assert json.loads((place / ".windlass-folder.json").read_text()) == found
    assert os.listdir(place) == [".windlass-folder.json"]  # nothing else is left there
    assert (
        "one machine only" in project.run("doctor", "--folder", str(place), "--on", "local").stdout
    )


def test_run_and_plan_warn_of_what_was_found(project: Project) -> None:
    project.write("study.yaml", "name: s\ncommand: echo {x}\nparameters: {x: [1]}\n")
    words = ("study.yaml", "--folder", str(project.folder / "studies"), "--on", "local")
    kept = project.write(
        "studies/.windlass-folder.json",
        '{"verdict": "unfit", "reasons": ["of a reason"], "time": 0}',
    )
    warning = "is unfit, as `windlass doctor --folder` found on 19"
    assert warning in project.run("plan", *words).stderr
    assert (
        warning in project.run("run", *words).stderr
        and "of a reason" in project.run("plan", *words).stderr
    )
    assert warning not in project.run("run", *words).stderr  # once a study
    for damaged in ("", "[]", '{"verdict": "unfit"}'):
        kept.write_text(damaged)
        assert warning not in project.run("plan", *words).stderr


def test_a_folder_that_cannot_be_made(project: Project) -> None:
    project.write("file", "")
    done = project.run(
        "doctor", "--folder", str(project.folder / "file" / "studies"), "--on", "local", code=2
    )
    assert (
        "no study can be written there (Not a directory)" in done.stderr and "hint:" in done.stderr
    )


def test_a_network_file_system_with_two_mounts(tmp_path: Path, project: Project) -> None:
    """sshfs caches listings, and says of every file that it has one name."""
    data = tmp_path / "data"
    data.mkdir()
    cached = "dcache_timeout=5"
    with (
        sshfs(data, tmp_path / "here", cached) as here,
        sshfs(data, tmp_path / "there", cached) as there,
    ):
        alone, both = here / "alone", here / "both"
        alone.mkdir()
        both.mkdir()
        found = fitness.probe(str(alone))
        assert found["file_system"].startswith("fuse") and found["link"] == RACE
        assert found["counts_links"] is False and found["mkfifo"]
        fitness.prepare(str(both))
        words = [sys.executable, "-m", "windlass.agent.node.fitness", str(there / "both")]
        wait_for((there / "both" / fitness.ASKED).exists)
        with subprocess.Popen(words, stdin=subprocess.DEVNULL) as answering:
            other = fitness.ask(str(both), 120.0, lambda: answering.poll() is None)
        assert other is not None and other["race"] == RACE
        assert other["listings_s"]["longest"] > 1.0, other  # the listing there was up to 5 s old
        verdict, reasons = judge(
            {**WELL, **found, "other": other, "free_bytes": 1 << 40, "free_files": None}
        )
        assert verdict == LIMITED and "new names are seen in listings" in " / ".join(reasons)
        shown = project.run("doctor", "--folder", str(here / "studies"), "--on", "local").stdout
        assert "fit with limits" in shown and "shown as having one" in shown
