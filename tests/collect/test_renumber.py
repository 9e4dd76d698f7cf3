"""A trial keeps its record, its output and what the user did with it, whatever number it has later; no other gets them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from windlass.collect import trial_ids
from windlass.collect.trial_ids import Moved, TrialIds, renumber
from windlass.core.claims.ranges import Ranges
from windlass.core.journal.read import JournalReader
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import ENTRY_BYTES, append_trials

STUDY = """\
name: s
command: sh -c 'echo ran {n} >> "$EXECUTED"; echo loss={n}00; echo {n} > out.txt; test {n} != 4'
parameters: {n: [VALUES]}
metric: loss
outputs: [out.txt]
"""


def write_study(project: Project, values: str, name: str = "study.yaml") -> None:
    env = json.dumps({"EXECUTED": str(project.folder / "executed")})
    project.write(name, f"{STUDY.replace('VALUES', values)}env: {env}\n")


def rows_by_value(project: Project) -> dict[int, tuple[str, Any]]:
    """What `results` has of each trial, by its parameter: state and loss."""
    rows = project.json("results", "--format", "json")
    return {row["n"]: (row["state"], row.get("loss")) for row in rows}


@pytest.fixture
def ran(project: Project) -> Project:
    """Four trials: two are done, one is cancelled, one has failed."""
    write_study(project, "1, 2")
    project.run("run", "--on", "local", "--quiet")
    write_study(project, "1, 2, 3, 4")
    project.run("run", "--on", "local", "--quiet", "--sample", "2", code=None)
    project.run("retry", "2", "--no-run")  # a sample leaves it out
    project.run("cancel", "2", "--yes")
    return project


def test_trials_that_were_numbered_anew_keep_their_results(ran: Project) -> None:
    folder = ran.study_folder()
    before = rows_by_value(ran)
    assert before == {
        1: ("done", 100.0),
        2: ("done", 200.0),
        3: ("cancelled", None),
        4: ("failed", 400.0),
    }
    for name in ("trials.jsonl", "trials.idx"):
        (folder / name).unlink()
    shutil.rmtree(folder / "claims")
    write_study(ran, "4, 3, 2, 1")
    executed = (ran.folder / "executed").read_text()
    plan = ran.json("plan", "--json")
    assert plan["trials"] == 4
    ran.run("run", "--on", "local", "--quiet", code=1)
    again = (ran.folder / "executed").read_text()[len(executed) :]
    assert sorted(again.split()) == ["3", "4", "ran", "ran"], (
        "the register that was cancelled in is lost; 1 and 2 are done"
    )
    assert rows_by_value(ran) == {**before, 3: ("done", 300.0)}
    assert ran.run("logs", "3").stdout == "loss=100\n"
    assert "[3] loss=100" in ran.run("logs").stdout and "[0] loss=100" not in ran.run("logs").stdout
    assert "echo 1 > out.txt" in ran.run("explain", "3").stdout
    assert "done after" in ran.run("explain", "3").stdout
    ran.run("logs", "--joblog", "log.txt")
    for line in (ran.folder / "log.txt").read_text().splitlines()[1:]:
        number, exit_code, command = (
            int(line.split("\t")[0]) - 1,
            line.split("\t")[6],
            line.split("\t")[8],
        )
        assert f"loss={4 - number}00" in command and exit_code == str(int(number == 0))
    ran.run("outputs", "3", "--to", "taken")
    (taken,) = (ran.folder / "taken").rglob("out.txt")
    assert taken.read_text() == "1\n"


def test_trials_of_another_study_get_no_results(ran: Project) -> None:
    """trials.jsonl alone is replaced, and its lines begin where those of the former begin."""
    own, before = ran.study_folder() / "trials.jsonl", rows_by_value(ran)
    write_study(ran, "5, 6, 7, 8", "other.yaml")
    ran.run("run", "other.yaml", "--folder", "other", "--on", "local", "--quiet", "--sample", "1")
    whole, other = own.read_bytes(), next((ran.folder / "other").rglob("trials.jsonl")).read_bytes()
    shutil.rmtree(ran.folder / "other")
    assert [len(line) for line in whole.splitlines()] == [len(line) for line in other.splitlines()]
    own.write_bytes(other)
    shown = ran.run("results", "--format", "json")
    rows = json.loads(shown.stdout)
    assert {row["n"]: (row["state"], row.get("loss")) for row in rows} == dict.fromkeys(
        (5, 6, 7, 8), ("waiting", None)
    )
    assert (
        "its ids are not those of trials.jsonl" in shown.stderr and "another trial" in shown.stderr
    )
    own.write_bytes(whole)
    assert rows_by_value(ran) == before
    own.write_bytes(other)
    ran.run("run", "study.yaml", "--on", "local", "--quiet", code=1)
    assert rows_by_value(ran) == {**before, 3: ("done", 300.0)}


def test_what_the_user_cancelled_and_retried_follows_the_trial(ran: Project) -> None:
    folder = ran.study_folder()
    ran.run("retry", "0", "--no-run")
    for name in ("trials.jsonl", "trials.idx"):
        (folder / name).unlink()
    shutil.rmtree(folder / "claims")
    (folder / "claims").mkdir()
    write_study(ran, "4, 3, 2, 1")
    ran.run("run", "--on", "local", "--quiet", "--sample", "1", code=None)  # the first: 4
    states = {value: state for value, (state, _) in rows_by_value(ran).items()}
    assert states == {4: "failed", 3: "cancelled", 2: "done", 1: "waiting"}


def test_an_earlier_state_of_the_register_hides_no_trial(ran: Project) -> None:
    folder = ran.study_folder()
    before = rows_by_value(ran)
    newest = max((folder / "claims").iterdir())
    state = json.loads(newest.read_bytes())
    del state["crc"]
    state.update(count=2, current=[[0, 2]], todo=[], ended=[[0, 2]], cancelled=[])
    newest.write_text(json.dumps(state))
    shown = ran.run("results", "--format", "json")
    rows = json.loads(shown.stdout)
    assert {row["n"]: (row["state"], row.get("loss")) for row in rows} == {
        n: before[n] for n in (1, 2, 4)
    }
    assert (
        "the register has 2 trials, and 1 trial has a record that it does not have" in shown.stderr
    )
    assert ran.json("status", "--json")["counts"]["failed"] == 1
    assert "failed" in ran.run("explain", "3").stdout
    ran.run("run", "--on", "local", "--quiet", code=1)
    assert rows_by_value(ran)[4] == before[4] and "register" not in ran.run("results").stderr


def make_folder(folder: Path, letters: str) -> StudyPaths:
    folder.mkdir()
    ids = ["t" + letter * 12 for letter in letters]
    append_trials(
        StudyPaths(str(folder)),
        0,
        [(one, b'{"id":"%s","stages":[],"settings":{}}\n' % one.encode()) for one in ids],
    )
    return StudyPaths(str(folder))


@pytest.mark.parametrize("listed", [2000, 2])
def test_events_about_many_trials(
    tmp_path: Path, listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few the ids are listed, so that each follows its trial; of many they only count where all are the same."""
    monkeypatch.setattr(trial_ids, "_MOST_LISTED", listed)
    ranges: Ranges = [(0, 2), (3, 4)]
    before = TrialIds(make_folder(tmp_path / "before", "bcde"))
    event = {"e": "cancel", "t": 1.0, "r": ranges, **before.render(ranges)}
    assert renumber(before, {}, [event]) == [event]
    longer = TrialIds(make_folder(tmp_path / "longer", "bcdefg"))
    assert renumber(longer, {}, [event]) == [event]
    moved: Moved = {}
    after = TrialIds(make_folder(tmp_path / "after", "cdxb"))
    (changed,) = renumber(after, moved, [event])
    if listed > 2:
        assert changed["r"] == [(0, 1), (3, 4)] and moved == {0: 3, 1: 0, 3: None}
    else:
        assert changed["r"] == [] and moved == {0: None, 1: None, 3: None}
    old = {"e": "cancel", "t": 1.0, "r": ranges}
    assert renumber(after, {}, [old]) == [old], "events of earlier versions count by number"


