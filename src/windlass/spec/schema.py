"""The keys of a study file: types, defaults and meaning. The reference in docs/ is rendered from here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from windlass.model import ArgsFormat
from windlass.spec.fields import (
    check_args_format,
    check_code,
    check_command,
    check_count,
    check_data,
    check_duration,
    check_env,
    check_exclude,
    check_integer,
    check_keep,
    check_method,
    check_metric,
    check_metrics,
    check_on_nan,
    check_outputs,
    check_parameters,
    check_repeat,
    check_retries,
    check_seeds,
    check_share,
    check_size,
    check_small_files,
    check_stages,
    check_text,
    check_truth,
    check_warm,
    check_zip_groups,
)
from windlass.spec.fields_ladder import check_ladder
from windlass.spec.fields_pack import check_config, check_progress, check_variants
from windlass.spec.sections import (
    CheckpointKeys,
    EnvironmentKeys,
    InterruptKeys,
    Keys,
    NeedsKeys,
    PackKeys,
    SlurmKeys,
    key,
)


class StudyKeys(Keys):
    """The top-level keys of a study file."""

    name: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Name of the study; also the name of its folder.",
        "text",
        "name: cartpole",
        "the file's or folder's name",
    )
    command: Annotated[Any, BeforeValidator(check_command)] = key(
        "The command of one trial: a string, split into words as a shell would, or a list of words. "
        "`{name}` is replaced "
        "by a parameter, `{args}` by all of them. No shell is involved unless `shell: true`.",
        "text or list of words",
        "command: python train.py --lr {lr} --seed {seed}",
        "required, or `stages`, or `program`",
    )
    program: Annotated[str | None, BeforeValidator(check_text)] = key(
        "W&B's form: the script, run as `/usr/bin/env python PROGRAM --name=value …`, or as `command` "
        "says with W&B's "
        "macros.",
        "path",
        "program: train.py",
    )
    stages: Annotated[Any, BeforeValidator(check_stages)] = key(
        "Several commands for each trial, in order. When one fails the rest are skipped. A list of "
        "commands under one "
        "name becomes NAME, NAME-2, and so on.",
        "mapping of names to commands",
        "stages:\n  train: python train.py {args}\n  predict: python predict.py --seed {seed}",
    )
    shell: Annotated[bool | None, BeforeValidator(check_truth)] = key(
        "Give the command to `/bin/sh -c`. Values are quoted for the shell; do not put quotes around placeholders.",
        "true or false",
        "shell: true",
        "false",
    )
    args: Annotated[ArgsFormat | None, BeforeValidator(check_args_format)] = key(
        "How `{args}` writes the parameters: `--k v`, `--k=v`, `k=v` (for hydra, values in hydra's "
        "notation), or `fire` "
        "(`--k=v` with Python literals).",
        "`--k v`, `--k=v`, `k=v` or `fire`",
        "args: --k=v",
        "--k v",
    )
    parameters: Annotated[Any, BeforeValidator(check_parameters)] = key(
        "The values to try. A list is tried value by value, a single value is a constant, a mapping is "
        "W&B's form "
        "(`values`, `value`, `min`/`max`, `distribution` and its numbers, `probabilities`), or nests "
        "parameters, whose "
        "names are joined with dots. `when` limits a parameter to some values of others. With `method: "
        "list`, a list "
        "of mappings, one for each trial. `file: settings.csv` reads such a list from a file, see below.",
        "mapping, or list of mappings",
        "parameters:\n  optimizer: [adam, sgd]\n  lr: [1e-3, 1e-4]\n"
        "  momentum: {values: [0, 0.9], when: {optimizer: sgd}}",
        "no parameters: one trial, or one for each seed",
    )
    config: Annotated[Any, BeforeValidator(check_config)] = key(
        "A YAML or JSON file that the program reads. Each trial gets a copy of its own with its parameters set, and "
        "`{config}` in the command is the copy's path. Parameters are named as in the file, nested ones with dots "
        "(`optimizer.lr`), items of lists by their number. A parameter that the file does not have is refused, unless "
        "the command uses it by its name, or `new_keys: true` adds it to the copies.",
        "path, or mapping with `file` and `new_keys`",
        "config: conf.yaml",
    )
    zip: Annotated[Any, BeforeValidator(check_zip_groups)] = key(
        "Parameters that move together instead of being combined: a list of names, or a list of such lists.",
        "list of names",
        "zip: [model, batch_size]",
    )
    exclude: Annotated[Any, BeforeValidator(check_exclude)] = key(
        "Combinations to leave out. A trial is left out when it has all values of one of the rules.",
        "list of mappings of names to a value or a list of values",
        "exclude:\n  - {optimizer: sgd, lr: [1e-3, 1e-2]}",
    )
    seeds: Annotated[Any, BeforeValidator(check_seeds)] = key(
        "Repeat every setting with these seeds: a number n for 1 to n, a range, or a list.",
        "number, range or list of numbers",
        "seeds: 5",
        "no repetition",
    )
    repeat: Annotated[int | None, BeforeValidator(check_repeat)] = key(
        "Execute every setting so many times, for a command that takes no seed. Results are folded over the "
        "repetitions as over seeds; `WINDLASS_SEED` counts them.",
        "number",
        "repeat: 30",
        "1",
    )
    seed_name: Annotated[str | None, BeforeValidator(check_text)] = key(
        "The parameter that carries the seed.", "name", "seed_name: random_state", "seed"
    )
    method: Annotated[Literal["grid", "random", "list"] | None, BeforeValidator(check_method)] = key(
        "`grid`: all combinations, the last parameter changes fastest. `random`: `trials` settings drawn "
        "at random, the "
        "first ones stay the same when more are asked for. `list`: the rows of `parameters`.",
        "`grid`, `random` or `list`",
        "method: random",
        "grid, or list when `parameters` is a list",
    )
    trials: Annotated[int | None, BeforeValidator(check_count)] = key(
        "How many settings `method: random` draws; for a grid, take only the first so many. Each is "
        "repeated for every "
        "seed. `run_cap` means the same.",
        "number",
        "trials: 50",
        "required for `method: random`",
    )
    search_seed: Annotated[int | None, BeforeValidator(check_integer)] = key(
        "Seed of the random search. The same seed draws the same settings.", "number", "search_seed: 7", "0"
    )
    metric: Annotated[Any, BeforeValidator(check_metric)] = key(
        "What decides which trial is best: a name, or `name` and `goal` (`minimize` or `maximize`). Its values are "
        "those that trials report with `windlass.log`, or else those that they print: `loss=0.12`, `loss: 0.12`, JSON "
        "lines, progress bars and tables of the usual libraries. `val_loss` is never read as `loss`.",
        "name, or mapping",
        "metric: {name: accuracy, goal: maximize}",
        "none; without `goal` names such as accuracy, reward, return, score and f1 are maximized, all others minimized",
    )
    metrics: Annotated[Any, BeforeValidator(check_metrics)] = key(
        "More metrics to read from the output: a list of names, which are found as `metric` is, or a mapping of names "
        "to regular expressions with one group.",
        "list of names, or mapping",
        "metrics: [loss, accuracy]",
    )
    on_nan: Annotated[Literal["warn", "stop", "ignore"] | None, BeforeValidator(check_on_nan)] = key(
        "What happens when the study's metric becomes NaN or infinite: `warn` notes it, `stop` ends the trial, which "
        "then counts as failed. `windlass check` and `windlass run --sample` take NaN in any metric, and in the "
        "checkpoints that a trial writes, for a failure, except with `ignore`.",
        "`warn`, `stop` or `ignore`",
        "on_nan: stop",
        "warn",
    )
    timeout: Annotated[float | None, BeforeValidator(check_duration)] = key(
        "End a trial that takes longer. A plain number is seconds.", "duration", "timeout: 30m"
    )
    retries: Annotated[Any, BeforeValidator(check_retries)] = key(
        "How often a trial that did not end well is tried again: a number, or one for each cause.",
        "number, or mapping of causes to numbers",
        "retries: {killed: 2, gpu_out_of_memory: 1}",
        "0",
    )
    needs: NeedsKeys | None = key("What one trial takes.", "mapping", "needs: {cpus: 2, memory: 4GB}", "not said")
    pack: PackKeys | None = key(
        "How trials share a GPU. `windlass measure` finds out how many do best; this caps and shapes it.",
        "mapping",
        "pack: {most: 8, prefer: latency}",
        "not said",
    )
    variants: Annotated[Any, BeforeValidator(check_variants)] = key(
        "Parameters whose values need different amounts of memory. Each of their values is measured, and gets a budget "
        "of its own; a GPU is filled with trials whose budgets together fit.",
        "name or list of names",
        "variants: [algo]",
    )
    progress: Annotated[Any, BeforeValidator(check_progress)] = key(
        "How far a trial is, where neither `windlass.log(step=…)` nor a progress bar tells: a regular expression with "
        "a group `step`, and perhaps one `total`. With `steps`, how many there are in all: a number, or `'{name}'` of "
        "a parameter.",
        "regular expression, or mapping with `pattern` and `steps`",
        "progress: {pattern: 'epoch (?P<step>\\d+)', steps: '{epochs}'}",
        "found out from what the trial prints",
    )
    ladder: Annotated[Any, BeforeValidator(check_ladder)] = key(
        "Smaller versions of the training for `windlass check --ladder`, each with what it must reach before the next "
        "begins: one example, one batch, all data; or a toy problem, cart-pole, the real one. A rung is the first "
        "trial of the study with `args` (words added to the command), `parameters` (other values) or a `command` of "
        "its own. `expect` is a metric and its limit, or several: the last value must satisfy it. `timeout` ends "
        "a rung that takes longer.",
        "list of mappings with `name`, `args`, `parameters`, `command`, `expect`, `timeout`",
        "ladder:\n  - {name: one example, args: --limit 1, expect: loss<=0.01}\n"
        "  - {name: one batch, args: --limit 32, expect: loss<=0.05}\n"
        "  - {name: all, expect: [loss<=0.3, accuracy>=0.9]}",
    )
    slurm: SlurmKeys | None = key(
        "What jobs ask Slurm for.", "mapping", "slurm: {account: def-prof, partition: gpu}", "not said"
    )
    slots: Annotated[int | None, BeforeValidator(check_count)] = key(
        "How many trials run at the same time on one machine.",
        "number",
        "slots: 4",
        "what the cores and `needs` allow",
    )
    grace: Annotated[float | None, BeforeValidator(check_duration)] = key(
        "How long a trial that is told to stop may take before it is killed. A plain number is seconds.",
        "duration",
        "grace: 30s",
        "see `windlass plan --all`",
    )
    env: Annotated[Any, BeforeValidator(check_env)] = key(
        "Environment variables of every trial. Values may hold placeholders. Secrets do not belong here: "
        "export them in "
        "your shell.",
        "mapping of names to text",
        "env: {CUBLAS_WORKSPACE_CONFIG: ':4096:8', LR: '{lr}'}",
    )
    outputs: Annotated[Any, BeforeValidator(check_outputs)] = key(
        "Files to keep after a trial, as patterns relative to where it is executed; may hold placeholders.",
        "list of patterns",
        "outputs: ['results/{trial_id}/*.npz']",
    )
    keep: Annotated[Literal["all", "best", "none"] | None, BeforeValidator(check_keep)] = key(
        "Whose outputs are kept: of all trials, only of the best by `metric`, or none.",
        "`all`, `best` or `none`",
        "keep: best",
        "all",
    )
    data: Annotated[Any, BeforeValidator(check_data)] = key(
        "Folders and archives that trials read. Each is packed into one archive, unpacked once on each node, and "
        "appears under `$SLURM_TMPDIR` with the same relative path. Relative to `$SCRATCH/<project>`, else to the "
        "project. All trials on a node share it, so it is read-only; with `writable: true` each job has a copy of its "
        "own.",
        "list of paths, or of mappings with `path`, `compress` and `writable`",
        "data: [datasets/dataset1, {path: datasets/text, compress: zstd, writable: true}]",
    )
    small_files: Annotated[int | None, BeforeValidator(check_small_files)] = key(
        "How many files a folder may have that a command names and that is not under `data`. A study that goes to "
        "Slurm with a larger one is refused, because many small files on a shared disk are slow for all of its users.",
        "number of files, or `allow` for any number",
        "small_files: 5000",
        "1000",
    )
    share: Annotated[str | None, BeforeValidator(check_share)] = key(
        "Who else may work in the study's folder. Nobody: others can read what the umask allows, and write nothing. "
        "With `group`, all members of the folder's group may add trials, run, retry and cancel them: they can have "
        "commands executed with each other's rights.",
        "`group` or `nobody`",
        "share: group",
        "nobody",
    )
    environment: EnvironmentKeys | None = key(
        "What is activated before anything is started.", "mapping", "environment: {venv: .venv, modules: [cuda]}"
    )
    checkpoint: CheckpointKeys | None = key(
        "How a trial that was interrupted continues where it was.",
        "mapping",
        "checkpoint: {resume: '--load-checkpoint {checkpoint}', write: '--write-checkpoints-to {checkpoint_dir}'}",
    )
    interrupt: InterruptKeys | None = key(
        "How trials are told that they have to end.", "mapping", "interrupt: {lead: 5m, signal: USR1}"
    )
    code: Annotated[Literal["frozen", "live"] | None, BeforeValidator(check_code)] = key(
        "`frozen`: trials are executed in a copy of the project as it was at submission. `live`: in the project "
        "itself.",
        "`frozen` or `live`",
        "code: live",
        "frozen in jobs, live on this machine",
    )
    warm: Annotated[Any, BeforeValidator(check_warm)] = key(
        "Start Python trials from a process that has already imported what they need: `auto`, `off`, or a "
        "list of "
        "modules.",
        "`auto`, `off` or list of modules",
        "warm: [torch]",
        "off",
    )
    workdir: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Where trials are executed, relative to the study file.",
        "path",
        "workdir: ..",
        "the study file's folder",
    )
    folder: Annotated[str | None, BeforeValidator(check_text)] = key(
        "Where the study's records and results are kept. `~` and environment variables are replaced.",
        "path",
        "folder: $SCRATCH/studies/cartpole",
        "see `windlass plan --all`",
    )
    output_limit: Annotated[int | None, BeforeValidator(check_size)] = key(
        "How much output of one trial is kept.", "size", "output_limit: 10MB", "see `windlass plan --all`"
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
