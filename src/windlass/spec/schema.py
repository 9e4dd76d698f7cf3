"""The keys of a study file: types, defaults and meaning. The reference in docs/ is rendered from here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from windlass.model import ArgsFormat
from windlass.spec.fields import (
    check_amount,
    check_args_format,
    check_command,
    check_count,
    check_duration,
    check_env,
    check_exclude,
    check_integer,
    check_memory,
    check_method,
    check_metric,
    check_metrics,
    check_on_nan,
    check_options,
    check_outputs,
    check_parameters,
    check_retries,
    check_seeds,
    check_size,
    check_stages,
    check_text,
    check_time_with_unit,
    check_truth,
    check_warm,
    check_words,
    check_zip_groups,
)


def _key(description: str, kind: str, example: str, default: str = "none") -> Any:
    """A field that may be left out, with what the reference says about it."""
    extra: JsonDict = {"kind": kind, "example": example, "default": default}
    return Field(default=None, description=description, json_schema_extra=extra)


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


class NeedsKeys(_Keys):
    """What one trial takes."""

    cpus: Annotated[float | None, BeforeValidator(check_amount)] = _key(
        "Processor cores one trial uses.", "number", "cpus: 2"
    )
    memory: Annotated[int | None, BeforeValidator(check_memory)] = _key(
        "Main memory of one trial, with a unit. Units are powers of 1024, as in Slurm.", "size", "memory: 4GB"
    )
    gpus: Annotated[float | None, BeforeValidator(check_amount)] = _key(
        "GPUs one trial uses. A fraction shares one GPU between trials.", "number", "gpus: 0.5"
    )
    gpu_memory: Annotated[int | None, BeforeValidator(check_memory)] = _key(
        "GPU memory of one trial, with a unit.", "size", "gpu_memory: 10GB"
    )
    gpu_type: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "The type of GPU, by the cluster's name for it (`windlass site` lists them).",
        "text",
        "gpu_type: v100l",
        "the site's, or any",
    )
    time: Annotated[float | None, BeforeValidator(check_time_with_unit)] = _key(
        "How long one trial takes at most, with a unit.", "duration", "time: 1h30m"
    )


class SlurmKeys(_Keys):
    """What jobs ask for beyond what trials need."""

    account: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "The account that pays.", "text", "account: def-prof", "`SBATCH_ACCOUNT`, then the site's"
    )
    partition: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "Where jobs wait; several with commas. Left out where the site wants none named.",
        "text",
        "partition: gpu",
        "the site's, or the cluster's default",
    )
    qos: Annotated[str | None, BeforeValidator(check_text)] = _key("Quality of service.", "text", "qos: short")
    gpus_per_job: Annotated[int | None, BeforeValidator(check_count)] = _key(
        "GPUs of one job. Each has its own slots; a trial sees only those that are its own.",
        "number",
        "gpus_per_job: 4",
        "1, or what one trial needs",
    )
    mem_per_gpu: Annotated[int | None, BeforeValidator(check_memory)] = _key(
        "Memory of a job for each of its GPUs, where `needs` say no memory of a trial.",
        "size",
        "mem_per_gpu: 32000M",
        "the site's fair share",
    )
    nodes: Annotated[int | None, BeforeValidator(check_count)] = _key(
        "Nodes of one job, for a trial that starts its parts with `srun`.", "number", "nodes: 2", "1"
    )
    agents: Annotated[int | None, BeforeValidator(check_count)] = _key(
        "How many agents (tasks of the array) share the trials.", "number", "agents: 25", "see `windlass plan`"
    )
    max_jobs: Annotated[int | None, BeforeValidator(check_count)] = _key(
        "Never more agents than this.", "number", "max_jobs: 50", "the site's limit"
    )
    throttle: Annotated[int | None, BeforeValidator(check_count)] = _key(
        "How many agents may run at a time; `windlass throttle` changes it later.",
        "number",
        "throttle: 5",
        "the site's",
    )
    mail_user: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "Who is told by mail.", "text", "mail_user: me@example.org"
    )
    mail_type: Annotated[Any, BeforeValidator(check_words)] = _key(
        "What of.", "text or list", "mail_type: [END, FAIL]", "END and FAIL, with `mail_user`"
    )
    options: Annotated[Any, BeforeValidator(check_options)] = _key(
        "Any further option of `sbatch`, by its long name. `true` for one that takes no value.",
        "mapping",
        "options: {constraint: cascade, exclude: 'node[3-5]', exclusive: true}",
    )


class StudyKeys(_Keys):
    """The top-level keys of a study file."""

    name: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "Name of the study; also the name of its folder.",
        "text",
        "name: cartpole",
        "the file's or folder's name",
    )
    command: Annotated[Any, BeforeValidator(check_command)] = _key(
        "The command of one trial: a string, split into words as a shell would, or a list of words. "
        "`{name}` is replaced "
        "by a parameter, `{args}` by all of them. No shell is involved unless `shell: true`.",
        "text or list of words",
        "command: python train.py --lr {lr} --seed {seed}",
        "required, or `stages`, or `program`",
    )
    program: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "W&B's form: the script, run as `/usr/bin/env python PROGRAM --name=value …`, or as `command` "
        "says with W&B's "
        "macros.",
        "path",
        "program: train.py",
    )
    stages: Annotated[Any, BeforeValidator(check_stages)] = _key(
        "Several commands for each trial, in order. When one fails the rest are skipped. A list of "
        "commands under one "
        "name becomes NAME, NAME-2, and so on.",
        "mapping of names to commands",
        "stages:\n  train: python train.py {args}\n  predict: python predict.py --seed {seed}",
    )
    shell: Annotated[bool | None, BeforeValidator(check_truth)] = _key(
        "Give the command to `/bin/sh -c`. Values are quoted for the shell; do not put quotes around placeholders.",
        "true or false",
        "shell: true",
        "false",
    )
    args: Annotated[ArgsFormat | None, BeforeValidator(check_args_format)] = _key(
        "How `{args}` writes the parameters: `--k v`, `--k=v`, `k=v` (for hydra, values in hydra's "
        "notation), or `fire` "
        "(`--k=v` with Python literals).",
        "`--k v`, `--k=v`, `k=v` or `fire`",
        "args: --k=v",
        "--k v",
    )
    parameters: Annotated[Any, BeforeValidator(check_parameters)] = _key(
        "The values to try. A list is tried value by value, a single value is a constant, a mapping is "
        "W&B's form "
        "(`values`, `value`, `min`/`max`, `distribution` and its numbers, `probabilities`), or nests "
        "parameters, whose "
        "names are joined with dots. `when` limits a parameter to some values of others. With `method: "
        "list`, a list "
        "of mappings, one for each trial.",
        "mapping, or list of mappings",
        "parameters:\n  optimizer: [adam, sgd]\n  lr: [1e-3, 1e-4]\n"
        "  momentum: {values: [0, 0.9], when: {optimizer: sgd}}",
        "no parameters: one trial, or one for each seed",
    )
    zip: Annotated[Any, BeforeValidator(check_zip_groups)] = _key(
        "Parameters that move together instead of being combined: a list of names, or a list of such lists.",
        "list of names",
        "zip: [model, batch_size]",
    )
    exclude: Annotated[Any, BeforeValidator(check_exclude)] = _key(
        "Combinations to leave out. A trial is left out when it has all values of one of the rules.",
        "list of mappings of names to a value or a list of values",
        "exclude:\n  - {optimizer: sgd, lr: [1e-3, 1e-2]}",
    )
    seeds: Annotated[Any, BeforeValidator(check_seeds)] = _key(
        "Repeat every setting with these seeds: a number n for 1 to n, a range, or a list.",
        "number, range or list of numbers",
        "seeds: 5",
        "no repetition",
    )
    seed_name: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "The parameter that carries the seed.", "name", "seed_name: random_state", "seed"
    )
    method: Annotated[Literal["grid", "random", "list"] | None, BeforeValidator(check_method)] = _key(
        "`grid`: all combinations, the last parameter changes fastest. `random`: `trials` settings drawn "
        "at random, the "
        "first ones stay the same when more are asked for. `list`: the rows of `parameters`.",
        "`grid`, `random` or `list`",
        "method: random",
        "grid, or list when `parameters` is a list",
    )
    trials: Annotated[int | None, BeforeValidator(check_count)] = _key(
        "How many settings `method: random` draws; for a grid, take only the first so many. Each is "
        "repeated for every "
        "seed. `run_cap` means the same.",
        "number",
        "trials: 50",
        "required for `method: random`",
    )
    search_seed: Annotated[int | None, BeforeValidator(check_integer)] = _key(
        "Seed of the random search. The same seed draws the same settings.", "number", "search_seed: 7", "0"
    )
    metric: Annotated[Any, BeforeValidator(check_metric)] = _key(
        "What decides which trial is best: a name, or `name` and `goal` (`minimize` or `maximize`).",
        "name, or mapping",
        "metric: {name: accuracy, goal: maximize}",
        "none; `goal` is `minimize`",
    )
    metrics: Annotated[Any, BeforeValidator(check_metrics)] = _key(
        "Metrics to read from the output: a list of names found as `name=0.12`, `name: 0.12` or in JSON "
        "lines, or a "
        "mapping of names to regular expressions with one group.",
        "list of names, or mapping",
        "metrics: [loss, accuracy]",
    )
    on_nan: Annotated[Literal["warn", "stop"] | None, BeforeValidator(check_on_nan)] = _key(
        "What happens when the study's metric becomes NaN or infinite.",
        "`warn` or `stop`",
        "on_nan: stop",
        "warn",
    )
    timeout: Annotated[float | None, BeforeValidator(check_duration)] = _key(
        "End a trial that takes longer. A plain number is seconds.", "duration", "timeout: 30m"
    )
    retries: Annotated[Any, BeforeValidator(check_retries)] = _key(
        "How often a trial that did not end well is tried again: a number, or one for each cause.",
        "number, or mapping of causes to numbers",
        "retries: {killed: 2, gpu_out_of_memory: 1}",
        "0",
    )
    needs: NeedsKeys | None = _key("What one trial takes.", "mapping", "needs: {cpus: 2, memory: 4GB}", "not said")
    slurm: SlurmKeys | None = _key(
        "What jobs ask Slurm for.", "mapping", "slurm: {account: def-prof, partition: gpu}", "not said"
    )
    slots: Annotated[int | None, BeforeValidator(check_count)] = _key(
        "How many trials run at the same time on one machine.",
        "number",
        "slots: 4",
        "what the cores and `needs` allow",
    )
    grace: Annotated[float | None, BeforeValidator(check_duration)] = _key(
        "How long a trial that is told to stop may take before it is killed. A plain number is seconds.",
        "duration",
        "grace: 30s",
        "see `windlass plan`",
    )
    env: Annotated[Any, BeforeValidator(check_env)] = _key(
        "Environment variables of every trial. Values may hold placeholders. Secrets do not belong here: "
        "export them in "
        "your shell.",
        "mapping of names to text",
        "env: {CUBLAS_WORKSPACE_CONFIG: ':4096:8', LR: '{lr}'}",
    )
    outputs: Annotated[Any, BeforeValidator(check_outputs)] = _key(
        "Files to keep after a trial, as patterns relative to where it is executed; may hold placeholders.",
        "list of patterns",
        "outputs: ['results/{trial_id}/*.npz']",
    )
    warm: Annotated[Any, BeforeValidator(check_warm)] = _key(
        "Start Python trials from a process that has already imported what they need: `auto`, `off`, or a "
        "list of "
        "modules.",
        "`auto`, `off` or list of modules",
        "warm: [torch]",
        "off",
    )
    workdir: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "Where trials are executed, relative to the study file.",
        "path",
        "workdir: ..",
        "the study file's folder",
    )
    folder: Annotated[str | None, BeforeValidator(check_text)] = _key(
        "Where the study's records and results are kept. `~` and environment variables are replaced.",
        "path",
        "folder: $SCRATCH/studies/cartpole",
        "see `windlass plan`",
    )
    output_limit: Annotated[int | None, BeforeValidator(check_size)] = _key(
        "How much output of one trial is kept.", "size", "output_limit: 10MB", "see `windlass plan`"
    )


# Keys of W&B's sweep files that are accepted: what they mean here.
WANDB_ALIASES = {"run_cap": "trials"}
WANDB_IGNORED = frozenset(
    [
        "description",
        "project",
        "entity",
        "early_terminate",
        "controller",
        "settings",
        "job",
        "launch",
        "scheduler",
        "version",
        "displayName",
        "display_name",
        "sweep_id",
        "state",
        "runcap",
        "image_uri",
        "tags",
        "$schema",
    ]
)
# These say something about the user, not about the study; a warning would be noise.
WANDB_SILENT = frozenset({"description", "project", "entity", "$schema", "version"})
