"""A named metric, from what trials print to the table: found, listed where it is missing, read again, and shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collect.test_results import make_study
from tests.conftest import Project
from windlass.agent.config import printed_patterns
from windlass.collect.index import StudyIndex
from windlass.collect.printed import PrintedNumber, add_printed, list_printed
from windlass.collect.results import best_rows, result_rows
from windlass.collect.standing import Missing, Standing, find_missing
from windlass.core.journal.pieces import OURS, STDERR, STDOUT, render_piece
from windlass.core.paths import StudyPaths
from windlass.core.planfile import PlanFile
from windlass.model import Metric
from windlass.spec.goals import parse_metric
from windlass.view.numbers import render_amount, render_means, render_numbers
from windlass.view.result_table import (
    render_card,
    render_groups,
    render_results,
    sort_best_first,
    sort_groups,
)
from windlass.view.standing import render_missing, render_standing
from windlass.view.table import display_width, render_table

SCRIPT = """
import sys
lr, hidden = float(sys.argv[1]), int(sys.argv[2])
print("warming up")
for epoch in range(3):
    print(f"epoch {epoch + 1}/3 - val_loss: {lr * 10 - epoch:.3f} - lr={lr}")
print(f"loss={lr + 1 / hidden:.4f}")
"""


def test_a_metric_that_the_program_prints_is_found_and_a_forgotten_one_is_not_lost(
    project: Project,
) -> None:
    project.write("train.py", SCRIPT)
    grid = ["--param", "lr=[0.5,0.1]", "--param", "hidden=[2,8]"]
    command = [*grid, "--", sys.executable, "train.py", "{lr}", "{hidden}"]
    done = project.run("run", "--on", "local", "--metric", "loss", *command)
    assert "best loss: 0.225 (the lowest), trial 3 with lr=0.1, hidden=8" in done.stderr
    table = [line.split() for line in project.run("results").stdout.splitlines()]
    assert table[:3] == [
        ["trial", "lr", "hidden", "loss"],
        ["3", "0.1", "8", "0.225"],
        ["2", "0.1", "2", "0.600"],
    ]
    best = project.json("results", "--best", "--json", "--metric", "val_loss:maximize")[0]
    assert (best["number"], best["val_loss"], best["val_loss.max"]) == (0, 3.0, 5.0)

    missing = project.run("results", "--best", "--metric", "vall_loss", code=2).stderr
    assert (
        "no trial reported vall_loss: 4 trials done" in missing
        and "`windlass results --metric val_loss`" in missing
    )
    listed = project.run("results", "--metric", "x").stderr.splitlines()
    assert listed[2] == "they reported: loss"
    assert (
        listed[3].startswith("their output has: val_loss (")
        and ", loss (" in listed[3]
        and "lr" not in listed[3]
    )

    again = project.run("run", "--on", "local", "--metric", "accuracy", *command).stderr
    assert "no trial reported accuracy" in again and "their output has: val_loss" in again


def print_output(paths: StudyPaths, pieces: list[tuple[int, int, bytes]]) -> None:
    """What the agent "agent" would have kept: trial, stream and bytes of each piece."""
    Path(paths.output).mkdir()
    end = 0
    with (
        open(paths.output_of("agent"), "wb") as log,
        open(paths.output_index_of("agent"), "wb") as index,
    ):
        for number, stream, data in pieces:
            index.write(render_piece("agent", end, 1.0, number, number, stream, data))
            log.write(data)
            end += len(data)


@pytest.fixture
def printed(tmp_path: Path) -> StudyPaths:
    """Five trials: two print their loss, in pieces that are cut anywhere, one reports it, two have none."""
    metrics: dict[str, Any] = {"m": {"loss": [0.7, 0.6, 0.9, 3]}}
    trials = [{"lr": number} for number in range(5)]
    paths = make_study(
        tmp_path, trials, {0: {}, 1: {}, 2: metrics, 3: {"cause": "failed", "code": 1}, 4: {}}
    )
    print_output(
        paths,
        [
            (0, STDOUT, b"lr=0 loss=0."), (1, STDOUT, b"loss=3\rlo"), (0, STDERR, b"loss=9\n"),
            (0, STDOUT, b"5\nloss=0.2"), (1, STDOUT, b"ss=0.8\n"), (2, STDOUT, b"loss=0.01\n"), (3, STDOUT, b"loss=0.1\n"),
            (4, STDOUT, b"accuracy: 0.5\n"), (4, OURS, b"loss=0.0001\n"),
        ],
    )  # fmt: skip
    return paths


def test_kept_output_is_read_again_for_trials_that_did_not_report(printed: StudyPaths) -> None:
    index = StudyIndex(printed)
    index.refresh()
    loss = Metric("loss", "minimize")
    assert index.best("loss", "minimize")[0].number == 2
    add_printed(printed, index, "loss")
    rows = list(result_rows(printed, index, [(0, 5)], loss))
    found = [(row.get("loss"), row.get("loss.min"), row.get("loss.max")) for row in rows]
    assert found == [
        (0.2, 0.2, 9.0),
        (0.8, 0.8, 3.0),
        (0.7, 0.6, 0.9),
        (0.1, 0.1, 0.1),
        (None, None, None),
    ]
    assert [row["number"] for row in best_rows(printed, index, [(0, 5)], loss, limit=9)] == [
        0,
        2,
        1,
    ]
    assert [row["number"] for row in best_rows(printed, index, [(1, 5)], loss, limit=1)] == [2]
    assert find_missing(printed, index, [(0, 5)], "loss") == Missing("loss", 4, 1)
    assert find_missing(printed, index, [(0, 4)], "loss").without == 0
    assert [row["number"] for row in sort_best_first(rows, loss)] == [0, 2, 1, 3, 4]
    index.close()


def test_what_the_output_has_is_listed_without_the_parameters(printed: StudyPaths) -> None:
    index = StudyIndex(printed)
    index.refresh()
    assert list_printed(printed, index, [(0, 5)], ["lr"])[0] == PrintedNumber("loss", 3, 0.01)
    missing = find_missing(printed, index, [(0, 5)], "acc")
    assert [one.name for one in missing.listed] == ["loss", "accuracy"]
    assert missing.reported == ("loss",)
    assert render_missing(missing)[1:] == [
        "they reported: loss",
        "their output has: loss (0.01), accuracy (0.5)",
        "`windlass results --metric accuracy` reads it from there; nothing has to run again",
    ]
    assert "print it (`x=0.12`)" in render_missing(Missing("x", 3, 3))[1]
    assert render_missing(Missing("x", 3, 1)) == ["1 of 3 done trials did not report x"]
    assert render_missing(Missing("x", 3, 0)) == []
    typo = render_missing(Missing("val_los", 3, 3, (), ("step_time", "val_loss")))
    assert typo[1:] == [
        "they reported: step_time, val_loss",
        "`windlass results --metric val_loss` compares the trials by it",
    ]
    other = render_missing(Missing("qqq", 3, 3, (), ("val_loss",)))
    assert other[1:] == [
        "they reported: val_loss",
        "`windlass results --metric val_loss` compares the trials by it",
    ]
    both = tuple(PrintedNumber(f"{data} accuracy", 3, 0.5) for data in ("train", "evaluation"))
    assert render_missing(Missing("accuracy", 3, 3, both))[1:] == [
        "their output has: train accuracy (0.5), evaluation accuracy (0.5)",
        "`windlass results --metric 'evaluation accuracy'` reads it from there; nothing has to run again",
    ]
    index.close()


def test_the_studys_metric_need_not_be_named_twice() -> None:
    assert printed_patterns(PlanFile(metric="loss")) == [("loss", None)]
    both = PlanFile(metric="loss", metrics=[["loss", "x (.*)"], ["acc", None]])
    assert printed_patterns(both) == [("loss", "x (.*)"), ("acc", None)]
    assert printed_patterns(PlanFile()) == []


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("loss", "minimize"), ("val/accuracy", "maximize"), ("ep_rew_mean", "maximize"), ("f1", "maximize"),
        ("accuracy:min", "minimize"), ("accuracy_error", "minimize"), ("macro-F1", "maximize"), ("fmap", "minimize"),
        *((name, "maximize") for name in (
            "top-1", "top-5", "top_5", "top1", "Top 1", "val/top-1", "topk", "acc@1", "acc1", "hits@10", "Hit@10", "mAP", "mAP50-95", "AP75",
            "mAP@0.5", "R2", "R^2", "r_squared", "psnr", "bleu", "BLEU-4", "sacrebleu", "rougeL", "rouge-1", "auc-roc", "roc_auc", "aucroc",
            "R@1", "pass@1", "valAcc", "testAccuracy", "meanIoU", "mIoU", "rank-1", "exact_match", "neg_mean_squared_error", "ndcg@10",
        )),
        *((name, "minimize") for name in (
            "top-1 error", "top1_err", "valLoss", "logloss", "neg_log_likelihood", "nll", "brier_score", "fid_score", "mean_rank", "rmse", "WER",
            "stop", "top", "r", "perplexity", "f1_loss",
        )),
    ],
)  # fmt: skip
def test_a_goal_follows_from_the_name(text: str, goal: str) -> None:
    assert parse_metric(text).goal == goal


# -- numbers


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.00251661, 0.310123], ["0.00252", "0.31012"]),
        ([0.1, 0.01, 0.001], ["0.100", "0.010", "0.001"]),
        ([1, 20], ["1", "20"]),
        ([1.0, 0.25, None], ["1.00", "0.25", ""]),
        ([float("nan"), 0.5, float("-inf")], ["nan", "0.5", "-inf"]),
        ([0.97123, 0.97125], ["0.97123", "0.97125"]),
        ([1e-9, 3.21e-8], ["1.00e-09", "3.21e-08"]),
        ([123456.789, 0.5], ["123456.8", "0.5"]),
        ([float("nan")], ["nan"]),
        ([], []),
    ],
)
def test_numbers_of_a_column_share_their_format(
    values: list[float | None], shown: list[str]
) -> None:
    assert render_numbers(values) == shown


@pytest.mark.parametrize(
    ("means", "shown"),
    [
        ([(0.84912, 0.00612), (0.310123, 0.0512)], ["0.849 ± 0.006", "0.310 ± 0.051"]),
        ([(1234.5, 12.3), (99.1, 5.1)], ["1234 ± 12", "99 ± 5"]),
        ([(0.5, None), (None, None)], ["0.5", ""]),
        ([(1.234e-7, 3e-9)], ["(1.23 ± 0.03)e-07"]),
        ([(0.12345678, 1e-9)], ["0.123457 ± 1e-09"]),
        ([(0.2569, 0.0121), (0.5, None)], ["0.257 ± 0.012", "0.500"]),
        ([(0.5, 0.0)], ["0.5"]),
        ([(0.75, 1.906)], ["0.75 ± 1.91"]),
        ([(0.7333, 20.1), (0.5, 3.0)], ["0.733 ± 20.100", "0.500 ± 3.000"]),
        ([(0.0312, 5.0), (0.9, 2.0)], ["0.031 ± 5.000", "0.900 ± 2.000"]),
        ([(1.234e-7, 3e-6)], ["(1.23 ± 30.00)e-07"]),
        ([(2.0, 2.2), (5.0, 4.1)], ["2 ± 2", "5 ± 4"]),
        ([(0.75, float("inf")), (0.5, 0.01)], ["0.750 ± inf", "0.500 ± 0.010"]),
    ],
)
def test_a_mean_is_rounded_with_its_interval(
    means: list[tuple[float | None, float | None]], shown: list[str]
) -> None:
    assert render_means(means) == shown


def test_amounts_are_for_people() -> None:
    shown = [render_amount(hours) for hours in (0.0, 4.44e-06, 0.034, 1.5, 1234.0)]
    assert shown == ["0", "less than 0.01", "0.03", "1.5", "1,234"]


# -- tables


def trial(
    number: int, state: str = "done", loss: float | None = None, **settings: Any
) -> dict[str, Any]:
    tail = {"state": state, "cause": state, "attempts": 1, "duration_s": 3.21, "exit_code": 0}
    metrics = {"loss": loss, "loss.min": loss, "loss.max": 2.0}
    return {"id": f"t{number}", "number": number, **settings, **tail, **metrics}


def test_the_table_shows_what_varies_and_the_metric_and_cuts_no_number() -> None:
    text = "a rather long name of a dataset, number "
    names = {f"parameter_{letter}": 1.23456 for letter in "abcd"}
    rows = [
        trial(n, loss=0.123456 * (n + 1), data=text + str(n), batch=4, **names, seed=n)
        for n in range(3)
    ]
    for row in rows:
        row.update({f"parameter_{letter}": row["number"] + 0.5 for letter in "abcd"})
    rows.append({**trial(3, "failed", data="x", batch=4, seed=3), "cause": "killed"})
    table = render_results(rows, ["loss"], width=80).splitlines()
    assert max(map(display_width, table)) <= 80
    assert (
        table[0].split()[:2] == ["trial", "data"]
        and "batch" not in table[0]
        and "loss" in table[0].split()
    )
    assert "0.1235" in table[1] and "failed: killed" in table[4] and "done" not in "".join(table)
    narrow = render_results(rows, ["loss"], width=36).splitlines()
    assert (
        "0.1235" in narrow[1] and narrow[0].endswith("…") and max(map(display_width, narrow)) <= 36
    )
    assert "state" not in render_results(rows[:3], ["loss"])
    wide = render_results(rows, ["loss"], wide=True)
    assert (
        text + "2" in wide and "3.2 s" in wide and "loss.max" in wide and "duration_s" not in wide
    )


def test_parameters_that_vary_do_not_depend_on_how_many_rows_are_shown() -> None:
    rows = [trial(n, loss=float(n), lr=n // 2, trial="x" * (n + 1)) for n in range(4)]
    assert render_results(rows, ["loss"], limit=1).split() == [
        "trial",
        "lr",
        "param.trial",
        "loss",
        "0",
        "0",
        "x",
        "0",
    ]
    assert render_results(rows, [], limit=1).splitlines()[0].split()[-1] == "loss"
    assert render_results(rows, ["acc"]).splitlines()[0].split() == ["trial", "lr", "param.trial"]


def test_groups_are_sorted_and_columns_of_zeros_stay_away() -> None:
    statistics = {"std": 0.1, "ci95": 0.006, "failed": 0, "nan": 0}
    rows = [{"lr": lr, "n": 5, "mean": lr * 2.0, **statistics} for lr in (0.25, 0.125)]
    rows.append({"lr": 9.0, "n": 0, "mean": None, **statistics, "std": None, "ci95": None})
    ordered = sort_groups(rows, Metric("loss", "minimize"))
    table = [line.split("  ") for line in render_groups(ordered, "loss").splitlines()]
    assert [[cell.strip() for cell in line if cell] for line in table] == [
        ["lr", "loss", "n"],
        ["0.125", "0.250 ± 0.006", "5"],
        ["0.250", "0.500 ± 0.006", "5"],
        ["9.000", "0"],
    ]
    assert [row["lr"] for row in sort_groups(rows, Metric("loss", "maximize"))] == [
        0.25,
        0.125,
        9.0,
    ]
    rows[0]["failed"] = 2
    assert "failed" in render_groups(rows, "loss") and "std" in render_groups(
        rows, "loss", wide=True
    )


def test_the_best_as_a_card_and_in_a_line() -> None:
    row = {**trial(7, loss=0.5, lr=0.1, batch=4), "command": "python train.py"}
    card = dict(line.split(maxsplit=1) for line in render_card(row, "loss").splitlines())
    assert (
        card["loss"] == "0.5  (lowest 0.5, highest 2.0)"
        and card["trial"] == "7"
        and card["took"] == "3.2 s"
    )
    assert card.keys().isdisjoint({"state", "cause", "exit_code", "attempts"})
    standing = Standing(Metric("loss", "minimize"), row, ("lr",), Missing("loss", 9, 2))
    assert render_standing(standing) == [
        "best loss: 0.5 (the lowest), trial 7 with lr=0.1",
        "2 of 9 done trials did not report loss",
    ]
    mean = {
        "number": 3,
        "lr": 0.1,
        "n": 5,
        "mean": 0.849,
        "std": 0.01,
        "ci95": 0.006,
        "failed": 0,
        "nan": 0,
    }
    standing = Standing(Metric("acc", "maximize"), mean, ("lr",), Missing("acc", 9, 0))
    assert render_standing(standing) == [
        "best acc: 0.849 ± 0.006 (mean of 5, the highest) with lr=0.1"
    ]
    assert "(mean of 5 with 95 % confidence)" in render_card(mean, "acc")


def test_whole_columns_are_left_out_rather_than_a_digit() -> None:
    rows = [{"a": 1234567, "b": 1234567, "c": "text", "d": 7654321}]
    assert render_table(rows, width=30).split() == [
        "a",
        "b",
        "c",
        "…",
        "1234567",
        "1234567",
        "text",
    ]
    assert render_table(rows, width=30, keep=["d"]).split() == [
        "a",
        "b",
        "d",
        "…",
        "1234567",
        "1234567",
        "7654321",
    ]
