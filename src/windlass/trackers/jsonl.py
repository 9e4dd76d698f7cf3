"""Writes the curves of all trials into one file with a JSON object a line: one line a point."""

from __future__ import annotations

import json

from windlass.core.journal.events import wire_number
from windlass.core.journal.records import TrialRecord
from windlass.trackers.base import TrackedPoint, TrackedTrial, Tracker


class JsonLinesTracker(Tracker):
    """Values that were reported together stay together. Numbers that JSON lacks are written as "nan" and "inf"."""

    ending = ".jsonl"

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._file = open(target, "w", encoding="utf-8")  # noqa: SIM115 - closed by `close`

    def begin(self, trial: TrackedTrial) -> None:
        pass

    def point(self, trial: TrackedTrial, point: TrackedPoint) -> None:
        values = {name: wire_number(value) for name, value in point.values.items()}
        about = {
            "trial": trial.number,
            "id": trial.id,
            "attempt": point.attempt,
            "time": point.time,
        }
        json.dump({**about, "step": point.step, "values": values}, self._file, ensure_ascii=False)
        self._file.write("\n")

    def end(self, trial: TrackedTrial, record: TrialRecord | None) -> None:
        pass

    def close(self) -> None:
        self._file.close()


MEMBER = JsonLinesTracker
