"""The interface of a tracker, which is given the curves and results of trials.

A tracker is fed by a reader of the study's folder (collect/feed.py), never by an agent: one that is slow, hangs or
fails holds no trial.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from windlass import trackers
from windlass.core.journal.records import TrialRecord
from windlass.core.members import load_member, member_names


@dataclass(frozen=True)
class TrackedTrial:
    """A trial, as far as a tracker has to know it."""

    number: int
    id: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class TrackedPoint:
    """Values that an attempt at a trial reported together."""

    attempt: str  # names the attempt among all of the study
    time: float
    step: float | None
    values: Mapping[str, float]


class Tracker(ABC):
    """Takes what trials report. Every trial is begun before its first point, and ended once after its last one."""

    ending: ClassVar[str] = ""  # of the files that it writes; "": it writes none

    def __init__(self, target: str) -> None:
        """`target` is where it writes to: a file, a project, an address."""
        self.target = target

    @abstractmethod
    def begin(self, trial: TrackedTrial) -> None:
        """Points of this trial follow."""

    @abstractmethod
    def point(self, trial: TrackedTrial, point: TrackedPoint) -> None:
        """One point of its curves. Attempts at a trial may repeat steps."""

    @abstractmethod
    def end(self, trial: TrackedTrial, record: TrialRecord | None) -> None:
        """There are no more points for now. `record` is what is known of the trial; None: nothing yet."""

    def close(self) -> None:  # noqa: B027
        """All was given."""


def tracker_names() -> list[str]:
    """Every tracker that there is."""
    return member_names(trackers)


def tracker_type(name: str) -> type[Tracker]:
    """The tracker of that name. Raises KeyError where there is none."""
    found: type[Tracker] = load_member(trackers, name)
    return found


def file_trackers() -> dict[str, type[Tracker]]:
    """The trackers that write files, by the ending of these."""
    found = [tracker_type(name) for name in tracker_names()]
    return {kind.ending: kind for kind in found if kind.ending}
