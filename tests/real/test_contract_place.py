"""The contract of places whose agents run elsewhere, against a real scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Project
from tests.places.test_contract import PlaceContract
from tests.real.conftest import Cluster, on_cluster
from windlass.places.base import Place
from windlass.places.choose import choose_place, load_places

ELSEWHERE = [name for name, kind in load_places().items() if kind.elsewhere]


class TestAgentsElsewhere(PlaceContract):
    patience_s = 180.0

    @pytest.fixture
    def project(
        self, project: Project, slurm: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Project]:
        """The place asks the cluster from this process, with the variables that commands have."""
        with on_cluster(project, slurm):
            for name, value in project.env.items():
                monkeypatch.setenv(name, value)
            monkeypatch.chdir(project.folder)
            yield project

    @pytest.fixture(params=ELSEWHERE)
    def place(self, project: Project, request: pytest.FixtureRequest) -> Place:
        return choose_place(request.param, None, True)

    def test_an_interrupt_ends_the_following_and_not_the_jobs(
        self, project: Project, place: Place
    ) -> None:
        paths = self.prepared(
            project, place, "sh -c 'while [ ! -e go ]; do sleep 0.05; done; true {n}'", 1
        )
        agents = self.start(place, paths)
        assert agents.wait(0.1) is None
        assert "the jobs go on" in agents.interrupt(1, 1)
        assert agents.wait(0.1) == 0 and not agents.look()[0]
        project.write("go", "")
        assert self.wait_to_end(self.start(place, paths)) == 0
        assert project.counts() == {"done": 1}
