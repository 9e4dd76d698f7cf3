"""Tells, as JSON, what a trial would see here: GPUs, driver, CUDA, frameworks. Python 3.9, standard library.

Executed by the trials' own Python (`python -m windlass.agent.node.doctor`), in their environment. Each framework is
asked in a process of its own: one that crashes or hangs is an answer as well.
"""

from __future__ import annotations

import ctypes
import glob
import importlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from windlass.agent.gauge.nvml import Nvml, NvmlError

MARK = "WINDLASS-DOCTOR "  # stands before the one line that counts
FRAMEWORKS = ("torch", "jax", "tensorflow")
_PATIENCE_S = 180.0  # for one framework, from a cold shared disk
_BENCH_PATIENCE_S = 400.0
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "CUDA_HOME",
    "CUDA_MPS_PIPE_DIRECTORY", "JAX_PLATFORMS", "JAX_PLATFORM_NAME", "SLURM_JOB_ID", "SLURM_JOB_GPUS",
)  # fmt: skip
_TIMES, _ROWS, _INNER, _COLUMNS = 1000, 2048, 1024, 512


def look_around(bench: bool = False) -> Dict[str, Any]:
    """All there is to see."""
    seen: Dict[str, Any] = {
        "host": platform.node(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
        "device_files": sorted(glob.glob("/dev/nvidia[0-9]*")),
        "nvml": ask_nvml(),
        "cuda_driver": ask_cuda_driver(),
        "nvidia_smi": ask_nvidia_smi(),
        "frameworks": {
            name: ask_apart(name, _PATIENCE_S)
            for name in FRAMEWORKS
            if importlib.util.find_spec(name)
        },
    }
    if bench:
        seen["bench"] = ask_apart("bench", _BENCH_PATIENCE_S)
    return seen


def ask_nvml() -> Dict[str, Any]:
    try:
        with Nvml() as nvml:
            devices = [
                {"name": one.name, "uuid": one.uuid, "memory_mb": one.total_bytes >> 20}
                for one in nvml.devices()
            ]
            return {"driver": nvml.driver_version(), "devices": devices}
    except NvmlError as error:
        return {"error": str(error), "kind": error.kind, "devices": []}


def ask_cuda_driver() -> Optional[str]:
    """The newest CUDA that the driver supports, such as 12.4; None without one."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int(0)
        if library.cuDriverGetVersion(ctypes.byref(version)) != 0 or version.value <= 0:
            return None
    except (OSError, AttributeError):
        return None
    return "%d.%d" % (version.value // 1000, version.value % 1000 // 10)


def ask_nvidia_smi() -> Dict[str, Any]:
    """What `nvidia-smi` prints, in at most 16 lines, with its exit code; code None where it could not be run."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"found": False}
    command = [
        program,
        "--query-gpu=index,name,memory.total,driver_version,compute_mode",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"found": True, "code": None, "lines": [str(error)]}
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return {"found": True, "code": done.returncode, "lines": [line.strip() for line in lines[:16]]}


def ask_apart(name: str, patience_s: float) -> Dict[str, Any]:
    """What a framework says, in a process of its own."""
    command = [sys.executable, "-m", "windlass.agent.node.doctor", "--ask", name]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "it did not answer within %g s" % patience_s}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith(MARK):
            found: Dict[str, Any] = json.loads(line[len(MARK) :])
            return found
    report = done.stderr.decode("utf-8", "replace").strip().splitlines()
    ending = "signal %d" % -done.returncode if done.returncode < 0 else "code %d" % done.returncode
    return {
        "error": "its process ended with %s: %s"
        % (ending, report[-1] if report else "it printed nothing")
    }


# -- executed apart


