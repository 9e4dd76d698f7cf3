"""What the agent is told: plan.json and its command line. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from windlass.agent.fill import fill_variables, has_placeholder
from windlass.claims.alive import LEASE_S
from windlass.errors import FolderError
from windlass.planfile import load_plan

PLAN_VERSION = 1


class AgentConfig:
    """plan.json, as far as the agent uses it; see bundle/folder.py for who writes it."""

    def __init__(self, plan: Dict[str, Any]) -> None:
        if plan["version"] > PLAN_VERSION:
            raise ValueError(f"plan.json is of version {plan['version']}, this agent reads up to {PLAN_VERSION}")
        self.name: str = plan["name"]
        self.workdir: str = plan["workdir"]
        self.project_dir: str = plan["project_dir"]
        self.scratch_dir: str = plan["scratch_dir"]
        self.env: Dict[str, str] = plan["env"]
        self.slots: int = plan["slots"]
        self.agents: int = plan["agents"]
        self.cpus_per_slot: int = plan["cpus_per_slot"]
        self.gpus: List[str] = plan["gpus"]
        self.gpus_per_slot: float = plan["gpus_per_slot"]
        self.seed_name: str = plan["seed_name"]
        self.several_settings: bool = plan.get("several_settings", False)  # seeds and repetitions aside
        self.timeout_s: Optional[float] = plan["timeout_s"]
        self.grace_s: float = plan["grace_s"]
        self.retries: Dict[str, int] = plan["retries"]
        self.metric: Optional[str] = plan["metric"]
        self.metrics = printed_patterns(plan)
        self.watch_nan: bool = plan.get("watch_nan", False)  # a sample: NaN anywhere is a failure
        self.stop_on_nan: bool = plan["on_nan"] == "stop" or self.watch_nan
        self.outputs: List[str] = plan["outputs"]
        self.output_limit_bytes: int = plan["output_limit_bytes"]
        # Not in plans of the first days.
        self.lease_s: float = plan.get("lease_s", LEASE_S)
        self.trial_time_s: Optional[float] = plan.get("trial_time_s")
        self.job_time_s: Optional[float] = plan.get("job_time_s")
        self.code: Optional[Dict[str, Any]] = plan.get("code")
        self.settings_key: Optional[str] = plan.get("settings_key")  # changes with what trials get or are kept of
        self.live: Dict[str, Any] = plan.get("live") or {}  # of code that is not frozen: which files it is
        # Whether each trial has a working folder of its own.
        self.own_folders: bool = plan.get("own_folders", bool(self.code or self.outputs or plan.get("checkpoint")))
        self.local_folder: bool = plan.get("local_folder", False)  # whether commands name $SLURM_TMPDIR
        self.data: List[Dict[str, Any]] = plan.get("data") or []
        self.environment: Optional[Dict[str, Any]] = plan.get("environment")
        self.checkpoint: Optional[Dict[str, Any]] = plan.get("checkpoint")
        self.config_file: Optional[Dict[str, Any]] = plan.get("config")  # of which each trial gets a copy of its own
        self.keep: str = plan.get("keep", "all")
        self.end_grace_s: float = plan.get("end_grace_s") or self.grace_s  # where the scheduler ends the whole job
        self.lead_s: float = plan.get("lead_s", 120.0)
        self.stop_signal: str = plan.get("stop_signal", "TERM")
        self.again_code: Optional[int] = plan.get("again_code")
        self.local_scratch: Optional[str] = plan.get("local_scratch")
        progress = plan.get("progress") or {}
        self.progress_pattern: Optional[str] = progress.get("pattern")
        self.progress_steps: Any = progress.get("steps")  # a number, or {name} of a setting
        self.pack: Optional[Dict[str, Any]] = plan.get("pack")
        self.measure: Optional[Dict[str, Any]] = plan.get("measure")  # measure instead; see measure/survey.py
        self.rehearse_s: Optional[float] = plan.get("rehearse_s")  # tell what all trials take, for so long at most
        self.cpus_said: bool = plan.get("sources", {}).get("cpus") in ("study", "command line")
        self.warm_mode: str = plan["warm"]["mode"]
        self.warm_modules: List[str] = plan["warm"]["modules"]


def printed_patterns(plan: Dict[str, Any]) -> List[Tuple[str, Optional[str]]]:
    """The metrics that output is searched for, with their patterns: those of `metrics:`, and the study's own."""
    patterns = [(name, regex) for name, regex in plan["metrics"]]
    if plan["metric"] and all(name != plan["metric"] for name, _ in patterns):
        patterns.append((plan["metric"], None))
    return patterns


def read_config(path: str) -> AgentConfig:
    """What plan.json says. Raises FolderError where it is damaged."""
    try:
        return AgentConfig(load_plan(path))
    except (KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{path}: is damaged ({error!r})\n  hint: `windlass run` writes it anew") from error


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
        self.variables: Dict[bytes, bytes] = {}  # what trials in it get besides, and in its place (MPS)


def make_slots(config: AgentConfig, count: int) -> List[Slot]:
    """Deal the GPUs out: whole ones in turn, or several slots a GPU where a trial needs less than one."""
    devices = config.gpus
    share = config.gpus_per_slot
    if not devices or not share:
        return [Slot(number, None if not devices else "") for number in range(count)]
    if share < 1:
        return [Slot(number, devices[number % len(devices)]) for number in range(count)]
    width = int(share)
    return [Slot(number, ",".join(devices[number * width : (number + 1) * width])) for number in range(count)]
