"""How trials share the agent's devices and memory: which trial begins where, MPS, and running out of memory.

Loop and runner share one object. Trials that ran out of memory are taken again at a lower concurrency level, and that
counts as no retry; what they needed is learned for the rest of the study. Python 3.9, standard library.
"""

from __future__ import annotations

import functools
import math
import os
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from windlass.agent.child import Attempt, Trial
from windlass.agent.claim import TrialQueue
from windlass.agent.config import AgentConfig, Slot
from windlass.agent.gauge.cgroup import read_cgroup, read_job_mb
from windlass.agent.gauge.nvml import Nvml, NvmlError
from windlass.agent.share.mps import Mps, is_mps_fault, is_victim
from windlass.agent.share.packing import (
    AT_LEAST,
    Budgets,
    Need,
    Packer,
    Waiting,
    parse_shard_share,
    raised,
)
from windlass.core.claims.learned import MPS_FAULTS, learn_budget, learn_fault
from windlass.core.queue.ask import ask
from windlass.core.states import Cause
from windlass.core.units import render_mb

Learned = Dict[str, Any]
Learn = Callable[[Callable[[Learned], Learned]], Learned]

_WINDOW = 64  # of the trials that wait, so many are looked at
_FREE_TRIES = 3  # after memory ran out; the last one alone
_FREE_FAULTS = 5  # of neighbours; more than the study allows before it gives MPS up
# A trial that is refused memory below half its budget made one huge request; its neighbours are not the cause.
_SURE = 0.5
_MB = 1024 * 1024
_FAULT, _GIVEN_UP = "MPS had a fault", "MPS is given up"


class _Stay(NamedTuple):
    """An attempt's place while it is under way."""

    attempt: Attempt
    need: Need  # what it was given
    under_mps: bool
    others: int  # on its device when it began
    others_here: int  # in the agent when it began
    begun: int  # how many had begun on its device, itself included
    begun_here: int


