"""Writes the trials of a study into its folder: adds new ones, and restores lines that were damaged or lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.counted import counted
from windlass.core.damage import report_damage
from windlass.core.fill import render_setting
from windlass.core.ids import id_number
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile, append_trials, repair_trials
from windlass.model import Trial
from windlass.search.values import render_value

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class TrialWriter:
    """Tells new trials from those the folder has already, whose numbers are `known`."""

    def __init__(self, paths: StudyPaths, count: int) -> None:
        """`count` is the register's; lines beyond it that are whole count as well.

        They are from a run that was killed, or the register has lost its newest states. In both cases a trial keeps
        the number that its line has, because journals may have it, too.
        """
        self._paths = paths
        self._numbers: dict[int, int] = {}
        self._missing: set[int] = set()
        self._restored: dict[int, bytes] = {}
        self.first_new = count  # number of the first trial that is added
        if count or os.path.exists(paths.trials):
            self._read(count)
        self._known: list[int] = []
        self._known_ranges: Ranges = []
        self._known_in_order = True

    def _read(self, count: int) -> None:
        if not os.path.exists(self._paths.trials):
            with open(self._paths.trials, "xb"):
                pass  # the index may still have the ids
        file = TrialFile(self._paths)
        try:
            self.first_new = max(count, file.count_indexed())
            self._numbers = {
                identifier: number for number, identifier in file.id_numbers(self.first_new)
            }
            self._missing = set(file.missing(self.first_new))
            is_damaged = file.is_index_damaged
        finally:
            file.close()
        if is_damaged:
            repair_trials(self._paths, self.first_new, {})

    def write(self, trials: Iterable[Trial]) -> int:
        """Add the trials that are new and restore the lines of those that were damaged. Returns how many there are."""
        count = append_trials(self._paths, self.first_new, self._new_lines(trials))
        if self._restored:
            repair_trials(self._paths, count, self._restored)
        if self._missing:
            self._report()
        return count

    def known(self) -> Ranges:
        """Trials of the study that the folder had before."""
        return self._known_ranges if self._known_in_order else rs.from_numbers(self._known)

    def _report(self) -> None:
        lost = len(self._missing) - len(self._restored)
        lines = counted(len(self._missing), "line was", "lines were")
        problem = f"{lines} damaged or missing, and {len(self._restored)} could be written anew"
        remedy = "nothing is lost"
        if lost:
            remedy = (
                f"what {counted(lost, 'trial')} consisted of is not known any more; "
                "a backup of the file may have it"
            )
        report_damage(self._paths.trials, problem, remedy, "restored")

    def _new_lines(self, trials: Iterable[Trial]) -> Iterator[tuple[str, bytes]]:
        for trial in trials:
            number = self._numbers.get(id_number(trial.id)) if self._numbers else None
            if number is None:
                yield trial.id, _render_line(trial)
                continue
            self._remember(number)
            if number in self._missing:
                self._restored[number] = _render_line(trial)

    def _remember(self, number: int) -> None:
        """As ranges while the order is that of the folder, which is the usual case and costs no memory."""
        if self._known_in_order:
            if self._known_ranges and number == self._known_ranges[-1][1]:
                self._known_ranges[-1] = (self._known_ranges[-1][0], number + 1)
                return
            if not self._known_ranges or number > self._known_ranges[-1][1]:
                self._known_ranges.append((number, number + 1))
                return
            self._known_in_order = False
            self._known = list(rs.numbers(self._known_ranges))
        self._known.append(number)


def _render_line(trial: Trial) -> bytes:
    rung = {"rung": trial.rung} if trial.rung else {}
    line = {
        "id": trial.id,
        **rung,
        "stages": trial.stages,
        **_written(trial.settings),
        "settings": trial.settings,
    }
    # Arguments that are no UTF-8 arrive as half characters and leave as such.
    return _encode(line).encode("utf-8", "surrogatepass") + b"\n"


_AS_WRITTEN = (str, int, bool)  # types whose values JSON and the command have alike


def _written(settings: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Settings that JSON would not write as the user did: the agent fills them in as the command has them."""
    texts = {
        name: text
        for name, value in settings.items()
        if type(value) not in _AS_WRITTEN and (text := render_value(value)) != render_setting(value)
    }
    return {"written": texts} if texts else {}
