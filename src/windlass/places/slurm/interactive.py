"""An interactive job with a study's needs: its request, what is wrong with it, and its command line. Pure."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from windlass.core.counted import counted
from windlass.core.errors import Problem
from windlass.model import Plan, Request
from windlass.places.slurm import idle
from windlass.places.slurm.script import identity_options, merge_options, size_options
from windlass.plan.refuse_partition import takes
from windlass.plan.refuse_request import find_request_problems
from windlass.plan.refuse_study import find_request_placeholders
from windlass.plan.request_case import Case
from windlass.site.cluster import Cluster
from windlass.slurm.options import render_time

# Of every interactive job of ours: that is how a second one is noticed.
SHELL_NAME = "windlass-shell"
# What belongs to batch jobs alone.
_BATCH_ONLY = (
    "array",
    "output",
    "error",
    "open-mode",
    "requeue",
    "no-requeue",
    "mail-type",
    "mail-user",
    "wrap",
)


def make_interactive(plan: Plan, cluster: Cluster) -> Plan:
    """The same plan for one interactive job: in the site's partition for these, and no longer than the site wants.

    A partition or a time from the command line is left as it is. Where the site's partition would not take the job,
    it goes where batch jobs go.
    """
    assert plan.terms is not None
    request = _with_interactive_time(plan, plan.terms.request, cluster)
    chosen = cluster.partition(cluster.shell_partition) if cluster.shell_partition else None
    if chosen is not None and plan.settings["partition"].source != "command line":
        moved = _with_interactive_time(plan, replace(request, partition=chosen.name), cluster)
        if takes(Case(plan, moved, cluster, interactive=True), chosen):
            request = moved
    return replace(plan, agents=1, terms=replace(plan.terms, request=request))


def _with_interactive_time(plan: Plan, request: Request, cluster: Cluster) -> Request:
    """The request with the time that the command line gives, else with the site's default for shells."""
    asked = plan.settings["time_s"]
    if asked.value is not None and asked.source == "command line":
        return replace(request, time_s=int(asked.value))
    longest_s = cluster.longest_of(Case(plan, request, cluster).partitions) or request.time_s
    return replace(request, time_s=int(min(request.time_s, cluster.shell_time_s, longest_s)))


def find_interactive_problems(plan: Plan, cluster: Cluster) -> list[Problem]:
    """What salloc would refuse, or wait for without end."""
    assert plan.request is not None
    problems = find_request_problems(Case(plan, plan.request, cluster, interactive=True))
    return list(dict.fromkeys([*find_request_placeholders(plan), *problems]))


def with_idle_warning(program: Sequence[str], limit_s: float, request: Request) -> list[str]:
    """The program, with a process beside it that warns in the terminal when nothing has run for so long.

    Where that process cannot be started, the program is there all the same.
    """
    watcher = [
        sys.executable,
        "-I",
        os.path.abspath(idle.__file__),
        f"{limit_s:g}",
        describe_held(request),
    ]
    return ["/bin/sh", "-c", f'{shlex.join(watcher)} </dev/null & exec "$@"', "sh", *program]


def describe_held(request: Request) -> str:
    """What a job keeps others from using."""
    gpus = f"{counted(request.gpus, 'GPU')} and " if request.gpus else ""
    nodes = f" on each of {request.nodes} nodes" if request.nodes > 1 else ""
    return f"{gpus}{counted(request.cpus, 'core')}{nodes}"


def render_salloc(request: Request, time_s: float, program: Sequence[str]) -> list[str]:
    """The arguments of salloc, and of the srun that puts the program on the node with a terminal."""
    own: dict[str, Any] = {
        **identity_options(request),
        **size_options(request),
        "time": render_time(time_s),
    }
    own["job-name"] = SHELL_NAME
    further = {
        name: value for name, value in request.options.items() if name.strip("-") not in _BATCH_ONLY
    }
    arguments = ["salloc"]
    for name, value in merge_options(own, further).items():
        text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        arguments.append(f"--{name}" if value is True else f"--{name}={text}")
    return [*arguments, "srun", f"--cpus-per-task={request.cpus_per_task}", "--pty", *program]
