"""What a trial sees of its GPU, why a framework sees none, and imports that are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_nvml import build
from tests.conftest import Project
from windlass.check.imports import find_imports, find_missing, find_scripts
from windlass.view.doctor import explain_seen, render_seen

GPU = {
    "driver": "550.54.15",
    "devices": [{"name": "NVIDIA A100", "uuid": "GPU-1", "memory_mb": 40960}],
}
NO_DRIVER = {"error": "NVML cannot be loaded", "kind": "no library", "devices": []}


def seen(**more: Any) -> dict[str, Any]:
    said = {
        "host": "n1",
        "python": "3.11.2",
        "executable": "/v/bin/python",
        "variables": {},
        "nvml": GPU,
    }
    return {
        **said,
        "cuda_driver": "12.4",
        "device_files": ["/dev/nvidia0"],
        "frameworks": {},
        **more,
    }


def torch(**more: Any) -> dict[str, Any]:
    return {
        "torch": {
            "version": "2.3.0",
            "cuda": "12.1",
            "available": False,
            "devices": 0,
            "names": [],
            **more,
        }
    }


def test_all_well() -> None:
    well = seen(frameworks=torch(available=True, devices=1, names=["NVIDIA A100"], works=True))
    assert explain_seen(well) == []
    assert "torch       2.3.0, built with CUDA 12.1, sees 1 device (NVIDIA A100)" in render_seen(
        well
    )


@pytest.mark.parametrize(
    "what,reason",
    [
        (seen(frameworks=torch(version="2.3.0+cpu", cuda=None)), "a CPU-only build"),
        (
            seen(frameworks=torch(), variables={"CUDA_VISIBLE_DEVICES": ""}),
            "CUDA_VISIBLE_DEVICES='' hides them all",
        ),
        (
            seen(frameworks=torch(), variables={"CUDA_VISIBLE_DEVICES": "-1", "SLURM_JOB_ID": "7"}),
            "the job has no GPU: `needs: {gpus: 1}`",
        ),
        (
            seen(frameworks=torch(), cuda_driver="11.4"),
            "it knows CUDA up to 11.4, this build needs 12.1",
        ),
        (
            seen(frameworks=torch(), variables={"CUDA_VISIBLE_DEVICES": "3"}),
            "names a GPU that is not there",
        ),
        (
            seen(
                frameworks=torch(error="MPS client failed to connect"),
                variables={"CUDA_MPS_PIPE_DIRECTORY": "/x"},
            ),
            "an MPS server that does not answer",
        ),
        (seen(frameworks=torch(error="CUDA unknown error")), "sees 0 devices: CUDA unknown error"),
        (seen(frameworks=torch(devices=1, works=False)), "sees the GPU and cannot compute on it"),
        (
            seen(frameworks={"torch": {"error": "its process ended with signal 11"}}),
            "cannot be asked: its process",
        ),
        (
            seen(frameworks={"jax": {"version": "0.4", "cuda": None, "devices": 0}}),
            "no CUDA plugin",
        ),
        (
            seen(
                frameworks={"jax": {"version": "0.4", "cuda": "p", "devices": 0}},
                variables={"JAX_PLATFORMS": "cpu"},
            ),
            "JAX_PLATFORMS=cpu",
        ),
        (
            seen(nvml=NO_DRIVER, device_files=[], variables={"CUDA_VISIBLE_DEVICES": "0"}),
            "allocation names GPU 0",
        ),
        (
            seen(nvml={"devices": []}, device_files=[], variables={"SLURM_JOB_ID": "7"}),
            "the job was given none",
        ),
        (seen(variables={"CUDA_VISIBLE_DEVICES": ""}), "hides all GPUs"),
    ],
)
def test_the_likely_reason_is_said(what: dict[str, Any], reason: str) -> None:
    assert reason in " / ".join(explain_seen(what))
    assert f"problem: {explain_seen(what)[0]}" in render_seen(what)


def ask(folder: Path, env: dict[str, str], *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "windlass.agent.node.doctor", *words],
        env={**os.environ, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.partition("WINDLASS-DOCTOR ")[2])
    return found


def test_a_framework_is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Made up, so that each way of answering is there: a number of devices, a crash, and a GPU that works."""
    (tmp_path / "jax.py").write_text("import os; os.kill(os.getpid(), 11)")
    (tmp_path / "torch.py").write_text(
        "__version__ = '9.9'\nclass version: cuda = '12.1'; hip = None\nclass cuda:\n"
        "    is_available = staticmethod(lambda: False)\n    device_count = staticmethod(lambda: 0)\n"
        "    @staticmethod\n    def init(): raise RuntimeError('Found no NVIDIA driver\\nmore')\n"
    )
    said = ask(tmp_path, {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"})
    assert said["frameworks"]["torch"]["error"] == "Found no NVIDIA driver"
    assert "signal 11" in said["frameworks"]["jax"]["error"]
    assert said["variables"]["CUDA_VISIBLE_DEVICES"] == "0"


def test_the_driver_lists_its_gpus(tmp_path: Path) -> None:
    said = ask(tmp_path, {"WINDLASS_NVML": build(tmp_path)})
    assert said["nvml"]["driver"] and said["nvml"]["devices"][0]["memory_mb"] > 0
    assert explain_seen({**said, "frameworks": {}}) == []


def test_the_sanity_figure_is_there_without_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "__version__ = '9.9'\nclass Matrix:\n    def __matmul__(self, other): return self\n"
        "def randn(*shape): return Matrix()\ndef get_num_threads(): return 3\n"
        "class cuda:\n    is_available = staticmethod(lambda: False)\n"
    )
    said = ask(tmp_path, {"PYTHONPATH": str(tmp_path)}, "--ask", "bench")
    assert (said["with"], said["threads"]) == ("torch 9.9", 3) and said["cpu_s"] > 0
    assert "matmul" in render_seen(seen(bench=said)) and "GPU 10 ms (50 times" in render_seen(
        seen(bench={**said, "cpu_s": 0.5, "gpu_s": 0.01})
    )


def test_imports_are_followed_and_those_that_may_fail_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "train.py").write_text(
        "import os, numpy.linalg\nimport helper\nfrom pkg.deep import x\nimport windlass\n"
        "try:\n    import maybe\nexcept ImportError:\n    maybe = None\n"
        "try:\n    import surely\nexcept KeyError:\n    pass\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import for_types\n"
        "def late():\n    import at_the_end\n"
    )
    (tmp_path / "helper.py").write_text("import beside\nimport numpy\n")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "deep.py").write_text("from . import other\nx = 1\n")
    (tmp_path / "pkg" / "other.py").write_text("from relative_to_nothing import y\n")
    found = find_imports([str(tmp_path / "train.py")], [str(tmp_path)])
    names = {one.name: (os.path.basename(one.file), one.line) for one in found}
    assert names == {
        "os": ("train.py", 1), "numpy": ("train.py", 1), "surely": ("train.py", 10), "typing": ("train.py", 13),
        "at_the_end": ("train.py", 17), "beside": ("helper.py", 1), "relative_to_nothing": ("other.py", 1),
    }  # fmt: skip
    problems = find_missing(found, sys.executable, os.environ)
    missing = {problem.message.split()[1].rstrip(",") for problem in problems}
    assert missing == {"surely", "at_the_end", "beside", "relative_to_nothing"}


def test_scripts_of_a_command_line(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("")
    (tmp_path / "a.py").write_text("")
    words = ["accelerate", "launch", "a.py", "--lr", "1", "not.py"]
    assert find_scripts(words, str(tmp_path)) == [str(tmp_path / "a.py")]
    assert find_scripts(["python", "-m", "pkg"], str(tmp_path)) == [
        str(tmp_path / "pkg" / "__main__.py")
    ]


def test_doctor_on_this_machine(project: Project) -> None:
    assert "say what to look at" in project.run("doctor", code=2).stderr
    project.write("train.py", "import numpy\nimport a_module_that_nobody_has\n")
    project.write("study.yaml", f"command: {sys.executable} train.py\n")
    done = project.run("doctor", "--imports", "study.yaml", code=2)
    assert (
        "train.py:2: imports a_module_that_nobody_has" in done.stderr and "numpy" not in done.stderr
    )
    project.env["CUDA_VISIBLE_DEVICES"] = ""
    said = json.loads(
        project.run("doctor", "--gpu", "study.yaml", "--on", "local", "--json", code=1).stdout
    )
    assert said["executable"] == sys.executable and said["problems"]
    assert project.run("status", code=2)  # it leaves no study behind
