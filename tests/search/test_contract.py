"""What every searcher has to keep to. A new module in search/methods/ is tested here without being mentioned."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from tests.members import add_member, install_with
from windlass.model import Distribution, Parameter, Space
from windlass.search import methods
from windlass.search.methods.base import (
    History,
    Outcome,
    Searcher,
    make_searcher,
    searcher_names,
    searcher_type,
)
from windlass.search.settings import count_settings, iterate_settings
from windlass.search.values import canonical_json

COUNTING = '''
from windlass.search.methods.base import Searcher


class Counting(Searcher):
    """Goes up by what was reported last: a searcher that learns, without an end of its own."""

    draws = True

    def count(self):
        return None

    def next(self, history, how_many):
        step = len(history.outcomes) + 1
        most = min(self.space.trials, history.given + how_many)
        return [{"x": number * step} for number in range(history.given, most)]


MEMBER = Counting
'''

RATE = Parameter("lr", distribution=Distribution("log_uniform_values", {"min": 1e-5, "max": 0.1}))
KIND = Parameter("kind", ("a", "b", "c", "d"))
WIDTH = Parameter("width", (1, 2, 4, 8, 16), when={"kind": ("a", "b")})
SPACES: dict[str, dict[str, Any]] = {
    "plain": {"parameters": (KIND, Parameter("n", tuple(range(10))))},
    "conditions": {"parameters": (KIND, WIDTH), "exclude": ({"kind": ("b",), "width": (4, 8)},)},
    "seeds": {
        "parameters": (KIND, WIDTH),
        "seeds": (1, 2, 3),
        "exclude": ({"kind": ("c",), "seed": (2,)},),
    },
}


def space_of(method: str, which: str) -> Space:
    given = dict(SPACES[which])
    if searcher_type(method).draws:
        given["parameters"] = (*given["parameters"], RATE)
        given["trials"] = 25
    elif method == "list":
        given["rows"] = ({"lr": 0.1}, {"lr": 0.01})
    return Space(method=method, **given)


def ask_all(searcher: Searcher, sizes: list[int]) -> list[Any]:
    found: list[Any] = []
    for how_many in itertools.cycle(sizes):
        batch = searcher.next(History(len(found)), how_many)
        assert len(batch) <= how_many
        if not batch:
            return found
        found += batch
    return found


@pytest.mark.parametrize("which", SPACES)
@pytest.mark.parametrize("method", searcher_names())
class TestContract:
    def test_gives_as_many_as_it_counts(self, method: str, which: str) -> None:
        space = space_of(method, which)
        found = list(iterate_settings(space))
        assert len(found) == count_settings(space)
        assert make_searcher(space).count() in (None, len(found))

    def test_gives_the_same_however_it_is_asked(self, method: str, which: str) -> None:
        space = space_of(method, which)
        whole = ask_all(make_searcher(space), [1000])
        assert whole == list(iterate_settings(space))
        for sizes in ([1], [3, 5], [2, 7, 1]):
            assert ask_all(make_searcher(space), sizes) == whole

    def test_goes_on_from_the_history_alone(self, method: str, which: str) -> None:
        space = space_of(method, which)
        whole = ask_all(make_searcher(space), [4])
        outcomes = [Outcome(settings, float(number)) for number, settings in enumerate(whole[:4])]
        for given in (0, 4, len(whole) - 1, len(whole)):
            history = History(given, outcomes[:given])
            first, second = (make_searcher(space).next(history, 3) for _ in range(2))
            assert first == second
            used = make_searcher(space)
            used.next(History(), 7)
            assert used.next(history, 3) == first

    def test_each_setting_is_given_once_and_kept_to_the_rules(
        self, method: str, which: str
    ) -> None:
        found = [dict(settings) for settings in iterate_settings(space_of(method, which))]
        assert len({canonical_json(settings) for settings in found}) == len(found)
        if which == "plain":
            return
        for settings in found:
            assert ("width" in settings) == (settings["kind"] in ("a", "b"))
            assert (
                which != "conditions" or settings["kind"] != "b" or settings["width"] not in (4, 8)
            )
            assert which != "seeds" or (settings["kind"], settings["seed"]) != ("c", 2)


@pytest.mark.parametrize("method", searcher_names())
def test_the_first_settings_of_a_huge_space_come_at_once(method: str) -> None:
    wide = tuple(Parameter(f"p{number}", tuple(range(1000))) for number in range(4))
    space = Space(
        method=method, parameters=wide, trials=10**9 if searcher_type(method).draws else None
    )
    began = time.process_time()
    assert len(list(itertools.islice(iterate_settings(space), 3))) == (0 if method == "list" else 3)
    assert count_settings(space) >= (0 if method == "list" else 10**9)
    assert time.process_time() - began < 1.0


def test_one_file_is_a_method(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_member(monkeypatch, methods, tmp_path / "more", "counting", COUNTING)
    assert "counting" in searcher_names()
    space = Space(method="counting", trials=5)
    assert [settings["x"] for settings in iterate_settings(space)] == [0, 1, 2, 3, 4]
    assert count_settings(space) == 5
    told = History(2, [Outcome({"x": 0}, 1.0), Outcome({"x": 1}, None)])
    assert make_searcher(space).next(told, 2) == [{"x": 6}, {"x": 9}]


def test_a_study_uses_a_method_that_is_one_new_file(project: Project) -> None:
    install_with(project, "search/methods/counting.py", COUNTING)
    study = "command: echo {x}\nmethod: counting\ntrials: 3\nparameters: {x: [0, 1, 2]}\n"
    project.write("study.yaml", study)
    project.run("run", "study.yaml")
    assert [project.run("logs", str(number)).stdout for number in range(3)] == ["0\n", "1\n", "2\n"]
    wrong = project.write("wrong.yaml", study.replace("trials: 3\n", ""))
    assert (
        "needs to know how many settings to draw"
        in project.run("plan", str(wrong), code=None).stderr
    )
