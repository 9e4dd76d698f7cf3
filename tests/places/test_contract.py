"""The contract of every place. A place is found in the folder places/ and inherits all of this unmentioned.

What needs agents of the place is in `PlaceContract`: `tests/real/test_contract_place.py` has it against a real Slurm.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Project, wait_for
from windlass import places
from windlass.core.errors import WindlassError
from windlass.core.paths import StudyPaths
from windlass.flow import How, Reporter, check_plan, prepare_study
from windlass.places import place_names
from windlass.places.base import Agents, Place
from windlass.places.choose import choose_place, load_places
from windlass.planning import make_plan
from windlass.spec import Overrides, load_study

NAMES = place_names()
A_SITE = "narval"  # a cluster whose profile is enough to plan for it


def make_place(name: str) -> Place:
    return choose_place(name, A_SITE, True)


def test_each_file_of_the_folder_is_a_place() -> None:
    kinds = load_places()
    assert {"local", "slurm"} <= set(kinds)
    assert [kind.name for kind in kinds.values()] == NAMES
    assert any(not kind.elsewhere and kind.is_offered(None) for kind in kinds.values()), (
        "studies can go somewhere"
    )


def test_a_place_is_added_as_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found, can be named with --on, and is not taken for the one that nobody has named."""
    text = "from windlass.places.local import LocalPlace\n\n\nclass Added(LocalPlace):\n    name = 'added_for_a_test'\n"
    (tmp_path / "added_for_a_test.py").write_text(text)
    monkeypatch.setattr(places, "__path__", [*places.__path__, str(tmp_path)])
    assert place_names() == sorted([*NAMES, "added_for_a_test"], reverse=True)
    assert choose_place("added_for_a_test", None, True).name == "added_for_a_test"


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_a_value_and_names_its_place(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.folder / "config"))
    file = project.write("study.yaml", "command: 'true {n}'\nparameters: {n: [0, 1, 2]}\n")
    place = make_place(name)
    before = sorted(Path(project.folder).rglob("*"))
    study = load_study(str(file), Overrides())
    plan = make_plan(place, study, {"folder": str(project.folder / "out"), "time": "10m"})
    assert (plan.launcher, plan.elsewhere, plan.trial_count) == (name, place.elsewhere, 3)
    assert (
        plan.slots >= 1 and plan.agents >= 1 and plan.folder.startswith(str(project.folder / "out"))
    )
    findings = place.find_problems(plan)
    assert all(problem.message for problem in findings.problems)
    assert (plan.request is None) == (not place.elsewhere)
    assert bool(place.preview(plan).script) == place.elsewhere
    measured, limit_s = place.plan_measuring(plan, 60.0)
    assert measured.agents == 1 and 0 < limit_s <= 60.0
    assert sorted(Path(project.folder).rglob("*")) == before, "planning changes nothing"


@pytest.mark.parametrize("name", NAMES)
def test_what_would_fail_is_found_before_anything_starts(project: Project, name: str) -> None:
    file = project.write("study.yaml", "command: 'true {n} CHANGE_ME'\nparameters: {n: [0]}\n")
    place = make_place(name)
    plan = make_plan(
        place, load_study(str(file), Overrides()), {"folder": str(project.folder / "out")}
    )
    assert any("placeholder" in problem.message for problem in place.find_problems(plan).problems)
    with pytest.raises(WindlassError):
        check_plan(place, plan, Reporter())
    assert not (project.folder / "out").exists()


class PlaceContract:
    """What agents do at any place. A subclass has a fixture `place`."""

    patience_s = 60.0

    def prepared(self, project: Project, place: Place, command: str, trials: int) -> StudyPaths:
        """A study's folder with all its trials up for taking."""
        file = project.write(
            "study.yaml", f"command: {command}\nparameters: {{n: {list(range(trials))}}}\n"
        )
        study = load_study(str(file), Overrides())
        needs = {"folder": str(project.studies), "slots": 2, "time": "5m", "code": "live"}
        plan = make_plan(place, replace(study, project_dir=str(project.folder)), needs)
        check_plan(place, plan, Reporter())
        return prepare_study(plan, Reporter(), How())

    def wait_to_end(self, agents: Agents) -> int:
        def code() -> list[int]:
            found = agents.wait(0.2)
            return [] if found is None else [found]

        return int(wait_for(code, self.patience_s)[0])

    def start(self, place: Place, paths: StudyPaths) -> Agents:
        agents = place.start(paths)
        assert agents is not None
        return agents

    def test_runs_what_is_up_for_taking_and_ends(self, project: Project, place: Place) -> None:
        paths = self.prepared(project, place, "sh -c 'exit {n}'", 2)
        assert place.can_continue(paths)
        agents = self.start(place, paths)
        assert self.wait_to_end(agents) >= 0 and agents.complaints() == ""
        assert agents.look()[0]
        agents.close()
        assert project.counts() == {"done": 1, "failed": 1}

    def test_announces_before_it_starts_and_starts_nothing_twice(
        self, project: Project, place: Place
    ) -> None:
        paths = self.prepared(
            project, place, "sh -c 'while [ ! -e go ]; do sleep 0.05; done; true {n}'", 1
        )
        announced: list[int] = []
        agents = place.start(paths, most=1, announce=announced.append)
        assert agents is not None
        if agents.submitted is not None:
            again = self.start(place, paths)
            assert announced == [0] and again.submitted is not None
            assert (again.submitted.agents, again.submitted.present) == (0, 1)
        project.write("go", "")
        assert self.wait_to_end(agents) == 0
        agents.close()
        after = place.start(paths)
        assert after is None or (after.submitted is not None and not after.submitted.jobs), (
            "nothing is left to do"
        )

    def test_stop_ends_trials_under_way(self, project: Project, place: Place) -> None:
        paths = self.prepared(project, place, "sh -c 'touch began; sleep 600; true {n}'", 1)
        agents = self.start(place, paths)
        wait_for((project.folder / "began").exists, self.patience_s)
        assert not agents.look()[0]
        assert agents.stop() == ""
        assert self.wait_to_end(agents) in (0, 130)
        agents.close()
        wait_for(lambda: project.counts() == {"interrupted": 1}, self.patience_s)


ATTENDED = [name for name, kind in load_places().items() if not kind.elsewhere]


class TestAgentsOfThisMachine(PlaceContract):
    @pytest.fixture(params=ATTENDED)
    def place(self, request: pytest.FixtureRequest) -> Place:
        return choose_place(request.param, None, True)

    def test_the_first_interrupt_lets_trials_end(self, project: Project, place: Place) -> None:
        paths = self.prepared(
            project,
            place,
            "sh -c 'touch began; while [ ! -e go ]; do sleep 0.05; done; true {n}'",
            1,
        )
        agents = self.start(place, paths)
        wait_for((project.folder / "began").exists)
        assert "finishing 1 running trial" in agents.interrupt(1, 1)
        assert agents.wait(0.3) is None
        assert "stopping" in agents.interrupt(2, 1)
        assert self.wait_to_end(agents) == 130
        agents.close()
        assert project.counts() == {"interrupted": 1}

    def test_a_folder_in_which_no_agent_can_work(self, project: Project, place: Place) -> None:
        paths = self.prepared(project, place, "'true {n}'", 1)
        Path(paths.agent).unlink()
        agents = self.start(place, paths)
        assert self.wait_to_end(agents) != 0 and agents.complaints()
        agents.close()
