"""Tiny jobs that remove what dead jobs left on nodes' own disks: one a node."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from windlass.core.processes import ask
from windlass.core.queue.ask import plain_environment
from windlass.core.verified import agent_command
from windlass.places.slurm.arrays import sentence_of
from windlass.slurm.options import render_pattern, render_value

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class SweepJob:
    """What one node's job is asked for with."""

    node: str
    partition: str | None
    account: str | None
    program: str  # agent.pyz
    digest: str  # its SHA-256
    roots: tuple[str, ...]  # as the site says them: the node fills in $USER
    queue_file: str
    report: str  # the file that its output goes to


def render_sweep(job: SweepJob) -> str:
    """The batch script."""
    options = {
        "job-name": "windlass-clean",
        "nodelist": job.node,
        "partition": job.partition,
        "account": job.account,
        "ntasks": "1",
        "cpus-per-task": "1",
        "mem": "100M",
        "time": "5",
        "output": render_pattern(job.report),
        "chdir": os.path.dirname(job.report),
    }
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH --{name}={render_value(value)}" for name, value in options.items() if value]
    arguments = ["--sweep", *job.roots, "--queue", job.queue_file]
    command = agent_command(sys.executable, job.program, job.digest, arguments)
    return "\n".join([*lines, "", f"exec {shlex.join(command)}", ""])


def send_sweep(job: SweepJob) -> tuple[int | None, str]:
    """Submit it: the job's number, or Slurm's error message."""
    env = {
        name: value
        for name, value in plain_environment({}).items()
        if not name.startswith("SBATCH_")
    }
    answer = ask(["sbatch", "--parsable"], _PATIENCE_S, render_sweep(job), env)
    number = answer.text.split(";")[0].strip()
    return (int(number), "") if answer.ok and number.isdecimal() else (None, sentence_of(answer))


def waiting_jobs(jobs: Sequence[int]) -> set[int] | None:
    """Those of the jobs that are not over; None where the scheduler does not answer."""
    answer = ask(
        ["squeue", "--noheader", "--format=%A", f"--user={os.getuid()}"],
        _PATIENCE_S,
        env=plain_environment({}),
    )
    return (
        {int(word) for word in answer.text.split() if word.isdecimal()} & set(jobs)
        if answer.ok
        else None
    )
