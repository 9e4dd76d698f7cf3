"""How `windlass results` shows rows: as tables for people, in full for programs, on the screen or in a file."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from windlass.cli.terminal import data_stream
from windlass.collect.facts import PlannedFacts
from windlass.collect.results import ResultRows, Row
from windlass.core.trust import as_given
from windlass.model import Metric
from windlass.secrets import mask_row
from windlass.view.escapes import BOLD, paint
from windlass.view.result_table import (
    render_card,
    render_groups,
    render_results,
    sort_best_first,
    sort_groups,
)
from windlass.view.results import write_results
from windlass.view.table import terminal_width, wants_color


@dataclass(frozen=True)
class ShownResults:
    """Writes rows as was asked for: tables for people, everything else in full for programs.

    Secrets that studies of earlier versions may have are masked.
    """

    kind: str
    output: str | None
    metric: Metric | None
    facts: PlannedFacts
    stat: str
    wide: bool
    limit: int | None

    @property
    def is_text(self) -> bool:
        """Whether it is a table on the screen."""
        return self.kind == "table" and self.output is None

    def all_trials(self, found: ResultRows) -> None:
        """Write the rows of a study. The text of a table, and CSV, is remembered until a journal grows."""
        if self.kind == "csv":
            text = found.remembered(["csv", self.limit], lambda: self._render_csv(found))
            _write_text(text, self.output)
            return
        if self.kind != "table":
            self._write(_Masked(found))
            return
        self._announce_order("best first")
        width = self._look()["width"]
        asked = [self.stat, self.limit, self.wide, width, list(self.facts.patterns)]
        self._print(self._paint(found.remembered(asked, lambda: self._render(found, width))))

    def _render_csv(self, found: Iterable[Row]) -> str:
        stream = io.StringIO()
        rows = _Masked(found)
        write_results(itertools.islice(rows, self.limit) if self.limit else rows, "csv", stream)
        return stream.getvalue()

    def trials(self, found: Iterable[Row]) -> None:
        """Write rows of trials that are not all of the study's; nothing is remembered."""
        if self.kind != "table":
            self._write(map(mask_row, found))
            return
        self._announce_order("best first")
        self._print(self._paint(self._render(found, self._look()["width"])))

    def _render(self, found: Iterable[Row], width: int | None) -> str:
        """A table without colours."""
        rows: Iterable[Row] = map(mask_row, found)
        ordered = (
            list(rows) if self.metric is None else sort_best_first(rows, self.metric, self.stat)
        )
        declared = [*([self.metric.name] if self.metric else []), *self.facts.patterns]
        return render_results(
            ordered,
            list(dict.fromkeys(declared)),
            stat=self.stat,
            seed_name=self.facts.seed_name,
            limit=self.limit,
            wide=self.wide,
            width=width,
        )

    def _paint(self, table: str) -> str:
        head, newline, rest = table.partition("\n")
        return paint(head, BOLD if self._look()["color"] else "") + newline + rest

    def groups(self, found: Iterable[Row]) -> None:
        """Write one row for each setting, with the mean over its seeds."""
        assert self.metric is not None
        rows = [mask_row(row) for row in found]
        if self.kind != "table":
            self._write(rows)
            return
        ordered = sort_groups(rows, self.metric)[: self.limit]
        self._announce_order("mean and 95 % confidence interval, best first")
        self._print(render_groups(ordered, self.metric.name, wide=self.wide, **self._look()))

    def best(self, found: Iterable[Row], number: int) -> None:
        """Write the best rows. Where `number` asks for a single one, it is shown as a card, with its command."""
        assert self.metric is not None
        rows = [mask_row(row) for row in found]
        if self.kind != "table":
            self._write(rows)
        elif not rows:
            self._print("no trial is done yet\n")
        elif number == 1:
            self._print(render_card(rows[0], self.metric.name) + "\n")
        elif "mean" in rows[0]:
            self._print(render_groups(rows, self.metric.name, wide=self.wide, **self._look()))
        else:
            self.trials(rows)

    def _announce_order(self, how: str) -> None:
        if self.metric is not None and self.is_text:
            values = "" if self.stat == "last" else f", the {self.stat} value of each trial"
            click.echo(f"{self.metric.name} ({self.metric.goal}): {how}{values}", err=True)

    def _look(self) -> dict[str, Any]:
        if not self.is_text:
            return {"width": None, "color": False}
        return {"width": terminal_width(sys.stdout), "color": wants_color(sys.stdout)}

    def _print(self, text: str) -> None:
        if self.output is None:
            sys.stdout.write(text)
            return
        with as_given(), open(self.output, "w", encoding="utf-8") as file:
            file.write(text)

    def _write(self, rows: Iterable[Row]) -> None:
        _write(itertools.islice(rows, self.limit) if self.limit else rows, self.kind, self.output)


class _Masked:
    """Rows without their secrets. Like the rows themselves, they can be gone through more than once."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        return map(mask_row, self._rows)


def _write_text(text: str, output: str | None) -> None:
    """Write CSV to a file or to standard output, as `_write` does."""
    if output is None:
        data_stream(sys.stdout).write(text)
        return
    with as_given(), open(output, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def _write(rows: Iterable[Row], kind: str, output: str | None) -> None:
    """Write rows in full, to a file or to standard output.

    CSV for another program goes around the escaping of the terminal.
    """
    if output is not None:
        with (
            as_given()
        ):  # The file is the user's, not the study's, and gets the user's usual permissions.
            if kind == "parquet":
                write_results(rows, kind, sys.stdout, path=output)
                return
            with open(output, "w", encoding="utf-8", newline="") as file:
                write_results(rows, kind, file)
        return
    if kind == "csv":
        write_results(rows, kind, data_stream(sys.stdout))
        return
    write_results(rows, kind, sys.stdout)
