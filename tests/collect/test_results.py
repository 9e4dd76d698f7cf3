"""Results: rows of trials and settings, what is still so of agents, and how it is all shown."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars
import pytest

from tests.conftest import Project
from windlass.collect.confidence import student_t_quantile
from windlass.collect.groups import GroupRow
from windlass.collect.index import StudyIndex
from windlass.collect.reconcile import split_lost, study_view
from windlass.collect.results import best_rows, group_rows, result_rows
from windlass.collect.timeleft import Durations
from windlass.core.errors import InputError
from windlass.core.ids import trial_id
from windlass.core.journal.records import AgentRecord, TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import append_trials
from windlass.model import Metric
from windlass.view.escapes import show
from windlass.view.results import write_results
from windlass.view.table import display_width, render_table, truncate, wants_color

Settings = dict[str, Any]
LOSS = Metric("loss", "minimize")


def make_study(folder: Path, trials: list[Settings], ends: dict[int, dict[str, Any]]) -> StudyPaths:
    paths = StudyPaths(str(folder / "a study"))
    os.makedirs(paths.journal)
    lines = []
    for settings in trials:
        name = trial_id(settings, "train.py")
        words = ["python", "train.py", *(f"--{key}={value}" for key, value in settings.items())]
        line = {"id": name, "settings": settings, "stages": [["main", words]]}
        lines.append((name, json.dumps(line).encode() + b"\n"))
    append_trials(paths, 0, lines)
    with open(paths.journal_of("agent"), "w", encoding="utf-8") as journal:
        for number, end in ends.items():
            head = {"t": 10.0 + number, "i": number, "n": number}
            journal.write(json.dumps({"e": "start", **head}) + "\n")
            journal.write(
                json.dumps({"e": "end", **head, "cause": "done", "dur": 1.5, "code": 0, **end})
                + "\n"
            )
    return paths


def look(paths: StudyPaths) -> StudyIndex:
    index = StudyIndex(paths)
    index.refresh()
    return index


def loss(value: Any) -> dict[str, Any]:
    return {"m": {"loss": [value, value, value, 1]}}


def test_a_row_says_everything_of_a_trial_in_a_fixed_order(tmp_path: Path) -> None:
    trials: list[Settings] = [
        {"seed": 1, "lr": 0.1, "net": [8, 8]},
        {"seed": 2, "lr": 0.1, "net": [8, 8]},
    ]
    metrics = {"acc": [0.5, 0.1, 0.9, 4], "loss": [3.0, 1.0, 4.0, 4]}
    paths = make_study(tmp_path, trials, {0: {"m": metrics}})
    rows = list(result_rows(paths, look(paths), [(0, 2)], LOSS))
    assert rows[0] == {
        "id": trial_id(trials[0], "train.py"),
        "number": 0,
        "lr": 0.1,
        "net": [8, 8],
        "seed": 1,
        "state": "done",
        "cause": "done",
        "attempts": 1,
        "duration_s": 1.5,
        "exit_code": 0,
        "loss": 3.0,
        "loss.min": 1.0,
        "loss.max": 4.0,
        "acc": 0.5,
        "acc.min": 0.1,
        "acc.max": 0.9,
    }
    names = "id number lr net seed state cause attempts duration_s exit_code loss loss.min loss.max"
    assert list(rows[0])[:13] == names.split()
    assert list(rows[1]) == names.split()
    assert (rows[1]["state"], rows[1]["attempts"], rows[1]["loss"]) == ("waiting", 0, None)


def test_only_included_trials_have_rows(tmp_path: Path) -> None:
    paths = make_study(tmp_path, [{"x": i} for i in range(5000)], {})
    rows = result_rows(paths, look(paths), [(4000, 5000), (0, 2), (1, 3)])
    expected = [0, 1, 2, *range(4000, 5000)]
    assert [row["number"] for row in rows] == expected
    assert [row["x"] for row in rows] == expected, "rows can be gone through again"


def test_names_that_collide_are_told_apart(tmp_path: Path) -> None:
    paths = make_study(tmp_path, [{"state": "CA", "id": 7, "loss": "mse"}], {0: loss(0.5)})
    row = next(iter(result_rows(paths, look(paths), [(0, 1)], LOSS)))
    assert (row["param.state"], row["param.id"], row["state"]) == ("CA", 7, "done")
    assert (row["loss"], row["metric.loss"], row["metric.loss.min"]) == ("mse", 0.5, 0.5)
    (group,) = group_rows([row], None, "loss")
    assert (group.mean, group.settings["loss"]) == (0.5, "mse")


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (1, 12.70620474),
        (2, 4.30265273),
        (4, 2.77644511),
        (9, 2.26215716),
        (30, 2.04227246),
        (1000, 1.96233908),
    ],
)
def test_student_t_quantiles_are_those_of_the_tables(degrees: int, expected: float) -> None:
    assert student_t_quantile(0.975, degrees) == pytest.approx(expected, abs=5e-9)
    assert student_t_quantile(0.025, degrees) == pytest.approx(-expected, abs=5e-9)


def test_other_quantiles_and_the_normal_limit() -> None:
    assert student_t_quantile(0.5, 3) == 0.0
    assert student_t_quantile(0.995, 10) == pytest.approx(3.16927267, abs=5e-9)
    normal = statistics.NormalDist().inv_cdf(0.975)
    assert student_t_quantile(0.975, 10**7) == pytest.approx(normal, abs=1e-6)
    with pytest.raises(ValueError, match="degrees"):
        student_t_quantile(0.975, 0)


def seeded(tmp_path: Path) -> StudyPaths:
    """Three learning rates, four seeds each: one good, one better but partly failed, one that diverges."""
    trials: list[Settings] = [
        {"lr": lr, "seed": seed} for lr in (0.1, 0.2, 0.3) for seed in range(4)
    ]
    ends = {number: loss(value) for number, value in enumerate([2.0, 4.0, 4.0, 6.0, 1.0, 2.0])}
    ends[6] = {**loss(0.001), "cause": "failed", "code": 1}
    ends[8] = loss("nan")
    ends[9] = loss("inf")
    ends[10] = loss(9.0)
    return make_study(tmp_path, trials, ends)


def test_seeds_fold_into_mean_deviation_and_confidence(tmp_path: Path) -> None:
    paths = seeded(tmp_path)
    rows = result_rows(paths, look(paths), [(0, 12)], LOSS)
    first, second, third = group_rows(rows, None, "loss", "last")
    values = [2.0, 4.0, 4.0, 6.0]
    std = statistics.stdev(values)
    assert (first.settings, first.n, first.mean) == ({"lr": 0.1}, 4, 4.0)
    assert first.std == pytest.approx(std)
    assert first.ci95 == pytest.approx(3.18244631 * std / 2, rel=1e-8)
    assert (second.n, second.mean, second.failed, second.nan) == (2, 1.5, 1, 0)
    assert third == GroupRow({"lr": 0.3}, 8, 1, 9.0, None, None, failed=0, nan=2)


def test_groups_by_what_was_asked_for(tmp_path: Path) -> None:
    paths = seeded(tmp_path)
    rows = result_rows(paths, look(paths), [(0, 12)], LOSS)
    by_seed = group_rows(rows, ["seed"], "loss")
    assert [(group.settings["seed"], group.n) for group in by_seed] == [
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 1),
    ]
    (everything,) = group_rows(rows, [], "loss")
    assert (everything.n, everything.nan, everything.failed) == (7, 2, 1)
    with pytest.raises(InputError, match="no parameter 'lrr'") as caught:
        group_rows(rows, ["lrr"], "loss")
    assert "did you mean lr?" in str(caught.value)
    empty = group_rows(rows, ["lr"], "no such metric")
    assert [(group.n, group.mean) for group in empty] == [(0, None)] * 3


def test_a_parameter_named_like_a_statistic_keeps_its_own_column() -> None:
    group = GroupRow({"n": 64, "lr": 1}, 0, 5, 1.0, None, None, 0, 0)
    row = group.to_row()
    assert (row["param.n"], row["n"], row["lr"]) == (64, 5, 1)


def test_deviation_keeps_its_digits_far_from_zero() -> None:
    rows = [
        {"id": "t", "number": i, "state": "done", "exit_code": 0, "loss": 1e9 + i % 2}
        for i in range(1000)
    ]
    (group,) = group_rows(rows, None, "loss")
    assert group.std == pytest.approx(statistics.stdev([i % 2 for i in range(1000)]))


@pytest.mark.parametrize(("goal", "winner"), [("minimize", 0.2), ("maximize", 0.3)])
def test_the_best_setting_is_by_its_mean_over_seeds(
    tmp_path: Path, goal: Any, winner: float
) -> None:
    paths = seeded(tmp_path)
    for _ in range(2):
        (best,) = best_rows(paths, look(paths), [(0, 12)], Metric("loss", goal))
        assert best["lr"] == winner
        assert best["command"] == f"python train.py --lr={winner} --seed=0"
    ranked = best_rows(paths, look(paths), [(0, 12)], Metric("loss", goal), limit=9)
    means = [row["mean"] for row in ranked]
    assert means == sorted([4.0, 1.5, 9.0], reverse=goal == "maximize")


def test_the_best_trial_without_seeds(tmp_path: Path) -> None:
    paths = make_study(
        tmp_path, [{"x": "a b"}, {"x": "c"}, {"x": "d"}], {0: loss(2.0), 1: loss(3.0)}
    )
    index = look(paths)
    (best,) = best_rows(paths, index, [(0, 3)], LOSS)
    assert (best["number"], best["x"], best["loss"]) == (0, "a b", 2.0)
    assert best["command"] == "python train.py '--x=a b'"
    assert best_rows(paths, index, [(1, 3)], LOSS)[0]["number"] == 1
    assert best_rows(paths, index, [(2, 3)], LOSS) == []
    assert best_rows(paths, index, [], LOSS) == []


def running(number: int, agent: str) -> TrialRecord:
    return TrialRecord(number, State.RUNNING, since=1.0, attempts=1, agent=agent)


def test_trials_of_agents_that_are_no_more_are_interrupted() -> None:
    agents = [AgentRecord("lives", slots=2), AgentRecord("dead"), AgentRecord("left", ended=True)]
    records = [
        running(i, name) for i, name in enumerate(["lives", "dead", "left", "far", "unheard of"])
    ]
    still, lost = split_lost(records, agents, {"lives": True, "dead": False, "far": None})
    assert [record.agent for record in still] == ["lives", "far", "unheard of"]
    assert [(record.number, record.state, record.cause) for record in lost] == [
        (1, State.INTERRUPTED, "agent lost"),
        (2, State.INTERRUPTED, "agent lost"),
    ]


SIX_DONE = Durations(6, 10.0, 10.0, 10.0)


def view_of(alive: dict[str, bool | None], done: Durations = SIX_DONE) -> Any:
    return study_view(
        name="s",
        folder="/s",
        total=20,
        counts={State.WAITING: 10, State.RUNNING: 3, State.DONE: 6, State.FAILED: 1},
        causes={"failed": 1},
        running=[running(0, "a"), running(1, "a"), running(2, "b")],
        agents=[
            AgentRecord("a", slots=4),
            AgentRecord("b", slots=8),
            AgentRecord("c", slots=9, ended=True),
        ],
        alive=alive,
        done=done,
    )


def test_a_view_counts_what_is_so() -> None:
    view = view_of({"a": True, "b": False, "c": True})
    expected = {
        "waiting": 10,
        "running": 2,
        "done": 6,
        "failed": 1,
        "interrupted": 1,
        "cancelled": 0,
    }
    assert (view.counts, sum(view.counts.values())) == (expected, 20)
    assert view.causes == {"failed": 1, "agent lost": 1}
    assert [(agent.record.id, agent.alive, agent.running) for agent in view.agents] == [
        ("a", True, 2),
        ("b", False, 0),
        ("c", False, 0),
    ]
    assert view.eta_s == pytest.approx(40.0)  # thirteen trials in four slots
    assert view_of({"a": None, "b": False}).eta_s is None
    assert view_of({"a": True}, Durations()).eta_s is None


ROWS: list[dict[str, Any]] = [
    {"id": "t1", "lr": 0.1, "tag": 'a,"b"\nc', "net": [1, 2], "flag": True, "loss": math.nan},
    {
        "id": "t2",
        "lr": 1e-05,
        "depth": 3,
        "tag": "日本",
        "net": None,
        "flag": False,
        "loss": 0.1 + 0.2,
    },
]


def written(kind: str, rows: Any = None, **options: Any) -> str:
    stream = io.StringIO()
    write_results(ROWS if rows is None else rows, kind, stream, **options)
    return stream.getvalue()


def test_json_is_strict_and_whole() -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    rows = json.loads(written("json"), parse_constant=refuse)
    assert rows == [{**ROWS[0], "loss": None}, ROWS[1]]
    assert json.loads(written("json", [{"x": {"y": [math.inf, 1.5]}}])) == [
        {"x": {"y": [None, 1.5]}}
    ]
    assert json.loads(written("json", [])) == []


@pytest.mark.parametrize("rows", [ROWS, iter(ROWS)])
def test_csv_comes_back_as_it_was(rows: Any) -> None:
    lines = list(csv.DictReader(io.StringIO(written("csv", rows))))
    assert list(lines[0]) == ["id", "lr", "depth", "tag", "net", "flag", "loss"]
    assert lines[0]["tag"] == 'a,"b"\nc'
    assert (lines[0]["depth"], lines[0]["loss"], lines[0]["net"]) == ("", "nan", "[1, 2]")
    assert float(lines[1]["loss"]) == 0.1 + 0.2
    assert written("csv", []) == ""


def test_parquet_has_a_type_for_every_column(tmp_path: Path) -> None:
    path = tmp_path / "it's.parquet"
    rows = [
        {**ROWS[0], "mixed": 1, "big": 1 << 70},
        {**ROWS[1], "mixed": "x", "big": 1, "never": None},
    ]
    written("parquet", rows, path=str(path))
    frame = polars.read_parquet(path)
    assert frame["id"].to_list() == ["t1", "t2"]
    assert frame["lr"].to_list() == [0.1, 1e-05]
    assert frame["depth"].to_list() == [None, 3]
    assert frame["flag"].to_list() == [True, False]
    assert frame["net"].to_list() == ["[1, 2]", None]
    assert frame["mixed"].to_list() == ["1", "x"]
    assert frame["big"].to_list() == [str(1 << 70), "1"]
    assert frame["never"].to_list() == [None, None]
    assert math.isnan(frame["loss"][0])
    assert os.listdir(tmp_path) == ["it's.parquet"]


def test_parquet_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a file"):
        written("parquet")
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "from windlass.view.results import write_results\n"
        "from windlass.core.errors import WindlassError\n"
        "try: write_results([], 'parquet', sys.stdout, path='x')\n"
        "except WindlassError as error: print(error)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "pip install polars" in ended.stdout


def test_repetitions_are_folded_as_seeds_are(project: Project) -> None:
    command = [
        "--repeat",
        "3",
        "--param",
        "a=[1,2]",
        "--",
        "sh",
        "-c",
        "echo $WINDLASS_SEED",
        "{a}",
    ]
    project.run("run", "--on", "local", *command)
    assert [row["repeat"] for row in project.json("results", "--json")] == [1, 2, 3, 1, 2, 3]
    assert [
        row["a"] for row in project.json("results", "--by", "all", "--metric", "x", "--json")
    ] == [1, 2]
    assert [project.run("logs", number).stdout for number in ("0", "4")] == ["1\n", "2\n"]


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="table, csv, json, parquet"):
        written("xml")


def test_a_table_is_aligned_also_with_wide_characters() -> None:
    rows = [
        {"name": "日本語", "loss": 0.5},
        {"name": "e\u0301té", "loss": 12.25},
        {"name": "🚀", "loss": None},
    ]
    assert render_table(rows) == (
        "name     loss\n"  # numbers to the right, text to the left
        "日本語   0.50\n"  # numbers of a column share their format
        "e\u0301té     12.25\n"
        "🚀\n"
    )
    assert [display_width(text) for text in ("日本語", "e\u0301té", "🚀", "abc")] == [6, 3, 2, 3]


def test_a_table_is_cut_to_the_terminal_and_never_without_one() -> None:
    rows = [{"id": "t1", "command": "python " + "x" * 200, "note": "日本語" * 30, "loss": 0.5}]
    assert "x" * 200 in render_table(rows)
    for width in (20, 40, 80):
        lines = render_table(rows, width=width).splitlines()
        assert max(display_width(line) for line in lines) <= width
        assert "…" in lines[1]
    assert "0.5" in render_table(rows, width=40)
    assert [truncate("日本語", width) for width in (6, 5, 4, 1, 0)] == [
        "日本語",
        "日本…",
        "日…",
        "…",
        "",
    ]


def test_a_cell_cannot_move_the_cursor() -> None:
    table = render_table([{"x": "a\x1b[2Jb\nc\td"}])
    assert "\x1b" not in table
    assert table.splitlines()[1] == "a\\x1b[2Jb\\nc\\td"


def test_colour_only_where_it_is_welcome() -> None:
    assert "\x1b" not in render_table(ROWS)
    assert "\x1b[1m" in show(render_table(ROWS, color=True))
    assert not wants_color(io.StringIO(), {})
    main, other = os.openpty()
    with os.fdopen(main, "w"), os.fdopen(other, "w") as terminal:
        assert wants_color(terminal, {"TERM": "xterm"})
        assert not wants_color(terminal, {"TERM": "xterm", "NO_COLOR": "1"})
        assert not wants_color(terminal, {"TERM": "dumb"})


def test_trials_are_chosen_by_state_cause_and_parameters(project: Project) -> None:
    project.write(
        "study.yaml",
        "command: sh -c 'echo loss={lr}; [ $0 = bad ] && exit 4; [ $0 = worse ] && kill -9 $$; exit 0' {kind} {flag}\n"
        "parameters: {kind: [good, bad, worse], lr: [1e-3, 0.5], flag: [true]}\nmetric: loss\nmetrics: [loss]\n",
    )
    project.run("run", "--on", "local", code=1)

    def chosen(*words: str) -> list[tuple[str, float]]:
        return [(row["kind"], row["lr"]) for row in project.json("results", "--json", *words)]

    bad, worse = [("bad", 0.001), ("bad", 0.5)], [("worse", 0.001), ("worse", 0.5)]
    assert chosen("--state", "failed") == bad + worse
    assert chosen("--state", "killed,done", "--where", "lr=0.0010") == [
        ("good", 0.001),
        ("worse", 0.001),
    ]
    assert chosen("--where", "lr=5e-1", "--where", "kind=bad", "--where", "kind=good") == [
        ("good", 0.5),
        ("bad", 0.5),
    ]
    assert len(chosen("--where", "flag=True")) == 6 and chosen("--where", "flag=1") == []
    assert project.json("results", "--best", "--where", "lr=0.5", "--json")[0]["lr"] == 0.5
    (group,) = project.json(
        "results", "--by", "lr", "--where", "lr=0.5", "--metric", "loss", "--json"
    )
    assert group["lr"] == 0.5 and group["failed"] == 2
    text = project.run("results", "--failed", "--where", "lr=0.5").stdout
    for piece in (
        "kind=bad, lr=0.5",
        "failed (exit code 4)",
        "killed (SIGKILL)",
        "last line: loss=0.5",
        "windlass logs 3",
    ):
        assert piece in text
    assert (
        project.run("results", "--failed", "--where", "kind=good").stdout == "no trial has failed\n"
    )
    assert "did you mean failed?" in project.run("results", "--state", "faild", code=2).stderr
    assert "there are: flag, kind, lr" in project.run("results", "--where", "x=1", code=2).stderr
    nowhere = project.run(
        "results", "--where", "kind=god", "--where", "lr=7", "--where", "kind=bad", code=2
    )
    assert (
        nowhere.stdout == ""
        and "no trial has kind=god" in nowhere.stderr
        and "no trial has lr=7" in nowhere.stderr
    )
    assert (
        "there are: good, bad, worse" in nowhere.stderr
        and "there are: 0.001, 0.5" in nowhere.stderr
    )
    nothing = project.run("results", "--state", "done", "--where", "kind=bad")
    assert (nothing.stdout, nothing.stderr) == (
        "no trial matches --state done --where kind=bad\n",
        "",
    )
    assert "--where lr=0.1" in project.run("results", "--where", "lr", code=2).stderr
    assert "leave the other out" in project.run("results", "--failed", "--best", code=2).stderr


def test_numbers_with_leading_zeros_are_shown_as_given(project: Project) -> None:
    """They reach the command as they were written: a table with another text would name another thing."""
    project.write(
        "study.yaml",
        "name: s\ncommand: test {run} = 010\nparameters: {run: [007, 010, 0x10, 1_000, 1e-3]}\n",
    )
    project.run("run", "--on", "local", "--quiet", "--keep-going", code=1)
    rows = project.json("results", "--format", "json")
    assert [row["run"] for row in rows] == ["007", "010", 16, 1000, 0.001]
    assert [row["state"] for row in rows] == ["failed", "done", *["failed"] * 3]
    table = project.run("results", "--format", "csv").stdout.splitlines()
    assert [line.split(",")[2] for line in table] == ["run", "007", "010", "16", "1000", "0.001"]
    assert " 007 " in project.run("results").stdout
    assert "run=007" in project.run("explain", "0").stdout
    assert project.json("explain", "1", "--json")["settings"] == {"run": "010"}
    chosen = [
        project.json("results", "--where", f"run={text}", "--format", "json")
        for text in ("007", "7", "16")
    ]
    assert [[row["number"] for row in found] for found in chosen] == [[0], [0], [2]]
