"""What a trial's GPU, driver and frameworks see, and explains why one sees nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.counted import counted
from windlass.core.units import UNKNOWN, render_duration, render_mb_limit
from windlass.view.table import render_columns

_NOTHING = ("", "-1", "NoDevFiles", "none", "void")


def render_seen(seen: Mapping[str, Any]) -> str:
    """The answer in a few lines, then what is wrong. Ends with a newline."""
    variables = seen.get("variables") or {}
    job = f", job {variables['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in variables else ""
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    allocation = " is not set" if visible is None else f"={visible}"
    rows = [
        ("host", f"{seen.get('host')}{job}"),
        ("python", f"{seen.get('python')} ({seen.get('executable')})"),
        ("allocation", f"CUDA_VISIBLE_DEVICES{allocation}"),
        ("driver", _driver(seen)),
    ]
    for device in devices_of(seen):
        memory = render_mb_limit(device["memory_mb"]) if device.get("memory_mb") else UNKNOWN
        rows.append(("GPU", f"{device.get('name')}, {memory}"))
    frameworks = seen.get("frameworks") or {}
    rows += [(name, _framework(found)) for name, found in frameworks.items()]
    if not frameworks:
        rows.append(("frameworks", "none of torch, jax, tensorflow is installed for this Python"))
    rows += [("matmul", text) for text in _bench(seen.get("bench"))]
    lines = render_columns(rows)
    reasons = explain_seen(seen)
    lines += ["", *(f"problem: {reason}" for reason in reasons)] if reasons else ["", "all well"]
    return "\n".join(lines) + "\n"


def seen_to_json(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What was seen, and `problems` as sentences."""
    return {**seen, "problems": explain_seen(seen)}


