"""What the agent is given: plan.json and its command line. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from windlass.core.errors import FolderError
from windlass.core.fill import fill_variables, has_placeholder
from windlass.core.planfile import PLAN_VERSION, PlanFile, read_plan_file
from windlass.environments.base import Wanted

# Keys that plans of all versions have: one without them is damaged.
_NEEDED = frozenset(
    {
        "name", "workdir", "project_dir", "scratch_dir", "env", "slots", "agents", "cpus_per_slot", "gpus",
        "gpus_per_slot", "seed_name", "timeout_s", "grace_s", "retries", "metric", "metrics", "on_nan", "outputs",
        "output_limit_bytes", "warm",
    }
)  # fmt: skip


class AgentConfig:
    """plan.json, as far as the agent uses it; bundle/folder.py writes it."""

    def __init__(self, plan: PlanFile) -> None:
        _refuse_unreadable(plan)
        self.name: str = plan.name
        self.workdir: str = plan.workdir
        self.project_dir: str = plan.project_dir
        self.scratch_dir: str = plan.scratch_dir
        self.env: Dict[str, str] = plan.env
        self.slots: int = plan.slots
        self.launch: str = plan.launch
        # Of one trial, 0 where the study does not say: processes on each node, and nodes.
        self.processes, self.trial_nodes = plan.processes or 0, plan.trial_nodes or 0
        self.cpus_per_slot: int = plan.cpus_per_slot
        self.gpus: List[str] = plan.gpus
        self.gpus_per_slot: float = plan.gpus_per_slot
        self.seed_name: str = plan.seed_name
        self.several_settings: bool = plan.several_settings  # seeds and repetitions aside
        self.timeout_s: Optional[float] = plan.timeout_s
        self.grace_s: float = plan.grace_s
        self.retries: Dict[str, int] = plan.retries
        self.metric: Optional[str] = plan.metric
        self.watch_nan: bool = plan.watch_nan  # a sample: NaN anywhere is a failure
        self.outputs: List[str] = plan.outputs
        self.output_limit_bytes: int = plan.output_limit_bytes
        self.lease_s: float = plan.lease_s
        self.trial_time_s: Optional[float] = plan.trial_time_s
        self.job_time_s: Optional[float] = plan.job_time_s
        self.code: Optional[Dict[str, Any]] = plan.code
        # A digest of what trials get and of what is kept of them; it changes with these settings.
        self.settings_key: Optional[str] = plan.settings_key
        self.live: Dict[str, Any] = plan.live or {}  # of code that is not frozen: which files it is
        self.local_folder: bool = plan.local_folder  # whether commands name $SLURM_TMPDIR
        self.data: List[Dict[str, Any]] = plan.data or []
        # The configuration file of which each trial gets a copy of its own.
        self.config_file: Optional[Dict[str, Any]] = plan.config
        self.keep: str = plan.keep
        self.lead_s: float = plan.lead_s
        self.stop_signal: str = plan.stop_signal
        self.again_code: Optional[int] = plan.again_code
        self.local_scratch: Optional[str] = plan.local_scratch
        self.pack: Optional[Dict[str, Any]] = plan.pack
        self.measure: Optional[Dict[str, Any]] = plan.measure  # measure instead of working
        # For how many seconds, at most, the agent reports what all its trials take together.
        self.rehearse_s: Optional[float] = plan.rehearse_s
        self.checkpoint: Optional[Dict[str, Any]] = plan.checkpoint
        self.warm_mode: str = plan.warm["mode"]
        self.warm_modules: List[str] = plan.warm["modules"]
        self._derive(plan)

    def _derive(self, plan: PlanFile) -> None:
        """Set what follows from several keys of the plan, or has a default that only the agent knows."""
        self.metrics = printed_patterns(plan)
        self.stop_on_nan: bool = plan.on_nan == "stop" or plan.watch_nan
        # Whether each trial has a working folder of its own. Plans of earlier versions do not say so.
        self.own_folders: bool = bool(plan.code or plan.outputs or plan.checkpoint)
        if plan.own_folders is not None:
            self.own_folders = plan.own_folders
        self.environment: Optional[Wanted] = None
        if plan.environment:
            self.environment = Wanted.from_json(plan.environment)
        # How long trials have to end where the scheduler ends the whole job.
        self.end_grace_s: float = plan.end_grace_s or plan.grace_s
        progress = plan.progress or {}
        self.progress_pattern: Optional[str] = progress.get("pattern")
        self.progress_steps: Any = progress.get("steps")  # a number, or {name} of a setting
        # Whether the user gave the number of cores, rather than Windlass.
        self.cpus_given: bool = plan.sources.get("cpus") in ("study", "command line")


def _refuse_unreadable(plan: PlanFile) -> None:
    """Raise KeyError where the plan lacks what all plans have, ValueError where a later version wrote it."""
    missing = sorted(_NEEDED - plan.keys) if plan.keys is not None else []
    if missing:
        raise KeyError(missing[0])
    if plan.version > PLAN_VERSION:
        raise ValueError(
            f"plan.json is of version {plan.version}, this agent reads up to {PLAN_VERSION}"
        )


def printed_patterns(plan: PlanFile) -> List[Tuple[str, Optional[str]]]:
    """The metrics that output is searched for, with their patterns: those of `metrics:`, and the study's own."""
    patterns = [(str(name), regex) for name, regex in plan.metrics]
    if plan.metric and all(name != plan.metric for name, _ in patterns):
        patterns.append((plan.metric, None))
    return patterns


