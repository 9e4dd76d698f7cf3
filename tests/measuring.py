"""For tests of measuring: a machine with as many cores as a test wants, a fake GPU, and programs that use both.

Programs do not compute: they wait, longer the more of them there are. So what comes out does not depend on the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project

HERE = Path(__file__).parent
CORES = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    const char *text = getenv("FAKE_CORES");
    int cores = text ? atoi(text) : 1;
    (void)pid;
    memset(set, 0, size);
    for (int core = 0; core < cores; core++) CPU_SET_S(core, size, set);
    return 0;
}
"""

# crowd.py STEPS STEP_S WIDTH WIDTH_WITH_MPS MB: up to WIDTH of them are as fast as one; more share that speed.
CROWD = r"""
import os, sys, time
import windlass

steps, step_s, width, width_mps, mb = int(sys.argv[1]), *map(float, sys.argv[2:6])
folder, mps = os.environ["FAKE_FOLDER"], "CUDA_MPS_PIPE_DIRECTORY" in os.environ
mine = os.path.join(folder, str(os.getpid()))

def others():
    found = 0
    for name in os.listdir(folder):
        found += name.isdigit() and os.path.isdir("/proc/" + name)
    return max(1, found)

with open(mine + ".new", "w") as file:
    file.write("%d 30 0 %s" % (mb, "client" if mps else "process"))
os.rename(mine + ".new", mine)
due = time.monotonic()
for step in range(1, steps + 1):
    due += step_s * max(1.0, others() / (width_mps if mps else width))
    time.sleep(max(0.0, due - time.monotonic()))
    windlass.log(step=step, of=steps)
os.remove(mine)
"""


def compile_shared(folder: Path, name: str, source: Path) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    target = folder / f"{name}.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(target), str(source)],
        check=True,
    )
    return str(target)


class Machine:
    """What is compiled once and put into the environment of a project."""

    def __init__(self, folder: Path) -> None:
        (folder / "cores.c").write_text(CORES)
        self._cores = compile_shared(folder, "cores", folder / "cores.c")
        self._nvml = compile_shared(folder, "nvml", HERE / "fake_nvml.c")

    def give(self, project: Project, cores: int, gpu: str | None = "0", **fake: Any) -> None:
        """The project's commands, agents and trials see so many cores and this GPU."""
        crowd = project.folder.parent / "crowd"
        crowd.mkdir(exist_ok=True)
        project.write("crowd.py", CROWD)
        project.env.update(LD_PRELOAD=self._cores, FAKE_CORES=str(cores), FAKE_FOLDER=str(crowd))
        project.env.update({f"FAKE_{name.upper()}": str(value) for name, value in fake.items()})
        if gpu is not None:
            self.give_nvml(project)
            project.env["CUDA_VISIBLE_DEVICES"] = gpu

    def give_nvml(self, project: Project) -> None:
        """Only the driver's library: which GPU it is, a job is told by its scheduler."""
        project.env["WINDLASS_NVML"] = self._nvml


def put_mps(project: Project, how: str = "") -> None:
    """A stand-in of the MPS control program on PATH."""
    program = project.write(
        "bin/nvidia-cuda-mps-control",
        f'#!/bin/sh\nexec "{sys.executable}" -S "{HERE / "mps_standin.py"}" "$@"\n',
    )
    program.chmod(0o755)
    project.env["PATH"] = f"{program.parent}{os.pathsep}{project.env['PATH']}"
    if how:
        project.env["FAKE_MPS"] = how
