"""The table of settings: one row each.

The options of the command line, the keys of the study file, its JSON schema, the reference in docs/, the defaults, the
names in a site's profile and what the agent finds in plan.json are all read off this table. To add a setting, add a
row, and the code that uses its value. The names of kinds are those of `spec/kinds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windlass.environments.base import load_kind, own_kind_names

# The headings of --help, in their order. A row stands under that of its section; see `Row.group`.
STUDY, NEEDS, SHARING, SLURM, RUNNING = (
    "Study",
    "Needs of one trial",
    "Sharing a GPU",
    "Slurm",
    "Running",
)
GROUPS = (STUDY, NEEDS, SHARING, SLURM, RUNNING)
_GROUP_OF_SECTION = {"needs": NEEDS, "pack": SHARING, "slurm": SLURM}
_WHERE_OF_SECTION = {"slurm": "slurm"}
_UNITS = ("_s", "_mb", "_bytes")


@dataclass(frozen=True)
class Row:
    """One setting, or one key of the study file that describes the study itself."""

    name: str  # its name in the study file
    # The section of the study file; "": the top level; None: not in the study file.
    section: str | None
    kind: str  # how values are read and checked: a name in KINDS of spec/kinds.py
    help: str  # one sentence or phrase, for --help, the reference and the schema
    flags: tuple[str, ...] = ()  # options of the command line that set it
    choices: tuple[str, ...] = ()  # the only values there are; the kind may have them instead
    default: str | None = None  # the value without one, as the study file would have it
    without: str = ""  # what holds without a value, in words, where that is no fixed value
    example: str = ""  # a value, as the study file has it
    more: str = ""  # further sentences, for the reference and the schema
    metavar: str = ""  # the placeholder in --help, where it is not that of the kind
    # A setting has a value in every plan, with the layer that gave it: the command line, the study, the site's profile
    # or the default. The other rows describe the study.
    is_setting: bool = False
    key: str = ""  # the setting's name in a plan, with its unit, where that is not the name
    where: Literal["both", "local", "slurm"] = "both"  # where it has an effect
    variables: tuple[
        str, ...
    ] = ()  # environment variables that sbatch obeys, before the site's profile
    for_agent: bool = False  # the value is written to plan.json under its key
    several: bool = False  # its option may be repeated

    @property
    def plan_key(self) -> str:
        return self.key or self.name

    @property
    def short_name(self) -> str:
        """The name without a unit, as `plan --all` shows it and a site's profile has it."""
        unit = next((unit for unit in _UNITS if self.plan_key.endswith(unit)), "")
        return self.plan_key.removesuffix(unit)

    @property
    def flag(self) -> str:
        """The option that messages name: the first long one."""
        return next((flag for flag in self.flags if flag.startswith("--")), "")

    @property
    def group(self) -> str:
        """The heading of --help that its option stands under."""
        return _GROUP_OF_SECTION.get(self.section or "", RUNNING if self.is_setting else STUDY)

    @property
    def default_text(self) -> str:
        """What holds without a value, in words; "" where nothing does."""
        return self.default or self.without


def _setting(name: str, section: str | None, kind: str, help_: str, **facts: object) -> Row:
    where = _WHERE_OF_SECTION.get(section or "", "both")
    return Row(name, section, kind, help_, **{"is_setting": True, "where": where, **facts})  # type: ignore[arg-type]


def _environment_rows() -> list[Row]:
    """A row for each key of a kind of environment: a new kind needs no row here."""
    keys = [key for name in own_kind_names() for key in load_kind(name).keys]
    return [
        Row(
            key.name,
            "environment",
            key.kind,
            key.help,
            key.flags,
            example=key.example,
            more=key.more,
        )
        for key in keys
    ]


