"""Whether a rehearsal lets the rest go: the verdict from what its agent tells, and rehearsals on this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from tests.measuring import Machine
from windlass.collect.rehearsal import Allowed, Seen, Verdict, explain_death, judge

JOB = Allowed(memory_mb=4096, time_s=3 * 3600, waves=2)

GROW = """
import sys, time
most, rate, steps = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
kept = []
for step in range(steps):
    while len(kept) < min(most, 20 + rate * step):
        kept.append(bytearray(b"x" * 2**20))
    print(f"step {step + 1}/{steps}" if sys.argv[4] == "steps" else "", flush=True)
    time.sleep(0.05)
"""


FILL_GPU = """
import os, time
mine = os.path.join(os.environ["FAKE_FOLDER"], str(os.getpid()))
for step in range(10**6):
    with open(mine + ".new", "w") as file:
        file.write("%d 30 0 process" % (20 * step))
    os.rename(mine + ".new", mine)
    time.sleep(0.05)
"""


def seen_with(*events: dict[str, Any], slots: int = 2, begun: int = 2) -> Seen:
    seen = Seen()
    seen.take({"e": "agent", "t": 1.0, "id": "a", "slots": slots})
    for number in range(begun):
        seen.take({"e": "start", "t": 1.0, "i": number})
    for event in events:
        seen.take({"t": 1.0, **event})
    return seen


def level(**more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "e": "level", "trials": 2, "slots": 2, "since_s": 60.0, "mem_mb": 1000.0, "mem_peak_mb": 1000.0,
        "most_mb": 16000.0, "gpu_mb": None, "gpu_total_mb": None, "levelled": True, "growing_mb_per_min": None,
        "gpu_growing_mb_per_min": None, "left_s": None, "trial_s": None, "last": False,
    }  # fmt: skip
    return {**told, **more}


def verdict_of(*events: dict[str, Any], allowed: Allowed = JOB) -> Verdict:
    verdict = judge(seen_with(*events), allowed)
    assert verdict is not None
    return verdict


def problems_of(*events: dict[str, Any], allowed: Allowed = JOB) -> str:
    return "\n".join(problem.render() for problem in verdict_of(*events, allowed=allowed).problems)


def end(trial: int, cause: str, **more: Any) -> dict[str, Any]:
    return {"e": "end", "i": trial, "n": trial, "cause": cause, "dur": 5.0, **more}


# -- memory


def test_what_has_levelled_out_below_the_request_passes() -> None:
    verdict = verdict_of(level())
    assert (verdict.problems, verdict.warnings) == ((), ())
    assert "1000 MB used of 4 GB asked" in verdict.summary


def test_nothing_is_decided_while_it_may_still_grow() -> None:
    assert judge(seen_with(), JOB) is None
    assert judge(seen_with(level(levelled=False)), JOB) is None
    assert judge(seen_with(level(levelled=False, growing_mb_per_min=3000.0)), JOB) is None


def test_what_outgrows_its_request_is_refused_at_once() -> None:
    text = problems_of(level(mem_peak_mb=5.2 * 1024, levelled=False, growing_mb_per_min=300.0))
    assert "memory: 5.2 GB used of 4 GB asked, still growing at 300 MB/min" in text
    assert "needs: {memory: 3200MB}" in text, "1.2 times the peak, for each of two trials"


def test_what_grows_for_ever_is_refused_at_the_limit() -> None:
    growing = level(levelled=False, growing_mb_per_min=300.0, last=True)
    assert "it may grow for ever" in problems_of(growing), (
        "over the three hours of the job, as nobody knows more"
    )
    short = problems_of({**growing, "left_s": 3600.0})
    assert "too much in 10 min, and a trial has 1 h left" in short
    assert "needs: {memory: 11400MB}" in short


def test_growth_that_ends_before_the_request_does_passes_with_a_warning() -> None:
    verdict = verdict_of(level(levelled=False, growing_mb_per_min=300.0, left_s=120.0, last=True))
    assert not verdict.problems
    assert "1.56 GB at the end" in verdict.warnings[0]


def test_growth_that_may_be_noise_is_looked_at_longer_and_then_only_warned_of() -> None:
    small = level(growing_mb_per_min=40.0)
    assert judge(seen_with(small), JOB) is None
    verdict = verdict_of({**small, "last": True})
    assert not verdict.problems and "if that goes on, it is too much" in verdict.warnings[0]


def test_the_limit_came_before_anything_could_be_said() -> None:
    verdict = verdict_of(level(levelled=False, last=True))
    assert not verdict.problems and "too short" in verdict.warnings[0]


def test_a_gpu_that_fills_up() -> None:
    filling = level(
        gpu_mb=9000.0, gpu_total_mb=12000.0, gpu_growing_mb_per_min=500.0, levelled=False, last=True
    )
    assert "GPU memory: 8.79 GB used of 11.7 GB that a GPU has" in problems_of(filling)
    assert "fewer trials share a GPU" in problems_of(filling)


def test_without_a_request_the_machine_is_the_limit() -> None:
    here = Allowed(None, "that this machine has for it")
    assert verdict_of(level(), allowed=here).problems == ()
    text = problems_of(level(levelled=False, growing_mb_per_min=100.0, last=True), allowed=here)
    assert "of 15.6 GB that this machine has for it" in text


# -- ends


def test_trials_that_end_before_it_has_levelled_count_with_their_peaks() -> None:
    bye = {"e": "bye", "reason": "nothing left"}
    done = [end(0, "done", use={"mem_mb": 900.0}), end(1, "done", rss_mb=700.0)]
    assert verdict_of(*done, bye).problems == ()
    large = [end(0, "done", use={"mem_mb": 2500.0}), end(1, "done", rss_mb=700.0)]
    assert "4.88 GB used of 4 GB" in problems_of(*large, bye), "two of the largest may meet"
    assert verdict_of(level(levelled=False, growing_mb_per_min=900.0), *done, bye).problems == ()


@pytest.mark.parametrize("cause", ["host out of memory", "gpu out of memory"])
def test_one_trial_out_of_memory_is_enough(cause: str) -> None:
    assert f"trial 1: {cause}" in problems_of(end(0, "done"), end(1, cause))


def test_trials_that_all_fail_are_not_multiplied() -> None:
    assert judge(seen_with(end(0, "failed")), JOB) is None, "the other may do better"
    assert "all 2 trials that ended" in problems_of(end(0, "failed"), end(1, "failed"))
    assert judge(seen_with(end(0, "done"), end(1, "failed")), JOB) is None


def test_an_agent_that_could_not_work_says_why() -> None:
    assert "not ready: no space" in problems_of({"e": "bye", "reason": "not ready: no space"})
    assert (
        judge(seen_with(level(), {"e": "bye", "reason": "interrupted"}), JOB, gone=False) is None
    ), "put back"


def test_the_scheduler_ended_the_job() -> None:
    seen = seen_with(level(mem_peak_mb=4000.0, levelled=False))
    problem = explain_death(seen, JOB, "job 7 ended: OUT_OF_MEMORY", True)
    assert (
        "job 7 ended: OUT_OF_MEMORY; last seen, memory: 3.91 GB used of 4 GB asked"
        in problem.message
    )
    assert "needs: {memory: 2500MB}" in problem.hint
    assert (
        "before its usage had levelled"
        in explain_death(seen, JOB, "job 7 ended: NODE_FAIL", False).message
    )


# -- time


def test_a_trial_that_does_not_end_within_its_job_is_refused_unless_it_can_go_on() -> None:
    slow = level(trial_s=[14000.0, 15000.0, 16000.0], left_s=14900.0)
    assert "a trial takes about 4 h 10 min, its job has 3 h" in problems_of(slow)
    assert "needs: {time: 300m}" in problems_of(slow)
    assert verdict_of(slow, allowed=Allowed(4096, time_s=10800, checkpoint=True)).problems == ()


def test_waves_that_do_not_fit_are_warned_of() -> None:
    verdict = verdict_of(level(trial_s=[6000.0, 6500.0, 7000.0]))
    assert not verdict.problems and "2 trials one after another" in verdict.warnings[0]
    assert verdict_of(level(trial_s=[3000.0, 3500.0, 4000.0])).warnings == ()
    assert (
        "2 trials one after another" in verdict_of(level(), end(0, "done", dur=6500.0)).warnings[0]
    )


# -- on this machine


def study(project: Project, most: int, rate: float, steps: int, how: str = "steps") -> None:
    project.write("grow.py", GROW)
    project.write(
        "study.yaml",
        f"command: python3 grow.py {most} {rate} {steps} {how} {{n}}\nparameters: {{n: [1, 2, 3]}}\nslots: 2\n"
        "code: live\n",
    )


def test_here_a_study_that_levels_out_goes_on_to_its_end(project: Project) -> None:
    study(project, most=40, rate=5, steps=80)
    done = project.run("run", "--on", "local", "--rehearse", "--rehearse-limit", "6s")
    assert "rehearsal passed, going on: 2 trials at a time" in done.stderr
    assert project.counts() == {"done": 3}


def test_here_a_study_that_grows_for_ever_is_stopped(project: Project) -> None:
    study(project, most=10**6, rate=1, steps=10**6, how="silent")
    done = project.run("run", "--on", "local", "--rehearse", "--rehearse-limit", "6s", code=1)
    assert (
        "the rehearsal was refused: memory: " in done.stderr
        and "it may grow for ever" in done.stderr
    )
    assert project.counts() == {"interrupted": 2, "waiting": 1}


def test_here_a_gpu_that_fills_up_is_noticed(project: Project, tmp_path: Path) -> None:
    Machine(tmp_path).give(project, cores=2, total_mb=12000)
    project.write("fill.py", FILL_GPU)
    project.write(
        "study.yaml",
        "command: python3 fill.py {n}\nparameters: {n: [1, 2]}\nneeds: {gpus: 0.5}\ncode: live\n",
    )
    done = project.run("run", "--on", "local", "--rehearse", "--rehearse-limit", "6s", code=1)
    assert (
        "GPU memory: " in done.stderr
        and "of 11.7 GB that a GPU has, still growing at" in done.stderr
    )
    assert project.counts() == {"interrupted": 2}


def test_here_ctrl_c_is_no_refusal(project: Project) -> None:
    study(project, most=40, rate=1, steps=10**6)
    process = project.start("run", "--on", "local", "--rehearse")
    wait_for(lambda: project.counts().get("running") == 2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 130 and "refused" not in errors


def test_a_limit_that_is_none(project: Project) -> None:
    study(project, most=1, rate=1, steps=1)
    done = project.run("run", "--rehearse", "--rehearse-limit", "soon", code=2)
    assert "'soon' is not a duration" in done.stderr and "--rehearse-limit 5m" in done.stderr
