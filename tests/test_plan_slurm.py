"""From the needs of one trial to what the jobs of a study ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from windlass.measure.start import Wish, plan_job
from windlass.model import Needs, Plan, Request, Space, Stage, Study
from windlass.plan.settings import resolve_settings
from windlass.plan.slurm import plan_slurm, split_agents
from windlass.site.cluster import Cluster, GpuType, Node, Partition, Qos

P100 = GpuType("p100", count=8, per_node=4, memory_mb=12 * 1024, share_cpus=6, share_memory_mb=32000)
V100 = GpuType("v100l", count=8, per_node=4, memory_mb=32 * 1024, share_cpus=8, share_memory_mb=48000)
CLUSTER = Cluster(
    "cedar",
    partitions=(Partition("gpu", is_default=True, max_time_s=24 * 3600.0, nodes=("n1", "n2")),),
    nodes=(
        Node("n1", 24, 128000, {"p100": 4}, partitions=("gpu",)),
        Node("n2", 32, 192000, {"v100l": 4}, partitions=("gpu",)),
    ),
    gpus=(P100, V100),
    default_account="def-prof",
    max_array_size=1001,
)


def plan(trials: int, flags: Mapping[str, Any], cluster: Cluster = CLUSTER, **needs: Any) -> Plan:
    study = Study("s", (Stage("main", ("true",)),), Space(), "/w", "/w", said={"needs": Needs(**needs)})
    settings = resolve_settings(flags, study.said, cluster.said, "", {})
    return plan_slurm(study, trials, settings, cluster, "/f/s")


def request(trials: int, flags: Mapping[str, Any], **needs: Any) -> Request:
    found = plan(trials, flags, **needs).request
    assert found is not None
    return found


def test_the_worked_example() -> None:
    """100 trials of 3 GB on a GPU of 12 GB: four share one, and 25 agents take them all at once."""
    made = plan(100, {}, gpu_memory_mb=3 * 1024, gpu_type="p100", time_s=3 * 3600.0)
    assert (made.slots, made.agents, made.waves) == (4, 25, 1)
    assert made.request is not None
    assert (made.request.gpus, made.request.gpu_type, made.request.time_s) == (1, "p100", 3 * 3600)
    assert (made.request.cpus, made.request.memory_mb) == (6, 32000)
    assert "12288 MB on a p100" in made.slots_because


@pytest.mark.parametrize("trials,agents", [(10, 3), (4, 1), (5, 2), (1, 1), (100, 25), (101, 26)])
def test_no_agent_too_many(trials: int, agents: int) -> None:
    assert plan(trials, {}, gpus=0.25, time_s=3 * 3600.0).agents == agents


def test_whole_gpus() -> None:
    made = plan(8, {}, gpus=2, time_s=3600.0)
    assert (made.slots, made.request.gpus if made.request else 0) == (1, 2)
    made = plan(8, {"gpus_per_job": 4}, gpus=2, time_s=3600.0)
    assert (made.slots, made.agents) == (2, 4)
    made = plan(8, {"gpus_per_job": 2}, gpus=0.5, gpu_type="p100", time_s=3600.0)
    assert (made.slots, made.request.gpus if made.request else 0) == (4, 2)


def test_the_scarcer_of_share_and_memory_decides() -> None:
    assert plan(100, {}, gpus=0.1, gpu_memory_mb=5000, gpu_type="p100").slots == 2
    assert plan(100, {}, gpus=0.5, gpu_memory_mb=1000, gpu_type="p100").slots == 2


def test_memory_and_cores_of_a_job_are_those_of_its_trials() -> None:
    asked = request(100, {}, gpus=0.25, cpus=1.5, memory_mb=2500, gpu_type="p100")
    assert (asked.cpus, asked.memory_mb) == (6, 10000)
    assert asked.because["memory_mb"] == "study"
    assert request(100, {"mem_per_gpu": "10G"}, gpus=2).memory_mb == 20 * 1024


def test_without_gpus() -> None:
    made = plan(100, {}, cpus=1)
    assert made.request is not None
    assert (made.slots, made.request.gpus, made.request.cpus) == (8, 0, 8)
    assert made.request.memory_mb == 8 * (128000 // 24)


def test_short_trials_are_grouped() -> None:
    """Nobody wants 10,000 jobs of a minute: an agent takes trials for about an hour."""
    made = plan(10_000, {}, cpus=1, time_s=60.0)
    assert (made.agents, made.waves) == (21, 60)
    assert made.request is not None and made.request.time_s == 3600
    assert made.request.throttle == CLUSTER.throttle


def test_the_users_cap_makes_jobs_longer() -> None:
    made = plan(100, {"max_jobs": 5}, gpus=1, time_s=3600.0)
    assert (made.agents, made.waves, made.request.time_s if made.request else 0) == (5, 20, 20 * 3600)
    made = plan(100, {"max_jobs": 2}, gpus=1, time_s=3600.0)
    assert made.request is not None and made.request.time_s == 24 * 3600, "not above the partition's limit"
    assert "cannot take all 100 trials" in made.warnings[0]


@pytest.mark.parametrize("needs,time_s", [({}, 3600), ({"time_s": 3600.0}, 6 * 3600)])
def test_never_more_agents_than_the_users_cap(needs: dict[str, Any], time_s: int) -> None:
    made = plan(12, {"agents": 3, "max_jobs": 2}, gpus=1, **needs)
    assert (made.agents, made.waves, made.request.time_s if made.request else 0) == (2, 6, time_s)
    assert made.warnings == ("3 agents are asked for, and max_jobs is 2: the smaller one counts",)
    made = plan(12, {"agents": 3, "max_jobs": 3}, gpus=1, **needs)
    assert (made.agents, made.waves, made.warnings) == (3, 4, ())


def test_nobody_knows_how_long_a_trial_takes() -> None:
    made = plan(1000, {}, gpus=1)
    assert made.request is not None
    assert (made.agents, made.request.time_s) == (10, 3600)
    assert "nobody said" in made.request.because["time_s"]


def test_what_the_documents_example_asks_for() -> None:
    """Thirty jobs of ten minutes, five at a time."""
    made = plan(30, {"agents": 30, "throttle": 5, "time": "10m"}, gpus=1)
    assert made.request is not None
    assert (made.agents, made.waves, made.request.time_s, made.request.throttle) == (30, 1, 600, 5)


@pytest.mark.parametrize(
    "text,seconds",
    [("90", 5400), ("30:30", 1860), ("1:00:00", 3600), ("1-12", 129600), ("0-03:00", 10800), ("00-01:00:00", 3600),
     ("90m", 5400), ("24h", 86400)],
)  # fmt: skip
def test_every_form_of_time_that_sbatch_takes(text: str, seconds: int) -> None:
    assert request(1, {"time": text}, gpus=1).time_s == seconds


def test_sites_that_want_it_otherwise() -> None:
    cluster = Cluster("plai", typed_gpus=False, account_rule="never", name_partition=False)
    made = plan(4, {"account": "x", "gpu_type": "v100l", "partition": "p"}, cluster, gpus=1)
    assert made.request is not None
    assert (made.request.account, made.request.gpu_type, made.request.partition) == (None, "", None)
    assert len(made.warnings) == 3, "what the user said and the site does not want is not dropped in silence"


def test_a_cluster_that_nobody_knows_anything_of() -> None:
    made = plan(20, {}, Cluster("new"), gpus=1, time_s=7200.0)
    assert made.request is not None
    assert (made.slots, made.agents, made.request.cpus, made.request.memory_mb) == (1, 20, 1, 2000)


def test_where_a_value_comes_from() -> None:
    asked = request(10, {"account": "rrg-lab"}, gpus=1, gpu_type="p100")
    assert asked.because["account"] == "command line" and asked.because["gpu_type"] == "study"
    settings = resolve_settings({}, {}, {}, "", {"SBATCH_ACCOUNT": "mine"})
    assert (settings["account"].value, settings["account"].source) == ("mine", "SBATCH_ACCOUNT")


def test_arrays_start_again_at_the_limit() -> None:
    assert list(split_agents(10, 4)) == [(0, 4), (4, 4), (8, 2)]
    assert list(split_agents(4, 4)) == [(0, 4)]
    assert list(split_agents(3, None)) == [(0, 3)]
    assert list(split_agents(0, 4)) == []


@pytest.mark.parametrize(
    "wanted_m,limit_m,flags,job_m,gets_m",
    [
        (5, 30, {}, 10, 5),
        (24.5, 30, {}, 30, 24.5),
        (25, 30, {}, 30, 25),
        (40, 30, {}, 30, 25),
        (5, 6, {}, 6, 3),
        (40, None, {}, 45, 40),
        (40, None, {"qos": "short"}, 20, 15),
    ],
)
def test_a_measurement_gets_the_time_that_a_job_may_last(
    wanted_m: float, limit_m: int | None, flags: dict[str, Any], job_m: int, gets_m: float
) -> None:
    partition = Partition("main", is_default=True, max_time_s=limit_m and limit_m * 60.0)
    cluster = Cluster("c", partitions=(partition,), qos=(Qos("short", max_time_s=1200.0), Qos("normal")))
    made, wish = plan_job(plan(4, flags, cluster, cpus=1), cluster, Wish(wanted_m * 60, 60))
    assert made.request is not None
    assert (made.request.time_s, wish.limit_s) == (job_m * 60, gets_m * 60)
