"""Which trial begins next and where, by the memory that each needs. Pure. Python 3.9, standard library.

The budgets of the trials on a device never add up to more than its memory, nor those of all to more than the job's.
Among those that wait the largest that fits goes first. Nobody is overtaken for ever: after a bounded number of times
a device is kept free for the one that waits, until it fits.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from windlass.agent.config import Slot
from windlass.core.claims.learned import merge_learned, variant_key

_OVERTAKEN = 16  # so often, then it is the next
_MORE = 1.25  # of the peak that did not suffice
AT_LEAST = 1.5  # times the budget that did not suffice
_UNKNOWN_MB = 1e15  # of a device whose size nobody knows; finite, so that room can be reckoned with


class Need(NamedTuple):
    """Memory that a trial is given. None: nobody knows, so it is not counted. Infinite: all there is."""

    gpu_mb: Optional[float] = None
    memory_mb: Optional[float] = None


class Budgets:
    """What a trial needs by its variant: as planned, or as learned where that is more. False where nobody knows."""

    def __init__(self, pack: Optional[Mapping[str, Any]], learned: Mapping[str, Any]) -> None:
        pack = pack or {}
        self._names: List[str] = pack.get("variants") or []
        self._planned = list(pack.get("budgets") or [])
        self._otherwise = {
            name: size for name, size in (pack.get("budget") or {}).items() if size is not None
        }
        self.learn(learned)

    def __bool__(self) -> bool:
        return bool(self._by_variant or self._otherwise)

    def learn(self, learned: Mapping[str, Any]) -> None:
        """What the register has now."""
        both = merge_learned({"budgets": self._planned}, {"budgets": learned.get("budgets", [])})
        self._by_variant = {
            variant_key(budget["variant"]): budget for budget in both.get("budgets", [])
        }

    def variant(self, settings: Mapping[str, Any]) -> List[Any]:
        return [settings.get(name) for name in self._names]

    def need(self, settings: Mapping[str, Any]) -> Need:
        if not self:
            return Need()
        known = self._by_variant.get(variant_key(self.variant(settings)), {})
        return Need(
            *(_more(known.get(name), self._otherwise.get(name)) for name in ("gpu_mb", "memory_mb"))
        )

    def least(self) -> Optional[Need]:
        """What the smallest ones need; None where nobody knows."""
        known = [budget for budget in (*self._by_variant.values(), self._otherwise) if budget]
        sizes = [Need(budget.get("gpu_mb"), budget.get("memory_mb")) for budget in known]
        return min(sizes, key=_size, default=None)


def _more(known: Optional[float], otherwise: Optional[float]) -> Optional[float]:
    """A variant's own figure, or that of all where it has none."""
    return otherwise if known is None else known


def raised(
    budget: Optional[float], peak: Optional[float], fair_mb: float, most_mb: Optional[float]
) -> float:
    """The budget after one that did not suffice. `fair_mb` is what it had where it had none of its own."""
    wanted = max((peak or 0.0) * _MORE, (budget or fair_mb) * AT_LEAST)
    return math.ceil(wanted if most_mb is None else min(wanted, most_mb))


class Waiting(NamedTuple):
    """A trial that could begin."""

    number: int
    need: Need


