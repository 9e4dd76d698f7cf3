"""The one renderer of tables without a header, and of numbers with their units."""

from __future__ import annotations

import io

import pytest

from windlass.core.units import render_mb_limit
from windlass.view.numbers import render_number, render_percent, render_with_unit
from windlass.view.results import write_results
from windlass.view.table import pad, render_columns


def test_columns_are_aligned() -> None:
    rows = [("a", "1 kB", "first"), ("long", "12 MB", "second"), ("宽", "3 GB", "")]
    assert render_columns(rows, right={1}, indent="  ") == [
        "  a      1 kB  first",
        "  long  12 MB  second",
        "  宽     3 GB",
    ]
    assert render_columns([]) == []


def test_one_long_cell_does_not_push_the_others_away() -> None:
    short, long = render_columns([("a", "b"), ("c" * 100, "d")])
    assert short == pad("a", 42) + "b" and long == "c" * 100 + "  d"


@pytest.mark.parametrize(
    "amount,text",
    [(1.0, "1 GPU-hour"), (1.5, "1.5 GPU-hours"), (0.0, "0 GPU-hours"), (1234, "1,234 GPU-hours")],
)
def test_a_unit_agrees_with_its_number(amount: float, text: str) -> None:
    assert render_with_unit(amount, "GPU-hours") == text


def test_numbers_in_sentences() -> None:
    assert render_number(0.849123) == "0.8491" and render_percent(46.6) == "47 %"
    assert render_mb_limit(8192) == "8 GB" and render_mb_limit(8000) == "8000 MB"
    assert render_mb_limit(512) == "512 MB" and render_mb_limit(128001) == "128001 MB"


def test_csv_has_columns_that_only_late_rows_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header is right also where the first rows, with which the lines are begun, lack a column."""
    monkeypatch.setattr("windlass.view.results._CSV_ROWS", 2)
    rows = [{"a": 1, "c": True}, {"a": 2.5, "c": None}, {"a": 3, "b": [1, 2], "c": "x"}]
    stream = io.StringIO()
    write_results(rows, "csv", stream)
    assert stream.getvalue() == 'a,b,c\n1,,true\n2.5,,\n3,"[1, 2]",x\n'
