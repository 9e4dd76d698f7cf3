"""From what was measured and what real trials used to what is asked for: budgets, trials a GPU, cores, memory, time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_slurm import CLUSTER, P100
from windlass.core.paths import StudyPaths
from windlass.measured import Choice, MeasuredDevice, Measurement, Mode, Probe, Round
from windlass.model import (
    Budget,
    Checkpoint,
    Distribution,
    Parameter,
    Plan,
    ProgressSpec,
    Request,
    Setting,
    Space,
    Stage,
    Study,
)  # fmt: skip
from windlass.places.local import LocalPlace
from windlass.places.slurm.place import SlurmPlace
from windlass.places.slurm.submission import example_script
from windlass.plan.digest import study_digest
from windlass.plan.evidence import Budgets, Evidence, find_budgets, find_evidence, largest_mix_mb
from windlass.plan.local import plan_local
from windlass.plan.refuse import find_problems
from windlass.plan.settings import resolve_settings
from windlass.plan.sharing import pick_concurrency, slowdown
from windlass.plan.slurm import plan_slurm
from windlass.planning import make_plan
from windlass.site.cluster import Cluster
from windlass.site.here import Here
from windlass.site.local import Gpu, Site
from windlass.spec import load_study
from windlass.spec.units import add_headroom, parse_headroom
from windlass.usage import Usage, VariantUse

DEVICE = MeasuredDevice("Tesla P100-PCIE-12GB", 12 * 1024, type="p100")
SAID = {"gpu_type": "p100"}


def probe(gpu_mb: float | None = 2048.0, **more: Any) -> Probe:
    usual: dict[str, Any] = {
        "levelled": True,
        "memory_mb": 1000.0,
        "cores": 0.9,
        "time_s": (1800.0, 2000.0, 2200.0),
    }
    return Probe("t1", more.pop("settings", {}), gpu_mb=gpu_mb, **{**usual, **more})


def rounds(*trial_s: tuple[int, float], mode: Mode = "plain") -> tuple[Round, ...]:
    """Times of one trial among k."""
    return tuple(
        Round(mode, k, trial_s=one_s, trials_per_h=3600 * k / one_s) for k, one_s in trial_s
    )


CURVE = rounds((1, 2000.0), (2, 2050.0), (4, 2400.0), (8, 4900.0))


def measurement(*probes: Probe, **more: Any) -> Measurement:
    usual: dict[str, Any] = {
        "device": DEVICE,
        "rounds": CURVE,
        "choice": Choice(4, "plain", "", slowdown=1.2),
    }
    return Measurement(0.0, "d", "n1", 6, 32000, probes=probes or (probe(),), **{**usual, **more})


def study(variants: tuple[str, ...] = (), **needs: Any) -> Study:
    said = dict(needs)
    space = Space(parameters=(Parameter("algo", ("dqn", "ppo")),))
    return Study("s", (Stage("main", ("true",)),), space, "/w", "/w", given=said, variants=variants)


def evidence(
    flags: Mapping[str, Any],
    measured: Measurement | None,
    usage: Usage | None = None,
    of: Study | None = None,
) -> Evidence:
    of = of or study()
    return find_evidence(of, resolve_settings(flags, of.given, {}, "", {}), measured, usage, "d")


def plan(
    trials: int, flags: Mapping[str, Any], measured: Measurement | None, usage: Usage | None = None,
    of: Study | None = None, cluster: Cluster = CLUSTER,
) -> Plan:  # fmt: skip
    of = of or study()
    settings = resolve_settings(flags, of.given, {}, "", {})
    found = find_evidence(of, settings, measured, usage, "d")
    return plan_slurm(of, trials, settings, cluster, "/f/s", found)


def asked(made: Plan) -> Request:
    assert made.request is not None
    return made.request


def use(done: int = 10, variant: tuple[Any, ...] = (), **more: Any) -> VariantUse:
    return VariantUse(variant, done, **more)


def usage(overall: VariantUse, *variants: VariantUse, k: int | None = 1) -> Usage:
    return Usage(overall.done, overall.done, variants or (overall,), k, None, overall)


# -- budgets


@pytest.mark.parametrize(
    "peak_mb,rule,budget_mb",
    [
        (2048, "next", 3072),  # the document's: a peak of 2 GB is planned with 3
        (1228.8, "next", 2048),
        (1, "next", 1024),
        (2000, "1GB", 3024),
        (2000, "20%", 2400),
        (2000, "0%", 2000),
    ],
)
def test_headroom_on_a_gpu(peak_mb: float, rule: str, budget_mb: int) -> None:
    assert add_headroom(peak_mb, parse_headroom(rule)) == budget_mb
    budgets = find_budgets(evidence({"headroom": rule}, measurement(probe(peak_mb))), None)
    assert budgets.other.gpu_mb == budget_mb


@pytest.mark.parametrize("text", ["20", "some", "", "-1GB", "nextish"])
def test_what_is_no_headroom(text: str) -> None:
    with pytest.raises(ValueError, match="beyond the peak"):
        parse_headroom(text)


@pytest.mark.parametrize("peak_mb,budget_mb", [(1000, 1200), (1001, 1300), (150, 200), (250, 300)])
def test_headroom_on_the_host(peak_mb: float, budget_mb: int) -> None:
    assert (
        find_budgets(evidence({}, measurement(probe(memory_mb=peak_mb))), None).other.memory_mb
        == budget_mb
    )


def test_what_ran_on_a_gpu_fits_a_gpu_of_its_size() -> None:
    """A framework that takes nearly all of the memory is not refused for the head-room."""
    measured = measurement(probe(12200.0), choice=Choice(1, "plain", ""), rounds=CURVE[:1])
    made = plan(4, SAID, measured)
    assert (made.slots, made.settings["gpu_memory_mb"].value) == (1, 12 * 1024)
    assert not find_problems(made, CLUSTER, Here())


def test_what_is_more_than_a_gpu_has_is_refused() -> None:
    problems = find_problems(plan(4, SAID, measurement(probe(13000.0))), CLUSTER, Here())
    assert any(
        "14336 MB of GPU memory, a p100 has 12288 MB" in problem.message for problem in problems
    )


def test_memory_that_still_grew() -> None:
    growing = probe(levelled=False, gpu_growing_mb_per_min=40.0)
    found = evidence({}, measurement(growing))
    assert find_budgets(found, None).other == Budget((), 4096, 1200), "only of the memory that grew"
    assert "GPU memory may not have reached the peak" in found.warnings[0]
    found = evidence({}, measurement(probe(levelled=False)))
    assert find_budgets(found, None).other == Budget((), 4096, 1800), "nobody knows which"
    found = evidence({}, measurement(probe(levelled=False, ended=True)))
    assert find_budgets(found, None).other == Budget((), 3072, 1200) and not found.warnings, (
        "its end was seen"
    )


def test_the_measurement_of_another_command_is_not_used() -> None:
    found = evidence({}, dataclasses.replace(measurement(), digest="other"))
    assert found.measured is None and not found.peaks and "has changed since" in found.warnings[0]


# -- the order of sources


def test_real_trials_beat_the_measurement() -> None:
    real = usage(use(10, gpu_mb=4000.0, memory_mb=1500.0, cores=2.5, time_s=(100.0, 120.0, 130.0)))
    found = evidence({}, measurement(), real)
    assert find_budgets(found, None).other == Budget((), 5120, 1800)
    assert found.settings["cpus"] == Setting(3, "real trials (10 of this study)")
    assert found.time is not None and (found.time.middle_s, found.time.source) == (
        100.0,
        found.settings["cpus"].source,
    )


def test_real_trials_do_not_lower_a_peak_that_was_seen() -> None:
    small = usage(
        use(10, gpu_mb=900.0, memory_mb=100.0)
    )  # the first of a grid are often its smallest
    assert find_budgets(evidence({}, measurement(), small), None).other == Budget((), 3072, 1200)
    growing = measurement(
        probe(levelled=False)
    )  # half as much again was a guess; that it is not needed, they tell
    assert find_budgets(evidence({}, growing, small), None).other == Budget((), 3072, 1200)


def test_few_real_trials_only_raise_memory() -> None:
    few = usage(use(2, gpu_mb=4000.0, memory_mb=500.0, cores=2.5, time_s=(100.0, 120.0, 130.0)))
    found = evidence({}, measurement(), few)
    assert find_budgets(found, None).other == Budget((), 5120, 1200)
    assert (
        found.settings["cpus"].value == 1
        and found.time is not None
        and found.time.middle_s == 2000.0
    )
    assert not evidence({}, None, few).uses_gpu


def test_what_the_study_says_beats_both_and_gets_no_headroom() -> None:
    real = usage(use(10, gpu_mb=4000.0, memory_mb=500.0, cores=2.5, time_s=(100.0, 120.0, 130.0)))
    of = study(gpu_memory_mb=3072, memory_mb=700, cpus=1.5, time_s=3600.0, gpu_type="p100")
    made = plan(100, {}, measurement(), real, of)
    assert (made.slots, made.agents, asked(made).time_s) == (4, 25, 3900)
    assert (asked(made).cpus, asked(made).memory_mb) == (6, 2800)
    assert asked(made).because["memory_mb"] == asked(made).because["cpus"] == "study"


def test_cores_that_are_nearly_whole() -> None:
    for cores, whole in ((0.3, 1), (1.05, 1), (1.3, 2), (3.99, 4)):
        assert evidence({}, measurement(probe(cores=cores))).settings["cpus"].value == whole


# -- the document's example


def test_the_documents_example_from_a_measurement() -> None:
    """A peak of 2 GB becomes 3; four share a GPU of 12 GB; 25 agents take 100 trials."""
    made = plan(100, SAID, measurement())
    assert (made.slots, made.agents, made.waves) == (4, 25, 1)
    assert made.pack is not None and made.pack.budget == Budget((), 3072, 1200)
    assert (made.pack.a_gpu, made.pack.gpu_memory_mb, made.pack.job_memory_mb, made.pack.mps) == (
        4,
        12288,
        4800,
        False,
    )
    request = asked(made)
    assert (request.gpus, request.gpu_type, request.cpus, request.memory_mb) == (1, "p100", 4, 4800)
    assert request.time_s == 3120, "2000 s, 1.2 times as long among 4, 1.3 for safety"
    for key in ("cpus", "memory_mb", "time_s"):
        assert "measured (1 Jan 0" in request.because[key] and "Tesla P100" in request.because[key]
    assert made.terms is not None
    assert "#SBATCH --array=0-24" in example_script(made.terms, StudyPaths(made.folder))
    assert plan(10, SAID, measurement()).agents == 3
    assert plan(3, SAID, measurement()).slots == 3


def test_gpus_one_is_shared_once_it_was_measured() -> None:
    assert plan(100, SAID, None, of=study(gpus=1)).slots == 1
    assert "`windlass measure` finds out" in plan(100, SAID, None, of=study(gpus=1)).slots_because
    assert plan(100, SAID, measurement(), of=study(gpus=1)).slots == 4
    assert plan(100, {**SAID, "most": 1}, measurement(), of=study(gpus=1)).slots == 1
    assert plan(100, SAID, measurement(), of=study(gpus=2)).slots == 1
    assert plan(100, SAID, measurement(), of=study(gpus=0.5)).slots == 2, "as said"


def test_several_gpus_a_job() -> None:
    made = plan(100, {**SAID, "gpus_per_job": 2}, measurement())
    assert (made.slots, asked(made).gpus, asked(made).cpus, asked(made).memory_mb) == (
        8,
        2,
        8,
        9600,
    )
    assert made.pack is not None and made.pack.a_gpu == 4


# -- how many pay


def test_the_measured_choice_caps_what_fits() -> None:
    two = rounds((1, 2000.0), (2, 2050.0), (4, 4100.0))
    made = plan(100, SAID, measurement(rounds=two, choice=Choice(2, "plain", "")))
    assert made.slots == 2 and "2 share it best" in made.slots_because


def test_on_another_type_only_memory_decides() -> None:
    two = rounds((1, 2000.0), (2, 2050.0), (4, 4100.0))
    made = plan(100, {"gpu_type": "v100l"}, measurement(rounds=two, choice=Choice(2, "plain", "")))
    assert made.slots == 10 and made.pack is not None and not made.pack.mps
    assert any(
        "measured on Tesla P100" in warning and "its memory, not" in warning
        for warning in made.warnings
    )


def test_measured_with_a_gpu_and_planned_without_or_the_other_way_round() -> None:
    without = measurement(probe(None), device=None, rounds=(), choice=None)
    assert any(
        "measured without a GPU" in text for text in plan(9, {**SAID, "gpus": 1}, without).warnings
    )
    assert any("take longer" in text for text in plan(9, {"gpus": 0}, measurement()).warnings)
    assert any("take longer" in text for text in local(9, {"gpus": 0}, measurement()).warnings)
    assert not plan(9, SAID, measurement()).warnings and not plan(9, {}, without).warnings


def test_without_a_type_the_measured_one_is_taken() -> None:
    made = plan(100, {}, measurement())
    assert asked(made).gpu_type == "p100" and "that was measured" in asked(made).because["gpu_type"]
    by_name = measurement(device=MeasuredDevice("NVIDIA p100", 12200))
    assert asked(plan(100, {}, by_name)).gpu_type == "p100", "also by the device's own name"
    assert (
        asked(plan(100, {}, measurement(device=MeasuredDevice("NVIDIA H200", 143771)))).gpu_type
        == ""
    )


def test_latency_and_modes() -> None:
    both = measurement(rounds=CURVE + rounds((2, 2010.0), (4, 2100.0), (8, 2500.0), mode="mps"))
    assert pick_concurrency(both, "throughput", "auto") == (8, "mps", "share it best")
    assert pick_concurrency(both, "throughput", "off") == (4, "plain", "share it best")
    assert pick_concurrency(both, "latency", "off") == (
        2,
        "plain",
        "side by side are hardly slower",
    )
    assert pick_concurrency(both, "latency", "on") == (4, "mps", "side by side are hardly slower")
    slow = measurement(rounds=rounds((1, 100.0), (2, 150.0)))
    assert pick_concurrency(slow, "latency", "auto") == (1, "plain", "alone is best")
    assert pick_concurrency(measurement(rounds=(), choice=None), "throughput", "auto") is None
    made = plan(100, SAID, both)
    assert made.pack is not None and (made.pack.a_gpu, made.pack.mps) == (4, True), (
        "memory holds no more"
    )
    made = plan(100, {**SAID, "mps": "off"}, both)
    assert made.pack is not None and not made.pack.mps


def test_mps_that_could_not_be_tried_is_no_reason_to_be_alone() -> None:
    assert pick_concurrency(measurement(), "throughput", "on") == (
        4,
        "mps",
        "share it best, without MPS",
    )
    made = plan(100, {**SAID, "mps": "on"}, measurement())
    assert made.slots == 4 and made.pack is not None and made.pack.mps


def test_a_round_that_was_worth_nothing_is_not_chosen() -> None:
    failed = Round("plain", 8, trials_per_h=99.0, trial_s=1.0, note="out of memory")
    assert pick_concurrency(measurement(rounds=(*CURVE[:3], failed)), "throughput", "auto") == (
        4,
        "plain",
        "share it best",
    )


def test_slowdown_between_and_beyond_what_was_tried() -> None:
    measured = measurement(choice=None)
    assert slowdown(measured, 1, "plain") == 1.0 and slowdown(None, 9, "plain") == 1.0
    assert slowdown(measured, 4, "plain") == 1.2
    assert slowdown(measured, 3, "plain") == pytest.approx((1.025 + 1.2) / 2)
    assert slowdown(measured, 16, "plain") == pytest.approx(4.9), (
        "all together are no faster than 8"
    )
    assert slowdown(measured, 4, "mps") == 1.0, "not tried"


def test_memory_alone_where_nobody_looked_whether_it_pays() -> None:
    made = plan(100, SAID, measurement(rounds=(), choice=None))
    assert made.slots == 4 and "not measured" in made.warnings[0]


def test_a_node_has_to_have_the_cores_and_the_memory() -> None:
    assert plan(100, SAID, measurement(probe(cores=8.0))).slots == 3, "24 cores"
    made = plan(100, SAID, measurement(probe(memory_mb=50_000.0)))
    assert made.slots == 2 and "128000 MB of memory on a node" in made.slots_because


def test_the_agent_is_in_the_job_too() -> None:
    small = plan(1, SAID, measurement(probe(memory_mb=82.0)))
    assert small.pack is not None and small.pack.budget.memory_mb == 100
    assert asked(small).memory_mb == 200 and asked(small).because["memory_mb"].endswith(
        "and the agent"
    )
    assert asked(plan(1, SAID, measurement(probe(memory_mb=1000.0)))).memory_mb == 1200
    assert asked(plan(1, {**SAID, "memory": "50MB"}, None)).memory_mb == 114, (
        "also beside what is said"
    )
    assert asked(plan(1, {**SAID, "memory": "1GB"}, None)).memory_mb == 1024


# -- variants


def two_variants() -> tuple[Study, Measurement]:
    probes = (
        probe(2048.0, settings={"algo": "dqn"}, memory_mb=1000.0),
        probe(5 * 1024.0, settings={"algo": "ppo"}, memory_mb=3000.0),
    )
    return study(("algo",)), measurement(*probes, variants=("algo",))


def test_variants_have_budgets_of_their_own() -> None:
    of, measured = two_variants()
    made = plan(100, SAID, measured, of=of)
    assert made.pack is not None
    assert made.pack.budgets == (Budget(("dqn",), 3072, 1200), Budget(("ppo",), 6144, 3600))
    assert made.pack.budget == Budget((), 6144, 3600), "an unknown one may be as large as any"
    assert (made.pack.variants, made.slots) == (("algo",), 4)
    assert asked(made).memory_mb == 2 * 3600, (
        "two large ones; beside one large one, two small ones take less"
    )
    assert made.agents == 50, "of a usual mix two are on a GPU"


def test_the_largest_mix_is_the_largest() -> None:
    """Against all mixes that there are."""
    sizes = [(3072, 1200), (6144, 1500), (1024, 900)]
    budgets = Budgets(tuple(Budget((n,), *size) for n, size in enumerate(sizes)), Budget())
    for trials in range(1, 7):
        for memory_mb in (2048, 6144, 12288, 16384):
            mixes = [
                (a, b, c)
                for a in range(trials + 1)
                for b in range(trials + 1 - a)
                for c in range(trials + 1 - a - b)
                if 3072 * a + 6144 * b + 1024 * c <= memory_mb
            ]
            best = max(1200 * a + 1500 * b + 900 * c for a, b, c in mixes)
            assert largest_mix_mb(budgets, trials, memory_mb) == max(best, 1500), (
                trials,
                memory_mb,
            )
    assert largest_mix_mb(budgets, 3, None) == 4500
    assert largest_mix_mb(Budgets((), Budget()), 3, 1000) is None


def test_real_trials_of_one_variant() -> None:
    of, measured = two_variants()
    real = usage(
        use(9, memory_mb=900.0),
        use(5, ("dqn",), memory_mb=900.0),
        use(1, ("ppo",), memory_mb=4000.0),
    )
    budgets = find_budgets(evidence({}, measured, real, of), None)
    by_variant = {budget.variant: budget.memory_mb for budget in budgets.variants}
    assert by_variant == {("dqn",): 1200, ("ppo",): 4800}, "a peak that was seen stays"


def test_variants_by_another_name_than_measured_share_the_largest_budget() -> None:
    of, measured = two_variants()
    found = evidence({}, dataclasses.replace(measured, variants=("size",)), of=of)
    assert find_budgets(found, None) == Budgets((), Budget((), 6144, 3600))
    assert found.warnings == (
        "measured with `variants: [size]`: all trials are given what the largest one took; "
        "`windlass measure` finds out what trials need now",
    )
    assert (
        "measured without variants"
        in evidence({}, dataclasses.replace(measured, variants=()), of=of).warnings[0]
    )
    finer = evidence({}, dataclasses.replace(measured, variants=("size", "algo")), of=of)
    assert len(finer.peaks) == 2 and not finer.warnings, "the largest of each was measured"


def test_variants_that_were_not_measured_are_named() -> None:
    of, measured = two_variants()
    assert not evidence({}, measured, of=of).warnings
    five = Parameter("algo", ("dqn", "ppo", "a", "b", "c", "d", "e"))
    wider = dataclasses.replace(of, space=Space(parameters=(five,)))
    found = evidence({}, measured, of=wider)
    assert found.warnings[0].startswith(
        "not measured: algo=a, algo=b, algo=c and 2 more, given what the largest one took"
    )
    assert len(found.peaks) == 2 and find_budgets(found, None).other == Budget((), 6144, 3600)
    real = usage(use(9), *(use(5, (name,), memory_mb=900.0) for name in "abcde"))
    assert not evidence({}, measured, real, wider).warnings, "real trials have shown it"
    few = usage(use(9), use(1, ("a",), memory_mb=900.0))
    assert "algo=a" in evidence({}, measured, few, wider).warnings[0], "one is not enough"


def test_one_that_ran_out_of_memory_lowers_nothing() -> None:
    of, measured = two_variants()
    small, large = measured.probes
    fell = dataclasses.replace(
        large, cause="gpu out of memory", gpu_mb=600.0, memory_mb=6.0, time_s=(1.0, 1.0, 1.0)
    )
    found = evidence({}, dataclasses.replace(measured, probes=(small, fell)), of=of)
    assert find_budgets(found, None) == Budgets((), Budget((), 3072, 1200))
    assert found.time is not None and found.time.middle_s == 2000.0
    assert found.warnings[0].startswith("not measured: algo=ppo,")
    fell = dataclasses.replace(fell, gpu_mb=11_000.0)
    found = evidence({}, dataclasses.replace(measured, probes=(small, fell)), of=of)
    assert find_budgets(found, None).other.gpu_mb == 12 * 1024, "so much it had, and more"


def test_only_variants_that_there_are() -> None:
    parameters = (
        Parameter("algo", ("dqn", "ppo")),
        Parameter("size", (1, 2), when={"algo": ("ppo",)}),
        Parameter("lr", tuple(range(100_000))),
    )
    space = Space(parameters=parameters, exclude=({"algo": ("ppo",), "size": (2,)},), seeds=(1, 2))
    of = dataclasses.replace(study(("algo", "size")), space=space)
    probes = (probe(settings={"algo": "dqn"}), probe(settings={"algo": "ppo", "size": 1}))
    measured = measurement(*probes, variants=("algo", "size"))
    assert not evidence({}, measured, of=of).warnings
    of = dataclasses.replace(of, space=dataclasses.replace(space, exclude=()))
    assert "not measured: algo=ppo size=2," in evidence({}, measured, of=of).warnings[0]


@given(
    st.lists(st.integers(1, 40_000), min_size=1, max_size=4),
    st.sampled_from((8, 12, 24, 80)),
    st.sampled_from(("next", "0%", "20%", "2GB")),
    st.integers(1, 64),
    st.integers(1, 300),
)
def test_budgets_never_add_up_to_more_than_there_is(
    peaks: list[int], gpu_gb: int, headroom: str, best: int, trials: int
) -> None:
    of = dataclasses.replace(study(("algo",)), variants=("algo",))
    probes = [probe(peak, settings={"algo": number}) for number, peak in enumerate(peaks)]
    kind = dataclasses.replace(P100, memory_mb=gpu_gb * 1024)
    measured = measurement(*probes, rounds=(), choice=Choice(best, "plain", ""), variants=("algo",))
    made = plan(
        trials,
        {**SAID, "headroom": headroom},
        measured,
        of=of,
        cluster=dataclasses.replace(CLUSTER, gpus=(kind,)),
    )
    assert made.pack is not None and 1 <= made.slots <= max(1, min(best, trials))
    sizes = [budget.gpu_mb or 0 for budget in (*made.pack.budgets, made.pack.budget)]
    assert made.slots == 1 or made.slots * min(sizes) <= gpu_gb * 1024
    assert all(
        size >= peak or size == gpu_gb * 1024 for size, peak in zip(sizes, peaks, strict=False)
    )
    assert asked(made).cpus >= made.slots and asked(made).memory_mb >= max(
        b.memory_mb or 0 for b in made.pack.budgets or [made.pack.budget]
    )
    assert made.agents * made.waves * made.slots >= trials


# -- time


def test_time_is_waves_times_one_times_slowdown_times_safety() -> None:
    measured = measurement(
        probe(time_s=(9.0, 10.0, 11.0)), rounds=rounds((1, 10.0), (4, 15.0)), choice=None
    )
    made = plan(8, {**SAID, "agents": 1, "safety": 2}, measured)
    assert (made.slots, made.waves, made.estimate_s) == (4, 2, 30.0)
    assert asked(made).time_s == 300, (
        "the environment comes first, which was not measured, and a notice last"
    )
    assert made.settings["time_s"].value == 30, "what the agent keeps free for one trial"
    made = plan(800, {**SAID, "agents": 1, "safety": 2}, measured)
    assert (made.waves, asked(made).time_s, made.estimate_s) == (200, 6000, 3000.0)


def test_a_job_holds_its_longest_trial() -> None:
    times = (probe(time_s=(0.0, 1000.0, 0.0)), probe(time_s=(0.0, 3000.0, 0.0)))
    made = plan(4, {**SAID, "agents": 1}, measurement(*times, rounds=(), choice=None))
    assert asked(made).time_s == 3900
    made = plan(16, {**SAID, "agents": 1}, measurement(*times, rounds=(), choice=None))
    assert asked(made).time_s == 11700, "three of a usual length, and a long one"
    times = (probe(time_s=(0.0, 1000.0, 0.0)), probe(time_s=(0.0, 6000.0, 0.0)))
    made = plan(
        1, {**SAID, "agents": 1}, measurement(*times, rounds=rounds((1, 2000.0)), choice=None)
    )
    assert asked(made).time_s == 7800, "the round was of one in between"


def stepping(*values: int, steps: str | None = "{n}", **space: Any) -> Study:
    made = Space(parameters=(Parameter("n", values),), **space)
    return dataclasses.replace(study(), space=made, progress=ProgressSpec(steps=steps))


def measured_steps(n: int = 30) -> Measurement:
    """Two seconds to begin, a tenth for each step; of four side by side each step takes twice as long."""
    time_s = 2.0 + 0.1 * n
    one = probe(
        settings={"n": n},
        time_s=(time_s,) * 3,
        steps=n,
        step_s=(0.1,) * 3,
        startup_s=2.0,
        ended=True,
    )
    both = (
        Round("plain", 1, rate=10.0, startup_s=2.0, trial_s=time_s, trials_per_h=3600 / time_s),
        Round(
            "plain",
            4,
            rate=20.0,
            startup_s=2.0,
            trial_s=2.0 + 0.2 * n,
            trials_per_h=4 * 3600 / (2.0 + 0.2 * n),
        ),
    )
    return measurement(one, rounds=both, choice=Choice(4, "plain", "", slowdown=1.6))


def test_the_time_goes_with_the_steps_of_the_study() -> None:
    same = evidence({}, measured_steps(), of=stepping(30))
    assert same.time is not None and (same.time.middle_s, same.time.source) == (
        5.0,
        same.measured_source,
    )
    longer = evidence({}, measured_steps(), of=stepping(30, 36000))
    assert longer.time is not None and not longer.warnings
    assert (longer.time.middle_s, longer.time.high_s) == pytest.approx((2 + 0.1 * 18015, 3602))
    assert longer.time.source.endswith("with n=30, by its pace for n=36000")
    shorter = evidence({}, measured_steps(), of=stepping(10))
    assert shorter.time is not None and shorter.time.high_s == pytest.approx(3.0)
    drawn = Space(
        "random",
        (Parameter("n", distribution=Distribution("int_uniform", {"min": 10, "max": 100})),),
    )
    ranged = evidence({}, measured_steps(), of=dataclasses.replace(stepping(1), space=drawn))
    assert ranged.time is not None and (ranged.time.middle_s, ranged.time.high_s) == pytest.approx(
        (7.5, 12.0)
    )
    rows = evidence({}, measured_steps(), of=stepping(method="list", rows=({"n": 100},)))
    assert rows.time is not None and rows.time.high_s == pytest.approx(12.0)


def test_among_others_only_the_steps_take_longer() -> None:
    """Not what one of 30 steps took among four, most of which was its start."""
    made = plan(4, {**SAID, "agents": 1}, measured_steps(), of=stepping(36000))
    assert (made.slots, made.estimate_s) == (4, pytest.approx(2 * 3602))
    assert "for n=36000: 1 h a trial, 2 times as long among 4" in asked(made).because["time_s"]
    assert plan(
        4, {**SAID, "agents": 1}, measured_steps(), of=stepping(30)
    ).estimate_s == pytest.approx(1.6 * 5)


def test_values_that_were_measured_and_are_gone() -> None:
    gone = "measured with n=30, which the study does not have any more; `windlass measure` finds out what"
    found = evidence({}, measured_steps(), of=stepping(36000, steps=None))
    assert found.time is not None and found.time.high_s == 5.0
    assert len(found.warnings) == 1 and found.warnings[0].startswith(gone)
    beyond = evidence({}, measured_steps(), of=stepping(30, 36000, steps=None))
    assert beyond.warnings[0].startswith("not measured: n=36000, only less than that")
    assert not evidence({}, measured_steps(), of=stepping(10, 30, steps=None)).warnings
    pace = dataclasses.replace(measured_steps().probes[0], step_s=None)
    assert evidence({}, measurement(pace), of=stepping(36000)).warnings[0].startswith(gone), (
        "its pace is not known"
    )


@pytest.mark.parametrize(
    "kind,numbers,warned",
    [
        ("uniform", {"min": 1.0, "max": 30.0}, False),
        ("uniform", {"min": 31.0, "max": 90.0}, True),
        ("q_uniform", {"min": 31.0, "max": 90.0, "q": 5}, False),  # rounded
        ("log_uniform", {"min": -9.0, "max": -1.0}, False),  # exponents
        ("normal", {"mu": 0.0, "sigma": 1.0}, False),
    ],
)
def test_values_outside_of_what_is_drawn(
    kind: str, numbers: dict[str, float], warned: bool
) -> None:
    drawn = Space("random", (Parameter("n", distribution=Distribution(kind, numbers)),))
    of = dataclasses.replace(study(), space=drawn)
    assert bool(evidence({}, measured_steps(), of=of).warnings) == warned


def test_the_time_of_real_trials_was_that_in_their_company() -> None:
    real = usage(use(9, time_s=(240.0, 240.0, 240.0)), k=4)
    assert plan(4, {**SAID, "agents": 1}, measurement(), real).estimate_s == 240.0
    real = usage(use(9, time_s=(200.0, 200.0, 200.0)), k=1)
    assert plan(4, {**SAID, "agents": 1}, measurement(), real).estimate_s == 240.0


def test_the_longest_real_trial_gets_the_time_it_took() -> None:
    real = usage(use(9, time_s=(1000.0, 1100.0, 6000.0)))
    assert asked(plan(1, SAID, None, real, study(gpus=1))).time_s == 6000


def test_the_limit_may_leave_less_than_the_safety() -> None:
    measured = measurement(probe(time_s=(0.0, 20 * 3600.0, 0.0)), rounds=(), choice=None)
    made = plan(4, {**SAID, "safety": 1.5}, measured)
    assert asked(made).time_s == 24 * 3600
    assert any("little more than the trials" in warning for warning in made.warnings)


def test_hundred_epochs_of_which_seven_fit_a_day_are_fifteen_units() -> None:
    measured = measurement(probe(time_s=(0.0, 100 / 7 * 86400, 0.0)), rounds=(), choice=None)
    checkpoints = dataclasses.replace(study(), checkpoint=Checkpoint())
    made = plan(1, SAID, measured, of=checkpoints)
    assert made.terms is not None and made.terms.units == 15


def test_nothing_is_guessed_without_a_time() -> None:
    made = plan(100, SAID, measurement(probe(time_s=None, steps=2000.0)))
    assert (made.slots, made.estimate_s, made.alternatives) == (4, None, ())
    assert "is not known" in asked(made).because["time_s"]


# -- without GPUs, and on this machine


def test_cores_of_a_node() -> None:
    one = probe(None, cores=1.7, time_s=(0.0, 10.0, 0.0))
    measured = measurement(one, device=None, rounds=rounds((1, 10.0), (4, 11.0), (8, 25.0)))
    made = plan(100, {"agents": 1}, measured)
    assert (made.slots, asked(made).gpus, asked(made).cpus, asked(made).memory_mb) == (
        4,
        0,
        8,
        4800,
    )
    assert made.estimate_s == pytest.approx(25 * 11.0)
    assert plan(100, {"most": 3}, measured).slots == 3
    made = plan(100, {"agents": 1}, dataclasses.replace(measured, host="laptop"))
    assert made.slots == 8, "what pays on another machine tells nothing"
    assert made.estimate_s == pytest.approx(13 * 10.0), (
        "and on cores of their own they are not slower"
    )
    real = usage(use(9, time_s=(20.0, 20.0, 20.0)), k=8)
    made = plan(100, {"agents": 1}, dataclasses.replace(measured, host="laptop"), real)
    assert made.estimate_s == pytest.approx(13 * 20.0), (
        "what real trials took there is what they take"
    )


HERE = Site(cpus=16, memory_mb=128_000, gpus=(Gpu("0", 143_771),))
H200 = MeasuredDevice("NVIDIA H200", 143_771)
WIDE = rounds((1, 20.0), (16, 22.0), (64, 40.0))


def local(
    trials: int,
    flags: Mapping[str, Any],
    measured: Measurement | None,
    site: Site = HERE,
    **needs: Any,
) -> Plan:
    of = study(**needs)
    settings = resolve_settings(flags, of.given, {}, "", {})
    return plan_local(
        of, trials, settings, site, "/f/s", find_evidence(of, settings, measured, None, "d")
    )


def here(**more: Any) -> Measurement:
    one = probe(600.0, memory_mb=3000.0, time_s=(0.0, 20.0, 0.0))
    usual: dict[str, Any] = {"device": H200, "rounds": WIDE, "choice": None}
    return dataclasses.replace(measurement(one, **{**usual, **more}), cores=16, memory_mb=128_000)


def test_what_was_measured_on_this_machine_needs_no_other_limit() -> None:
    made = local(640, {}, here(), gpus=1)
    assert (made.slots, made.waves, made.gpus, made.estimate_s) == (64, 10, ("0",), 400.0)
    assert made.pack is not None and (made.pack.a_gpu, made.pack.job_memory_mb) == (64, None)
    assert made.pack.budget == Budget((), 1024, 3600)
    assert local(640, {}, here()).slots == 64, "nobody has to say that it uses a GPU"
    assert local(640, {"gpus": 0}, here()).gpus == ()
    fewer = dataclasses.replace(HERE, cpus=4)
    assert local(640, {}, here(), fewer, gpus=1).slots == 4, "fewer cores than it was measured with"
    two = dataclasses.replace(HERE, gpus=(Gpu("0", 143_771), Gpu("1", 143_771)))
    assert local(640, {}, here(), two, gpus=1).slots == 64, "two GPUs on the cores of one"


def test_who_says_what_of_a_gpu_it_needs_gets_one_here() -> None:
    """As on a cluster: GPU memory is of a GPU, and as many share one as fit."""
    made = local(640, {"gpu_memory": "12GB"}, None)
    assert (made.slots, made.gpus) == (11, ("0",))
    assert made.pack is not None and made.pack.budget.gpu_mb == 12 * 1024
    assert local(640, {"gpu_memory": "12GB"}, None, Site(16, 128_000)).gpus == (), (
        "a machine without"
    )


def test_the_gpu_is_the_reason_where_cores_say_the_same() -> None:
    assert "64 share it best" in local(640, {}, here(), gpus=1).slots_because


def test_another_gpu_here() -> None:
    small = dataclasses.replace(HERE, gpus=(Gpu("0", 8 * 1024),))
    made = local(640, {}, here(), small, gpus=1)
    assert made.slots == 8 and "its memory, not" in made.warnings[0]


def test_cores_of_this_machine() -> None:
    cpu = here(device=None, rounds=rounds((1, 10.0), (8, 12.0), (16, 30.0)))
    cpu = dataclasses.replace(cpu, probes=(probe(None, cores=1.0, memory_mb=100.0),))
    made = local(100, {}, cpu, Site(16, 128_000))
    assert made.slots == 8 and "8 share it best" in made.slots_because
    assert local(100, {}, cpu, Site(4, 128_000)).slots == 4
    assert local(100, {"most": 2}, cpu, Site(16, 128_000)).slots == 2


# -- from the study's folder

STUDY = """\
command: python train.py --algo {algo} --lr {lr}
parameters: {algo: [dqn, ppo], lr: [1, 2, 3, 4, 5]}
needs: {gpus: 1, gpu_type: p100}
"""


def write_measured(folder: str, measured: Measurement) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    data = {"version": 1, **dataclasses.asdict(measured)}
    Path(StudyPaths(folder).measured).write_text(json.dumps(data))


def test_a_measurement_in_the_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    of = load_study(str(tmp_path / "study.yaml"))
    flags = {"folder": str(tmp_path / "out")}
    before = make_plan(SlurmPlace(CLUSTER), of, flags)
    assert before.slots == 1 and not (tmp_path / "out").exists(), "planning writes nothing"
    write_measured(before.folder, dataclasses.replace(measurement(), digest=study_digest(of)))
    made = make_plan(SlurmPlace(CLUSTER), of, flags)
    assert (made.slots, made.agents) == (4, 3)
    here_too = make_plan(LocalPlace(Site(2, 8000)), of, {**flags, "gpus": 0})
    assert here_too.settings["memory_mb"].value == 1200
    assert sorted(path.name for path in Path(made.folder).iterdir()) == ["measured.json"]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 9}', '{"version": 1}', '{"version": 1, "probes": 3}']
)
def test_a_damaged_measurement_is_a_warning(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    of = load_study(str(tmp_path / "study.yaml"))
    folder = tmp_path / "out" / of.name
    folder.mkdir(parents=True)
    (folder / "measured.json").write_text(text)
    made = make_plan(SlurmPlace(CLUSTER), of, {"folder": str(tmp_path / "out")})
    assert made.slots == 1 and "cannot be read and is not used" in made.warnings[0]


@pytest.mark.parametrize(
    "damage",
    [
        {"when": "yesterday"}, {"when": 1e30}, {"host": None}, {"memory_mb": None}, {"warm_s": "soon"}, {"cores": 1.5},
        {"device": {"name": "A", "memory_mb": "12"}}, {"rounds": [{"mode": "plain", "k": "1"}]},
        *({"probes": [{"trial": "t", "settings": {}, **one}]} for one in (
            {"memory_mb": "60"}, {"memory_mb": None}, {"memory_mb": float("inf")}, {"memory_mb": float("nan")},
            {"time_s": [2.0]}, {"time_s": [None, None, None]}, {"cores": float("inf")},
            {"settings": None}, {"growing_mb_per_min": []},
        )),
    ],
)  # fmt: skip
def test_a_measurement_with_a_value_of_another_kind_is_a_warning(
    tmp_path: Path, damage: dict[str, Any]
) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    of = load_study(str(tmp_path / "study.yaml"))
    folder = tmp_path / "out" / of.name
    folder.mkdir(parents=True)
    good = dataclasses.asdict(dataclasses.replace(measurement(), digest=study_digest(of)))
    (folder / "measured.json").write_text(json.dumps({"version": 1, **good, **damage}))
    made = make_plan(SlurmPlace(CLUSTER), of, {"folder": str(tmp_path / "out")})
    assert made.slots == 1 and "cannot be read and is not used" in made.warnings[0]
