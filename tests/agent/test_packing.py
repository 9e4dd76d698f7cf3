"""Packing by size: never above the memory, nobody waits for ever, and where each goes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.agent.config import Slot
from windlass.agent.share.packing import Budgets, Need, Packer, Waiting, parse_shard_share, raised

GB = 1024


class Site:
    """Slots, a packer, and what runs where; checks after every start that nothing is given out twice."""

    def __init__(
        self,
        devices_mb: dict[str | None, float | None],
        slots_each: int,
        job_mb: float | None = None,
    ) -> None:
        self.devices_mb, self.job_mb = devices_mb, job_mb
        self.packer = Packer(devices_mb, job_mb)
        names = [device for _ in range(slots_each) for device in devices_mb]
        self.free = [Slot(number, device) for number, device in enumerate(names)]
        self.running: dict[int, tuple[Slot, Waiting]] = {}

    def fill(self, waiting: list[Waiting]) -> list[int]:
        """Begin what can begin; returns their numbers in order."""
        begun = []
        while (chosen := self.packer.choose(waiting, self.free)) is not None:
            trial, slot = chosen
            waiting.remove(trial)
            self.free.remove(slot)
            self.packer.take(slot, trial)
            self.running[trial.number] = (slot, trial)
            begun.append(trial.number)
            self.check()
        return begun

    def end(self, number: int) -> None:
        slot, _ = self.running.pop(number)
        self.packer.release(slot)
        self.free.append(slot)

    def on(self, device: str | None) -> list[Need]:
        return [trial.need for slot, trial in self.running.values() if slot.gpus == device]

    def check(self) -> None:
        for device, size in self.devices_mb.items():
            needs = self.on(device)
            if size is not None and len(needs) > 1:
                assert sum(need.gpu_mb or 0 for need in needs) <= size
        memory = [trial.need.memory_mb or 0 for _, trial in self.running.values()]
        assert self.job_mb is None or len(memory) < 2 or sum(memory) <= self.job_mb


def trials(*sizes_mb: float, first: int = 0) -> list[Waiting]:
    return [Waiting(first + place, Need(size)) for place, size in enumerate(sizes_mb)]


needs = st.builds(
    Need,
    st.none() | st.integers(1, 16 * GB).map(float) | st.just(math.inf),
    st.none() | st.integers(1, 70 * GB).map(float),
)


@given(
    st.lists(needs, max_size=40),
    st.lists(st.sampled_from([None, 5.0 * GB, 10.0 * GB, 12.0 * GB]), min_size=1, max_size=4),
    st.integers(1, 6),
    st.sampled_from([None, 64.0 * GB]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_never_above_memory_and_all_get_their_turn(
    wanted: list[Need],
    sizes: list[float | None],
    slots_each: int,
    job_mb: float | None,
    chance: random.Random,
) -> None:
    site = Site({str(number): size for number, size in enumerate(sizes)}, slots_each, job_mb)
    waiting = [Waiting(number, need) for number, need in enumerate(wanted)]
    begun: list[int] = []
    while waiting or site.running:
        begun += site.fill(waiting)
        assert site.running, "with nothing under way anything fits"
        site.end(chance.choice(sorted(site.running)))
    assert sorted(begun) == list(range(len(wanted)))


def endless(rest_mb: float, first: int) -> Iterator[Waiting]:
    number = first
    while True:
        yield Waiting(number, Need(rest_mb, 1.0 * GB))
        number += 1


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize(
    "large", [Need(11.0 * GB), Need(100.0 * GB), Need(2.0 * GB, 60.0 * GB)], ids=str
)
def test_a_large_one_is_not_overtaken_for_ever(devices: int, large: Need) -> None:
    """Small ones never stop coming, and one of them ends at a time: the large one begins all the same."""
    site = Site({str(number): 12.0 * GB for number in range(devices)}, 6, 64.0 * GB)
    more = endless(2.0 * GB, 1)
    waiting = [next(more) for _ in range(6 * devices)]
    site.fill(waiting)
    waiting = [Waiting(0, large), *(next(more) for _ in range(20))]
    chance = random.Random(7)
    ended = 0
    while 0 not in site.running:
        site.end(chance.choice(sorted(site.running)))
        ended += 1
        site.fill(waiting)
        waiting += [next(more) for _ in range(20 - len(waiting))]
        assert ended < 200
    assert ended > 1, "small ones used the time"


def test_small_ones_are_not_overtaken_for_ever_either() -> None:
    site = Site({"0": 12.0 * GB}, 6)
    waiting = trials(2.0 * GB, *[5.0 * GB] * 100)
    order: list[int] = []
    while 0 not in order:
        order += site.fill(waiting)
        site.end(order[-1] if order[-1] in site.running else min(site.running))
    assert len(order) < 30


def test_two_variants_on_a_gpu_of_12_gb() -> None:
    """Requirement C6: 2 GB and 5 GB on 12 GB; no sum above 12, and the GPU is filled."""
    site = Site({"0": 12.0 * GB}, 6)
    waiting = trials(*[2.0 * GB, 5.0 * GB] * 10)
    site.fill(waiting)
    assert sorted(need.gpu_mb or 0 for need in site.on("0")) == [2.0 * GB, 5.0 * GB, 5.0 * GB]
    sums = []
    while waiting or site.running:
        site.fill(waiting)
        sums.append(sum(need.gpu_mb or 0 for need in site.on("0")) / GB)
        site.end(min(site.running))
    assert max(sums) == 12 and sum(sums[:10]) / 10 > 10


def test_few_trials_spread_over_the_gpus_and_many_fill_them() -> None:
    site = Site({"0": 12.0 * GB, "1": 12.0 * GB}, 4)
    site.fill(trials(3.0 * GB, 3.0 * GB))
    assert (len(site.on("0")), len(site.on("1"))) == (1, 1)
    site.fill(trials(*[3.0 * GB] * 10, first=10))
    assert (len(site.on("0")), len(site.on("1"))) == (4, 4)


def test_room_is_left_in_one_piece_for_a_larger_one_that_waits() -> None:
    site = Site({"0": 12.0 * GB, "1": 12.0 * GB}, 6)
    site.fill(trials(5.0 * GB, 3.0 * GB))  # one each
    waiting = trials(10.0 * GB, 2.0 * GB, 2.0 * GB, first=10)
    assert site.fill(waiting) == [11, 12]
    assert len(site.on("0")) == 3, "both beside the 5 GB, where less is left"


def test_one_that_fits_nowhere_runs_alone() -> None:
    site = Site({"0": 12.0 * GB, "1": 24.0 * GB}, 4)
    monster = Waiting(0, Need(30.0 * GB))
    assert site.packer.is_oversized(monster.need) and not site.packer.is_oversized(Need(20.0 * GB))
    site.fill([monster])
    device = site.running[0][0].gpus
    waiting = trials(*[1.0 * GB] * 12, first=1)
    site.fill(waiting)
    assert site.on(device) == [monster.need]
    assert len(site.running) == 5


def test_a_device_of_unknown_size_can_be_had_alone() -> None:
    site = Site({None: None}, 4)
    site.fill(trials(math.inf, 5.0 * GB))
    assert list(site.running) == [0]
    site.end(0)
    site.fill(trials(None, 99.0 * GB, None, first=5))  # type: ignore[arg-type]
    assert len(site.running) == 3


def test_nothing_begins_on_a_closed_device() -> None:
    site = Site({"0": 12.0 * GB, "1": 12.0 * GB}, 2)
    site.packer.closed["0"] = "MPS"
    site.fill(trials(1.0 * GB, 1.0 * GB, 1.0 * GB))
    assert (len(site.on("0")), len(site.on("1"))) == (0, 2)


PACK: dict[str, Any] = {
    "variants": ["algo"],
    "budgets": [{"variant": ["ppo"], "gpu_mb": 3072, "memory_mb": None}],
    "budget": {"gpu_mb": 6144, "memory_mb": 2000},
}


def test_budgets_by_variant_and_as_learned() -> None:
    budgets = Budgets(PACK, {})
    assert budgets.need({"algo": "ppo", "lr": 1}) == (3072, 2000)
    assert budgets.need({"algo": "sac"}) == (6144, 2000)
    budgets.learn(
        {"budgets": [{"variant": ["ppo"], "gpu_mb": 4000}, {"variant": ["sac"], "memory_mb": 3000}]}
    )
    assert budgets.need({"algo": "ppo"}) == (4000, 2000)
    assert budgets.need({"algo": "sac"}) == (6144, 3000)
    budgets.learn({"budgets": [{"variant": ["ppo"], "gpu_mb": 1000}]})
    assert budgets.need({"algo": "ppo"}) == (3072, 2000), "learned is never less than planned"
    assert Budgets(None, {}).need({"algo": "ppo"}) == Need()


def test_numbers_are_the_same_variant_however_they_are_written() -> None:
    pack = {"variants": ["width"], "budgets": [{"variant": [64], "gpu_mb": 10, "memory_mb": None}]}
    assert Budgets(pack, {}).need({"width": 64.0}).gpu_mb == 10
    assert Budgets(pack, {}).need({"width": "64"}).gpu_mb is None


@pytest.mark.parametrize(
    "budget,peak,most,expected",
    [
        (2000.0, 1000.0, 12000.0, 3000),  # half as much again, at least
        (2000.0, 4000.0, 12000.0, 5000),  # a quarter beyond the peak
        (10000.0, 9000.0, 12000.0, 12000),  # at most the device
        (None, None, 12000.0, 4500),  # no budget: from what it had in company
        (None, 5000.0, None, 6250),
    ],
)
def test_a_budget_that_did_not_suffice(
    budget: float | None, peak: float | None, most: float | None, expected: int
) -> None:
    assert raised(budget, peak, 3000.0, most) == expected


def test_shards() -> None:
    assert parse_shard_share("gpu:a100:2(S:0-1),shard:a100:8(S:0-1)", 2) == 0.5
    assert parse_shard_share("Gres=gpu:1,shard:4", 1) == 0.25
    assert parse_shard_share("gpu:1,shard:4", 8) == 1.0
    assert parse_shard_share("gpu:4", 1) == 1.0
