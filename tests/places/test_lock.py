"""Preparing a study's folder and starting its agents happen under one hold of the study's lock."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.conftest import Project
from windlass.core.claims.register import RegisterFile
from windlass.core.paths import StudyPaths
from windlass.flow import How, Reporter, run_study
from windlass.places.base import Agents
from windlass.places.local import LocalPlace
from windlass.planning import make_plan
from windlass.spec import Overrides, load_study


class _WatchedPlace(LocalPlace):
    """Remembers which process held the study's lock when agents were started."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: list[int | None] = []

    def start(
        self,
        paths: StudyPaths,
        most: int | None = None,
        slots: int | None = None,
        announce: Callable[[int], None] | None = None,
    ) -> Agents | None:
        self.holders.append(_holder(paths))
        return super().start(paths, most, slots, announce)


def _holder(paths: StudyPaths) -> int | None:
    preparer = RegisterFile(paths.claims, "test").read().preparer
    return None if preparer is None else int(preparer["pid"])


def test_the_lock_is_held_from_preparing_to_starting_and_no_longer(project: Project) -> None:
    file = project.write("study.yaml", "command: true {n}\nparameters: {n: [1, 2]}\n")
    place = _WatchedPlace()
    study = load_study(str(file), Overrides())
    plan = make_plan(place, study, {"folder": str(project.studies), "code": "live"})
    after: list[int | None] = []

    class Watching(Reporter):
        def started(self, submitted: object) -> None:
            after.append(_holder(StudyPaths(plan.folder)))

    outcome = run_study(place, plan, Watching(), How())
    assert outcome.exit_code == 0
    assert place.holders == [os.getpid()], (
        "agents are started by the process that prepared the folder"
    )
    assert after == [None], "others may change the study while trials run"
