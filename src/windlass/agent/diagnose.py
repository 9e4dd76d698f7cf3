"""Tells apart, from what a trial printed last, why it failed. Python 3.9, standard library."""

from __future__ import annotations

import re
import signal
from typing import Iterable

from windlass.states import Cause

_GPU_MEMORY = re.compile(
    rb"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemoryError: CUDA|HIP out of memory"
    rb"|RESOURCE_EXHAUSTED: Out of memory|ResourceExhaustedError: .*OOM when allocating|cudaErrorMemoryAllocation"
    rb"|CUBLAS_STATUS_ALLOC_FAILED"
)
_HOST_MEMORY = re.compile(
    rb"oom-kill event|Out Of Memory|^MemoryError|DefaultCPUAllocator: can't allocate memory|std::bad_alloc"
    rb"|numpy\.core\._exceptions\._ArrayMemoryError|Unable to allocate [\d.]+ [GT]iB",
    re.MULTILINE,
)


def refine_cause(cause: Cause, number: int, tails: Iterable[bytes]) -> Cause:
    """`cause` as the exit status has it, or memory where the last output speaks of it."""
    text = b"\n".join(tails)
    if _GPU_MEMORY.search(text):
        return Cause.GPU_MEMORY
    if _HOST_MEMORY.search(text) and (cause is Cause.FAILED or number in (signal.SIGKILL, signal.SIGABRT)):
        return Cause.HOST_MEMORY
    return cause