def test_events_name_the_trials(ran: Project) -> None:
    journals = (ran.study_folder() / "journal").glob("client-*.jsonl")
    events = [
        event
        for path in journals
        for event in JournalReader(str(path)).read()
        if event["e"] == "cancel"
    ]
    ids = {row["n"]: row["id"] for row in ran.json("results", "--format", "json")}
    assert [event["ids"] for event in events] == [ids[3][1:8]]


def test_a_cancelled_trial_without_a_record_is_reported(ran: Project) -> None:
    """The register has it alone, because the journal of the command that cancelled it is lost."""
    assert "warning" not in ran.run("results").stderr
    for path in (ran.study_folder() / "journal").glob("client-*.jsonl"):
        path.unlink()
    shown = ran.run("results", "--format", "json")
    assert "1 trial is cancelled by the register, and no record tells of it" in shown.stderr


def test_a_journal_that_is_gone_is_noticed_by_what_its_agent_has_left(ran: Project) -> None:
    """A trial is executed again, and the folder of journals is put back as it was before."""
    before = ran.study_folder() / "journal"
    kept = ran.folder / "kept"
    shutil.copytree(before, kept)
    ran.run("retry", "0", "--on", "local", "--quiet", code=1)  # another trial has failed before
    shutil.rmtree(before)
    shutil.copytree(kept, before)
    for path in [
        *(ran.study_folder() / "output").iterdir(),
        *(ran.study_folder() / "outputs").iterdir(),
    ]:
        os.utime(path, (1e9, 1e9))  # what was made lately may be there before its journal is seen
    assert "1 agent has left output here and no journal" in ran.run("results").stderr


