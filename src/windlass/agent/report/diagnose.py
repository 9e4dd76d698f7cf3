"""Tells why a trial failed: which memory ran out, by what it printed last and what the kernel says. Python 3.9."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence

from windlass.agent.gauge.cgroup import read_cgroup
from windlass.core.states import Cause

_GPU_MEMORY = re.compile(
    rb"(?:CUDA|HIP|XPU|MPS backend) out of memory"
    rb"|(?:CUDA|HIP)(?: \w+)? (?:error|failure)[^\n]{0,60}out[ _]of[ _]memory"
    rb"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|hipErrorMemoryAllocation"
    rb"|(?:cuda|hip)Malloc\w*[^\n]{0,80}out of memory"
    rb"|Triton Error \[(?:CUDA|HIP)\]: out of memory"
    rb"|RESOURCE[_ ]EXHAUSTED: (?:Out of memory|Failed to allocate request|[^\n]{0,80}CUDA_ERROR_OUT_OF_MEMORY)"
    rb"|OOM when allocating tensor[^\n]*(?:device:GPU|GPU_\d+_bfc)"
    rb"|cupy[\w.]*OutOfMemoryError|out of memory to allocate [\d,]+ bytes \(total"
    rb"|Out of memory allocating [\d,]+ bytes \(allocated so far"
    rb"|out_of_memory: CUDA error"
    rb"|CU(?:BLAS|DNN|SOLVER|SPARSE|FFT)_(?:STATUS_)?ALLOC_FAILED"
    rb"|CUBLAS_STATUS_NOT_INITIALIZED when calling `?cublasCreate|cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"
    rb"|[Cc]ould not create cu(?:dnn|blas) handle: CU(?:DNN|BLAS)_STATUS_\w+"
    rb"|Error Code 2: OutOfMemory",
    re.IGNORECASE,
)
_HOST_MEMORY = re.compile(
    rb"oom[-_]kill event|: Out Of Memory|^(?:\w+: )?MemoryError|ArrayMemoryError|std::bad_alloc"
    rb"|DefaultCPUAllocator: (?:can't allocate|not enough) memory"
    rb"|Unable to allocate [\d.]+ [KMGTP]iB for an array|OOM when allocating tensor[^\n]*by allocator \w*cpu"
    rb"|\[Errno 12\] Cannot allocate memory|Cannot allocate memory$|cannot allocate vector of size"
    rb"|^ERROR: OutOfMemoryError\(\)|java\.lang\.OutOfMemoryError|memory allocation of \d+ bytes failed"
    rb"|fatal error: runtime: out of memory|heap out of memory|virtual memory exhausted"
    rb"|killed due to the node running low on memory|DataLoader worker \(pid[^\n]{1,40}killed by signal: Killed",
    re.MULTILINE,
)
_SAYS_KILLED = re.compile(
    rb"^Killed\s*$|killed by signal: Killed|SIGKILL|exit(?:ed with)? code (?:-9|137)", re.M
)
_BY_SIGKILL = 128 + signal.SIGKILL  # a shell's exit code for a program that was killed
_RECORD = re.compile(
    rb"^\d+,\d+,(\d+),[^;]*;.*?(?:[Oo]ut of memory|oom-kill).*?Kill(?:ed)? process (\d+)", re.S
)
_REFUSED = re.compile(rb"^.*(?:Permission denied|Read-only file system).*$", re.M)
_FRESH_S = 1.0  # the counter is read at most so often for attempts that begin


def refine_cause(
    cause: Cause,
    number: int,
    tails: Iterable[bytes],
    code: int = 0,
    kernel_killed: Callable[[], bool] = lambda: False,
) -> Cause:
    """`cause` as the exit status has it, or memory where the last output or the kernel speaks of it.

    `number` and `code` are its signal and exit code. `kernel_killed` is asked only where somebody was killed.
    """
    text = b"\n".join(tails)
    if _GPU_MEMORY.search(text):
        return Cause.GPU_MEMORY
    fitting = cause is Cause.FAILED or number in (signal.SIGKILL, signal.SIGABRT)
    if fitting and _HOST_MEMORY.search(text):
        return Cause.HOST_MEMORY
    if number == signal.SIGKILL or code == _BY_SIGKILL or (fitting and _SAYS_KILLED.search(text)):
        return Cause.HOST_MEMORY if kernel_killed() else cause
    return cause


def explain_refusal(tails: Iterable[bytes], data: Sequence[Mapping[str, Any]]) -> str:
    """What to do about a trial that failed because it wanted to write to shared data; "" where it did not."""
    lines = _REFUSED.findall(b"\n".join(tails))
    for entry in data:
        names = (os.fsencode(entry["as"]), os.fsencode(entry["key"]))
        if not entry.get("writable") and any(name in line for line in lines for name in names):
            item = f"{{path: {entry['as']}, writable: true}}"
            return f"data on a node are read-only; with `data: [{item}]` each job has a copy that its trials may change"
    return ""


class OomWatch:
    """Whether the kernel ended processes of ours because memory ran out."""

    def __init__(self, root: str = "/", kernel_log: str = "/dev/kmsg") -> None:
        """`root` is where /proc and /sys lie."""
        self._root = root
        self._kernel_log = kernel_log
        self._read_at = -_FRESH_S
        self._kills: Optional[int] = None
        self._at_begin: Dict[int, Optional[int]] = {}
        self._killed: Dict[int, int] = {}  # attempt → its process that was killed

    def begin(self, attempt: int, now: float) -> None:
        """An attempt begins; what happened before is none of its business."""
        if now - self._read_at >= _FRESH_S:
            self._kills, self._read_at = self._read_kills(), now
        self._at_begin[attempt] = self._kills

    def ended(self, attempt: int, pid: int, status: int) -> None:
        """A process of an attempt ended, with this wait status."""
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self._killed[attempt] = pid

    def forget(self, attempt: int) -> None:
        self._at_begin.pop(attempt, None)
        self._killed.pop(attempt, None)

    def has_killed(self, attempt: int, began: float) -> bool:
        """Whether the group's counter rose since the attempt began, or the kernel's log names its process."""
        before, now = self._at_begin.get(attempt), self._read_kills()
        if before is not None and now is not None and now > before:
            return True
        return attempt in self._killed and in_kernel_log(
            self._killed[attempt], began, self._kernel_log
        )

    def _read_kills(self) -> Optional[int]:
        group = read_cgroup(self._root)
        return None if group is None else group.oom_kills


def in_kernel_log(pid: int, began: float, path: str = "/dev/kmsg") -> bool:
    """Whether the kernel recorded, since `began` (monotonic), that it ended a process for memory.

    False also where the log may not be read, which is usual.
    """
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:
                continue  # overwritten while we read: the next one is there
            if not record:
                return False
            # A file, as a copy of the log, gives many records at once.
            for line in record.split(b"\n"):
                found = _RECORD.match(line)
                if found and int(found[2]) == pid and int(found[1]) / 1e6 >= began - 1.0:
                    return True
        return False
    except OSError:  # nothing more now, or not allowed
        return False
    finally:
        os.close(log)
