"""What the agent knows of the job it is in. Python 3.9, standard library."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional

from windlass.agent.node.sweep import Mark, release_folder
from windlass.core.paths import expand_node_path, user_name


def read_job(environ: Mapping[str, str], submission: Optional[str]) -> Optional[Dict[str, Any]]:
    """The job as the journal's header names it; None outside of jobs."""
    number = environ.get("SLURM_JOB_ID")
    if submission is None or not number:
        return None
    task = environ.get("SLURM_ARRAY_TASK_ID")
    return {
        "id": int(number),
        "array": int(environ.get("SLURM_ARRAY_JOB_ID") or number),
        "task": int(task) if task else None,
        "restart": int(environ.get("SLURM_RESTART_COUNT") or 0),
        "node": environ.get("SLURMD_NODENAME") or os.uname().nodename,
        "sub": submission,
    }


def job_gpus(environ: Mapping[str, str]) -> List[str]:
    """The GPUs that the scheduler gave us, by the names that this job has for them."""
    for name in (
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "SLURM_STEP_GPUS",
        "SLURM_JOB_GPUS",
    ):
        devices = environ.get(name, "").strip()
        if devices and devices != "NoDevFiles":
            return [device.strip() for device in devices.split(",") if device.strip()]
    return []


class LocalScratch:
    """$SLURM_TMPDIR: the site's own, or one made and removed by us where the site has none."""

    def __init__(
        self,
        job: Optional[Mapping[str, Any]],
        place: Optional[str],
        wanted: bool = False,
        at: str = "",
    ) -> None:
        """Outside of jobs there is one only where it is `wanted`. `at` is where another node of the job has it."""
        self.path = at or os.environ.get("SLURM_TMPDIR", "")
        self.made = ""
        if self.path and os.path.isdir(self.path):
            return
        if job is None and not wanted:
            return
        if at:
            os.makedirs(at, mode=0o700)
            self.path = self.made = at
        else:
            self.path = self.made = _make(job, place)
        self._mark = Mark(self.made, job)
        os.environ["SLURM_TMPDIR"] = self.path

    def remove(self) -> None:
        """Remove what we made, unless there are outputs in it that could not be copied out."""
        if not self.made:
            return
        problem = release_folder(self.made)
        self._mark.close()
        if problem:
            print(
                f"windlass agent: {self.made} stays on {os.uname().nodename}: {problem}",
                file=sys.stderr,
            )


class RuntimeFolder:
    """The agent's own small folder on the node: the FIFO for metrics and the program that trials import.

    It carries a mark wherever it is not inside a folder that has one. So the next agent on the node, or
    `windlass clean --nodes`, finds and removes it if agent and guard were killed at the same moment.
    """

    def __init__(self, scratch: LocalScratch, job: Optional[Mapping[str, Any]]) -> None:
        self._mark: Optional[Mark] = None
        if scratch.made:
            self.path = tempfile.mkdtemp(prefix="windlass-", dir=scratch.made)
        else:
            self.path = _make_temporary()
            self._mark = Mark(self.path, job)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._mark is not None:
            self._mark.close()


def _make_temporary() -> str:
    return tempfile.mkdtemp(prefix=f"{user_name()}_local_{os.getpid()}_")


def _make(job: Optional[Mapping[str, Any]], place: Optional[str]) -> str:
    if job is None:
        return _make_temporary()
    task = "" if job["task"] is None else f"_{job['task']}"
    name = f"{user_name()}_{job['array']}{task}_{job['restart']}"
    for root in (expand_node_path(place or ""), tempfile.gettempdir()):
        if root:
            try:
                os.makedirs(root, mode=0o700, exist_ok=True)
                return _make_new(os.path.join(root, name))
            except OSError:
                continue
    return tempfile.mkdtemp(prefix=name)


def _make_new(path: str) -> str:
    """A folder of that name; another, where somebody died in this very job and left outputs in the first."""
    for number in range(100):
        try:
            name = f"{path}.{number}" if number else path
            os.mkdir(name, 0o700)
            return name
        except FileExistsError:
            continue
    raise FileExistsError(path)