class Sharing:
    """The devices of one agent's slots."""

    def __init__(
        self,
        config: AgentConfig,
        slots: Sequence[Slot],
        agent: str,
        folder: str,
        env: Mapping[str, str],
        note: Callable[[str], None],
    ) -> None:
        self._config = config
        self._pack: Dict[str, Any] = config.pack or {}
        self._slots = slots
        self._agent = agent
        self._folder = folder
        self._env = env
        self._note = note
        self._learn: Learn = lambda change: change({})
        self._budgets = Budgets(self._pack, {})
        self._devices: List[Optional[str]] = list(dict.fromkeys(slot.gpus for slot in slots))
        self._packer = Packer(dict.fromkeys(self._devices))
        self._mps: Dict[Optional[str], Mps] = {}
        self._mps_off = False
        self._stays: Dict[int, _Stay] = {}
        self._begun: Dict[Optional[str], int] = dict.fromkeys(self._devices, 0)
        self._begun_here = 0
        self._own: Dict[int, Need] = {}  # trial → what it is given beyond its variant's budget
        self._tries: Dict[Tuple[int, Cause], int] = {}
        self._noted: Set[str] = set()
        self._job_mb: Optional[float] = None
        self._kills = 0  # agents of the study that ended with a job which ran out of memory

    # -- opening and closing

    def open(self, nvml: Optional[Nvml], learned: Learned, learn: Learn) -> None:
        """Find out how large the devices are, and start MPS where the plan says so."""
        self._learn = learn
        sizes = {device: self._device_mb(device, nvml) for device in self._devices}
        self._job_mb = self._pack.get("job_memory_mb") or _limit_mb()
        self._packer = Packer(sizes, self._job_mb)
        self.hear(learned)
        if not self._pack.get("mps") or self._mps_off:
            return
        for device in self._devices:
            if device and sum(slot.gpus == device for slot in self._slots) > 1:
                self._start_mps(device, Mps(device, self._folder, self._env, self._agent, nvml))

    def _device_mb(self, device: Optional[str], nvml: Optional[Nvml]) -> Optional[float]:
        """As planned, unless the device that we got is smaller."""
        planned: Optional[float] = self._pack.get("gpu_memory_mb")
        if not device:
            return None
        planned = planned * len(device.split(",")) if planned else None
        try:
            found = (
                sum(part.total_bytes for part in nvml.find(device)) / _MB
                if nvml is not None
                else 0.0
            )
        except NvmlError:
            found = 0.0
        found *= _shard_share(os.environ)
        # Drivers keep some for themselves: 12 GB in the catalogue are a little less here.
        return planned if planned and found and planned <= 1.1 * found else found or planned

    def _start_mps(self, device: str, mps: Mps) -> None:
        if mps.start():
            self._mps[device] = mps
        else:
            self._mps.pop(device, None)
            self._say(f"GPU {device} is shared without MPS: {mps.problem}")
        variables = mps.variables() if device in self._mps else {}
        for slot in self._slots:
            if slot.gpus == device:
                slot.variables = variables

    def close(self) -> None:
        for mps in self._mps.values():
            mps.stop()
        self._mps.clear()

    def _say(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)

    # -- which trial begins where

    def hear(self, learned: Learned) -> None:
        """What the register has learned, from us or from others."""
        self._budgets.learn(learned)
        for stay in self._stays.values():
            self._packer.change(stay.attempt.slot, self._need(stay.attempt.trial))
        self._kills = int(learned.get("memory_kills", 0))
        self._mps_off = bool(learned.get("mps_off"))
        if self._mps_off:
            for device in self._mps:
                self._packer.closed.setdefault(device, _GIVEN_UP)

    def choose(self, queue: TrialQueue, free: List[Slot]) -> Optional[Tuple[Trial, Slot]]:
        """The trial that begins next, taken from the queue, and its slot; None where none fits now."""
        self._reopen()
        if not (self._budgets or self._own or self._kills or self._packer.closed):
            first = queue.pop()
            return None if first is None else (first, free[-1])
        alike = not self._pack.get("variants") and not self._own
        trials = {trial.number: trial for trial in queue.window(1 if alike else _WINDOW)}
        chosen = self._packer.choose(
            [Waiting(number, self._need(trial)) for number, trial in trials.items()], free
        )
        if chosen is None:
            return None
        trial = trials[chosen[0].number]
        if self._packer.is_oversized(chosen[0].need) and trial.number not in self._own:
            self._say(
                f"trials of {self._named(trial)} need more memory than there is: they run alone"
            )
        queue.remove(trial)
        return trial, chosen[1]

    def wanted(self, free: Sequence[Slot]) -> int:
        """How many trials to hold for these slots: no more than could begin if they were small ones."""
        self._reopen()
        least = self._budgets.least()
        return len(free) if least is None else self._packer.count_fitting(least, free)

    def _need(self, trial: Trial) -> Need:
        need, own = self._budgets.need(trial.settings), self._own.get(trial.number)
        if self._kills and self._job_mb is not None:
            each = need.memory_mb or self._job_mb / len(self._slots)
            need = need._replace(memory_mb=min(self._job_mb, each * AT_LEAST**self._kills))
        if own is None:
            return need
        return Need(_larger(need.gpu_mb, own.gpu_mb), _larger(need.memory_mb, own.memory_mb))

    def begin(self, attempt: Attempt) -> None:
        """Set the attempt's needs aside on its device, and remember how many trials it begins beside.

        `judge` uses that later: a trial that runs out of memory beside others is not at fault in the same way.
        """
        device = attempt.slot.gpus
        others, others_here = self._packer.level_on(device), len(self._stays)
        self._begun[device] += 1
        self._begun_here += 1
        need = self._need(attempt.trial)
        self._packer.take(attempt.slot, Waiting(attempt.trial.number, need))
        self._stays[attempt.attempt] = _Stay(
            attempt,
            need,
            device in self._mps,
            others,
            others_here,
            self._begun[device],
            self._begun_here,
        )

    def release(self, attempt: Attempt) -> None:
        """Its processes are gone: there is room again."""
        self._packer.release(attempt.slot)

    def abandon(self, attempt: Attempt) -> None:
        self.release(attempt)
        self._stays.pop(attempt.attempt, None)

    # -- how it ended

    def judge(self, attempt: Attempt, cause: Cause) -> Tuple[Cause, bool]:
        """The cause, with neighbours and memory in view, and whether the trial is taken again for free."""
        stay = self._stays.pop(attempt.attempt, None)
        if cause is Cause.DONE:
            self._own.pop(attempt.trial.number, None)
        if stay is None or cause is Cause.DONE:
            return cause, False
        if (
            stay.under_mps
            and cause in (Cause.FAILED, Cause.KILLED, Cause.GPU_MEMORY)
            and self._is_victim(stay, cause)
        ):
            return Cause.NEIGHBOUR, True
        if cause is Cause.HOST_MEMORY or (cause is Cause.GPU_MEMORY and attempt.slot.gpus):
            return cause, self._after_memory(stay, cause)
        return cause, False

    def _is_victim(self, stay: _Stay, cause: Cause) -> bool:
        """Whether the fault of a neighbour on the same MPS server ended it."""
        attempt, device = stay.attempt, stay.attempt.slot.gpus
        tail = b"\n".join(stream.tail() for stream in attempt.streams.values())
        mps = self._mps.get(device)
        faulted = self._packer.closed.get(device) == _FAULT or (mps is not None and mps.faulted())
        if is_mps_fault(tail) or (faulted and cause is not Cause.GPU_MEMORY):
            self._drain(device)
        else:
            return False
        if self._was_alone(stay) or not is_victim(tail):
            return False
        return self._may_try(attempt.trial, Cause.NEIGHBOUR, _FREE_FAULTS)

    def _drain(self, device: Optional[str]) -> None:
        """A server that has seen a fault takes no more clients: nothing begins there until all have gone."""
        if self._packer.closed.get(device) == _FAULT:
            return
        self._packer.closed[device] = _FAULT
        learned = self._learn(learn_fault)
        faults = learned.get("mps_faults", 1)
        self._note(
            f"a trial's fault took down the MPS server of GPU {device} (fault {faults}); neighbours begin again"
        )
        self.hear(learned)

    def _reopen(self) -> None:
        """Devices that nobody is on any more get another MPS server, or none where MPS is given up."""
        for device in list(self._packer.closed):
            if any(stay.attempt.slot.gpus == device for stay in self._stays.values()):
                continue
            del self._packer.closed[device]
            mps = self._mps.pop(device, None)
            if mps is None or device is None:
                continue
            mps.stop()
            if not self._mps_off:
                self._start_mps(device, mps)
                continue
            self._say(
                f"after {MPS_FAULTS} faults trials share their GPUs without MPS for the rest of the study"
            )
            for slot in self._slots:
                if slot.gpus == device:
                    slot.variables = {}

    def _was_alone(self, stay: _Stay, here: bool = False) -> bool:
        """On its device, or `here` in the agent, from begin to end."""
        if here:
            return stay.others_here == 0 and self._begun_here == stay.begun_here
        return stay.others == 0 and self._begun[stay.attempt.slot.gpus] == stay.begun

    def _may_try(self, trial: Trial, cause: Cause, most: int) -> bool:
        used = self._tries[trial.number, cause] = self._tries.get((trial.number, cause), 0) + 1
        return used <= most

    # -- memory

    def _after_memory(self, stay: _Stay, cause: Cause) -> bool:
        """Raise budgets, and say whether it is worth another try."""
        attempt, on_gpu = stay.attempt, cause is Cause.GPU_MEMORY
        most_mb = self._packer.device_mb(attempt.slot.gpus) if on_gpu else self._job_mb
        if self._was_alone(stay, here=not on_gpu):
            attempt.note = attempt.note or _advice(on_gpu, _peak(attempt, on_gpu), most_mb)
            return False
        beside = [
            other for other in self._stays.values() if not on_gpu or _share_device(other, stay)
        ]
        greedy = [other for other in (stay, *beside) if self._is_greedy(other.attempt, on_gpu)]
        fair_mb = (most_mb or 0.0) / sum(
            not on_gpu or slot.gpus == attempt.slot.gpus for slot in self._slots
        )
        if not on_gpu and not greedy and self._is_absurd(attempt, fair_mb):
            return False
        if not self._may_try(attempt.trial, cause, _FREE_TRIES):
            return False
        for other in greedy or [stay]:
            self._raise(other, on_gpu, fair_mb, most_mb)
        what = "GPU memory" if on_gpu else "memory"
        attempt.note = (
            attempt.note
            or f"ran out of {what} beside other trials; begins again with fewer neighbours"
        )
        if self._tries[attempt.trial.number, cause] == _FREE_TRIES:
            self._give(attempt.trial, on_gpu, math.inf)
        return True

    def _raise(self, stay: _Stay, on_gpu: bool, fair_mb: float, most_mb: Optional[float]) -> None:
        """The trial's variant needs more than it was given; several that fall at once tell the same thing only once."""
        attempt, name = stay.attempt, "gpu_mb" if on_gpu else "memory_mb"
        wanted = raised(getattr(stay.need, name), _peak(attempt, on_gpu), fair_mb, most_mb)
        if wanted > 0:
            self._give(attempt.trial, on_gpu, wanted)
            variant = self._budgets.variant(attempt.trial.settings)
            self.hear(
                self._learn(
                    functools.partial(learn_budget, variant=variant, name=name, size_mb=wanted)
                )
            )
            what = "GPU memory" if on_gpu else "memory"
            self._say(
                f"trials of {self._named(attempt.trial)} are given {render_mb(wanted)} of {what} each from now on"
            )

    def _is_absurd(self, attempt: Attempt, fair_mb: float) -> bool:
        """Nobody killed it, and it had used little when it was refused more: its neighbours were not the cause."""
        killed = os.WIFSIGNALED(attempt.status) or os.WEXITSTATUS(attempt.status) > 128
        given = self._need(attempt.trial).memory_mb or fair_mb
        return not killed and (_peak(attempt, on_gpu=False) or 0.0) < _SURE * given

    def _is_greedy(self, attempt: Attempt, on_gpu: bool) -> bool:
        need, peak = self._budgets.need(attempt.trial.settings), _peak(attempt, on_gpu)
        budget = need.gpu_mb if on_gpu else need.memory_mb
        return budget is not None and peak is not None and peak > budget

    def _give(self, trial: Trial, on_gpu: bool, size_mb: float) -> None:
        own = self._own.get(trial.number, Need())
        self._own[trial.number] = own._replace(**{"gpu_mb" if on_gpu else "memory_mb": size_mb})

    def _named(self, trial: Trial) -> str:
        names = self._pack.get("variants") or []
        return ", ".join(f"{name}={trial.settings.get(name)}" for name in names) or "this study"