def devices_of(seen: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (seen.get("nvml") or {}).get("devices") or []


def explain_seen(seen: Mapping[str, Any]) -> list[str]:
    """What is wrong, the likely reason first; nothing where all is well."""
    reasons = _machine_reasons(seen)
    visible = (seen.get("variables") or {}).get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in _NOTHING and not seen.get("frameworks"):
        reasons.append(f"CUDA_VISIBLE_DEVICES={visible!r} hides all GPUs")
    for name, found in (seen.get("frameworks") or {}).items():
        if found.get("devices") and found.get("works") is not False:
            continue
        reasons.append(_framework_reason(name, found, seen))
    bench_error = (seen.get("bench") or {}).get("error")
    if bench_error:
        reasons.append(f"the matrix product failed: {bench_error}")
    return reasons


def _machine_reasons(seen: Mapping[str, Any]) -> list[str]:
    """Why there is no GPU at all; nothing where one is there, or where CUDA_VISIBLE_DEVICES hides them."""
    if devices_of(seen):
        return []
    variables = seen.get("variables") or {}
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    nvml = seen.get("nvml") or {}
    if visible is not None and visible.strip() in _NOTHING:
        return []  # The reason of each framework mentions it.
    given = f": the allocation names GPU {visible}, but " if visible else ": "
    if nvml.get("kind") == "no library" and not seen.get("device_files"):
        return [f"no GPU{given}this machine has no NVIDIA driver"]
    if not seen.get("device_files") and "SLURM_JOB_ID" in variables:
        return [f"no GPU{given}the job was given none: ask for one with `needs: {{gpus: 1}}`"]
    return [f"no GPU{given}{nvml.get('error', 'the driver lists none')}"]


def _framework_reason(name: str, found: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
    """Why a framework sees no device.

    The causes are tried in the order in which they hide each other: a build without CUDA first, a wrong number of a
    device last.
    """
    version = f"{name} {found.get('version', '')}".strip()
    head = f"{version} sees 0 devices: "
    variables = seen.get("variables") or {}
    visible, error = variables.get("CUDA_VISIBLE_DEVICES"), str(found.get("error") or "")
    built, driver = found.get("cuda"), seen.get("cuda_driver")
    if found.get("version") is None:
        return f"{name} cannot be asked: {error}"
    if found.get("devices"):
        return f"{version} sees the GPU and cannot compute on it"
    if built is None and not found.get("hip"):
        return head + _cpu_build(name, driver)
    if visible is not None and visible.strip() in _NOTHING:
        in_job = "; the job has no GPU: `needs: {gpus: 1}`" if "SLURM_JOB_ID" in variables else ""
        return f"{head}CUDA_VISIBLE_DEVICES={visible!r} hides them all{in_job}"
    if (
        name == "jax"
        and variables.get("JAX_PLATFORMS", variables.get("JAX_PLATFORM_NAME")) == "cpu"
    ):
        return f"{head}JAX_PLATFORMS=cpu keeps it from them"
    if not devices_of(seen):
        return f"{head}there is no GPU here"
    if _is_older(driver, built):
        return (
            f"{head}the driver is too old: it knows CUDA up to {driver}, this build needs {built}"
        )
    if "mps" in error.lower() or ("CUDA_MPS_PIPE_DIRECTORY" in variables and error):
        return f"{head}CUDA_MPS_PIPE_DIRECTORY names an MPS server that does not answer ({error})"
    if visible is not None and _beyond(visible, len(devices_of(seen))):
        return f"{head}CUDA_VISIBLE_DEVICES={visible} names a GPU that is not there: there are {len(devices_of(seen))}"
    return head + (error or "for no reason it tells")


def _cpu_build(name: str, driver: str | None) -> str:
    """What to install in the place of a build without CUDA."""
    if name == "jax":
        return "it has no CUDA plugin: `pip install 'jax[cuda12]'`"
    if name == "tensorflow":
        return "it is a build without CUDA: `pip install 'tensorflow[and-cuda]'`"
    for_cuda = f" (the driver knows CUDA up to {driver})" if driver else ""
    return f"it is a CPU-only build: install one for CUDA{for_cuda}"


def _is_older(driver: str | None, built: Any) -> bool:
    """Only the first number counts: drivers run all builds of the same one."""
    have = re.match(r"(\d+)", str(driver or ""))
    need = re.search(r"(\d+)", str(built or ""))
    return bool(have and need) and int(have[1]) < int(need[1])  # type: ignore[index]


def _beyond(visible: str, count: int) -> bool:
    numbers = [int(word) for word in visible.split(",") if word.strip().isdecimal()]
    return bool(numbers) and min(numbers) >= count


def _driver(seen: Mapping[str, Any]) -> str:
    """The version of the driver and of CUDA; what nvidia-smi printed where the library does not answer."""
    nvml = seen.get("nvml") or {}
    if nvml.get("driver"):
        cuda = (
            f", CUDA up to {seen['cuda_driver']}"
            if seen.get("cuda_driver")
            else ", libcuda cannot be loaded"
        )
        return f"{nvml['driver']}{cuda}"
    smi = seen.get("nvidia_smi") or {}
    if smi.get("lines"):
        return f"nvidia-smi says: {smi['lines'][0]}"
    return "none"


def _framework(found: Mapping[str, Any]) -> str:
    """A framework in one line: its version, what it was built for, and how many devices it sees."""
    if found.get("version") is None:
        return str(found.get("error"))
    built = f"built with CUDA {found['cuda']}" if found.get("cuda") else "built without CUDA"
    if found.get("hip"):
        built = f"built with ROCm {found['hip']}"
    count = found.get("devices") or 0
    names = f" ({', '.join(found['names'])})" if found.get("names") else ""
    return f"{found['version']}, {built}, sees {counted(count, 'device')}{names}"


def _bench(bench: Mapping[str, Any] | None) -> list[str]:
    """How long the matrix product took on the processor and on the GPU; nothing where it was not computed."""
    if not bench or bench.get("cpu_s") is None:
        return []
    lines = [
        f"1000 × (2048×1024)·(1024×512) with {bench.get('with')}: CPU {render_duration(bench['cpu_s'])}"
    ]
    if bench.get("gpu_s"):
        times = bench["cpu_s"] / bench["gpu_s"]
        lines[0] += f", GPU {render_duration(bench['gpu_s'])} ({times:.0f} times as fast)"
    return lines
