"""Writes the curves of all trials into one CSV file: one row a value."""

from __future__ import annotations

import csv

from windlass.core.journal.records import TrialRecord
from windlass.trackers.base import TrackedPoint, TrackedTrial, Tracker

COLUMNS = ("trial", "id", "attempt", "time", "step", "metric", "value")


class CsvTracker(Tracker):
    """The form that data frames and plotting libraries read without further ado."""

    ending = ".csv"

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._file = open(target, "w", encoding="utf-8", newline="")  # noqa: SIM115 - closed by `close`
        self._rows = csv.writer(self._file)
        self._rows.writerow(COLUMNS)

    def begin(self, trial: TrackedTrial) -> None:
        pass

    def point(self, trial: TrackedTrial, point: TrackedPoint) -> None:
        step = "" if point.step is None else f"{point.step:.15g}"
        for name, value in point.values.items():
            row = (trial.number, trial.id, point.attempt, f"{point.time:.3f}", step, name, value)
            self._rows.writerow(row)

    def end(self, trial: TrackedTrial, record: TrialRecord | None) -> None:
        pass

    def close(self) -> None:
        self._file.close()


MEMBER = CsvTracker
