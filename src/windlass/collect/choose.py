"""Chooses trials of a study by state, cause and parameters."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.collect.index import StudyIndex
from windlass.collect.look import find_lost_causes
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.errors import input_error
from windlass.core.meant import did_you_mean
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause, State
from windlass.core.trialfile import TrialFile
from windlass.secrets import mask_row

_CHUNK = 2000
_SHOWN_VALUES = 12


@dataclass(frozen=True)
class Chosen:
    """The trials that were asked for, and what no trial of the study has: (name and value, the values there are)."""

    trials: Ranges
    unknown: tuple[tuple[str, str], ...] = ()


def parse_states(text: str) -> frozenset[str]:
    """States and causes from a list such as ``failed,killed``. Raises InputError for what is neither."""
    known = {str(item.value) for item in (*State, *Cause)}
    wanted = frozenset(part.strip() for part in text.split(",") if part.strip())
    for name in sorted(wanted - known):
        hint = (
            did_you_mean(name, sorted(known))
            or f"states: {', '.join(state.value for state in State)}"
        )
        raise input_error(f"--state: {name!r} is neither a state nor a cause", hint)
    return wanted


def parse_where(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parameters with the values that are wanted, from texts such as ``lr=0.1``. Of one name any value will do."""
    wanted: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise input_error(f"--where {text!r} is not NAME=VALUE", "--where lr=0.1")
        wanted[name.strip()] = (*wanted.get(name.strip(), ()), value)
    return wanted


def choose_trials(
    paths: StudyPaths,
    index: StudyIndex,
    included: Ranges,
    states: Collection[str] | None,
    where: Mapping[str, Sequence[str]],
) -> Chosen:
    """Those of the included trials that are in one of the states, or ended for one of the causes, and have the values.

    Raises InputError where no trial has a parameter that `where` names. Values of `where` that no included trial has,
    in whatever state, are `unknown` in the answer.
    """
    lost = find_lost_causes(paths, index) if states is not None else {}
    chosen: list[int] = []
    names: set[str] = set()
    values = [_Values(name, text) for name, texts in where.items() for text in texts]
    trials = TrialFile(paths)
    try:
        for first, stop in rs.normalise(included):
            for begin in range(first, stop, _CHUNK):
                end = min(begin + _CHUNK, stop)
                fates = {} if states is None else _fates(index, begin, end, lost)
                for number, trial in trials.iterate(begin, end):
                    names.update(trial["settings"])
                    for value in values:
                        value.compare(trial["settings"])
                    fate = fates.get(number, {State.WAITING.value})
                    if (states is None or fate & set(states)) and _matches(trial, where):
                        chosen.append(number)
    finally:
        trials.close()
    for name in where:
        if names and name not in names:
            raise input_error(
                f"--where: no trial has a parameter {name}",
                f"there are: {', '.join(sorted(names))}",
            )
    unknown = tuple(
        (f"{one.name}={one.text}", one.render()) for one in values if names and not one.is_found
    )
    return Chosen(rs.from_numbers(chosen), unknown)


@dataclass
class _Values:
    """Compares one value that is wanted of a parameter with those that trials have, until it is found."""

    name: str
    text: str
    is_found: bool = False
    others: dict[str, None] = field(default_factory=dict)

    def compare(self, settings: Mapping[str, Any]) -> None:
        """Look whether a trial has the wanted value; remember some of the other values for the error message."""
        if self.is_found or self.name not in settings:
            return
        value = settings[self.name]
        self.is_found = _equals(value, self.text)
        if len(self.others) <= _SHOWN_VALUES:
            shown = mask_row({self.name: value})[self.name]
            self.others[
                shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
            ] = None

    def render(self) -> str:
        more = ", …" if len(self.others) > _SHOWN_VALUES else ""
        return ", ".join(list(self.others)[:_SHOWN_VALUES]) + more


def _fates(index: StudyIndex, begin: int, end: int, lost: Mapping[int, str]) -> dict[int, set[str]]:
    """State and cause of each trial of which something is known."""
    found = {}
    for record in index.records(range(begin, end)):
        if record.number in lost:
            found[record.number] = {State.INTERRUPTED.value, lost[record.number]}
        else:
            found[record.number] = {record.state.value, *([record.cause] if record.cause else [])}
    return found


def _matches(trial: Mapping[str, Any], where: Mapping[str, Sequence[str]]) -> bool:
    """Whether a trial has, for each parameter, one of the values that were asked for."""
    settings = trial["settings"]
    return all(
        name in settings and any(_equals(settings[name], text) for text in texts)
        for name, texts in where.items()
    )


def _equals(value: Any, text: str) -> bool:
    """Whether a text stands for a value: numbers by size, so that 1e-3 is 0.001; all else as it is shown."""
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool) or value is None:
        return text.lower() in (str(value).lower(), json.dumps(value))
    try:
        parsed = json.loads(text)
    except ValueError:
        try:
            parsed = (
                int(text, 0)
                if text.lower().lstrip("+-").startswith(("0x", "0o", "0b"))
                else float(text)
            )
        except ValueError:
            return False
    return type(parsed) is not bool and bool(parsed == value)
