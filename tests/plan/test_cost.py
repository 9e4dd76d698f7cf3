"""What a plan costs in the site's unit, when it would be through, and how else its trials could be dealt out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import Project
from windlass.model import Cost, Plan, Request, Space, Stage, Study, Submitted
from windlass.plan.cost import Prices, Work, finish_s
from windlass.plan.settings import resolve_settings
from windlass.plan.sharing import OneTrial
from windlass.plan.slurm import plan_slurm
from windlass.site.cluster import Cluster, GpuType
from windlass.site.merge import make_cluster
from windlass.site.profiles import read_profile
from windlass.view.plan import plan_to_json, render_cost, render_cost_line, render_plan_text

HOUR = 3600.0
VOLTA = GpuType("volta", share_cpus=24, share_memory_mb=90 * 1024, cost=24.0)
RWTH = Cluster("rwth", gpus=(VOLTA,), cost_unit="core-hours", max_time_s=24 * HOUR, max_submit=1000)


def request(**more: Any) -> Request:
    usual: dict[str, Any] = {"cpus": 4, "memory_mb": 8000, "gpus": 1}
    return Request("j", 3600, **{**usual, **more})


def plan(trials: int, flags: Mapping[str, Any], cluster: Cluster = RWTH, **needs: Any) -> Plan:
    study = Study("s", (Stage("main", ("true",)),), Space(), "/w", "/w", given=dict(needs))
    return plan_slurm(
        study,
        trials,
        resolve_settings(flags, study.given, cluster.defaults, "", {}),
        cluster,
        "/f/s",
    )


@pytest.mark.parametrize(
    "more,billed",
    [
        ({}, 24.0),  # one GPU for an hour is 24 core-hours
        ({"gpus": 2}, 48.0),
        ({"cpus": 36}, 36.0),  # more cores than go with the GPU are paid for
        ({"memory_mb": 180 * 1024}, 48.0),  # and so is memory
        ({"nodes": 2}, 48.0),
    ],
)
def test_the_largest_share_is_billed(more: dict[str, Any], billed: float) -> None:
    cost = Prices(request(**more), RWTH, VOLTA).of(HOUR)
    assert cost.billed == pytest.approx(billed) and cost.unit == "core-hours"


def test_cores_alone() -> None:
    cost = Prices(request(gpus=0, cpus=8), RWTH).of(2 * HOUR)
    assert (cost.gpu_hours, cost.core_hours, cost.billed) == (0, 16, 16)
    assert render_cost(cost) == "16 core-hours"


def test_a_site_whose_prices_nobody_knows() -> None:
    cost = Prices(request(), Cluster("new"), GpuType("x")).of(3 * HOUR)
    assert (cost.gpu_hours, cost.core_hours, cost.billed, cost.unit) == (3, 12, None, "")
    assert render_cost(cost) == "3 GPU-hours"


@pytest.mark.parametrize(
    "site,gpu,cost",
    [("rwth", "volta", 24), ("narval", "a100", 4.0), ("cedar", "p100", 1.0), ("fir", "h100", 12.2), ("beluga", "v100", 2.2)],
)  # fmt: skip
def test_prices_of_sites(site: str, gpu: str, cost: float) -> None:
    cluster = make_cluster(read_profile(site))
    kind = cluster.gpu(gpu)
    assert kind is not None and kind.cost == cost
    assert cluster.cost_unit == ("core-hours" if site == "rwth" else "RGU-hours")


def test_the_cost_of_a_plan() -> None:
    made = plan(72, {"agents": 24}, gpus=1, time_s=HOUR, cpus=4)
    assert made.cost == Cost(72.0, 288.0, 72 * 24.0, "core-hours")
    assert made.request is not None and made.request.throttle == 10
    assert made.estimate_s == 3 * 3 * HOUR, "24 agents of three hours, ten at a time"
    assert render_cost_line(made).startswith(
        "24 jobs of 3 h, 10 at a time: 72 GPU-hours (1,728 core-hours)"
    )


def test_an_agent_that_has_less_to_do_costs_less() -> None:
    made = plan(100, {"agents": 13}, gpus=1, time_s=HOUR)
    assert made.waves == 8 and made.cost is not None and made.cost.gpu_hours == 100


def test_without_a_time_it_is_the_most_it_can_be() -> None:
    made = plan(1000, {}, gpus=1)
    assert made.cost is not None and made.cost.at_most and made.cost.gpu_hours == made.agents == 10
    assert made.estimate_s is None and made.alternatives == ()
    assert render_cost_line(made) == "10 jobs of 1 h: at most 10 GPU-hours (240 core-hours)"


def test_what_is_missing_is_what_costs() -> None:
    """Of a study that is nearly done, the jobs that are submitted now and their cost; its terms stay what they are."""
    study = Study(
        "s", (Stage("main", ("true",)),), Space(), "/w", "/w", given={"gpus": 1, "time_s": HOUR}
    )
    settings = resolve_settings({"agents": 44}, study.given, RWTH.defaults, "", {})

    def rest(missing: int) -> Plan:
        return plan_slurm(study, 44, settings, RWTH, "/f/s", missing=missing)

    few = rest(4)
    assert few.terms == rest(44).terms and few.terms is not None and few.agents == 44
    assert (
        few.cost is not None
        and few.cost.gpu_hours == 4
        and few.estimate_s == HOUR
        and few.alternatives == ()
    )
    assert render_cost_line(few).startswith(
        "4 jobs of 1 h 5 min: 4 GPU-hours (96 core-hours), about 1 h"
    )
    assert render_cost_line(few, 3).startswith(
        "4 jobs of 1 h 5 min, 3 of them there already: 4 GPU-hours"
    )
    text = render_plan_text(few, Submitted((), 1, 3))
    assert (
        "(44 trials, grid; 4 to do)" in text
        and "agents     4 jobs of 1 h 5 min, 3 of them there already\n" in text
    )
    assert "44 jobs of 1 h 5 min, 10 at a time: 44 GPU-hours" in render_cost_line(rest(44))
    none = rest(0)
    assert (
        none.cost is not None
        and none.cost.gpu_hours == 0
        and "nothing is left to do" in render_plan_text(none)
    )
    unknown = plan_slurm(
        study, 1000, resolve_settings({}, {}, RWTH.defaults, "", {}), RWTH, "/f/s", missing=3
    )
    assert (
        unknown.cost is not None
        and unknown.cost.at_most
        and render_cost_line(unknown).startswith("1 job of")
    )


def test_other_ways_to_deal_them_out() -> None:
    """24 jobs of 3 h, or 6 of 12 h."""
    made = plan(72, {"agents": 72}, gpus=1, time_s=HOUR)
    ways = {split.agents: split.time_s / HOUR for split in made.alternatives}
    assert ways == {24: 3 + 1 / 12, 12: 6 + 1 / 12, 6: 12 + 1 / 12, 4: 18 + 1 / 12}, (
        "the site allows 24 hours"
    )
    assert all(split.waves * split.agents >= 72 for split in made.alternatives)
    assert all(split.cost.gpu_hours == 72 for split in made.alternatives)
    text = render_plan_text(made)
    assert "24 jobs of 3 h" in text and "--agents 24" in text


def test_no_way_is_beyond_what_the_site_allows() -> None:
    short = dataclasses.replace(RWTH, max_time_s=6 * HOUR)
    assert [
        split.agents for split in plan(72, {"agents": 24}, short, gpus=1, time_s=HOUR).alternatives
    ] == [72, 15], "with setup and notice, five of an hour fit into six"
    few = plan(72, {"max_jobs": 20}, gpus=1, time_s=HOUR)
    assert few.alternatives and all(split.agents <= 20 for split in few.alternatives)
    lazy = dataclasses.replace(RWTH, min_job_s=3 * HOUR)
    ways = plan(72, {"agents": 6}, lazy, gpus=1, time_s=HOUR).alternatives
    assert ways and min(split.time_s for split in ways) >= 3 * HOUR
    long = plan(4, {}, gpus=1, time_s=30 * HOUR)
    assert long.alternatives == ()


def test_every_way_holds_all_trials() -> None:
    for trials in (1, 2, 7, 100, 12_345):
        for time_s in (5.0, 600.0, 4000.0, 80_000.0):
            for split in plan(trials, {}, gpus=0.25, time_s=time_s).alternatives:
                assert split.agents * split.waves * 4 >= trials
                assert split.time_s >= split.waves * time_s and split.time_s <= 24 * HOUR


def test_jobs_that_wait_for_each_other() -> None:
    work = Work(75, 1, OneTrial(10.0, 10.0, notice_s=120.0))
    assert finish_s(work, 25, 3, 240.0, 25) == 30.0, "all at once"
    assert finish_s(work, 25, 3, 240.0, 10) == 80.0, (
        "ten take what the others would have, eight each"
    )
    assert finish_s(work, 25, 3, 60.0, 10) == 90.0, "three rounds where jobs have no time for more"


def test_as_json() -> None:
    data = json.loads(json.dumps(plan_to_json(plan(72, {}, gpus=1, time_s=HOUR))))
    assert data["cost"]["billed"] == 72 * 24 and data["alternatives"][0].keys() >= {
        "agents",
        "time_s",
        "cost",
    }
    assert data["estimate_s"] and data["pack"]["a_gpu"] == 1


def test_on_the_command_line(project: Project) -> None:
    words = [
        "--param",
        "lr=[1,2,3,4]",
        "--gpus",
        "1",
        "--time",
        "3h",
        "--account",
        "def-x",
        "--site",
        "narval",
    ]
    done = project.run("plan", *words, "--", "true", "{lr}")
    assert "cost       12 GPU-hours (48 RGU-hours)" in done.stdout
    assert "estimate   about 3 h if all start at once" in done.stdout
    choice = project.run("plan", *words, "--prefer", "both", "--", "true", "{lr}", code=2)
    assert "--prefer" in choice.stderr and "'throughput', 'latency'" in choice.stderr
    wrong = ["--headroom", "much", "--most-per-gpu", "0"]
    bad = project.run("plan", *words, *wrong, "--", "true", "{lr}", code=2)
    for word in ("--headroom", "--most-per-gpu"):
        assert word in bad.stderr
