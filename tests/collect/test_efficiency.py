"""Asked against used: sacct as recorded, agents' journals, shares, and the lines to change."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests import HERE
from tests.collect.test_index import write
from tests.conftest import Project
from windlass.collect.advice import Advice, advise, advise_script, neat_time_s
from windlass.collect.efficiency import Efficiency, JobGroup, fold_agent, read_attempts
from windlass.collect.submissions import Submission
from windlass.core.journal.records import AgentRecord
from windlass.core.paths import StudyPaths
from windlass.core.planfile import NO_PLAN, decode_plan
from windlass.core.queue.states import JobState
from windlass.core.units import parse_clock_s, spell_duration, spell_memory
from windlass.slurm.used import JobUse, fetch_uses, highest_together, parse_uses
from windlass.usage import Usage, VariantUse, whole_cores
from windlass.view.efficiency import Placed, efficiency_to_json, measure_group, render_efficiency

DATA = HERE / "data" / "slurm"


def uses(version: str, file: str = "sacct-use.txt") -> dict[str, JobUse]:
    return {use.name: use for use in parse_uses((DATA / version / file).read_text())}


def test_sacct_of_22_05() -> None:
    found = uses("22.05.8")
    assert list(found) == ["1", "2_0", "2_1", "5_0", "5_1", "7"]  # those that wait are left out
    job = found["2_1"]
    assert (job.id, job.array, job.cpus, job.gpus, job.gpu_type) == (2, "2", 4.0, 1.0, "v100l")
    assert (job.elapsed_s, job.asked_s, job.cpu_s) == (20.0, 300.0, 10.078)
    assert job.asked_memory_mb == 1024.0 and job.memory_mb == pytest.approx(165116 / 1024)
    assert not job.memory_at_most
    assert found["7"].memory_mb == pytest.approx(
        (10772 + 1656) / 1024
    )  # the batch step's and the other's
    assert found["7"].memory_at_most and found["7"].task_mb == pytest.approx(10772 / 1024)


def test_newer_and_older_forms() -> None:
    found = uses("hand-made")
    large = found["501"]
    assert (large.job_name, large.gpus, large.gpu_type) == ("train|v2", 8.0, "h100")
    assert (large.cpu_s, large.asked_memory_mb, large.nodes) == (96_000.0, 65_536.0, 2.0)
    assert (large.memory_mb, large.node_mb, large.task_mb) == (
        8 * 5120.0 + 1536.0,
        7 * 5120.0 + 1536.0,
        5120.0,
    )
    assert (large.gpu_mb, large.gpu_percent) == (30_720.0, 61.0)
    assert (found["502"].asked_memory_mb, found["502"].memory_mb) == (4096.0, 900.0)
    assert (found["503"].asked_memory_mb, found["503"].asked_s) == (
        4096.0,
        None,
    )  # a GB for each of four cores
    assert (found["504"].state, found["504"].cpu_s) == (
        JobState.RUNNING,
        None,
    )  # counted when its steps end


@pytest.mark.parametrize(
    "text,seconds",
    [("00:10.500", 10.5), ("02:03:04", 7384.0), ("1-00:00:01", 86401.0), ("", None), ("x", None)],
)
def test_processor_time(text: str, seconds: float | None) -> None:
    assert parse_clock_s(text) == seconds


def test_without_accounting_nothing_is_known() -> None:
    assert fetch_uses(["1"], lambda words, env: None) is None


def group_of(*jobs: JobUse, slots: int = 0) -> JobGroup:
    return JobGroup("7", jobs, slots)


def job(number: int = 0, **more: Any) -> JobUse:
    return JobUse(**{"name": f"7_{number}", "id": 7 + number, "state": JobState.DONE, **more})


def test_one_of_four_cores_is_a_quarter() -> None:
    (line,) = measure_group(group_of(job(cpus=4.0, cpu_s=100.0, elapsed_s=100.0)))[1:]
    assert (line.resource.name, line.asked, line.mean, line.share) == ("CPU", 4.0, 1.0, 0.25)


def test_an_array_is_a_few_rows_however_many_jobs_it_has() -> None:
    jobs = [
        job(n, elapsed_s=10.0 * n, asked_s=8000.0, memory_mb=100.0, asked_memory_mb=200.0)
        for n in range(1, 401)
    ]
    found = Efficiency((group_of(*jobs),))
    text = render_efficiency(found, [])
    assert len(text.splitlines()) < 8
    said = efficiency_to_json(found, [])["groups"][0]
    assert said["time_s"] == {
        "asked": 8000.0,
        "least": 10.0,
        "mean": 2005.0,
        "most": 4000.0,
        "share": 0.2506,
    }
    assert said["memory_mb"]["share"] == 0.5


def test_memory_of_trials_side_by_side_adds_up() -> None:
    assert highest_together([]) is None
    assert highest_together([(0.0, 10.0, 5.0), (10.0, 10.0, 6.0)]) == 6.0  # one after another
    assert highest_together([(0.0, 10.0, 5.0), (5.0, 10.0, 6.0), (9.0, 1.0, 1.0)]) == 12.0


def test_an_agents_journal_becomes_a_job(tmp_path: Path) -> None:
    paths = StudyPaths(str(tmp_path))
    os.makedirs(paths.journal)
    header = {
        "e": "agent",
        "t": 100.0,
        "v": 1,
        "id": "a",
        "slots": 2,
        "job": {"id": 9, "array": 7, "task": 2},
    }
    use = {"mem_mb": 300.0, "cores": 0.5, "gpu_mb": 1000.0, "gpu_src": "process", "gpu_pct": 20.0}
    ends = [
        {
            "e": "end",
            "t": 200.0,
            "i": 0,
            "n": 1,
            "cause": "failed",
            "start": 100.0,
            "dur": 100.0,
            "use": use,
        },
        {
            "e": "end",
            "t": 200.0,
            "i": 1,
            "n": 2,
            "cause": "done",
            "start": 100.0,
            "dur": 100.0,
            "use": use,
        },
        {
            "e": "end",
            "t": 300.0,
            "i": 0,
            "n": 3,
            "cause": "done",
            "start": 200.0,
            "dur": 100.0,
            "cpu_s": 60.0,
        },
    ]
    write(paths, "a", [header, *ends])
    record = AgentRecord(
        "a",
        slots=2,
        start=100.0,
        last_seen=300.0,
        ended=True,
        gpus=1,
        job={"id": 9, "array": 7, "task": 2},
    )
    request = {"cpus": 4, "memory_mb": 4000, "time_s": 600, "gpus": 1, "nodes": 1}
    used = fold_agent(
        record, read_attempts(paths.journal_of("a")), Submission("s", 0.0, 3, 0, request, {})
    )
    assert (used.name, used.elapsed_s, used.asked_s, used.cpus) == ("7_2", 200.0, 600.0, 4.0)
    assert (used.cpu_s, used.memory_mb, used.gpu_mb) == (160.0, 600.0, 2000.0)
    assert used.gpu_percent == pytest.approx(20.0)


def usage(**more: Any) -> Usage:
    overall = VariantUse(
        (), 5, **{"memory_mb": 1000.0, "cores": 0.98, "time_s": (50.0, 60.0, 70.0), **more}
    )
    return Usage(5, 5, (overall,), k=2, gpu_percent=None, overall=overall)


def efficiency(sources: dict[str, str], **more: Any) -> Efficiency:
    plan = {"name": "demo", "sources": sources, "cpus_per_slot": 4, "trial_time_s": 3600.0}
    group = group_of(job(asked_memory_mb=16_384.0, cpus=8.0), slots=2)
    return Efficiency((group,), True, "demo", "/f", usage(**more), decode_plan(plan))


def test_the_line_to_change_is_said_in_the_users_words() -> None:
    changes = {
        advice.key: advice
        for advice in advise(
            efficiency({"memory_mb": "study", "cpus": "command line", "time_s": "study"})
        )
    }
    assert changes["memory"].change == "needs: {memory: 1.2GB}"
    assert changes["memory"].because == "asked 8 GB a trial, the highest peak was 1000 MB"
    assert changes["cpus"].change == "--cpus 1"
    assert changes["time"].change == "needs: {time: 2m}"
    assert {advice.what for advice in changes.values()} == {"ask for less"}


def test_what_windlass_chose_itself_needs_no_line() -> None:
    advices = advise(efficiency({"memory_mb": "site", "cpus": "default", "time_s": "default"}))
    assert {advice.change for advice in advices} == {""} and len(advices) == 3


def test_too_little_is_said_as_well() -> None:
    (advice,) = [
        one
        for one in advise(efficiency({"memory_mb": "study"}, memory_mb=8100.0))
        if one.key == "memory"
    ]
    assert (advice.what, advice.change) == ("ask for more", "needs: {memory: 9.6GB}")


def test_the_agents_own_memory_is_none_that_a_trial_asked_for() -> None:
    plan = {"sources": {"memory_mb": "study"}, "trial_memory_mb": 100}
    group = group_of(job(asked_memory_mb=164.0), slots=1)  # 64 MB of it are the agent's

    def say(peak_mb: float) -> list[tuple[str, str]]:
        used = usage(memory_mb=peak_mb, cores=None, time_s=None)
        return [
            (one.what, one.change)
            for one in advise(Efficiency((group,), True, "demo", "/f", used, decode_plan(plan)))
        ]

    assert say(60.0) == []
    assert say(98.0) == [("ask for more", "needs: {memory: 200MB}")]


def test_a_gpu_that_no_trial_touched() -> None:
    found = efficiency({}, gpu_mb=0.0)
    group = group_of(job(gpus=1.0), slots=1)
    texts = [
        advice.because
        for advice in advise(Efficiency((group,), True, "demo", "/f", found.usage, found.plan))
    ]
    assert any("no trial touched the GPU" in text for text in texts)


def test_a_gpu_is_as_busy_as_all_its_trials_make_it() -> None:
    used = dataclasses.replace(
        usage(gpu_mb=900.0), gpu_percent=30.0
    )  # of one of two that shared it

    def say(percent: float) -> list[str]:
        group = group_of(job(gpus=1.0, gpu_percent=percent), slots=2)
        return [
            one.because
            for one in advise(Efficiency((group,), True, "demo", "/f", used, NO_PLAN))
            if one.what == "look"
        ]

    assert say(57.0) == [] and "40 % busy with 2 at a time" in say(40.0)[0]


def test_lines_for_a_script_that_is_none_of_ours() -> None:
    found = Efficiency((JobGroup("2", tuple(uses("22.05.8").values())),))
    changes = [advice.change for advice in advise(found, {"mem": "2G", "cpus-per-task": "8"})]
    assert changes == [
        "#SBATCH --mem=300M",
        "#SBATCH --cpus-per-task=2",
        "#SBATCH --time=0-00:01:00",
    ]
    assert [advice.change for advice in advise(found)] == ["", "", changes[2]], (
        "nobody knows how they asked"
    )


def said_of(name: str, **written: str) -> list[str]:
    """What is said of the memory and the cores of a recorded job: the line, or the words."""
    group = JobGroup(name, (uses("22.05.8", "sacct-steps.txt")[name],))
    advices = advise_script(
        group, {word.replace("_", "-"): value for word, value in written.items()}
    )
    return [advice.change or advice.because for advice in advices if advice.option != "time"]


def test_tasks_and_steps_side_by_side_add_up() -> None:
    found = uses("22.05.8", "sacct-steps.txt")
    assert found["1"].memory_mb == pytest.approx(
        (12420 + 2 * 70052) / 1024
    )  # the first step had ended
    assert found["2"].memory_mb == pytest.approx((21684 + 111052 + 111060) / 1024)
    cores = "asked 2 cores, at most 0.0 were used on average"
    assert said_of("1", ntasks="2", mem="400M") == ["#SBATCH --mem=200M", cores]
    assert said_of("2", ntasks="2", mem="500M") == [cores], "its steps ask for 400 MB"
    text = render_efficiency(Efficiency((group_of(found["1"]),)), [])
    assert "memory is at most so much" in text
    assert "at most" not in render_efficiency(Efficiency((group_of(found["5"]),)), [])


def test_memory_is_asked_for_each_node() -> None:
    twice = uses("22.05.8", "sacct-steps.txt")["3"]
    assert twice.memory_mb == pytest.approx((12384 + 2 * 428556) / 1024)
    assert twice.node_mb == pytest.approx((12384 + 428556) / 1024)
    assert said_of("3", nodes="2", ntasks_per_node="1", mem="500M") == []
    roomy = dataclasses.replace(twice, asked_memory_mb=4000.0)
    (advice, _) = advise_script(group_of(roomy), {"mem": "2000M"})
    assert advice.change == "#SBATCH --mem=600M"
    assert advice.because == "asked 1.95 GB a node, the highest peak was at most 431 MB"


def test_lines_are_said_only_in_the_scripts_own_form() -> None:
    memory = "asked 1000 MB, the highest peak was 4.62 MB"
    cores = "asked 2 cores, at most 0.0 were used on average"
    less_cores = "#SBATCH --cpus-per-task=1"
    assert said_of("4", ntasks="1", cpus_per_task="2", mem_per_cpu="500M") == [memory, less_cores]
    assert said_of("4", cpus_per_task="2", mem_per_gpu="1000M") == [memory, less_cores]
    assert said_of("5", ntasks="2", mem="500M") == ["#SBATCH --mem=100M", cores]
    assert said_of("5", ntasks="2", cpus_per_task="1", mem="500M") == ["#SBATCH --mem=100M", cores]


def test_fewer_cores_must_not_take_the_memory_away() -> None:
    used = job(
        cpus=4.0,
        cpu_s=90.0,
        elapsed_s=100.0,
        asked_memory_mb=2000.0,
        memory_mb=900.0,
        node_mb=900.0,
    )
    four = {"cpus-per-task": "4"}
    lines = [
        advise_script(group_of(used), four | more)[-1].option
        for more in ({"mem-per-cpu": "500M"}, {})
    ]
    assert lines == ["", ""], "500 MB would be left"
    assert advise_script(group_of(used), four | {"mem": "2000M"})[-1].option == "cpus-per-task"


def test_more_memory_goes_by_what_was_surely_used() -> None:
    uneven = job(
        asked_memory_mb=1000.0, memory_mb=8000.0, node_mb=8000.0, task_mb=500.0
    )  # eight tasks, one is large
    assert advise_script(group_of(uneven), {"mem": "1000M"}) == []
    full = dataclasses.replace(uneven, task_mb=990.0)
    assert [one.change for one in advise_script(group_of(full), {"mem": "1000M"})] == [
        "#SBATCH --mem=1200M"
    ]


def test_steps_keep_the_memory_they_ask_for() -> None:
    few = job(asked_memory_mb=4000.0, memory_mb=200.0, node_mb=200.0, task_mb=200.0, steps_mb=800.0)
    (advice,) = advise_script(group_of(few), {"mem": "4000M"})
    assert advice.change == "#SBATCH --mem=800M" and advice.because.endswith(
        "was 200 MB, steps ask for 800 MB"
    )


def test_a_job_that_was_cut_off_does_not_say_that_less_would_do() -> None:
    figures: dict[str, Any] = {
        "elapsed_s": 36.0,
        "asked_s": 600.0,
        "node_mb": 100.0,
        "asked_memory_mb": 2000.0,
    }
    cancelled = job(state=JobState.CANCELLED, **figures)
    assert advise_script(group_of(cancelled)) == []
    assert len(advise_script(group_of(cancelled, job(1, **figures)))) == 2
    killed = advise_script(
        group_of(job(state=JobState.OUT_OF_MEMORY, **figures), job(1, **figures))
    )
    assert [advice.option for advice in killed] == ["time"], "the peak was missed"
    late = job(state=JobState.TIMED_OUT, elapsed_s=600.0, asked_s=600.0)
    assert [advice.what for advice in advise_script(group_of(late))] == ["ask for more"]


def test_figures_are_neat_and_never_too_small() -> None:
    assert [whole_cores(cores) for cores in (0.0, 0.98, 1.05, 1.2, 3.9)] == [1, 1, 1, 2, 4]
    assert [spell_duration(neat_time_s(s)) for s in (1, 61, 1000, 20_000)] == [
        "1m",
        "2m",
        "20m",
        "5h45m",
    ]
    assert [spell_memory(mb) for mb in (900, 1200, 1300, 10_240)] == [
        "900MB",
        "1.2GB",
        "1.3GB",
        "10GB",
    ]


def test_the_place_stands_before_the_line() -> None:
    placed = Placed(
        Advice("ask for less", "why", "needs", "memory", "1GB", source="study"), "study.yaml", 7
    )
    found = Efficiency((group_of(job(elapsed_s=1.0)),), None, "demo", "/f", usage())
    assert "study.yaml:7: ask for less: `needs: {memory: 1GB}` (why)" in render_efficiency(
        found, [placed]
    )


def test_a_study_on_this_machine(project: Project) -> None:
    project.write(
        "study.yaml",
        "name: demo\ncommand: ls {x}\nparameters: {x: [/, /tmp, /usr]}\nneeds: {time: 2h, memory: 800MB}\n",
    )
    assert "there is no study here yet" in project.run("efficiency", code=2).stderr
    project.run("run", "study.yaml", "--on", "local")
    assert json.loads((project.study_folder() / "plan.json").read_text())["trial_memory_mb"] == 800
    said = project.json("efficiency", "--json")
    assert [(group["name"], group["jobs"]) for group in said["groups"]] == [("this machine", 1)]
    assert said["accounting"] is None and said["trials"]["done"] == 3
    text = project.run("efficiency").stdout
    assert re.search(
        r"study\.yaml:4: ask for less: `needs: \{time: 1m\}` \(asked 2 h a trial", text
    ), text
    assert re.search(
        r"study\.yaml:4: ask for less: `needs: \{memory: 100MB\}` \(asked 800 MB a trial", text
    ), text


def test_a_look_at_what_is_done(project: Project) -> None:
    project.write("study.yaml", "command: sh -c 'exit {x}'\nparameters: {x: [0]}\n")
    project.run("run", "--on", "local")
    assert "nothing is left to do" in project.run("watch").stdout


def test_without_accounting_a_job_of_others_is_an_error_in_words(project: Project) -> None:
    project.env["PATH"] = "/nowhere"
    done = project.run("efficiency", "12345", code=1)
    assert "accounting does not answer" in done.stderr and "Traceback" not in done.stderr
