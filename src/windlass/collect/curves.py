"""Reads the curves of trials: the points that they logged, of all agents, each once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from windlass.core.damage import report_damage
from windlass.core.journal.events import finite_number, unwire_number
from windlass.core.paths import StudyPaths

_BLOCK_BYTES = 1 << 20
_ENDING = ".metrics.jsonl"
MOST_POINTS = 100_000  # that one look returns


@dataclass(frozen=True)
class Point:
    """What one attempt at a trial reported at one moment."""

    number: int  # of the trial, as it was when it reported; see `StudyIndex.moved`
    agent: str
    attempt: int  # that agent's own number for it
    time: float  # by the clock of the agent's machine
    step: float | None
    values: Mapping[str, float]


class CurveReader:
    """Reads what is new since the last look. It costs one stat a file, and the bytes that were added.

    Agents keep all points of a trial at first, and fewer as it gets long; see `Curve` in agent/report/metrics.py.
    """

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._offsets: dict[str, int] = {}  # by agent: bytes of whole lines that were read

    def read(self, most: int = MOST_POINTS) -> list[Point]:
        """New points, of one agent after another, each agent's in their order; [] when there are none.

        There are about `most` at a time, so that memory stays bounded: the next call goes on from there.
        """
        found: list[Point] = []
        for agent, size in self._list_sizes():
            while len(found) < most and self._offsets.get(agent, 0) < size:
                points = self._read_block(agent)
                if points is None:
                    break  # The agent is in the midst of a line.
                found += points
        return found

    def _list_sizes(self) -> list[tuple[str, int]]:
        """Agents with the sizes of their files of points, as they are now.

        Sizes are taken before anything is read, so that points that are added meanwhile come the next time.
        """
        try:
            names = sorted(
                name for name in os.listdir(self._paths.output) if name.endswith(_ENDING)
            )
        except FileNotFoundError:
            return []  # No agent has begun.
        agents = [name.removesuffix(_ENDING) for name in names]
        sizes = [(agent, os.stat(self._paths.metrics_of(agent)).st_size) for agent in agents]
        for agent, size in sizes:
            if size < self._offsets.get(agent, 0):
                self._offsets[agent] = size  # What is gone was read already.
        return sizes

    def _read_block(self, agent: str) -> list[Point] | None:
        """The points of the next lines; None where no line is whole yet."""
        path, offset = self._paths.metrics_of(agent), self._offsets.get(agent, 0)
        with open(path, "rb") as file:
            file.seek(offset)
            block = file.read(_BLOCK_BYTES)
        end = block.rfind(b"\n") + 1
        if not end and len(block) < _BLOCK_BYTES:
            return None
        self._offsets[agent] = offset + (end or len(block))
        lines = block[:end].splitlines()
        parsed = [_parse(agent, line) for line in lines]
        points = [point for point in parsed if point is not None]
        if len(points) < max(1, len(lines)):
            report_damage(
                path, "is damaged: some points of curves are left out", "a backup may have them"
            )
        return points


def _parse(agent: str, line: bytes) -> Point | None:
    """A point from its line; None where the line is damaged or unfinished."""
    try:
        number, attempt, when, step, wired = json.loads(line)
        values = {str(name): unwire_number(value) for name, value in wired.items()}
        return Point(int(number), agent, int(attempt), float(when), finite_number(step), values)
    except (ValueError, TypeError, AttributeError):
        return None


def iterate_points(paths: StudyPaths) -> Iterator[Point]:
    """All points that there are now, few of them in memory at a time."""
    reader = CurveReader(paths)
    while points := reader.read(most=1):
        yield from points