@pytest.mark.parametrize("names", [["journal"], ["journal", "output", "outputs"]])
def test_an_earlier_result_is_not_taken_for_the_last_one(ran: Project, names: list[str]) -> None:
    """Trials are executed again, and the folder of journals is put back as it was before, alone or with others."""
    folder, kept = ran.study_folder(), ran.folder / "kept"
    shutil.copytree(folder, kept)
    ran.run("retry", "0", "--no-run")
    ran.run("run", "--on", "local", "--quiet", code=1)  # executes the trial that has failed as well
    assert "warning" not in ran.run("results").stderr
    for name in names:
        shutil.rmtree(folder / name)
        shutil.copytree(kept / name, folder / name)
    for verb in ("results", "status", "explain 0", "plan"):
        assert (
            "2 trials lack the last record, and an earlier one is shown: 0 3\n"
            in ran.run(*verb.split()).stderr
        ), verb
    assert "`windlass retry 0 3` executes these trials again" in ran.run("results").stderr
    ran.run("retry", "0", "3", "--on", "local", "--quiet", code=1)
    assert "warning" not in ran.run("results").stderr


def test_a_cancelled_trial_is_not_shown_as_it_was_before(ran: Project) -> None:
    journals, kept = ran.study_folder() / "journal", ran.folder / "kept"
    shutil.copytree(journals, kept)
    ran.run("retry", "0", "--no-run")
    ran.run("cancel", "0", "--yes")
    assert "warning" not in ran.run("results").stderr
    shutil.rmtree(journals)
    shutil.copytree(kept, journals)
    assert (
        "1 trial lacks the last record, and an earlier one is shown: 0\n"
        in ran.run("results").stderr
    )


def test_a_trial_that_was_cancelled_before_it_was_done(ran: Project) -> None:
    journals, kept = ran.study_folder() / "journal", ran.folder / "kept"
    shutil.copytree(journals, kept)
    ran.run("retry", "2", "--on", "local", "--quiet", code=1)
    assert rows_by_value(ran)[3] == ("done", 300.0)
    shutil.rmtree(journals)
    shutil.copytree(kept, journals)
    shown = ran.run("results", "--state", "cancelled")
    assert "1 trial lacks the last record, and an earlier one is shown: 2\n" in shown.stderr


def test_an_earlier_state_of_the_register_and_the_journals(project: Project) -> None:
    """What was added since is the only thing that tells of it."""
    write_study(project, "1, 2")
    project.run("run", "--on", "local", "--quiet")
    folder, kept = project.study_folder(), project.folder / "kept"
    shutil.copytree(folder, kept)
    write_study(project, "1, 2, 3")
    project.run("run", "--on", "local", "--quiet")
    assert "warning" not in project.run("results").stderr
    for name in ("journal", "claims", "output", "outputs"):
        shutil.rmtree(folder / name)
        shutil.copytree(kept / name, folder / name)
    assert (
        "the register has 2 trials, and trials.jsonl has 1 trial more"
        in project.run("results").stderr
    )
    project.run("run", "--on", "local", "--quiet")
    assert "warning" not in project.run("results").stderr


def test_journals_in_each_others_place_lead_to_the_right_output(ran: Project) -> None:
    journals = [
        path
        for path in (ran.study_folder() / "journal").iterdir()
        if not path.name.startswith("client")
    ]
    one, two = journals[:2]
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert [ran.run("logs", str(number)).stdout for number in (0, 1, 3)] == [
        "loss=100\n",
        "loss=200\n",
        "loss=400\n",
    ]


def test_journals_of_another_study_beside_an_index_of_an_earlier_time(ran: Project) -> None:
    """The index does not have the last trials; their lines say that the journals are of others."""
    folder = ran.study_folder()
    write_study(ran, "5, 6, 7, 8", "other.yaml")
    ran.run("run", "other.yaml", "--folder", "other", "--on", "local", "--quiet")
    (other,) = (ran.folder / "other").rglob("journal")
    shutil.rmtree(folder / "journal")
    other.rename(folder / "journal")
    shutil.rmtree(ran.folder / "other")
    os.truncate(folder / "trials.idx", 2 * ENTRY_BYTES)
    shown = ran.run("results", "--format", "json")
    rows = json.loads(shown.stdout)
    assert [(row["n"], row.get("loss")) for row in rows] == [(n, None) for n in (1, 2, 3, 4)]
