"""From the needs of one trial to what the jobs of a study ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from windlass.bundle.code import excluded_paths
from windlass.bundle.sources import list_sources
from windlass.collect.submissions import Submission
from windlass.core.paths import StudyPaths
from windlass.core.planfile import decode_plan
from windlass.core.queue.rows import Queue, QueueRow
from windlass.core.queue.states import JobState
from windlass.model import Plan, Request, Space, Stage, Study
from windlass.places.slurm import submission
from windlass.places.slurm.measuring import plan_measuring_job
from windlass.places.slurm.place import SlurmPlace
from windlass.plan.settings import resolve_settings
from windlass.plan.slurm import plan_slurm, split_agents
from windlass.site.cluster import Cluster, GpuType, Node, Partition, Qos
from windlass.site.load import parse_waiting

P100 = GpuType(
    "p100", count=8, per_node=4, memory_mb=12 * 1024, share_cpus=6, share_memory_mb=32000
)
V100 = GpuType(
    "v100l", count=8, per_node=4, memory_mb=32 * 1024, share_cpus=8, share_memory_mb=48000
)
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
    study = Study("s", (Stage("main", ("true",)),), Space(), "/w", "/w", given=dict(needs))
    settings = resolve_settings(flags, study.given, cluster.defaults, "", {})
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
    assert (made.request.gpus, made.request.gpu_type, made.request.time_s) == (
        1,
        "p100",
        3 * 3600 + 300,
    )
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
    assert (made.agents, made.waves) == (23, 55)
    assert made.request is not None and made.request.time_s == 3600
    assert made.request.throttle == CLUSTER.throttle


def test_the_users_cap_makes_jobs_longer() -> None:
    made = plan(100, {"max_jobs": 5}, gpus=1, time_s=3600.0)
    assert (made.agents, made.waves, made.request.time_s if made.request else 0) == (
        5,
        20,
        20 * 3600 + 300,
    )
    made = plan(100, {"max_jobs": 2}, gpus=1, time_s=3600.0)
    assert made.request is not None and made.request.time_s == 24 * 3600, (
        "not above the partition's limit"
    )
    assert "cannot take all 100 trials" in made.warnings[0]


@pytest.mark.parametrize("needs,time_s", [({}, 3600), ({"time_s": 3600.0}, 6 * 3600 + 300)])
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
    assert "is not known" in made.request.because["time_s"]


def test_what_the_documents_example_asks_for() -> None:
    """Thirty jobs for a trial of ten minutes each, five at a time."""
    made = plan(30, {"agents": 30, "throttle": 5, "time": "10m"}, gpus=1)
    assert made.request is not None
    assert (made.agents, made.waves, made.request.time_s, made.request.throttle) == (
        30,
        1,
        600 + 300,
        5,
    )


@pytest.mark.parametrize(
    "text,seconds",
    [("90", 5400), ("30:30", 1860), ("1:00:00", 3600), ("1-12", 129600), ("0-03:00", 10800), ("00-01:00:00", 3600),
     ("90m", 5400), ("24h", 86400)],
)  # fmt: skip
def test_every_form_of_time_that_sbatch_takes(text: str, seconds: int) -> None:
    on_top = 0 if seconds == 24 * 3600 else 300  # the partition allows no more than 24 hours
    assert request(1, {"time": text}, gpus=1).time_s == seconds + on_top


def test_what_a_job_does_besides_is_on_top_of_the_time_of_its_trials() -> None:
    """A trial of nearly the time that was declared must be done before the notice, however slow the setup was."""
    for seconds, lead in ((60.0, "2m"), (20.0, "2m"), (600.0, "10s"), (3600.0, "30m")):
        asked = request(1, {"lead": lead}, gpus=1, time_s=seconds)
        assert asked.time_s - asked.notice_s - seconds >= 180, (
            "three minutes for code, data and environment"
        )
    made = plan(100, {"agents": 25}, gpus=1, time_s=20.0)
    assert made.request is not None and made.waves == 4
    assert made.request.time_s - made.request.notice_s >= 4 * 20 + 180


def test_a_qos_limits_what_is_on_top() -> None:
    partition = Partition("main", is_default=True, max_time_s=24 * 3600.0)
    cluster = Cluster("c", partitions=(partition,), qos=(Qos("short", max_time_s=1200.0),))
    made = plan(1, {"qos": "short"}, cluster, cpus=1, time_s=1200.0)
    assert made.request is not None and made.request.time_s == 1200
    assert "little more than the trials" in made.warnings[0]


def test_sites_that_want_it_otherwise() -> None:
    cluster = Cluster("plai", typed_gpus=False, account_rule="never", name_partition=False)
    made = plan(4, {"account": "x", "gpu_type": "v100l", "partition": "p"}, cluster, gpus=1)
    assert made.request is not None
    assert (made.request.account, made.request.gpu_type, made.request.partition) == (None, "", None)
    assert len(made.warnings) == 3, (
        "what the user said and the site does not want is not dropped in silence"
    )


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
    cluster = Cluster(
        "c", partitions=(partition,), qos=(Qos("short", max_time_s=1200.0), Qos("normal"))
    )
    made, limit_s = plan_measuring_job(plan(4, flags, cluster, cpus=1), cluster, wanted_m * 60)
    assert made.request is not None
    assert (made.request.time_s, limit_s) == (job_m * 60, gets_m * 60)


def live(cluster: Cluster = CLUSTER, waiting: int = 0, **used: Any) -> Cluster:
    """The cluster as the scheduler tells it: the GPUs of each node in use, and jobs of others that wait."""
    nodes = tuple(
        dataclasses.replace(node, gpus_used=used.get(node.name, {})) for node in cluster.nodes
    )
    return dataclasses.replace(
        cluster, live=True, nodes=nodes, waiting={"gpu": waiting, "other": 99}
    )


def test_short_trials_are_spread_over_idle_devices() -> None:
    """100 trials of a minute, four to a GPU: one job of 25 minutes, or all GPUs that are idle."""
    needs: dict[str, Any] = {"gpus": 0.25, "gpu_type": "p100", "time_s": 60.0, "cpus": 1}
    made = plan(100, {}, live(), **needs)
    assert (made.agents, made.waves, made.estimate_s) == (4, 7, 420.0)
    assert "GPUs that are idle now, where 4 such jobs fit" in made.agents_because
    assert made.estimate_because == "if all start at once: GPUs are idle now for 4 jobs"
    busy = plan(100, {}, live(n1={"p100": 4}), **needs)
    assert (busy.agents, busy.estimate_s) == (
        1,
        1500.0,
    ) and "no more would start at once" in busy.agents_because
    assert busy.estimate_because == "once it starts: no GPUs are idle now"
    queued = plan(100, {}, live(waiting=2), **needs)
    assert queued.agents == 2
    assert (
        queued.estimate_because
        == "if all start at once: GPUs are idle now for 4 jobs, and 2 jobs of others wait for some"
    )
    few = plan(12, {}, live(), **needs)
    assert few.agents == 2, "a job has two minutes of trials at least"
    unasked = plan(100, {}, **needs)
    assert (unasked.agents, unasked.agents_because, unasked.estimate_because) == (1, "", "")


def test_a_site_that_wants_long_jobs_gets_them() -> None:
    cluster = dataclasses.replace(live(), sources={"min_job_s": "profile cedar"}, profile="cedar")
    made = plan(100, {}, cluster, gpus=0.25, gpu_type="p100", time_s=60.0, cpus=1)
    assert made.agents == 1 and made.agents_because == "cedar wants no jobs shorter than 1 h"


def test_so_many_at_a_time_as_the_user_asks_for() -> None:
    made = plan(30, {"throttle": 5}, gpus=1, time_s=60.0)
    assert (made.agents, made.waves, made.agents_because) == (5, 6, "command line: 5 at a time")
    few = plan(3, {"throttle": 5}, gpus=1, time_s=60.0)
    assert (few.agents, few.agents_because) == (
        3,
        "command line: 5 at a time, and 3 are enough for all trials at once",
    )
    assert plan(30, {"throttle": 5, "max_jobs": 2}, gpus=1, time_s=60.0).agents == 2


def test_the_estimate_does_not_take_the_throttle_for_the_cluster() -> None:
    """Ten jobs may run at a time, and there is room for four: nodes have cores for no more."""
    used = dataclasses.replace(
        CLUSTER, nodes=tuple(dataclasses.replace(n, cpus_used=n.cpus - 2) for n in CLUSTER.nodes)
    )
    made = plan(10, {"agents": 10, "throttle": 10}, live(used), gpus=1, time_s=20.0, cpus=1)
    assert (
        made.estimate_s == 60.0
        and made.estimate_because == "with 4 jobs at a time: GPUs are idle now for 4 jobs"
    )
    fewer = plan(4, {"agents": 4, "throttle": 2}, live(), gpus=1, time_s=20.0, cpus=1)
    assert fewer.estimate_because == "with 2 jobs at a time: GPUs are idle now for 8 jobs", (
        "the limit is two"
    )


def test_who_waits_for_resources() -> None:
    text = (
        "0|gpu|Resources\n1|gpu,cpu|Priority\n1|gpu|Dependency\n7|gpu|Priority\nx\n1|cpu|(None)\n"
    )
    assert parse_waiting(text, 7) == {"gpu": 2, "cpu": 2}


def test_fewer_agents_than_asked_for_are_explained() -> None:
    needs: dict[str, Any] = {"gpus": 0.25, "gpu_type": "p100", "time_s": 60.0, "cpus": 1}
    few = plan(4, {"agents": 4}, **needs)
    assert few.agents_because == "command line: 4, and 1 job has room for all 4 trials at once"
    assert plan(16, {"agents": 4}, **needs).agents_because == ""
    unknown = plan(4, {"agents": 4}, gpus=0.25, gpu_type="p100", cpus=1)
    assert unknown.agents_because == "command line: 4, and 1 job has room for all 4 trials at once"


@pytest.mark.parametrize("has_changed", [False, True])
def test_agents_at_work_with_the_code_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_changed: bool
) -> None:
    """`plan` says so before `run` submits others: two agents are at work, a third waits."""
    paths = StudyPaths(str(tmp_path / "scratch" / "s"))
    Path(paths.journal).mkdir(parents=True)
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print(1)\n")
    made = plan(4, {"code": "frozen"}, gpu_type="p100", gpus=1, time_s=3600.0)
    assert made.agents_missing == 4
    study = dataclasses.replace(made.study, project_dir=str(project), workdir=str(project))
    made = dataclasses.replace(made, folder=paths.folder, study=study)
    sources = list_sources(str(project), excluded_paths(made))
    assert list(sources) == ["train.py"] and made.frozen
    Path(paths.plan).write_bytes(decode_plan({"version": 1, "source_files": sources}).encode())
    if has_changed:
        (project / "train.py").write_text("print(2)\n")
    submitted = Submission("s1", 1.0, 3, 0, {}, {}, job=7)
    states = (JobState.RUNNING, JobState.RUNNING, JobState.WAITING)
    rows = [
        QueueRow(
            7 + task,
            7,
            task,
            [],
            None,
            state,
            "",
            "",
            "",
            None,
            None,
            None,
            None,
            "",
            "",
            "windlass:s1",
            f"s_{task}",
        )
        for task, state in enumerate(states)
    ]
    monkeypatch.setattr(submission, "read_submissions", lambda paths: [submitted])
    monkeypatch.setattr(submission, "fetch_queue", lambda: Queue(rows, 5.0))
    found = SlurmPlace(dataclasses.replace(CLUSTER, live=True)).preview(made)
    preview, shown = found.submitted, "".join(found.warnings)
    assert preview is not None
    if has_changed:
        assert (preview.agents, preview.present, preview.outdated) == (3, 1, 2)
        assert (
            "2 agents at work have the code as it was before train.py changed: after `windlass run` they"
            in shown
        )
    else:
        assert (preview.agents, preview.present, preview.outdated, shown) == (1, 3, 0, "")
