"""The values that travel left to right: Study, Trial, Plan. Frozen; they print themselves and touch nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Goal = Literal["minimize", "maximize"]
ArgsFormat = Literal["--k v", "--k=v", "k=v", "fire"]
Range = tuple[int, int]  # first, last + 1


class Written(float):
    """A float that remembers how the user wrote it, so that ``1e-3`` reaches the program as ``1e-3``."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, value: float, text: str) -> Written:
        self = super().__new__(cls, value)
        self.text = text
        return self

    def __reduce__(self) -> tuple[type, tuple[float, str]]:
        return Written, (float(self), self.text)  # how it is copied


class WrittenInt(int):
    """A whole number that remembers how the user wrote it, so that ``007`` and ``0x10`` reach the program so."""

    text: str

    def __new__(cls, value: int, text: str) -> WrittenInt:
        self = super().__new__(cls, value)
        self.text = text
        return self

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return WrittenInt, (int(self), self.text)  # how it is copied


@dataclass(frozen=True)
class Metric:
    name: str
    goal: Goal = "minimize"


@dataclass(frozen=True)
class Stage:
    """One command of a trial. With `shell`, `words` is a single string for ``/bin/sh -c``.

    Words hold ``{name}`` placeholders; ``{{name}}`` stands for a literal ``{name}``. The word ``{args}`` alone
    becomes one or more words. Nothing else in braces has a meaning.
    """

    name: str
    words: tuple[str, ...]
    shell: bool = False
    args_format: ArgsFormat = "--k v"


@dataclass(frozen=True)
class Distribution:
    """One of W&B's named distributions with its numbers (min, max, mu, sigma, q, a, b)."""

    kind: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """One dimension. `values` for a choice (with optional `weights`), `distribution` for anything sampled."""

    name: str  # nested parameters are joined with dots
    values: tuple[Any, ...] = ()
    distribution: Distribution | None = None
    weights: tuple[float, ...] = ()
    # Exists only where all of these hold.
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Space:
    """Everything `search` needs to make settings."""

    method: str = "grid"  # a module of search/methods/
    parameters: tuple[Parameter, ...] = ()
    zips: tuple[tuple[str, ...], ...] = ()
    exclude: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()  # method list: the settings themselves
    seeds: tuple[int, ...] = ()
    seed_name: str = "seed"
    repeats: bool = False  # the seeds only count repetitions of the same command: no placeholder stands for them
    trials: int | None = None
    search_seed: int = 0


@dataclass(frozen=True)
class MetricPattern:
    """Where a metric stands on stdout: a regular expression with one group, or None for the usual forms."""

    name: str
    regex: str | None = None


@dataclass(frozen=True)
class Warm:
    mode: Literal["off", "auto", "list"] = "off"
    modules: tuple[str, ...] = ()


ANY_FILES = 10**15  # the value of `small_files: allow`


@dataclass(frozen=True)
class Data:
    """A folder or an archive that trials read from the node's own disk."""

    path: str  # as written: relative to the scratch of the project or to the project; absolute for an archive
    compress: Literal["none", "gzip", "zstd", "auto"] = "none"
    writable: bool = False  # each job has a copy of its own, to which its trials may write


@dataclass(frozen=True)
class Environment:
    """What is activated before anything is started."""

    kind: str = ""  # a module of environments/; "": none but modules and lines of the user's
    value: str = ""  # folder of a venv, name or folder of a conda environment, file to build from
    place: Literal["shared", "node"] = "shared"  # where something that is built is built
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()  # lines for the shell
    options: Mapping[str, Any] = field(default_factory=dict)  # the other keys of the kind


@dataclass(frozen=True)
class Checkpoint:
    """How a trial continues where it was."""

    # Default: checkpoints/<trial id> in the study's folder; may hold placeholders.
    dir: str | None = None
    pattern: tuple[str, ...] = ()  # names of checkpoints; default: usual endings
    resume: tuple[
        str, ...
    ] = ()  # words added where there is a checkpoint: --load-checkpoint {checkpoint}
    write: tuple[str, ...] = ()  # words added always: --write-checkpoints-to {checkpoint_dir}
    done: str | None = None  # a file (pattern) in the folder that says that the work is done
    validate: tuple[
        str, ...
    ] = ()  # a command that ends with 0 for a good one: python check.py {checkpoint}
    keep: int = 2  # newest ones that are kept when the trial is done; 0: all


@dataclass(frozen=True)
class ProgressSpec:
    """How a trial's output tells how far it is. None: found out by itself, or not known."""

    pattern: str | None = None  # a regular expression with a group `step`, perhaps one `total`
    steps: float | str | None = None  # in all: a number, or ``{name}`` of a setting