def _ask_torch() -> Dict[str, Any]:
    torch = importlib.import_module("torch")
    report: Dict[str, Any] = {"version": torch.__version__, "cuda": torch.version.cuda}
    if getattr(torch.version, "hip", None):
        report["hip"] = torch.version.hip
    report["available"] = bool(torch.cuda.is_available())
    report["devices"] = torch.cuda.device_count() if report["available"] else 0
    report["names"] = [torch.cuda.get_device_name(number) for number in range(report["devices"])]
    if report["devices"]:
        # Seeing one is not using one: kernels may be missing for it, or another process may hold it alone.
        report["works"] = float((torch.ones(8, device="cuda") * 2).sum()) == 16.0
    elif report["cuda"]:
        report["error"] = _error_of(torch.cuda.init)
    return report


def _ask_jax() -> Dict[str, Any]:
    jax = importlib.import_module("jax")
    plugin = [
        name
        for name in ("jax_cuda13_plugin", "jax_cuda12_plugin")
        if importlib.util.find_spec(name)
    ]
    report: Dict[str, Any] = {"version": jax.__version__, "cuda": plugin[0] if plugin else None}
    found = [device for device in jax.devices() if device.platform in ("gpu", "cuda", "rocm")]
    report.update(
        available=bool(found), devices=len(found), names=[device.device_kind for device in found]
    )
    if not found:
        report["error"] = _error_of(lambda: jax.devices("gpu"))
    return report


def _ask_tensorflow() -> Dict[str, Any]:
    tensorflow = importlib.import_module("tensorflow")
    build = tensorflow.sysconfig.get_build_info()
    found = tensorflow.config.list_physical_devices("GPU")
    names = [
        str(tensorflow.config.experimental.get_device_details(one).get("device_name", ""))
        for one in found
    ]
    report = {
        "version": tensorflow.__version__,
        "cuda": build.get("cuda_version"),
        "devices": len(found),
    }
    return {**report, "available": bool(found), "names": names}


def _ask_bench() -> Dict[str, Any]:
    """A thousand products of (2048 × 1024) and (1024 × 512), on the CPU and on the GPU."""
    if importlib.util.find_spec("torch"):
        return _bench_torch()
    numpy = importlib.import_module("numpy")
    generator = numpy.random.default_rng(0)
    one = generator.standard_normal((_ROWS, _INNER), dtype="float32")
    two = generator.standard_normal((_INNER, _COLUMNS), dtype="float32")
    return {"with": "numpy " + numpy.__version__, "cpu_s": _timed(lambda: one @ two)}


def _bench_torch() -> Dict[str, Any]:
    torch = importlib.import_module("torch")
    one, two = torch.randn(_ROWS, _INNER), torch.randn(_INNER, _COLUMNS)
    report: Dict[str, Any] = {
        "with": "torch " + torch.__version__,
        "cpu_s": _timed(lambda: one @ two),
    }
    report["threads"] = torch.get_num_threads()
    if torch.cuda.is_available():
        there_one, there_two = one.cuda(), two.cuda()
        torch.cuda.synchronize()
        report["gpu_s"] = _timed(lambda: there_one @ there_two, torch.cuda.synchronize)
        report["gpu"] = torch.cuda.get_device_name(0)
    return report


def _timed(work: Callable[[], Any], settle: Callable[[], Any] = lambda: None) -> float:
    work()  # the first one loads what the others find
    settle()
    began = time.perf_counter()
    for _ in range(_TIMES):
        work()
    settle()
    return round(time.perf_counter() - began, 4)


def _error_of(work: Callable[[], Any]) -> Optional[str]:
    try:
        work()
    except Exception as error:
        return (
            str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        )
    return None


_ASK: Dict[str, Callable[[], Dict[str, Any]]] = {
    "torch": _ask_torch,
    "jax": _ask_jax,
    "tensorflow": _ask_tensorflow,
    "bench": _ask_bench,
}


def main(arguments: List[str]) -> int:
    if arguments[:1] == ["--ask"]:
        try:
            report = _ASK[arguments[1]]()
        except Exception as error:
            report = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
    else:
        report = look_around("--bench" in arguments)
    print(MARK + json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