class Packer:
    """The devices of one agent and what is given out of them. A slot's `gpus` names its device."""

    def __init__(
        self, devices_mb: Mapping[Optional[str], Optional[float]], job_mb: Optional[float] = None
    ) -> None:
        """All devices of the agent's slots, and the memory of the job; None where nobody knows."""
        self._devices_mb = {
            device: _UNKNOWN_MB if size is None else size for device, size in devices_mb.items()
        }
        self._job_mb = _UNKNOWN_MB if job_mb is None else job_mb
        # Slot → its device, and what was given there.
        self._taken: Dict[int, Tuple[Optional[str], Need]] = {}
        self._count: Dict[Optional[str], int] = dict.fromkeys(devices_mb, 0)
        self._overtaken: Dict[int, int] = {}  # trial → how often
        # The trial that is next, and the device it waits for.
        self._kept: Optional[Tuple[Waiting, Optional[str]]] = None
        self.closed: Dict[Optional[str], str] = {}  # devices on which nothing begins now, and why

    def device_mb(self, device: Optional[str]) -> Optional[float]:
        size = self._devices_mb[device]
        return None if size == _UNKNOWN_MB else size

    def level_on(self, device: Optional[str]) -> int:
        """How many trials are on a device."""
        return self._count[device]

    def is_oversized(self, need: Need) -> bool:
        """Whether it is more than any device has, or than the job has: then it runs alone."""
        largest = max(self._devices_mb.values())
        return _finite(need.gpu_mb) > largest or _finite(need.memory_mb) > self._job_mb

    def take(self, slot: Slot, trial: Waiting) -> None:
        """A trial begins in a slot."""
        self._taken[slot.number] = (slot.gpus, trial.need)
        self._count[slot.gpus] += 1
        self._overtaken.pop(trial.number, None)
        if self._is_kept(trial):
            self._kept = None

    def change(self, slot: Slot, need: Need) -> None:
        """More is known of the trial in a slot. What is given out may then be more than there is, until some end."""
        if slot.number in self._taken:
            self._taken[slot.number] = (slot.gpus, need)

    def release(self, slot: Slot) -> None:
        if self._taken.pop(slot.number, None) is not None:
            self._count[slot.gpus] -= 1

    def choose(
        self, waiting: Sequence[Waiting], free: Sequence[Slot]
    ) -> Optional[Tuple[Waiting, Slot]]:
        """The trial that begins next, and in which of the free slots; None where none fits. `waiting` is in order."""
        by_device: Dict[Optional[str], Slot] = {}
        for slot in free:
            if slot.gpus not in self.closed:
                by_device[slot.gpus] = slot
        self._keep_for(waiting)
        order = sorted(
            waiting, key=lambda trial: (self._is_kept(trial), _size(trial.need)), reverse=True
        )
        for trial in order:
            fitting = (
                [device for device in by_device if self._fits(trial, device)]
                if self._fits_job(trial)
                else []
            )
            if fitting:
                self._count_overtaken(trial, waiting)
                return trial, by_device[
                    self._best(fitting, larger_waits=_size(order[0].need) > _size(trial.need))
                ]
        return None

    def count_fitting(self, need: Need, free: Sequence[Slot]) -> int:
        """How many that need so much could begin now."""
        count = 0
        for device in {slot.gpus for slot in free} - set(self.closed):
            places = sum(slot.gpus == device for slot in free)
            fitting = places if not need.gpu_mb else int(self._room(device) / need.gpu_mb)
            count += min(places, fitting if self._count[device] else max(1, fitting))
        if need.memory_mb and self._taken:
            used = sum(_finite(one.memory_mb) for _, one in self._taken.values())
            count = min(count, int(max(0.0, self._job_mb - used) / need.memory_mb))
        return count

    def _is_kept(self, trial: Waiting) -> bool:
        return self._kept is not None and self._kept[0].number == trial.number

    def _keep_for(self, waiting: Sequence[Waiting]) -> None:
        """The one that has been overtaken too often is the next, and the device with the most room is kept for it."""
        here = {trial.number for trial in waiting}
        self._overtaken = {
            number: count for number, count in self._overtaken.items() if number in here
        }
        if (
            self._kept is not None
            and self._kept[0].number in here
            and self._kept[1] not in self.closed
        ):
            return
        self._kept = None
        late = [trial for trial in waiting if self._overtaken.get(trial.number, 0) >= _OVERTAKEN]
        open_devices = [device for device in self._devices_mb if device not in self.closed]
        if late and open_devices:
            need = late[0].need
            self._kept = (
                late[0],
                max(
                    open_devices, key=lambda device: self._room(device) - self._asked(need, device)
                ),
            )

    def _best(self, fitting: Sequence[Optional[str]], larger_waits: bool) -> Optional[str]:
        """The device for a trial: the one with the fewest trials, unless a larger trial waits.

        Where one does, the fullest device is taken, which leaves the larger trial most room in one piece.
        """
        if larger_waits:
            return min(fitting, key=lambda device: (self._room(device), self.level_on(device)))
        return min(fitting, key=lambda device: (self.level_on(device), self._room(device)))

    def _fits(self, trial: Waiting, device: Optional[str]) -> bool:
        if self._kept is not None and self._kept[1] == device and not self._is_kept(trial):
            return False
        needs = [trial.need, *(need for on, need in self._taken.values() if on == device)]
        return _fit_together([need.gpu_mb for need in needs], self._devices_mb[device])

    def _fits_job(self, trial: Waiting) -> bool:
        needs = [trial.need, *(need for _, need in self._taken.values())]
        if self._kept is not None and not self._is_kept(trial):
            needs.append(self._kept[0].need)
        return _fit_together([need.memory_mb for need in needs], self._job_mb)

    def _asked(self, need: Need, device: Optional[str]) -> float:
        """Of a device: never more than all of it."""
        return min(_finite(need.gpu_mb), self._devices_mb[device])

    def _room(self, device: Optional[str]) -> float:
        used = sum(self._asked(need, on) for on, need in self._taken.values() if on == device)
        return self._devices_mb[device] - used

    def _count_overtaken(self, chosen: Waiting, waiting: Sequence[Waiting]) -> None:
        for trial in waiting:
            if trial.number == chosen.number:
                return
            self._overtaken[trial.number] = self._overtaken.get(trial.number, 0) + 1


def _finite(size_mb: Optional[float]) -> float:
    return 0.0 if size_mb is None else size_mb


def _fit_together(sizes_mb: Sequence[Optional[float]], whole_mb: float) -> bool:
    """Whoever wants all there is, or more, has it alone: also without those of unknown size."""
    sizes = [_finite(size) for size in sizes_mb]
    return len(sizes) == 1 or (max(sizes) < whole_mb and sum(sizes) <= whole_mb)


def _size(need: Need) -> Tuple[float, float]:
    return _finite(need.gpu_mb), _finite(need.memory_mb)


_GRES = re.compile(r"(?:^|,|=)(gpu|shard):(?:[^:,()]*:)?(\d+)")


def parse_shard_share(gres: str, held: int) -> float:
    """The part of one GPU that so many shards are, by Slurm's list of a node's devices.

    As in ``gpu:a100:2(S:0-1),shard:a100:8(S:0-1)``: 8 shards of 2 GPUs, so 2 of them are half a GPU.
    """
    counts = {"gpu": 0, "shard": 0}
    for name, count in _GRES.findall(gres):
        counts[name] += int(count)
    a_gpu = counts["shard"] / max(1, counts["gpu"])
    return min(1.0, held / a_gpu) if a_gpu else 1.0