def _share_device(one: _Stay, other: _Stay) -> bool:
    return one.attempt.slot.gpus == other.attempt.slot.gpus


def _larger(one: Optional[float], other: Optional[float]) -> Optional[float]:
    return max((size for size in (one, other) if size is not None), default=None)


def _peak(attempt: Attempt, on_gpu: bool) -> Optional[float]:
    """The most that was seen of an attempt; None where nothing was."""
    if attempt.gauge is not None:
        level = attempt.gauge.peaks.gpu_memory if on_gpu else attempt.gauge.peaks.memory
        if level.count:
            return float(max(level.peak, 0.0 if on_gpu else attempt.rss_mb))
    return None if on_gpu else attempt.rss_mb or None


def _advice(on_gpu: bool, peak: Optional[float], most_mb: Optional[float]) -> str:
    """For one that had all there is."""
    seen = "" if peak is None else f" (at least {render_mb(peak)})"
    if on_gpu:
        size = "" if most_mb is None else f" of {render_mb(most_mb)}"
        return f"alone on its GPU{size} it needed more{seen}: a smaller batch, or a larger GPU"
    wanted = math.ceil(max(1.25 * (peak or 0.0), 1.5 * (most_mb or 0.0)) / 100) * 100
    ask = f": ask for `memory: {wanted}MB`" if wanted else ""
    return f"alone in its job it needed more memory than there is{seen}{ask}"


def _shard_share(environ: Mapping[str, str]) -> float:
    """The part of a GPU that a job with shards of one has; all of it for others, or where the scheduler is silent."""
    held = environ.get("SLURM_SHARDS_ON_NODE", "")
    if not held.isdigit() or not int(held):
        return 1.0
    node = (
        ask(["scontrol", "show", "node", "--oneliner", environ.get("SLURMD_NODENAME", "")], {})
        or ""
    )
    gres = re.search(r"\bGres=(\S+)", node)
    return parse_shard_share(gres[1], int(held)) if gres else 1.0


def _limit_mb() -> Optional[float]:
    """What this job may have, or, outside of jobs, what the machine has."""
    group = read_cgroup()
    if group is not None and group.limit_mb is not None:
        return group.limit_mb
    job_mb = read_job_mb()
    if job_mb is not None:
        return job_mb
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _MB
    except (OSError, ValueError):
        return None
