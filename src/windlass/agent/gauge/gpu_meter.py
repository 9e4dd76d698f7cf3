"""How much of the GPUs each trial takes, from NVML. Python 3.9, standard library.

Per process where the driver says so. Where it does not (slices without the right to look, a container with process
numbers of its own), what the device has in use beyond its baseline is shared out evenly among the trials on it.
"""

from __future__ import annotations

import os
import time
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Set, Tuple

from windlass.agent.gauge.nvml import Device, Nvml, NvmlError

OF_PROCESS = "process"
OF_DEVICE = "device"

_MB = 1024 * 1024
# The kernel's own number for the process namespace that it starts with.
_FIRST_NAMESPACE = 0xEFFFFFFC


class GpuUse(NamedTuple):
    """What one trial takes at one moment, and where the figure is from; None: nobody knows."""

    memory_mb: Optional[float] = None
    memory_source: Optional[str] = None
    percent: Optional[float] = None
    percent_source: Optional[str] = None


class _Reading(NamedTuple):
    used_bytes: int
    processes: Dict[int, Optional[int]]
    percent: Optional[float]
    process_percent: Optional[Dict[int, float]]


class GpuMeter:
    """Reads each device once a sample, for all trials on it."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._found: Dict[Optional[str], List[Device]] = {}
        self._trials: Dict[str, List[Device]] = {}
        self._baseline: Dict[int, int] = {}
        self._since_us: Dict[int, int] = {}
        self._numbers_are_ours = _in_first_namespace()
        self.problem = ""  # why figures are missing, if they are
        self.by_process: Dict[int, float] = {}  # process → MB, as of the last reading

    def watch(self, trial: str, visible: Optional[str]) -> None:
        """A trial is about to begin on these devices (CUDA_VISIBLE_DEVICES; None is all)."""
        try:
            if visible not in self._found:
                self._found[visible] = self._nvml.find(visible)
            devices = self._found[visible]
            busy = {device.handle for others in self._trials.values() for device in others}
            for device in devices:
                if device.handle not in busy:
                    self._baseline[device.handle] = self._nvml.memory(device)[1]
                    # The driver's clock; leave out the past.
                    self._since_us[device.handle] = int(time.time() * 1e6)
        except NvmlError as error:
            self.problem = str(error)
            return
        self._trials[trial] = devices

    def forget(self, trial: str) -> None:
        self._trials.pop(trial, None)

    def read(self, members: Mapping[str, Set[int]]) -> Dict[str, GpuUse]:
        """What each trial takes now. `members`: the processes of each."""
        sharers: Dict[int, int] = {}
        devices: Dict[int, Device] = {}
        for on in self._trials.values():
            for device in on:
                devices[device.handle] = device
                sharers[device.handle] = sharers.get(device.handle, 0) + 1
        ours = frozenset(pid for pids in members.values() for pid in pids)
        readings = {}
        self.by_process = {}
        for handle, device in devices.items():
            reading = self._read_device(device)
            if reading is not None:
                readings[handle] = reading
                self._add_processes(reading)
                if not ours.isdisjoint(reading.processes):
                    self._numbers_are_ours = True
        return {
            trial: self._use(on, members.get(trial, set()), ours, readings, sharers)
            for trial, on in self._trials.items()
        }

    def _add_processes(self, reading: _Reading) -> None:
        for pid, used in reading.processes.items():
            if used is not None:
                self.by_process[pid] = self.by_process.get(pid, 0.0) + used / _MB

    def _read_device(self, device: Device) -> Optional[_Reading]:
        try:
            used = self._nvml.memory(device)[1]
        except NvmlError as error:
            self.problem = str(error)
            return None
        processes: Dict[int, Optional[int]] = {}
        percent = None
        process_percent = None
        try:
            processes = self._nvml.processes(device)
            rates = self._nvml.utilisation(device)
            percent = None if rates is None else float(rates.gpu)
            answer = self._nvml.process_utilisation(device, self._since_us.get(device.handle, 0))
            if answer is not None:
                process_percent, self._since_us[device.handle] = answer
        except NvmlError as error:
            self.problem = str(error)
        return _Reading(used, processes, percent, process_percent)

    def _use(
        self,
        devices: List[Device],
        pids: Set[int],
        ours: FrozenSet[int],
        readings: Mapping[int, _Reading],
        sharers: Mapping[int, int],
    ) -> GpuUse:
        memory: List[Tuple[float, str]] = []
        percent: List[Tuple[float, str]] = []
        for device in devices:
            reading = readings.get(device.handle)
            if reading is None:
                continue
            memory.append(self._memory(device, reading, pids, sharers[device.handle]))
            share = _percent(reading, pids, ours)
            if share is not None:
                percent.append(share)
        return GpuUse(
            memory_mb=sum(value for value, _ in memory) if memory else None,
            memory_source=_source([source for _, source in memory]),
            percent=sum(value for value, _ in percent) / len(percent) if percent else None,
            percent_source=_source([source for _, source in percent]),
        )

    def _memory(
        self, device: Device, reading: _Reading, pids: Set[int], sharers: int
    ) -> Tuple[float, str]:
        mine = [used for pid, used in reading.processes.items() if pid in pids]
        known = [used for used in mine if used is not None]
        if len(known) == len(mine) and (mine or self._numbers_are_ours):
            return sum(known) / _MB, OF_PROCESS
        beyond = max(0, reading.used_bytes - self._baseline.get(device.handle, 0))
        return beyond / sharers / _MB, OF_DEVICE


def _percent(
    reading: _Reading, pids: Set[int], ours: FrozenSet[int]
) -> Optional[Tuple[float, str]]:
    by_process = reading.process_percent
    if by_process is not None:
        mine = [value for pid, value in by_process.items() if pid in pids]
        # A list with strangers in it may hold us under a number that we do not know.
        if mine or (by_process and ours.issuperset(by_process)):
            return min(100.0, sum(mine)), OF_PROCESS
    return None if reading.percent is None else (reading.percent, OF_DEVICE)


def _source(sources: List[str]) -> Optional[str]:
    if not sources:
        return None
    return OF_DEVICE if OF_DEVICE in sources else OF_PROCESS


def _in_first_namespace() -> bool:
    """Whether process numbers here are those that the driver knows."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_NAMESPACE
    except OSError:
        return False
