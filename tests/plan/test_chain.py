"""Chains: work longer than a job becomes units that follow each other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from windlass.model import Plan
from windlass.plan.chain import Chain, plan_chain
from windlass.plan.refuse_request import find_request_problems
from windlass.plan.request_case import Case
from windlass.plan.settings import resolve_settings
from windlass.plan.sharing import OneTrial
from windlass.plan.slurm import plan_slurm
from windlass.search import count_trials
from windlass.site.cluster import Cluster, Node, Partition
from windlass.spec.load import load_study
from windlass.view.plan import render_cost_line, render_plan_text

HOUR = 3600


def cluster(max_time_h: float | None, **changes: Any) -> Cluster:
    limit = None if max_time_h is None else max_time_h * HOUR
    one = Cluster(
        name="c",
        partitions=(Partition("main", is_default=True, max_time_s=limit),),
        nodes=(Node("n1", 8, 8000, partitions=("main",)),),
    )
    return dataclasses.replace(one, **changes)


def plan(tmp_path: Path, site: Cluster, text: str, trials: int = 2) -> Plan:
    (tmp_path / "study.yaml").write_text(
        f"command: t {{n}}\nparameters: {{n: {list(range(trials))}}}\n{text}"
    )
    study = load_study(str(tmp_path / "study.yaml"))
    settings = resolve_settings({}, study.given, site.defaults, "", {})
    return plan_slurm(study, count_trials(study), settings, site, str(tmp_path / "s"))


@pytest.mark.parametrize(
    ("whole_h", "unit_h", "limit_h", "expected"),
    [
        (72, 24, 168, (3, 24)),
        (72, 24, 24, (3, 24)),
        (73, 24, None, (4, 24)),
        (100, 7, None, (15, 7)),  # 100 epochs, 7 in a unit: not 14
        (24, 24, 168, None),
        (30, 24, 12, (3, 12)),
    ],
)
def test_how_many_units(
    whole_h: float, unit_h: float, limit_h: float | None, expected: tuple[int, int] | None
) -> None:
    chain = plan_chain(whole_h * HOUR, unit_h * HOUR, None if limit_h is None else limit_h * HOUR)
    assert chain == (None if expected is None else Chain(expected[0], expected[1] * HOUR))


def test_setup_and_notice_are_part_of_each_unit() -> None:
    """72 h of work do not fit into 3 jobs of 24 h, each of which has to be set up and saves before its end."""
    one = OneTrial(72 * HOUR, 72 * HOUR, notice_s=120.0)
    assert plan_chain(72 * HOUR, 24 * HOUR, None, one.around_s) == Chain(4, 24 * HOUR)
    slow = dataclasses.replace(one, setup_s=8.0 * HOUR)
    assert plan_chain(72 * HOUR, 24 * HOUR, None, slow.around_s) == Chain(5, 24 * HOUR)
    assert (one.around_s(60), slow.around_s(4 * HOUR)) == (
        30.0,
        3 * HOUR,
    )  # trials have a quarter of it at least
    assert plan_chain(24 * HOUR - 60, 24 * HOUR, 24 * HOUR, one.around_s) == Chain(
        2, 24 * HOUR
    )  # they would be cut
    assert plan_chain(24 * HOUR - 60, 24 * HOUR, 30 * HOUR, one.around_s) is None
    assert slow.ask_s(1) - one.ask_s(1) == 8 * HOUR - 180


def test_units_are_whole_minutes_within_the_limit() -> None:
    assert plan_chain(1000, 24 * HOUR, 150) == Chain(9, 120)


def test_a_trial_longer_than_a_job(tmp_path: Path) -> None:
    made = plan(tmp_path, cluster(24), "slots: 1\nneeds: {time: 72h}\ncheckpoint: {}\n")
    assert made.terms is not None and made.request is not None
    assert (made.agents, made.terms.units, made.request.time_s, made.request.throttle) == (
        2,
        4,
        24 * HOUR,
        1,
    )
    text = render_plan_text(made)
    assert "a chain of 4 units of 1 d" in text and "at a time" not in text.partition("estimate")[2]
    assert render_cost_line(made).startswith("2 chains of 4 jobs of 1 d, one after another: ")
    assert list(find_request_problems(Case(made, made.request, cluster(24)))) == []


def test_without_checkpoints_it_is_refused_and_said_why(tmp_path: Path) -> None:
    made = plan(tmp_path, cluster(24), "needs: {time: 72h}\n")
    assert made.terms is not None and made.request is not None and made.terms.units == 1
    (problem,) = find_request_problems(Case(made, made.request, cluster(24)))
    assert "checkpoint:" in problem.hint and "3 jobs of 1 d" in problem.hint


def test_a_long_job_without_checkpoints_is_warned_about(tmp_path: Path) -> None:
    made = plan(tmp_path, cluster(168), "needs: {time: 72h}\n")
    assert made.terms is not None and made.terms.units == 1
    assert any("3 units of 1 d" in warning for warning in made.warnings)
    assert plan(tmp_path, cluster(168), "needs: {time: 72h}\ncheckpoint: {}\n").terms.units == 4  # type: ignore[union-attr]


def test_the_unit_may_be_said(tmp_path: Path) -> None:
    text = "needs: {time: 72h}\ncheckpoint: {}\ninterrupt: {unit: 12h}\n"
    assert plan(tmp_path, cluster(24), text).terms.units == 7  # type: ignore[union-attr]


def test_several_in_turn_lengthen_the_chain(tmp_path: Path) -> None:
    text = "slots: 1\nneeds: {time: 30h}\ncheckpoint: {}\nslurm: {agents: 2}\n"
    made = plan(tmp_path, cluster(24), text, trials=5)
    assert made.terms is not None
    assert (made.agents, made.waves, made.terms.units) == (2, 3, 4)  # 90 h in units of 24 h
    made = plan(
        tmp_path, cluster(24), text.replace("agents: 2", "agents: 2, max_jobs: 1"), trials=5
    )
    assert made.terms is not None
    assert (made.agents, made.waves, made.terms.units) == (1, 5, 7)  # 150 h
    assert any("the smaller one counts" in warning for warning in made.warnings)


def test_no_more_jobs_than_one_may_have(tmp_path: Path) -> None:
    made = plan(
        tmp_path,
        cluster(24, max_submit=10),
        "slots: 1\nneeds: {time: 72h}\ncheckpoint: {}\n",
        trials=8,
    )
    assert made.terms is not None
    assert (made.agents, made.terms.units) == (2, 5)  # of 13: 4 trials in turn
    assert any("run again for the rest" in warning for warning in made.warnings)


def test_the_script_has_the_units(project: Project) -> None:
    text = "command: t {n}\nparameters: {n: [1]}\nneeds: {time: 72h, gpus: 1}\nslurm: {account: def-me}\ncheckpoint: {}\n"
    project.write("study.yaml", text)
    shown = project.run("plan", "--site", "cedar", "-a", "def-prof").stdout
    assert "#SBATCH --array=0-3%1\n" in shown and "#SBATCH --time=1-00:00:00\n" in shown
    assert "#SBATCH --signal=B:USR1@120\n" in shown and "chain of 4 units" in shown
