"""Curves are read once, of all agents, at a bounded cost."""

from __future__ import annotations

import builtins
import json
import math
from pathlib import Path
from typing import Any

import pytest

from windlass.agent.report.metrics import MetricsFile
from windlass.collect import curves
from windlass.collect.curves import CurveReader, iterate_points
from windlass.core.paths import StudyPaths


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    paths = StudyPaths(str(tmp_path / "study"))
    Path(paths.output).mkdir(parents=True)
    return paths


def log(
    paths: StudyPaths, agent: str, *points: tuple[int, int, float | None, dict[str, float]]
) -> None:
    file = MetricsFile(paths.metrics_of(agent))
    for number, attempt, step, values in points:
        file.add(number, attempt, 1000.0, step, values)
    file.flush()
    file.close()


def test_nothing_was_logged(paths: StudyPaths, tmp_path: Path) -> None:
    assert CurveReader(paths).read() == []
    assert CurveReader(StudyPaths(str(tmp_path / "elsewhere"))).read() == []


def test_each_point_is_read_once_and_only_what_is_new(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(paths, "a", (0, 0, 1.0, {"loss": 0.5}), (1, 1, None, {"loss": math.nan, "acc": math.inf}))
    log(paths, "b", (2, 0, 7.0, {"loss": 0.25}))
    reader = CurveReader(paths)
    first, second, third = reader.read()
    assert (first.number, first.agent, first.attempt, first.step, first.values) == (
        0,
        "a",
        0,
        1.0,
        {"loss": 0.5},
    )
    assert (
        second.step is None
        and math.isnan(second.values["loss"])
        and second.values["acc"] == math.inf
    )
    assert (third.agent, third.number) == ("b", 2)
    opened: list[str] = []
    real = builtins.open

    def spy(path: Any, *arguments: Any, **more: Any) -> Any:
        opened.append(str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(builtins, "open", spy)
    assert reader.read() == []
    assert opened == []
    log(paths, "b", (2, 0, 8.0, {"loss": 0.125}))
    opened.clear()
    assert [point.step for point in reader.read()] == [8.0]
    assert opened == [paths.metrics_of("b")]


def test_a_line_that_is_being_written_is_read_when_it_is_whole(paths: StudyPaths) -> None:
    log(paths, "a", (0, 0, 1.0, {"loss": 0.5}))
    reader = CurveReader(paths)
    with open(paths.metrics_of("a"), "a") as file:
        file.write('[0,0,1001.0,2,{"lo')
        file.flush()
        assert [point.step for point in reader.read()] == [1.0]
        assert reader.read() == []
        file.write('ss":0.25}]\n')
    assert [point.step for point in reader.read()] == [2.0]


def test_a_look_has_a_limit_and_the_next_one_goes_on(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "_BLOCK_BYTES", 200)
    for agent in ("a", "b", "c"):
        log(paths, agent, *((0, 0, float(step), {"loss": 0.5}) for step in range(100)))
    reader = CurveReader(paths)
    found = []
    while points := reader.read(most=10):
        assert len(points) < 20
        found += points
    assert [(point.agent, point.step) for point in found] == [
        (a, float(s)) for a in "abc" for s in range(100)
    ]
    assert list(iterate_points(paths)) == found


def test_damaged_lines_are_left_out_and_reported(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log(paths, "a", (0, 0, 1.0, {"loss": 0.5}))
    with open(paths.metrics_of("a"), "a") as file:
        file.write("}{\n[1,2]\n" + json.dumps([0, 0, 1.0, "x", {"loss": 1}]) + "\n" + "x" * 5000)
    monkeypatch.setattr(curves, "_BLOCK_BYTES", 1000)
    points = CurveReader(paths).read()
    assert [point.step for point in points] == [1.0, None]
    assert "some points of curves are left out" in capsys.readouterr().err


def test_a_file_that_became_shorter_gives_nothing_twice(paths: StudyPaths) -> None:
    log(paths, "a", (0, 0, 1.0, {"loss": 0.5}), (0, 0, 2.0, {"loss": 0.5}))
    reader = CurveReader(paths)
    assert len(reader.read()) == 2
    text = Path(paths.metrics_of("a")).read_text().splitlines(keepends=True)
    Path(paths.metrics_of("a")).write_text(text[0])
    assert reader.read() == []
    log(paths, "a", (0, 0, 3.0, {"loss": 0.5}))
    assert [point.step for point in reader.read()] == [3.0]
