"""Reads NVIDIA GPUs through NVML, the library that the driver brings along. Python 3.9, standard library.

NVML counts what the driver has given out: the CUDA context of a process, some hundreds of MB, is part of its memory.
Every failure is an `NvmlError` whose `kind` says what is missing. Figures that the driver keeps back are None.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_VARIABLE = "WINDLASS_NVML"

NO_LIBRARY = "no library"
NO_DRIVER = "no driver"
NO_DEVICE = "no device"
NO_PERMISSION = "no permission"
DRIVER_MISMATCH = "driver mismatch"
NOT_SUPPORTED = "not supported"
DEVICE_LOST = "device lost"
FAILED = "failed"

# nvmlReturn_t: the codes that mean something of their own to us.
_NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _INSUFFICIENT_SIZE = 3, 4, 6, 7
_KINDS = {
    _NOT_SUPPORTED: NOT_SUPPORTED,
    _NO_PERMISSION: NO_PERMISSION,
    _NOT_FOUND: NO_DEVICE,
    9: NO_DRIVER,
    12: NO_LIBRARY,
    13: NOT_SUPPORTED,  # the function is newer than the driver
    15: DEVICE_LOST,
    16: DEVICE_LOST,
    18: DRIVER_MISMATCH,
    25: NOT_SUPPORTED,  # the version of a struct is newer than the driver
}
_HINTS = {
    NO_LIBRARY: f"this machine has no NVIDIA driver, or its {LIBRARY} is not on the library path",
    NO_DRIVER: "the NVIDIA driver is not loaded",
    NO_PERMISSION: "this user, or this job, may not see the device",
    DRIVER_MISMATCH: "the library and the loaded driver differ in version: the machine waits for a restart",
    DEVICE_LOST: "the GPU fell off the bus or needs a reset",
}

_ALL_ONES_64 = 0xFFFFFFFFFFFFFFFF  # NVML_VALUE_NOT_AVAILABLE
_ENTRY_BYTES = 32  # the largest layout of nvmlProcessInfo that a driver has used
_FILL = b"\x5a"
_PROCESS_V1 = struct.Struct("@IQ")
_PROCESS = struct.Struct("@IQII")
_USE_SAMPLE = struct.Struct("@IQIIII")


class NvmlError(Exception):
    """Something that NVML could not say, and why."""

    def __init__(self, kind: str, message: str, code: int = 0) -> None:
        super().__init__(f"{message} ({_HINTS[kind]})" if kind in _HINTS else message)
        self.kind = kind
        self.code = code


class _Memory(ctypes.Structure):
    """nvmlMemory_t: `used` includes what the driver reserves for itself."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t: what the driver reserves stands apart, as nvidia-smi shows it."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Utilisation(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


_MEMORY_V2_VERSION = ctypes.sizeof(_MemoryV2) | 2 << 24


class Device(NamedTuple):
    """A GPU, or a slice of one (MIG). Memory in use is as of the moment it was read."""

    number: int  # among the GPUs that this process may see; of a slice, its place on its GPU
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    handle: int
    is_sliced: bool = False  # MIG is on: work runs on the slices, not on the GPU itself
    slices: Tuple["Device", ...] = ()
    parent: int = 0  # of a slice, the handle of its GPU
    instance: Optional[int] = None  # of a slice, the number of its GPU instance

    @property
    def is_slice(self) -> bool:
        return self.parent != 0


class Utilisation(NamedTuple):
    """Percent of the driver's last sample period in which a kernel ran, and in which memory was read or written."""

    gpu: int
    memory: int


class Nvml:
    """NVML, loaded and initialised. Raises NvmlError where that cannot be."""

    def __init__(self, path: Optional[str] = None) -> None:
        name = path or os.environ.get(LIBRARY_VARIABLE) or LIBRARY
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            raise NvmlError(NO_LIBRARY, f"NVML cannot be loaded: {error}") from None
        self._call("nvmlInit_v2")

    def __enter__(self) -> "Nvml":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._call("nvmlShutdown")
        except NvmlError:
            pass

    def driver_version(self) -> str:
        return self._text("nvmlSystemGetDriverVersion", None, 80)

    def devices(self) -> List[Device]:
        """The GPUs that this process may see, in the order of their bus addresses. Raises NO_DEVICE where none is."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found: List[Device] = []
        hidden = None
        for number in range(count.value):
            handle = ctypes.c_void_p()
            try:
                self._call(
                    "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle)
                )
                found.append(self._device(len(found), handle.value or 0))
            except NvmlError as error:
                if error.kind not in (NO_PERMISSION, NO_DEVICE, DEVICE_LOST):
                    raise
                hidden = error
        if not found:
            raise hidden or NvmlError(NO_DEVICE, "the driver is loaded but has no GPU")
        return found

    def find(self, visible: Optional[str]) -> List[Device]:
        """The devices that CUDA_VISIBLE_DEVICES names: numbers, GPU-… or MIG-…, whole or abbreviated.

        As in CUDA, the first entry that names nothing ends the list, None is all, and a sliced GPU stands for its first
        slice. Numbers follow the bus, which is CUDA's order too where all GPUs are of one kind.
        """
        devices = self.devices()
        if visible is None:
            return [_where_work_runs(device) for device in devices]
        found: List[Device] = []
        for entry in visible.split(","):
            device = _named(entry.strip(), devices)
            if device is None:
                break
            found.append(device)
        return found

    def memory(self, device: Device) -> Tuple[int, int]:
        """Bytes in all and bytes in use, without what the driver reserves where it tells them apart."""
        return self._memory(device.handle)

    def processes(self, device: Device) -> Dict[int, Optional[int]]:
        """Processes that compute on a device, also through MPS, and the bytes of each; None: the driver does not say.

        On a sliced GPU this is only for those with the right to see all of it; a slice answers for itself. Numbers
        are those of the driver's process namespace: inside a container they may be strangers.
        """
        handle, only = device.handle, None
        try:
            found = self._listed("nvmlDeviceGetComputeRunningProcesses", handle, only)
        except NvmlError as error:
            if not device.is_slice or error.kind not in (NOT_SUPPORTED, FAILED):
                raise
            handle, only = device.parent, device.instance
            found = self._listed("nvmlDeviceGetComputeRunningProcesses", handle, only)
        try:
            clients = self._listed("nvmlDeviceGetMPSComputeRunningProcesses", handle, only)
        except NvmlError:
            return found
        for pid, used in clients.items():
            known = found.get(pid)
            found[pid] = used if known is None else max(known, used or 0)
        return found

    def compute_mode(self, device: Device) -> Optional[int]:
        """0: any number of processes, 1 and 3: one, 2: none. None where the driver does not say."""
        mode = ctypes.c_uint()
        code = self._code(
            "nvmlDeviceGetComputeMode", ctypes.c_void_p(device.handle), ctypes.byref(mode)
        )
        return None if code else mode.value

    def utilisation(self, device: Device) -> Optional[Utilisation]:
        """None where the driver does not say: slices, and GPUs that are sliced."""
        rates = _Utilisation()
        try:
            self._call(
                "nvmlDeviceGetUtilizationRates", ctypes.c_void_p(device.handle), ctypes.byref(rates)
            )
        except NvmlError as error:
            if error.kind in (NOT_SUPPORTED, NO_PERMISSION):
                return None
            raise
        return Utilisation(rates.gpu, rates.memory)

    def process_utilisation(
        self, device: Device, since_us: int
    ) -> Optional[Tuple[Dict[int, float], int]]:
        """Percent of the GPU's time that each process took since then, and the time of the newest sample.

        Processes without a sample did nothing. None where the driver does not say (slices, old GPUs, no right to).
        """
        name, handle = "nvmlDeviceGetProcessUtilization", ctypes.c_void_p(device.handle)
        count = ctypes.c_uint(0)
        after = ctypes.c_ulonglong(since_us)
        code = self._code(name, handle, None, ctypes.byref(count), after)
        if code in (0, _NOT_FOUND):
            return {}, since_us
        if code != _INSUFFICIENT_SIZE:
            return None
        buffer = ctypes.create_string_buffer(_USE_SAMPLE.size * max(1, count.value))
        code = self._code(name, handle, buffer, ctypes.byref(count), after)
        if code == _NOT_FOUND:
            return {}, since_us
        if code:
            return None
        used: Dict[int, List[int]] = {}
        newest = since_us
        for number in range(count.value):
            pid, when_us, percent, *_ = _USE_SAMPLE.unpack_from(buffer, number * _USE_SAMPLE.size)
            # Drivers have been seen to leave entries of the buffer empty, or with a percentage that is none.
            if pid and when_us > since_us and percent <= 100:
                used.setdefault(pid, []).append(percent)
                newest = max(newest, when_us)
        return {pid: sum(values) / len(values) for pid, values in used.items()}, newest

    def _device(self, number: int, handle: int) -> Device:
        total, used = self._memory(handle)
        is_sliced = self._is_sliced(handle)
        return Device(
            number=number,
            uuid=self._text("nvmlDeviceGetUUID", handle, 96),
            name=self._text("nvmlDeviceGetName", handle, 96),
            total_bytes=total,
            used_bytes=used,
            handle=handle,
            is_sliced=is_sliced,
            slices=self._slices(handle) if is_sliced else (),
        )

    def _is_sliced(self, handle: int) -> bool:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._code(
            "nvmlDeviceGetMigMode",
            ctypes.c_void_p(handle),
            ctypes.byref(current),
            ctypes.byref(pending),
        )
        return code == 0 and current.value == 1

    def _slices(self, handle: int) -> Tuple[Device, ...]:
        most = ctypes.c_uint()
        self._call("nvmlDeviceGetMaxMigDeviceCount", ctypes.c_void_p(handle), ctypes.byref(most))
        found: List[Device] = []
        for number in range(most.value):
            part = ctypes.c_void_p()
            code = self._code(
                "nvmlDeviceGetMigDeviceHandleByIndex",
                ctypes.c_void_p(handle),
                ctypes.c_uint(number),
                ctypes.byref(part),
            )
            if code or not part.value:
                continue  # no slice in this place, or somebody else's
            total, used = self._memory(part.value)
            instance = ctypes.c_uint()
            code = self._code("nvmlDeviceGetGpuInstanceId", part, ctypes.byref(instance))
            found.append(
                Device(
                    number=len(found),
                    uuid=self._text("nvmlDeviceGetUUID", part.value, 96),
                    name=self._text("nvmlDeviceGetName", part.value, 96),
                    total_bytes=total,
                    used_bytes=used,
                    handle=part.value,
                    parent=handle,
                    instance=None if code else instance.value,
                )
            )
        return tuple(found)

    def _memory(self, handle: int) -> Tuple[int, int]:
        newer = _MemoryV2(version=_MEMORY_V2_VERSION)
        code = self._code(
            "nvmlDeviceGetMemoryInfo_v2", ctypes.c_void_p(handle), ctypes.byref(newer)
        )
        if code == 0:
            return newer.total, newer.used
        older = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", ctypes.c_void_p(handle), ctypes.byref(older))
        return older.total, older.used

    def _listed(self, name: str, handle: int, only: Optional[int]) -> Dict[int, Optional[int]]:
        """The newest of a function's three versions that this driver has."""
        for ending, layout in (("_v3", _PROCESS), ("_v2", _PROCESS), ("", _PROCESS_V1)):
            if hasattr(self._library, name + ending):
                return self._entries(name + ending, handle, layout, only)
        raise NvmlError(NOT_SUPPORTED, f"this driver has no {name}")

    def _entries(
        self, name: str, handle: int, layout: struct.Struct, only: Optional[int]
    ) -> Dict[int, Optional[int]]:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(_FILL * (room * _ENTRY_BYTES), room * _ENTRY_BYTES)
            count = ctypes.c_uint(room)
            code = self._code(name, ctypes.c_void_p(handle), ctypes.byref(count), buffer)
            if code != _INSUFFICIENT_SIZE:
                break
            room = max(count.value, room) * 2  # more may come until we ask again
        self._check(name, code)
        stride = layout.size
        if layout is _PROCESS and count.value:
            # Some drivers of the 535 series write entries of 32 bytes under a name that stands for 24.
            beyond = buffer.raw[layout.size * count.value : _ENTRY_BYTES * count.value]
            if beyond.strip(_FILL):
                stride = _ENTRY_BYTES
        found: Dict[int, Optional[int]] = {}
        for number in range(count.value):
            pid, used, *instances = layout.unpack_from(buffer, number * stride)
            if only is None or instances[:1] == [only]:
                found[pid] = None if used == _ALL_ONES_64 else used
        return found

    def _text(self, name: str, handle: Optional[int], size: int) -> str:
        buffer = ctypes.create_string_buffer(size)
        first = () if handle is None else (ctypes.c_void_p(handle),)
        self._call(name, *first, buffer, ctypes.c_uint(size))
        return buffer.value.decode("utf-8", "replace")

    def _code(self, name: str, *arguments: Any) -> int:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return 13
        return int(function(*arguments))

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(name, self._code(name, *arguments))

    def _check(self, name: str, code: int) -> None:
        if code == 0:
            return
        try:
            function = self._library.nvmlErrorString
            function.restype = ctypes.c_char_p
            text = (function(ctypes.c_int(code)) or b"").decode("utf-8", "replace")
        except AttributeError:
            text = ""
        raise NvmlError(_KINDS.get(code, FAILED), f"{name}: {text or 'error'} [{code}]", code)


def _where_work_runs(device: Device) -> Device:
    return device.slices[0] if device.slices else device


def _named(entry: str, devices: List[Device]) -> Optional[Device]:
    if entry.isdigit():
        return _where_work_runs(devices[int(entry)]) if int(entry) < len(devices) else None
    candidates = [part for device in devices for part in (device, *device.slices)]
    matching = [
        device
        for device in candidates
        if entry.startswith(("GPU-", "MIG-")) and device.uuid.startswith(entry)
    ]
    if len(matching) != 1:
        return None
    return _where_work_runs(matching[0])
