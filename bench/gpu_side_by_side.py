"""Steps a second of k processes on one GPU by the benchmark's own means: nothing of Windlass has a part in it.

Processes are started once a mode and stay; in every window the first k of them step and the others sleep. Also a poll
of the GPU's memory through NVML, every 20 ms.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("gpu_workloads.py").resolve()
_READY_S, _SETTLE_S = 180.0, 0.5
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def mps() -> Iterator[dict[str, str]]:
    """NVIDIA MPS with folders of its own; gives the variables that its clients need."""
    folder = tempfile.mkdtemp(prefix="mps-", dir="/tmp")  # names of its sockets must be short
    said = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
    for path in said.values():
        os.mkdir(path)
    env = {**os.environ, **said}
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
    try:
        yield said
    finally:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["nvidia-cuda-mps-control"], input=b"quit\n", env=env, check=False, timeout=30
            )
        shutil.rmtree(folder, ignore_errors=True)


def have_mps() -> bool:
    return shutil.which("nvidia-cuda-mps-control") is not None


def sweep(
    workload: str, ks: Sequence[int], window_s: float, variables: dict[str, str]
) -> list[dict[str, Any]]:
    """A row for every k: rate of all together, and of the slowest."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-sweep-"))
    env = {**os.environ, **dict.fromkeys(_THREADS, "1"), **variables}
    words = [
        sys.executable,
        str(PROGRAM),
        "serve",
        "--workload",
        workload,
        "--folder",
        str(folder),
        "--number",
    ]
    processes = [subprocess.Popen([*words, str(number)], env=env) for number in range(max(ks))]
    try:
        _wait(processes, [folder / f"ready-{number}" for number in range(max(ks))], _READY_S)
        return [_window(processes, folder, number, k, window_s) for number, k in enumerate(ks)]
    finally:
        (folder / "stop").touch()
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _window(
    processes: list[subprocess.Popen[bytes]], folder: Path, number: int, k: int, window_s: float
) -> dict[str, Any]:
    begin = time.monotonic() + _SETTLE_S
    partial = folder / "partial"
    partial.write_text(json.dumps({"k": k, "begin": begin, "end": begin + window_s}))
    partial.replace(folder / f"window-{number}.json")
    done = [folder / f"done-{number}-{one}" for one in range(k)]
    _wait(processes, done, window_s + 60)
    rates = [json.loads(path.read_text())["rate"] for path in done]
    return {"k": k, "rate": sum(rates), "slowest": min(rates)}


def _wait(processes: list[subprocess.Popen[bytes]], files: Sequence[Path], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while not all(path.exists() for path in files):
        if any(process.poll() is not None for process in processes):
            raise SystemExit("a process of the sweep ended by itself")
        if time.monotonic() > until:
            raise SystemExit(f"the sweep's processes were not ready after {limit_s:.0f} s")
        time.sleep(0.01)


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class MemoryPoll:
    """The most memory of GPU 0 that was in use beyond what was in use before. Used as a context."""

    def __init__(self, every_s: float = 0.02) -> None:
        self._every_s = every_s
        self._over = threading.Event()
        self.peak_mb: float | None = None
        self.total_mb: int | None = None
        try:
            self._library: Any = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self._library = None

    def __enter__(self) -> MemoryPoll:
        if self._library is None or self._library.nvmlInit_v2() != 0:
            self._library = None
            return self
        self._handle = ctypes.c_void_p()
        self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._handle))
        self._before = self._read().used
        self.total_mb = self._read().total >> 20
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._library is not None:
            self._over.set()
            self._thread.join()
            self._library.nvmlShutdown()

    def _read(self) -> _Memory:
        memory = _Memory()
        if self._library.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)) != 0:
            raise SystemExit("NVML does not say how much memory is in use")
        return memory

    def _poll(self) -> None:
        while not self._over.wait(self._every_s):
            used_mb = (self._read().used - self._before) / (1 << 20)
            self.peak_mb = max(self.peak_mb or 0.0, used_mb)
