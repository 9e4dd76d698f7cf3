"""Gives a tracker what the study's folder has: the curves of trials, and how they ended."""

from __future__ import annotations

from windlass.collect.curves import iterate_points
from windlass.collect.index import StudyIndex
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile
from windlass.trackers.base import TrackedPoint, TrackedTrial, Tracker


def feed_tracker(paths: StudyPaths, index: StudyIndex, included: Ranges, tracker: Tracker) -> int:
    """Give the points of these trials to a tracker, and close it. Returns how many trials had any.

    Each trial is begun before its first point and ended after all points. Points of trials that the study no longer
    has are left out.
    """
    trials = TrialFile(paths)
    known: dict[int, TrackedTrial] = {}
    moved = {agent.id: index.moved(agent.id) for agent in index.agents()}
    try:
        for point in iterate_points(paths):
            number = moved.get(point.agent, {}).get(point.number, point.number)
            if number is None or not rs.contains(included, number):
                continue
            if number not in known:
                line = trials.read(number)
                known[number] = TrackedTrial(number, line["id"], line["settings"])
                tracker.begin(known[number])
            name = f"{point.agent}/{point.attempt}"
            tracker.point(known[number], TrackedPoint(name, point.time, point.step, point.values))
        for number, trial in known.items():
            tracker.end(trial, index.record(number))
    finally:
        tracker.close()
        trials.close()
    return len(known)