# fmt: off
ROWS: tuple[Row, ...] = (
    # -- What the study is
    Row("name", "", "text", "Name of the study, and of its folder.", ("-e", "--name", "--exp-name"),
        without="the name of the file or of its folder", example="cartpole"),
    Row("configs", None, "path", "A study file, given as an option.", ("-C", "--configs")),
    Row("command", "", "command", "The command of one trial.", without="required, or `stages`, or `program`",
        example="python train.py --lr {lr} --seed {seed}",
        more="Text is split into words as a shell would do it; a list is taken as it is. `{name}` is replaced by a "
        "parameter, `{args}` by all of them. No shell is involved unless `shell: true`."),
    Row("program", "", "path", "The script, in the form of W&B.", example="train.py",
        more="It is run as `/usr/bin/env python PROGRAM --name=value …`, or as `command` with the macros of W&B."),
    Row("stages", "", "stages", "Several commands for each trial, in this order.",
        example="\n  train: python train.py {args}\n  predict: python predict.py --seed {seed}",
        more="When one fails, the rest is skipped. A list of commands under one name becomes NAME, NAME-2, and so on."),
    Row("shell", "", "truth", "Whether the command is given to `/bin/sh -c`.", default="false", example="true",
        more="Values are quoted for the shell; do not put quotes around placeholders."),
    Row("args", "", "choice", "How `{args}` writes the parameters.", choices=("--k v", "--k=v", "k=v", "fire"),
        default="--k v", example="--k=v",
        more="`k=v` is for hydra, with values in its notation; `fire` is `--k=v` with Python literals."),
    Row("parameters", "", "parameters", "The values to try.",
        without="no parameters: one trial, or one for each seed",
        example="\n  optimizer: [adam, sgd]\n  lr: [1e-3, 1e-4]\n"
        "  momentum: {values: [0, 0.9], when: {optimizer: sgd}}",
        more="A list is tried value by value; a single value is a constant. A mapping is the form of W&B (`values`, "
        "`value`, `min`/`max`, `distribution` and its numbers, `probabilities`), or nests parameters, whose names are "
        "joined with dots. `when` limits a parameter to some values of others. With `method: list`, a list of "
        "mappings, one for each trial. `file: settings.csv` reads such a list from a file, see below."),
    Row("param", None, "text", "A parameter and its values, for example 'lr=[0.1,0.01]'; may be repeated.",
        ("--param",), metavar="NAME=VALUES", several=True),
    Row("config", "", "config", "A YAML or JSON file that the program reads.", example="conf.yaml",
        more="Each trial gets a copy of its own with its parameters set, and `{config}` in the command is the path of "
        "the copy. Parameters are named as in the file, nested ones with dots (`optimizer.lr`), items of lists by "
        "their number. A parameter that the file does not have is refused, unless the command uses it by its name, or "
        "`new_keys: true` adds it to the copies."),
    Row("zip", "", "zip", "Parameters that move together instead of being combined.", example="[model, batch_size]",
        more="A list of names, or a list of such lists."),
    Row("exclude", "", "exclude", "Combinations to leave out.", example="\n  - {optimizer: sgd, lr: [1e-3, 1e-2]}",
        more="A trial is left out when it has all values of one of the rules."),
    Row("seeds", "", "seeds", "Repeat every setting with these seeds: 5 for 1 to 5, a range 1..5, or a list.",
        ("--seeds",), without="no repetition", example="5", metavar="N"),
    Row("repeat", "", "repeat", "Execute every setting this many times, for a command that takes no seed.",
        ("--repeat",), default="1", example="30", metavar="N",
        more="Results are folded over the repetitions as over seeds; `WINDLASS_SEED` counts them."),
    Row("seed_name", "", "text", "The parameter that carries the seed.", default="seed", example="random_state"),
    Row("method", "", "method", "How settings are chosen: all combinations, drawn at random, or as listed.",
        ("--method",), without="grid, or list when `parameters` is a list",
        example="random",
        more="`grid`: the last parameter changes fastest. `random`: `trials` settings are drawn; the first ones stay "
        "the same when more are asked for. `list`: the rows of `parameters`."),
    Row("trials", "", "count", "How many settings are drawn at random; of a grid, only the first ones.",
        ("--trials",), without="all; a random search needs it", example="50", metavar="N",
        more="Each is repeated for every seed. `run_cap` means the same."),
    Row("search_seed", "", "integer", "Seed of the random search: the same seed draws the same settings.",
        ("--search-seed",), default="0", example="7", metavar="N"),
    Row("metric", "", "metric", "The metric that decides which trial is best.", ("--metric",),
        example="{name: accuracy, goal: maximize}", metavar="NAME[:GOAL]",
        more="A name, or `name` and `goal` (`minimize` or `maximize`). Its values are those that trials report with "
        "`windlass.log`, or else those that they print: `loss=0.12`, `loss: 0.12`, JSON lines, progress bars and "
        "tables of the usual libraries. `val_loss` is never read as `loss`. Without `goal`, names such as accuracy, "
        "reward, return, score and f1 are maximized, all others minimized."),
    Row("metrics", "", "metrics", "More metrics to read from what trials print.", example="[loss, accuracy]",
        more="A list of names, which are found as `metric` is, or a mapping of names to regular expressions with one "
        "group."),
    Row("on_nan", "", "choice", "What happens when the metric of the study becomes NaN or infinite.",
        choices=("warn", "stop", "ignore"), default="warn", example="stop",
        more="`warn` notes it; `stop` ends the trial, which then counts as failed. `windlass check` and `windlass run "
        "--sample` take NaN in any metric, and in the checkpoints that a trial writes, for a failure, except with "
        "`ignore`."),
    _setting("timeout", "", "duration", "End a trial that takes longer than this.", flags=("--timeout",),
             key="timeout_s", example="30m", more="A plain number is seconds.", for_agent=True),
    _setting("retries", "", "retries", "How often a trial that did not end well is tried again.",
             flags=("--retries",), without="0", example="{killed: 2, gpu_out_of_memory: 1}", for_agent=True,
             more="A number, or one for each cause."),
    _setting("launch", "", "launch", "How the processes of a trial are started, where it has several.",
             flags=("-W", "--launch"), default="plain", example="torchrun", metavar="NAME", for_agent=True,
             more="`plain` starts the command once. The others start it once for each process, on all nodes of the "
             "trial, and tell each its rank. `script` means `torchrun`. See docs/distributed.md."),
    Row("needs", "", "section", "What one trial takes.", without="not given", example="{cpus: 2, memory: 4GB}"),
    Row("pack", "", "section", "How trials share a GPU.", without="not given", example="{most: 8, prefer: latency}",
        more="`windlass measure` finds out how many do best; this section limits and shapes it."),
    Row("variants", "", "variants", "Parameters whose values need different amounts of memory.", example="[algo]",
        more="Each of their values is measured, and gets a budget of its own; a GPU is filled with trials whose "
        "budgets together fit."),
    Row("progress", "", "progress", "A regular expression that finds how far a trial is in what it prints.",
        without="found out from what the trial prints",
        example="{pattern: 'epoch (?P<step>\\d+)', steps: '{epochs}'}",
        more="It is needed only where neither `windlass.log(step=…)` nor a progress bar shows it. It has a group "
        "`step`, and perhaps one `total`. `steps` is how many there are in all: a number, or `'{name}'` of a "
        "parameter."),
    Row("ladder", "", "ladder", "Smaller versions of the training for `windlass check --ladder`.",
        example="\n  - {name: one example, args: --limit 1, expect: loss<=0.01}\n"
        "  - {name: one batch, args: --limit 32, expect: loss<=0.05}\n"
        "  - {name: all, expect: [loss<=0.3, accuracy>=0.9]}",
        more="Each must reach what it is expected to before the next begins: one example, one batch, all data; or a "
        "toy problem, cart-pole, the real one. A rung is the first trial of the study with `args` (words added to "
        "the command), `parameters` (other values) or a `command` of its own. `expect` is a metric and its limit, or "
        "several: the last value must satisfy it. `timeout` ends a rung that takes longer."),
    Row("slurm", "", "section", "What jobs ask Slurm for.", without="not given",
        example="{account: def-prof, partition: gpu}"),
    _setting("slots", "", "count", "How many trials run at the same time on one machine.", flags=("-j", "--slots"),
             without="what the cores and `needs` allow", example="4", metavar="N"),
    _setting("grace", "", "duration", "How long a trial that was asked to stop may take before it is killed.",
             flags=("--grace",), key="grace_s", default="10s", example="30s", more="A plain number is seconds.",
             for_agent=True),
    Row("env", "", "env", "Environment variables of every trial.",
        example="{CUBLAS_WORKSPACE_CONFIG: ':4096:8', LR: '{lr}'}",
        more="Values may hold placeholders. Secrets do not belong here: export them in your shell."),
    Row("outputs", "", "outputs", "Files to keep after a trial.", example="['results/{trial_id}/*.npz']",
        more="Patterns relative to the folder in which it is executed; they may hold placeholders."),
    _setting("keep", "", "choice", "The trials whose outputs are kept: all, the best one by `metric`, or none.",
             choices=("all", "best", "none"), default="all", example="best", for_agent=True),
    Row("data", "", "data", "Folders and archives that trials read; one path or several.", ("-d", "--data"),
        example="[datasets/dataset1, {path: datasets/text, compress: zstd, writable: true}]", metavar="PATHS",
        several=True,
        more="Each is packed into one archive, unpacked once on each node, and appears under `$SLURM_TMPDIR` with the "
        "same relative path. Paths are relative to `$SCRATCH/<project>`, else to the project. All trials on a node "
        "share the data, so they are read-only; with `writable: true` each job has a copy of its own."),
    _setting("small_files", "", "small_files", "The most files that a folder named in the command may have.",
             flags=("--small-files",), default="1000", example="5000", where="slurm",
             more="`allow` is any number. A study that goes to Slurm with a larger folder that is not under `data` is "
             "refused, because many small files on a shared disk are slow for all of its users."),
    _setting("share", "", "choice", "Who else may work in the folder of the study: nobody, or the folder's group.",
             flags=("--share",), choices=("group", "nobody"), default="nobody", example="group",
             more="With `nobody`, others can read what the umask allows, and write nothing. With `group`, all members "
             "of the folder's group may add trials, run, retry and cancel them: they can have commands executed with "
             "each other's rights."),
    Row("environment", "", "section", "What is activated before anything is started.",
        example="{venv: .venv, modules: [cuda]}"),
    Row("checkpoint", "", "section", "How a trial that was interrupted continues where it was.",
        example="{resume: '--load-checkpoint {checkpoint}', write: '--write-checkpoints-to {checkpoint_dir}'}"),
    Row("interrupt", "", "section", "How trials are notified that they have to end.",
        example="{lead: 5m, signal: USR1}"),
    _setting("code", "", "choice", "Whether trials get a copy of the project as it is now, or the project itself.",
             choices=("frozen", "live"), without="frozen in jobs, live on this machine", example="live",
             more="`frozen`: trials are executed in a copy of the project as it was at submission. `live`: in the "
             "project itself."),
    Row("warm", "", "warm", "Start Python trials from a process that has already imported what they need.",
        default="off", example="[torch]", more="`auto`, `off`, or a list of modules."),
    Row("workdir", "", "path", "The folder in which trials are executed, relative to the study file.",
        without="the folder of the study file", example=".."),
    _setting("folder", "", "path", "The folder below which the study gets a folder for its records and results.",
             flags=("--folder",), without="`$SCRATCH/<project>`, or `.windlass` in the project",
             example="$SCRATCH/studies", more="`~` and environment variables are replaced."),
    _setting("output_limit", "", "size", "How much of what one trial prints is kept.", flags=("--output-limit",),
             key="output_limit_bytes", default="2GB", example="10MB", for_agent=True),
    # -- What one trial takes
    _setting("cpus", "needs", "cores", "Processor cores that one trial uses.", flags=("-c", "--cpus", "--cpu"),
             example="2"),
    _setting("memory", "needs", "memory", "Main memory of one trial, with a unit.", flags=("--memory",),
             key="memory_mb", example="4GB", more="Units are powers of 1024, as in Slurm."),
    _setting("gpus", "needs", "gpus", "GPUs that one trial uses; 0.25 lets four trials share one.",
             flags=("-g", "--gpus"), example="0.5",
             more="A whole number, or a fraction below 1 that shares one GPU between trials."),
    _setting("processes", "needs", "count", "Processes of one trial on each of its nodes, with a launcher.",
             flags=("--processes",), without="one for each GPU, or else one for each core", example="2", metavar="N",
             for_agent=True),
    _setting("nodes", "needs", "count", "Nodes that one trial uses, with a launcher; cores and GPUs are those of each.",
             flags=("--trial-nodes",), key="trial_nodes", without="all nodes of its job", example="2", metavar="N",
             where="slurm", for_agent=True),
    _setting("gpu_memory", "needs", "memory", "GPU memory of one trial, with a unit.", flags=("--gpu-memory",),
             key="gpu_memory_mb", example="10GB"),
    _setting("gpu_type", "needs", "text", "The type of GPU, by the name that the cluster has for it.",
             flags=("-G", "--gpu-type"), without="that of the site, or any", example="v100l", metavar="TYPE",
             where="slurm", more="`windlass site` lists them."),
    _setting("time", "needs", "time", "How long one trial takes at most, with a unit.", flags=("-t", "--time"),
             key="time_s", example="1h30m"),
    # -- How trials share a GPU
    _setting("most", "pack", "count", "The most trials that share one GPU; without GPUs, that run on one node.",
             flags=("--most-per-gpu",), without="as `windlass measure` found; 1 without a measurement", example="8",
             metavar="N", more="`most: 1` shares nothing."),
    _setting("prefer", "pack", "choice", "What sharing is for: most trials an hour, or each trial nearly as fast as "
             "alone.", flags=("--prefer",), choices=("throughput", "latency"), default="throughput",
             example="latency",
             more="With `latency`, only as many run side by side as leave each of them at most 10 % slower than "
             "alone."),
    _setting("headroom", "pack", "headroom", "GPU memory that is planned beyond the measured peak of a trial.",
             flags=("--headroom",), default="next", example="20%",
             more="`next` rounds up to the next whole GB above it (2 GB become 3); else a share, or a size. Memory "
             "given in `needs` is taken as it is."),
    _setting("mps", "pack", "choice", "Whether NVIDIA MPS lets trials use one GPU at the same moment.",
             flags=("--mps",), choices=("auto", "on", "off"), default="auto", example="off",
             more="`auto`: where `windlass measure` found that it pays."),
    _setting("safety", "pack", "factor", "How many times the estimated time jobs ask for.", flags=("--safety",),
             default="1.3", example="1.5", where="slurm", more="A `time` in `needs` is taken as it is."),
    # -- What jobs ask Slurm for
    _setting("account", "slurm", "text", "The account that pays for the jobs.", flags=("-a", "--account"),
             without="`SBATCH_ACCOUNT`, then that of the site", example="def-prof", metavar="NAME",
             variables=("SBATCH_ACCOUNT", "SLURM_ACCOUNT")),
    _setting("partition", "slurm", "text", "The partition in which jobs wait; several with commas.",
             flags=("-p", "--partition"), without="that of the site, or the default of the cluster", example="gpu",
             metavar="NAME", variables=("SBATCH_PARTITION", "SLURM_PARTITION"),
             more="Left out where the site wants none to be named."),
    _setting("qos", "slurm", "text", "The quality of service that jobs ask for.", flags=("--qos",), example="short",
             metavar="NAME", variables=("SBATCH_QOS", "SLURM_QOS")),
    _setting("gpus_per_job", "slurm", "count", "GPUs of one job.", flags=("--gpus-per-job",),
             without="1, or what one trial needs", example="4", metavar="N",
             more="Each has its own slots; a trial sees only those that are its own."),
    _setting("mem_per_gpu", "slurm", "memory", "Memory of a job for each of its GPUs.", flags=("-m", "--mem-per-gpu"),
             key="mem_per_gpu_mb", without="the fair share of the site", example="32000M",
             more="It counts where `needs` give no memory of a trial."),
    _setting("nodes", "slurm", "count", "Nodes of one job.",
             flags=("-n", "--nodes", "--num-nodes", "--num_nodes"), without="those of one trial, or 1", example="2",
             metavar="N"),
    _setting("agents", "slurm", "count", "How many agents (tasks of the array) share the trials.",
             flags=("--agents", "--array-size"), without="what the number and length of the trials suggest",
             example="25", metavar="N"),
    _setting("max_jobs", "slurm", "count", "The most agents that are submitted.", flags=("--max-jobs",),
             without="the limit of the site", example="50", metavar="N"),
    _setting("throttle", "slurm", "count", "How many agents may run at a time.",
             flags=("--throttle", "--max-parallel"), without="that of the site", example="5", metavar="N",
             more="`windlass throttle` changes it later."),
    _setting("mail_user", "slurm", "text", "The address to which Slurm sends mail about the jobs.",
             flags=("--mail-user",), example="me@example.org", metavar="ADDRESS"),
    _setting("mail_type", "slurm", "words", "The events that Slurm sends mail about, with commas between them.",
             flags=("--mail-type",), default="END,FAIL", example="[END, FAIL]", metavar="EVENTS",
             more="It counts with `mail_user`."),
    _setting("options", "slurm", "options", "Any other option of sbatch (see "
             "https://slurm.schedmd.com/sbatch.html); may be repeated.",
             flags=("--sbatch",), example="{constraint: cascade, exclude: 'node[3-5]', exclusive: true}",
             metavar="OPTION", several=True,
             more="On the command line as for sbatch, for example --sbatch --nice=100; in the study file by its long "
             "name, with `true` for one that takes no value."),
    # -- What is activated first
    *_environment_rows(),  # those that the kinds bring along
    Row("place", "environment", "choice", "Where an environment is built: in a shared folder, or on each node.",
        choices=("shared", "node"), default="shared", example="node",
        more="`shared` is a folder of yours, `node` the own disk of each node, from a wheelhouse."),
    Row("modules", "environment", "words", "Modules to load first.", example="[python/3.11, cuda]"),
    Row("setup", "environment", "lines", "Lines that a shell executes last.",
        example="[export OMP_PROC_BIND=true]"),
    # -- How a trial continues
    Row("dir", "checkpoint", "path", "The folder in which a trial keeps its checkpoints; may hold placeholders.",
        without="checkpoints/<trial id> in the folder of the study", example="$SCRATCH/checkpoints/ml-test",
        more="Without `{trial_id}` each trial gets a folder of its own below it."),
    Row("pattern", "checkpoint", "words", "Names of checkpoints, as patterns.",
        without="the usual endings: .pt, .h5, …", example="'step-*.pt'"),
    Row("resume", "checkpoint", "command", "Words added to the command where there is a checkpoint.",
        example="--load-checkpoint {checkpoint}", more="Or write `{resume}` in the command where they belong."),
    Row("write", "checkpoint", "command", "Words that are always added to the command.",
        example="--write-checkpoints-to {checkpoint_dir}"),
    Row("done", "checkpoint", "text", "A file in the folder of checkpoints whose presence means that the work is done.",
        example="finished"),
    Row("validate", "checkpoint", "command", "A command that ends with 0 for a checkpoint that can be loaded.",
        without="complete by its size and format", example="python check.py {checkpoint}"),
    Row("keep", "checkpoint", "integer", "How many of the newest checkpoints are kept when the trial is done; 0 for "
        "all.", default="2", example="1"),
    # -- How trials are notified of the end
    _setting("lead", "interrupt", "duration", "How long before the end of a job's time its trials are notified.",
             key="lead_s", default="2m", example="5m", for_agent=True),
    _setting("signal", "interrupt", "signal", "The signal that notifies trials.", key="stop_signal",
             choices=("TERM", "USR1", "USR2", "INT"), default="TERM", example="USR1", for_agent=True),
    _setting("again", "interrupt", "integer", "The exit code with which a trial asks for another session.",
             key="again_code", default="42", example="85", for_agent=True),
    _setting("unit", "interrupt", "duration", "How long one job of a chain may be.", key="unit_s", default="24h",
             example="12h", where="slurm",
             more="It counts where trials with checkpoints take longer than that; the limit of the site holds too."),
    # -- Only in the profile of a site
    _setting("patience", None, "duration", "How long sbatch may take to answer.", key="patience_s", default="3m",
             where="slurm"),
    _setting("lease", None, "duration", "An agent that has been silent for this long is taken for dead.",
             key="lease_s", default="5m", for_agent=True),
)
# fmt: on


def rows_of(section: str) -> dict[str, Row]:
    """The keys of a section of the study file, by their names; those of the top level for ""."""
    return {row.name: row for row in ROWS if row.section == section}


def section_names() -> list[str]:
    return [row.name for row in ROWS if row.kind == "section"]


def settings() -> list[Row]:
    """The rows that have a value in every plan."""
    return [row for row in ROWS if row.is_setting]


def flagged() -> list[Row]:
    """The rows that have options on the command line, group by group."""
    return sorted((row for row in ROWS if row.flags), key=lambda row: GROUPS.index(row.group))


def find_row(name: str) -> Row:
    """The setting of this name in a plan, or else the key of the study file; the outermost where several have it."""
    found = [row for row in settings() if row.plan_key == name] or [
        row for row in ROWS if row.name == name
    ]
    return found[0]