def read_config(path: str) -> AgentConfig:
    """What plan.json says. Raises FolderError where it is damaged."""
    try:
        return AgentConfig(read_plan_file(path))
    except (KeyError, TypeError, AttributeError) as error:
        raise FolderError(
            f"{path}: is damaged ({error!r})\n  hint: `windlass run` writes it anew"
        ) from error


# Libraries that would otherwise start a thread a core in every trial.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def trial_environment(
    config: AgentConfig, base: Dict[str, str], folder: str, agent_zip: str, agent: str, fifo: str
) -> Dict[str, str]:
    """What is the same for all trials of this agent. What the study says beats what we would set."""
    env = dict(base)
    threads = str(max(1, config.cpus_per_slot))
    env.update(dict.fromkeys(THREAD_VARIABLES, threads))
    env.update(
        PYTHONUNBUFFERED="1",
        MPLBACKEND="Agg",
        source_dir=config.project_dir,
        project_name=os.path.basename(config.project_dir),
        scratch_dir=config.scratch_dir,
        exp_name=config.name,
        WINDLASS_STUDY=config.name,
        WINDLASS_FOLDER=folder,
        WINDLASS_AGENT=agent,
        WINDLASS_METRICS=fifo,
    )
    if env.get("SLURM_TMPDIR"):
        env["path_to_local_node_storage"] = env["SLURM_TMPDIR"]
    # Without a display a window cannot block a trial that nobody watches.
    env.pop("DISPLAY", None)
    env.pop("WINDLASS_SUBMISSION", None)  # of the sbatch that brought us here
    # Those with placeholders differ from trial to trial: the runner adds them.
    own = {name: value for name, value in config.env.items() if not has_placeholder(value)}
    env.update({name: fill_variables(value, env) for name, value in own.items()})
    # Last, so that a windlass of their own comes first; and also where the study says a path.
    python_path = env.get("PYTHONPATH")
    env["PYTHONPATH"] = python_path + os.pathsep + agent_zip if python_path else agent_zip
    return env


class Slot:
    """A place for one trial: its number and the devices it may use."""

    __slots__ = ("gpus", "number", "variables")

    def __init__(self, number: int, gpus: Optional[str]) -> None:
        self.number = number
        self.gpus = gpus  # value for CUDA_VISIBLE_DEVICES; None leaves the variable alone
        # What trials in this slot get besides, such as the variables of MPS. These win over those of the agent.
        self.variables: Dict[bytes, bytes] = {}


def make_slots(config: AgentConfig, count: int, groups: int = 1) -> List[Slot]:
    """Deal the GPUs out: whole ones in turn, or several slots a GPU where a trial needs less than one.

    Each group of nodes of a job has the same devices.
    """
    devices = config.gpus
    share = config.gpus_per_slot
    if not devices or not share:
        return [Slot(number, None if not devices else "") for number in range(count)]
    if share < 1:
        return [Slot(number, devices[number % len(devices)]) for number in range(count)]
    width, a_group = int(share), max(1, count // groups)
    begins = [number % a_group * width for number in range(count)]
    return [
        Slot(number, ",".join(devices[begin : begin + width]))
        for number, begin in enumerate(begins)
    ]