@dataclass(frozen=True)
class Expectation:
    """What the last value of a metric must be."""

    metric: str
    sign: Literal["<=", "<", ">=", ">"]
    value: float

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{self.value:g}"


@dataclass(frozen=True)
class Rung:
    """A smaller version of the training, and what it must reach before the next one is worth a start."""

    name: str
    expect: tuple[Expectation, ...]
    stages: tuple[Stage, ...]
    # In place of the study's own values.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    own_command: bool = False  # its words are not those of the study
    timeout_s: float | None = None


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file of the user's program, of which each trial gets a copy with its settings in it.

    `tree` is the file's content as `core/configcopy.py` describes it; `places` says for each parameter that the file
    has a place for where in the tree it is.
    """

    path: str  # as the study names it
    name: str  # of each copy
    form: Literal["yaml", "json"]
    tree: Any
    places: Mapping[str, Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "form": self.form,
            "tree": self.tree,
            "places": dict(self.places),
        }


@dataclass(frozen=True)
class Study:
    """The user's file (or command line), parsed and checked."""

    name: str
    stages: tuple[Stage, ...]
    space: Space
    workdir: str  # where trials are executed: the study file's folder
    project_dir: str  # the project's root; see `paths.find_project`
    source: str = ""  # path of the study file; empty when given on the command line
    source_text: str = ""  # as read, to be kept with the results
    # Task files: each row of the space is one command line of its own instead of a setting.
    tasks: tuple[tuple[str, ...], ...] = ()
    metric: Metric | None = None
    metrics: tuple[MetricPattern, ...] = ()
    on_nan: Literal["warn", "stop", "ignore"] = "warn"
    # The settings that the file gives, by their names in a plan. Other layers may give them too.
    given: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    data: tuple[Data, ...] = ()
    environment: Environment | None = None
    checkpoint: Checkpoint | None = None
    warm: Warm = Warm()
    variants: tuple[str, ...] = ()  # settings whose values need different amounts of memory
    progress: ProgressSpec | None = None
    ladder: tuple[Rung, ...] = ()
    config: ConfigFile | None = None
    submitter: bool = False  # a file of commands for job_submitter.sh: on a cluster, the defaults of that script hold
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One setting of a study, with the commands it stands for."""

    id: str
    settings: Mapping[str, Any]
    # (stage name, argument list as the program will see it)
    stages: tuple[tuple[str, tuple[str, ...]], ...]
    rung: str = ""  # only in the folder of a ladder: which rung it is


@dataclass(frozen=True)
class Setting:
    """A resolved value and where it came from: command line, study, real trials, a measurement, site or default."""

    value: Any
    source: str


@dataclass(frozen=True)
class Request:
    """What one job asks the scheduler for; all of a study's agents ask for the same."""

    job_name: str
    time_s: int
    cpus: int
    memory_mb: int  # of the whole job, on each node
    gpus: int = 0  # on each node
    gpu_type: str = ""
    nodes: int = 1
    tasks: int = 1  # on each node; they share the cores of the node evenly
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    throttle: int | None = None
    mail_user: str | None = None
    mail_types: tuple[str, ...] = ()
    # Further sbatch options; True stands for no value.
    options: Mapping[str, Any] = field(default_factory=dict)
    # Slurm notifies the agent so many seconds before the time is up; 0: it does not.
    notice_s: int = 0
    # The forms of sbatch options that the site accepts.
    gpu_form: str = "gres"
    memory_form: str = "mem"
    shebang: str = "/bin/bash"
    because: Mapping[str, str] = field(default_factory=dict)  # field → where its value came from

    @property
    def cpus_per_task(self) -> int:
        """Cores of each task, so that the tasks of a node have at least `cpus` together."""
        return -(-self.cpus // self.tasks)


@dataclass(frozen=True)
class Terms:
    """On what terms agents are submitted: all that is needed to submit more of them later."""

    request: Request
    agents: int  # never more than so many at a time
    slots: int
    workdir: str
    array_limit: int | None = None  # tasks that one array may have
    patience_s: float = 180.0  # for sbatch's answer
    units: int = 1  # jobs that follow each other in place of each agent: a chain


@dataclass(frozen=True)
class Budget:
    """What one trial of a variant may take. None: not known, so not limited."""

    variant: tuple[Any, ...] = ()  # values of the study's `variants`
    gpu_mb: int | None = None
    memory_mb: int | None = None


@dataclass(frozen=True)
class PackTerms:
    """How trials share a device, or, without GPUs, their agent's cores and memory."""

    a_gpu: int  # trials at a time on one GPU at most; without GPUs, of one agent
    mps: bool = False
    variants: tuple[str, ...] = ()  # names of settings
    gpu_memory_mb: int | None = None  # of one device
    budgets: tuple[Budget, ...] = ()
    budget: Budget = Budget()  # of a variant that is not among them
    job_memory_mb: int | None = None


@dataclass(frozen=True)
class Cost:
    """What jobs take. `billed` is in the site's own unit; None: not known."""

    gpu_hours: float
    core_hours: float
    billed: float | None = None
    unit: str = ""
    at_most: bool = False  # nobody knows how long they take: all of the time that is asked for


@dataclass(frozen=True)
class Split:
    """One way to deal the trials out to jobs."""

    agents: int
    time_s: int  # that each asks for
    waves: int
    estimate_s: float  # until the last trial ends, if all that may start at once
    cost: Cost


@dataclass(frozen=True)
class Submitted:
    """The agents that were asked for now, and those that were there already."""

    jobs: tuple[int, ...]
    agents: int
    present: int
    settled: tuple[str, ...] = ()  # what was found out about earlier submissions, in words
    outdated: int = 0  # agents at work with former code or settings, which take no more trials; not among `present`


MOST_WALKED = 10_000  # trials that are made only to show the last of them


@dataclass(frozen=True)
class Plan:
    """What `run` would do. Frozen; `windlass plan` prints it."""

    study: Study
    folder: str
    trial_count: int
    slots: int
    slots_because: str
    cpus: int
    cpus_per_slot: int
    gpus: tuple[str, ...]
    agents: int
    settings: Mapping[str, Setting]
    agents_because: str = ""
    launcher: str = "local"  # the name of the place
    elsewhere: bool = False  # agents run on other machines than this one
    terms: Terms | None = None  # only where agents are jobs
    site_name: str = ""
    # False: the scheduler could not be asked, and the plan rests on the site's profile.
    site_asked: bool = True
    waves: int = 1  # trials that each slot takes, one after another
    local_scratch: str | None = None
    # What the site's profile has for kinds of environments: the name of a kind → its options.
    site_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # From TERM to KILL of trials where the scheduler ends their job; None: `grace`.
    end_grace_s: float | None = None
    pack: PackTerms | None = None
    # Until the last trial ends, if all jobs start that may; None: nobody knows.
    estimate_s: float | None = None
    # What the estimate assumes of the cluster; "": that all jobs start at once that may.
    estimate_because: str = ""
    cost: Cost | None = None  # only where agents are jobs
    alternatives: tuple[Split, ...] = ()
    warnings: tuple[str, ...] = ()
    keep_going: bool = False  # also where the first trials all fail alike
    # Trials that are to be executed; estimate and cost are theirs. None: all.
    missing: int | None = None
    examples: tuple[Trial, ...] = ()  # some of those: the first ones, and the last if `shows_last`

    @property
    def groups(self) -> int:
        """Into how many groups of nodes a job is divided; each has the same slots."""
        nodes = self.request.nodes if self.request is not None else 1
        return max(1, nodes // (self.settings["trial_nodes"].value or nodes))

    @property
    def missing_count(self) -> int:
        return self.trial_count if self.missing is None else self.missing

    @property
    def shows_last(self) -> bool:
        """Whether the last of the examples is the last trial: to find that of very many would take too long."""
        return self.missing_count <= MOST_WALKED

    @property
    def agents_missing(self) -> int:
        """How many agents have something to do: so many are submitted where none is there yet."""
        return min(self.agents, -(-self.missing_count // self.slots))

    @property
    def request(self) -> Request | None:
        return self.terms.request if self.terms is not None else None

    def render_terms(self) -> dict[str, Any] | None:
        """The terms as plan.json has them; None where agents are no jobs."""
        return asdict(self.terms) if self.terms is not None else None

    @property
    def units(self) -> int:
        """How many jobs follow each other in place of each agent; 1 where they do not go on from one another."""
        return self.terms.units if self.terms is not None else 1

    @property
    def frozen(self) -> bool:
        """Whether trials are executed with the code as it is now, whatever happens to the project."""
        chosen = self.settings["code"].value
        return bool(chosen == "frozen" or (chosen is None and self.elsewhere))

    @property
    def own_folders(self) -> bool:
        """Whether each trial has a working folder of its own.

        It has where files are kept of it or the code is a copy anyway. Elsewhere trials are executed in the project.
        """
        return bool(self.frozen or self.study.outputs or self.study.checkpoint is not None)
