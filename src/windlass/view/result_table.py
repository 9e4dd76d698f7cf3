"""Results as a table that shows what matters: the parameters that vary and the metric, the best trial first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.collect.groups import (
    GROUP_STATISTICS,
    ROW_HEAD,
    ROW_TAIL,
    metric_columns,
    parameter_names,
    reserved_name,
)
from windlass.core.states import State
from windlass.core.units import render_duration
from windlass.model import Metric
from windlass.view.numbers import render_means, render_numbers
from windlass.view.table import columns_of, render_cell, render_columns, render_table

Row = dict[str, Any]
_TRIAL = "trial"  # the heading of a trial's number in the short table


def sort_best_first(rows: Iterable[Row], metric: Metric, stat: str = "last") -> list[Row]:
    """Done trials by their value, the best first; then those without a finite value, in the order of their numbers."""
    sign = -1.0 if metric.goal == "maximize" else 1.0

    def key(row: Row) -> tuple[bool, float]:
        """Sorts trials without a usable value to the end; others by the value, the best first."""
        value = row.get(metric_columns(row, metric.name)[stat])
        if (
            row["state"] != State.DONE.value
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
        ):
            return True, 0.0
        return False, sign * value

    return sorted(rows, key=key)


def sort_groups(rows: Iterable[Row], metric: Metric) -> list[Row]:
    """Settings by their mean, the best first; those without one at the end."""
    sign = -1.0 if metric.goal == "maximize" else 1.0
    return sorted(rows, key=lambda row: (row["mean"] is None, sign * (row["mean"] or 0.0)))


def render_results(
    rows: Sequence[Row],
    metrics: Sequence[str],
    *,
    stat: str = "last",
    seed_name: str = "seed",
    limit: int | None = None,
    wide: bool = False,
    width: int | None = None,
    color: bool = False,
) -> str:
    """A table of trials. `metrics` are shown besides what varies; none: all that the rows have.

    The first metric, the trial's number and the state stay however narrow it is. With `wide`, all columns that have a
    value are shown, at their full width.
    """
    if wide:
        readable = [_readable(row) for row in rows]
        return render_table(readable[:limit], columns=_filled(readable), color=color)
    columns = _metric_headings(rows, metrics, stat) if metrics else _reported(rows, stat)
    parameters = _varying(rows, seed_name)
    shown = [_short_row(row, parameters, columns) for row in rows[:limit]]
    return render_table(shown, width=width, color=color, keep={_TRIAL, "state", *list(columns)[:1]})


def _readable(row: Row) -> Row:
    """The row with its duration as people write it."""
    readable: Row = {}
    for name, value in row.items():
        if name == "duration_s":
            readable["duration"] = None if value is None else render_duration(value)
        else:
            readable[name] = value
    return readable


def _filled(rows: Sequence[Row]) -> list[str]:
    """The columns that have a value in some row."""
    return [name for name in columns_of(rows) if any(row.get(name) is not None for row in rows)]


def _metric_headings(rows: Sequence[Row], metrics: Sequence[str], stat: str) -> dict[str, str]:
    """Headings of metrics, and the columns of their values."""
    found: dict[str, str] = {}
    for name in metrics:
        for row in rows[:1]:
            columns = metric_columns(row, name)
            found[columns["last"]] = columns[stat]
    return {
        heading: column
        for heading, column in found.items()
        if any(row.get(column) is not None for row in rows)
    }


def _reported(rows: Sequence[Row], stat: str) -> dict[str, str]:
    """The same for all metrics that rows have."""
    suffix = {"last": "", "min": ".min", "max": ".max"}[stat]
    found: dict[str, str] = {}
    for row in rows:
        keys = list(row)
        after = keys[keys.index(ROW_TAIL[-1]) + 1 :]
        found.update((name, name + suffix) for name in after if f"{name}.min" in row)
    return found


def _varying(rows: Sequence[Row], seed_name: str) -> list[str]:
    """The parameters, and the seed, that are not the same in all rows; of a single row all."""
    names = columns_of(
        [dict.fromkeys((*parameter_names(row, seed_name), *_seed(row, seed_name))) for row in rows]
    )
    if len(rows) == 1:
        return names
    return [name for name in names if any(row.get(name) != rows[0].get(name) for row in rows)]


def _seed(row: Row, seed_name: str) -> tuple[str, ...]:
    return (seed_name,) if seed_name in row else ()


def _short_row(row: Row, parameters: Sequence[str], metrics: Mapping[str, str]) -> Row:
    short: Row = {_TRIAL: row["number"]}
    short.update((reserved_name(name, (_TRIAL,)), row.get(name)) for name in parameters)
    short.update((heading, row.get(column)) for heading, column in metrics.items())
    if row["state"] != State.DONE.value:
        cause = row.get("cause")
        short["state"] = (
            row["state"] if cause in (None, row["state"]) else f"{row['state']}: {cause}"
        )
    used = {
        name: value for name, value in row.items() if name.startswith("used.") and value is not None
    }
    return {**short, **used}


def render_groups(
    rows: Sequence[Row],
    metric: str,
    *,
    wide: bool = False,
    width: int | None = None,
    color: bool = False,
) -> str:
    """A table of settings: each with its mean over seeds and the interval, rounded together, and how many there are."""
    means = render_means([(row["mean"], row["ci95"]) for row in rows])
    deviations = render_numbers([row["std"] for row in rows])
    shown = []
    for row, mean, deviation in zip(rows, means, deviations, strict=True):
        short: Row = {name: value for name, value in row.items() if name not in GROUP_STATISTICS}
        short[_heading(metric, short)] = mean
        if wide:
            short["std"] = deviation
        short["n"] = row["n"]
        short.update(
            (name, row[name]) for name in ("failed", "nan") if any(other[name] for other in rows)
        )
        shown.append(short)
    keep = {metric, f"metric.{metric}", "n"}
    return render_table(shown, width=None if wide else width, color=color, keep=keep)


def _heading(metric: str, row: Row) -> str:
    return f"metric.{metric}" if metric in row else metric


def render_card(row: Mapping[str, Any], metric: str) -> str:
    """One row, a line a column: nothing is cut off, and what has no value is left out."""
    card = _group_card(row, metric) if "mean" in row else _trial_card(row, metric)
    return "\n".join(render_columns([(name, render_cell(value)) for name, value in card.items()]))


def _trial_card(row: Mapping[str, Any], metric: str) -> Row:
    columns = metric_columns(dict(row), metric)
    values = [row.get(columns[stat]) for stat in ("last", "min", "max")]
    card: Row = {columns["last"]: row.get(columns["last"])}
    if not any(isinstance(value, str) for value in values):
        last, low, high = render_numbers(values)
        card[columns["last"]] = last if low == high else f"{last}  (lowest {low}, highest {high})"
    hidden = (*columns.values(), "cause", "exit_code")
    for name, value in row.items():
        if value is None or name in hidden or (name == "attempts" and value == 1):
            continue
        if name == "duration_s":
            card["took"] = render_duration(value)
        elif not (name == "state" and value == State.DONE.value):
            card["trial" if name == "number" else name] = value
    return card


def _group_card(row: Mapping[str, Any], metric: str) -> Row:
    mean = render_means([(row["mean"], row["ci95"])])[0]
    interval = " with 95 % confidence" if row["ci95"] is not None else ""
    card: Row = {metric: f"{mean}  (mean of {row['n']}{interval})"}
    own = {name: value for name, value in row.items() if name not in (*GROUP_STATISTICS, *ROW_HEAD)}
    own.update((name, row[name]) for name in ("failed", "nan") if row[name])
    return {**card, **own, "first trial": row["number"]}
