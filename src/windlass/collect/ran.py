"""Where and with which code the last attempt of a trial ran, as columns of results."""

from __future__ import annotations

import os
from collections.abc import Mapping

from windlass.collect.groups import Row
from windlass.core.journal.records import AgentRecord, TrialRecord
from windlass.core.paths import StudyPaths


def code_columns(record: TrialRecord | None, agents: Mapping[str, AgentRecord]) -> Row:
    """Commit, whether there were changes that are not committed, and the name of the frozen code."""
    agent = None if record is None else agents.get(record.agent)
    code = (agent.code if agent is not None else None) or {}
    return {
        "code.commit": code.get("commit"),
        "code.uncommitted": code.get("dirty"),
        "code.key": code.get("key"),
    }


def place_columns(
    paths: StudyPaths, record: TrialRecord | None, agents: Mapping[str, AgentRecord]
) -> Row:
    """Node and job, and the files that hold what the trial and its job printed. None: not known, or not in a job."""
    agent = None if record is None else agents.get(record.agent)
    if agent is None:
        return dict.fromkeys(("ran.node", "ran.job", "ran.output", "ran.job_log"))
    job = agent.job or {}
    return {
        "ran.node": job.get("node") or agent.host,
        "ran.job": job_name(job),
        "ran.output": paths.output_of(agent.id),
        "ran.job_log": job_log(paths, job),
    }


def job_name(job: Mapping[str, object]) -> str | None:
    """As squeue shows it: ``123_4``."""
    if not job:
        return None
    return f"{job['array']}" + ("" if job.get("task") is None else f"_{job['task']}")


def job_log(paths: StudyPaths, job: Mapping[str, object]) -> str | None:
    """The file in which Slurm keeps what the job itself printed."""
    if not job:
        return None
    name = f"{os.path.basename(paths.folder)}_{job['array']}_{job.get('task') or 0}.out"
    return os.path.join(paths.hpc_outputs, name)
