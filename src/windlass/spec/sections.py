"""The sections of a study file: `needs`, `pack`, `slurm`, `environment`, `checkpoint`, `interrupt`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from windlass.spec.fields import (
    check_amount,
    check_command,
    check_count,
    check_duration,
    check_gpu_amount,
    check_integer,
    check_lines,
    check_memory,
    check_options,
    check_place,
    check_signal,
    check_text,
    check_time_with_unit,
    check_truth,
    check_words,
)
from windlass.spec.fields_pack import check_headroom, check_mps, check_prefer, check_safety


def key(description: str, kind: str, example: str, default: str = "none") -> Any:
    """A field that may be left out, with what the reference says about it."""
    extra: JsonDict = {"kind": kind, "example": example, "default": default}
    return Field(default=None, description=description, json_schema_extra=extra)


class Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


class NeedsKeys(Keys):
    """What one trial takes."""

    cpus: Annotated[float | None, BeforeValidator(check_amount)] = key(
        "Processor cores one trial uses.", "number", "cpus: 2"
    )
    memory: Annotated[int | None, BeforeValidator(check_memory)] = key(
        "Main memory of one trial, with a unit. Units are powers of 1024, as in Slurm.", "size", "memory: 4GB"
    )
    gpus: Annotated[float | None, BeforeValidator(check_gpu_amount)] = key(
        "GPUs one trial uses: a whole number, or a fraction below 1 that shares one GPU between trials.",
        "number",
        "gpus: 0.5",
    )
    gpu_memory: Annotated[int | None, BeforeValidator(check_memory)] = key(
        "GPU memory of one trial, with a unit.", "size", "gpu_memory: 10GB"
    )
    gpu_type: Annotated[str | None, BeforeValidator(check_text)] = key(
        "The type of GPU, by the cluster's name for it (`windlass site` lists them).",
        "text",
        "gpu_type: v100l",
        "the site's, or any",
    )
    time: Annotated[float | None, BeforeValidator(check_time_with_unit)] = key(
        "How long one trial takes at most, with a unit.", "duration", "time: 1h30m"
    )


class PackKeys(Keys):
    """How trials share a GPU, and how much more than they used they are given."""

    most: Annotated[int | None, BeforeValidator(check_count)] = key(
        "Never more trials a GPU than this; without GPUs, never more on one node. `most: 1` shares nothing.",
        "number",
        "most: 8",
        "what `windlass measure` found; one without a measurement",
    )
    prefer: Annotated[Literal["throughput", "latency"] | None, BeforeValidator(check_prefer)] = key(
        "`throughput`: as many trials an hour as can be. `latency`: only so many side by side that each of them is at "
        "most 10 % slower than alone.",
        "`throughput` or `latency`",
        "prefer: latency",
        "throughput",
    )
    headroom: Annotated[str | None, BeforeValidator(check_headroom)] = key(
        "GPU memory beyond the measured peak: `next` rounds up to the next whole GB above it (2 GB become 3), or a "
        "share, or a size. What `needs` say is taken as it is.",
        "`next`, share or size",
        "headroom: 20%",
        "next",
    )
    mps: Annotated[Literal["auto", "on", "off"] | None, BeforeValidator(check_mps)] = key(
        "NVIDIA MPS, which lets trials use one GPU at the same moment. `auto`: where `windlass measure` found that it "
        "pays.",
        "`auto`, `on` or `off`",
        "mps: off",
        "auto",
    )
    safety: Annotated[float | None, BeforeValidator(check_safety)] = key(
        "Jobs ask for so many times the time that was estimated. A `time` in `needs` is taken as it is.",
        "number of 1 or more",
        "safety: 1.5",
        "1.3",
    )


class SlurmKeys(Keys):
    """What jobs ask for beyond what trials need."""

    account: Annotated[str | None, BeforeValidator(check_text)] = key(
        "The account that pays.", "text", "account: def-prof", "`SBATCH_ACCOUNT`, then the site's"
    )
    partition: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Where jobs wait; several with commas. Left out where the site wants none named.",
        "text",
        "partition: gpu",
        "the site's, or the cluster's default",
    )
    qos: Annotated[str | None, BeforeValidator(check_text)] = key("Quality of service.", "text", "qos: short")
    gpus_per_job: Annotated[int | None, BeforeValidator(check_count)] = key(
        "GPUs of one job. Each has its own slots; a trial sees only those that are its own.",
        "number",
        "gpus_per_job: 4",
        "1, or what one trial needs",
    )
    mem_per_gpu: Annotated[int | None, BeforeValidator(check_memory)] = key(
        "Memory of a job for each of its GPUs, where `needs` say no memory of a trial.",
        "size",
        "mem_per_gpu: 32000M",
        "the site's fair share",
    )
    nodes: Annotated[int | None, BeforeValidator(check_count)] = key(
        "Nodes of one job, for a trial that starts its parts with `srun`.", "number", "nodes: 2", "1"
    )
    agents: Annotated[int | None, BeforeValidator(check_count)] = key(
        "How many agents (tasks of the array) share the trials.", "number", "agents: 25", "see `windlass plan --all`"
    )
    max_jobs: Annotated[int | None, BeforeValidator(check_count)] = key(
        "Never more agents than this.", "number", "max_jobs: 50", "the site's limit"
    )
    throttle: Annotated[int | None, BeforeValidator(check_count)] = key(
        "How many agents may run at a time; `windlass throttle` changes it later.",
        "number",
        "throttle: 5",
        "the site's",
    )
    mail_user: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Who is told by mail.", "text", "mail_user: me@example.org"
    )
    mail_type: Annotated[Any, BeforeValidator(check_words)] = key(
        "What of.", "text or list", "mail_type: [END, FAIL]", "END and FAIL, with `mail_user`"
    )
    options: Annotated[Any, BeforeValidator(check_options)] = key(
        "Any further option of `sbatch`, by its long name. `true` for one that takes no value.",
        "mapping",
        "options: {constraint: cascade, exclude: 'node[3-5]', exclusive: true}",
    )


class EnvironmentKeys(Keys):
    """What is activated before anything is started: one of the first four, and whatever else is needed."""

    venv: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Folder of a virtual environment, relative to the project.", "path", "venv: .venv"
    )
    conda: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Name or folder of a conda environment.", "text", "conda: torch"
    )
    uv: Annotated[bool | None, BeforeValidator(check_truth)] = key(
        "The project's own environment, as `uv sync` makes it from uv.lock.", "true or false", "uv: true"
    )
    build: Annotated[str | None, BeforeValidator(check_text)] = key(
        "File to build an environment from, once for each content: requirements.txt, pyproject.toml, Pipfile or "
        "environment.yml.",
        "path",
        "build: requirements.txt",
    )
    place: Annotated[Literal["shared", "node"] | None, BeforeValidator(check_place)] = key(
        "Where it is built: `shared`, in a folder of yours, or `node`, on each node's own disk from a wheelhouse.",
        "`shared` or `node`",
        "place: node",
        "shared",
    )
    modules: Annotated[Any, BeforeValidator(check_words)] = key(
        "Modules to load first.", "list of names", "modules: [python/3.11, cuda]"
    )
    setup: Annotated[Any, BeforeValidator(check_lines)] = key(
        "Lines for the shell, last.", "text or list of lines", "setup: [export OMP_PROC_BIND=true]"
    )


class CheckpointKeys(Keys):
    """How a trial that was interrupted continues where it was."""

    dir: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Where a trial keeps its checkpoints; may hold placeholders. Without `{trial_id}` each trial gets a folder of "
        "its own below it.",
        "path",
        "dir: $SCRATCH/checkpoints/ml-test",
        "checkpoints/<trial id> in the study's folder",
    )
    pattern: Annotated[Any, BeforeValidator(check_words)] = key(
        "Names of checkpoints.", "pattern or list of patterns", "pattern: 'step-*.pt'", "the usual endings: .pt, .h5, …"
    )
    resume: Annotated[Any, BeforeValidator(check_command)] = key(
        "Words added to the command where there is a checkpoint; or write `{resume}` in the command where they belong.",
        "text or list of words",
        "resume: --load-checkpoint {checkpoint}",
    )
    write: Annotated[Any, BeforeValidator(check_command)] = key(
        "Words that are added always.", "text or list of words", "write: --write-checkpoints-to {checkpoint_dir}"
    )
    done: Annotated[str | None, BeforeValidator(check_text)] = key(
        "A file in the folder of checkpoints that says that the work is done.", "pattern", "done: finished"
    )
    validate_: Annotated[Any, BeforeValidator(check_command)] = Field(
        default=None,
        alias="validate",
        description="A command that ends with 0 for a checkpoint that can be loaded.",
        json_schema_extra={
            "kind": "text or list of words",
            "example": "validate: python check.py {checkpoint}",
            "default": "complete by its size and format",
        },
    )
    keep: Annotated[int | None, BeforeValidator(check_integer)] = key(
        "How many of the newest are kept when the trial is done; 0 for all.", "number", "keep: 1", "2"
    )


class InterruptKeys(Keys):
    """What happens before a job's time is up, at preemption and at a cancel."""

    lead: Annotated[float | None, BeforeValidator(check_duration)] = key(
        "How long before the end of the job's time trials are told.", "duration", "lead: 5m", "2m"
    )
    signal: Annotated[str | None, BeforeValidator(check_signal)] = key(
        "The signal that tells them.", "TERM, USR1, USR2 or INT", "signal: USR1", "TERM"
    )
    again: Annotated[int | None, BeforeValidator(check_integer)] = key(
        "The exit code that means: give me another turn.", "number", "again: 85", "42"
    )
    unit: Annotated[float | None, BeforeValidator(check_duration)] = key(
        "How long one job of a chain may be, where trials with checkpoints take longer than that.",
        "duration",
        "unit: 12h",
        "24h, or the site's longest",
    )


SECTIONS: dict[str, type[Keys]] = {
    "needs": NeedsKeys,
    "pack": PackKeys,
    "slurm": SlurmKeys,
    "environment": EnvironmentKeys,
    "checkpoint": CheckpointKeys,
    "interrupt": InterruptKeys,
}
