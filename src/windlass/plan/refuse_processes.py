"""What would go wrong with the processes of a trial: GPUs that nobody uses, ports that trials share. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windlass.core.errors import Problem
from windlass.launchers.base import PLAIN
from windlass.model import Plan
from windlass.plan.source_line import make_problem

_USES_SEVERAL = re.compile(
    r"torchrun|torch\.distributed|accelerate|deepspeed|srun|mpirun|mpiexec|horovod|lightning|colossalai|"
    r"\bray\b|\bddp\b|fsdp|nproc|n_?gpus?|num[-_]gpus|world[-_]size|--?(?:gpus|devices|tensor-parallel)",
    re.IGNORECASE,
)
_SEVERAL_NODES = re.compile(
    r"srun|mpirun|mpiexec|torchrun|accelerate|deepspeed|horovod|\bray\b", re.IGNORECASE
)
_STARTS_RANKS = re.compile(
    r"(?:^|[\s/])(?:srun|torchrun|mpirun|mpiexec|deepspeed|accelerate)\s|torch\.distributed\.(?:run|launch)"
)
_FIXED_PORT = re.compile(r"--(?:master|main)[-_](?:process[-_])?port[= ]+\d+|MASTER_PORT=\d+")


def _is_plain(plan: Plan) -> bool:
    launch = plan.settings.get("launch")
    return launch is None or launch.value == "plain"


def find_process_problems(plan: Plan, words: list[str]) -> Iterator[Problem]:
    """`words` are those of all commands."""
    text = " ".join(words)
    launch, gpus = plan.settings["launch"], plan.settings["gpus"].value or 0
    nodes, job_nodes = plan.settings["trial_nodes"].value or 0, plan.settings["nodes"].value or 0
    if launch.source == "default" and gpus > 1 and not _USES_SEVERAL.search(text):
        yield make_problem(
            plan,
            "gpus",
            f"a trial gets {gpus:g} GPUs, and nothing in its command speaks of several",
            "",
            "`launch: torchrun` (or srun, lightning, accelerate, mpi) starts a process for each; "
            "`launch: plain` for a program that does so itself",
        )
    if nodes > 1 and launch.source == "default" and not _SEVERAL_NODES.search(text):
        yield make_problem(
            plan,
            "trial_nodes",
            f"a trial gets {nodes} nodes, and nothing starts its processes on the others",
            "",
            "`launch: torchrun`, or srun, lightning, accelerate, mpi",
        )
    if not _is_plain(plan) and _STARTS_RANKS.search(text):
        yield make_problem(
            plan,
            "launch",
            f"the command starts its own processes, and `launch: {launch.value}` would start each of them again",
            "",
            f"leave one of them out: `launch: {launch.value}` takes the command of one process",
        )
    if nodes and job_nodes and job_nodes % nodes:
        yield make_problem(
            plan,
            "trial_nodes",
            f"jobs of {job_nodes} nodes cannot be divided into trials of {nodes} nodes",
            "",
            f"slurm: {{nodes: {max(1, job_nodes // nodes) * nodes}}}",
        )


def find_process_warnings(plan: Plan, words: list[str]) -> Iterator[str]:
    """`words` are those of all commands."""
    request, text = plan.request, " ".join(words)
    nodes = request.nodes if request is not None else 1
    if nodes > 1 and _is_plain(plan) and not _SEVERAL_NODES.search(text):
        yield f"a job gets {nodes} nodes, and nothing in the command starts processes on the others (srun)"
    fixed = _FIXED_PORT.search(text)
    named = fixed[0] if fixed else ""
    if not named and "MASTER_PORT" in plan.study.env:
        named = f"MASTER_PORT={plan.study.env['MASTER_PORT']}"
    if named:
        yield (
            f"{named} is the same for all trials: two on one node meet each other there, and one of them fails; "
            "leave it out with `launch: torchrun`, which gives each trial a port of its own"
        )


def has_launcher(plan: Plan) -> bool:
    """Whether something starts the processes of a trial, so that it may have several."""
    return bool(plan.settings["launch"].value != PLAIN)
