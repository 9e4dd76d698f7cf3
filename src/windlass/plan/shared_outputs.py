"""Patterns under `outputs` that lead out of the trials' own folders and mean the same path for several trials. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from windlass.core.errors import Problem
from windlass.model import Plan, Study
from windlass.plan.source_line import make_problem
from windlass.search import iterate_trials
from windlass.search.settings import iterate_settings
from windlass.search.template import fill_text, placeholder_names

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
# Variables with a value of their own in each trial, each slot of an agent, and each job.
_OF_TRIALS = frozenset(
    {
        "WINDLASS_TRIAL", "WINDLASS_TRIAL_NUMBER", "WINDLASS_PARAMS", "WINDLASS_CHECKPOINT_DIR", "checkpoint_dir",
        "source_dir", "PWD",
    }
)  # fmt: skip
_OF_SLOTS = frozenset({"WINDLASS_SLOT"})
_OF_JOBS = frozenset(
    {
        "SLURM_TMPDIR", "path_to_local_node_storage", "WINDLASS_AGENT", "SLURM_JOB_ID", "SLURM_JOBID",
        "SLURM_ARRAY_TASK_ID",
    }
)  # fmt: skip
_FIX = (
    "let the program write to a relative path, which is in a folder of the trial's own, or to a folder with "
    "{trial_id} in its name ($WINDLASS_TRIAL in the program)"
)


class _Shared(NamedTuple):
    """A pattern for which two trials have the same path."""

    pattern: str
    # Trials that may have a path of this pattern at the same time, of the whole study.
    at_a_time: int
    first: int
    second: int
    path: str
    # The pattern names a setting, which was perhaps meant to tell the trials apart.
    has_setting: bool


def find_output_problems(plan: Plan) -> Iterator[Problem]:
    """Patterns by which trials that run side by side overwrite each other's files."""
    for shared in _find_shared(plan):
        if shared.at_a_time > 1:
            which = f"{shared.at_a_time} trials at a time write there"
            if shared.has_setting:
                which = f"trials {shared.first} and {shared.second} both write {shared.path}, and may run side by side"
            text = f"outputs: {shared.pattern}: {which}: nobody can tell whose a file is"
            yield make_problem(plan, "outputs", text, "", _FIX)


def find_output_warnings(plan: Plan) -> Iterator[str]:
    """Patterns that name a setting and do not tell all trials apart, where trials run one after another."""
    for shared in _find_shared(plan):
        if shared.at_a_time < 2 and shared.has_setting:
            yield (
                f"outputs: {shared.pattern}: trials {shared.first} and {shared.second} both write {shared.path}. Here "
                "they run one after another, and the files are kept after each; where trials run side by side, the "
                "pattern is refused. With {trial_id} in its name each trial has files of its own"
            )


def _find_shared(plan: Plan) -> Iterator[_Shared]:
    study = plan.study
    for pattern in study.outputs:
        text = _with_env(pattern, study)
        if not text.startswith(("/", "$", "~")):
            continue  # in the trial's own folder
        variables = {one or other for one, other in _VARIABLE.findall(text)}
        if variables & _OF_TRIALS or "trial_id" in placeholder_names(text):
            continue
        same = _find_same(text, study)
        if same is not None:
            names = {name for name in placeholder_names(text) if name != "study"}
            yield _Shared(pattern, _count_at_a_time(plan, variables), *same, bool(names))


def _with_env(pattern: str, study: Study) -> str:
    """The pattern with the variables of the study's own `env`, and with its seed as a placeholder."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name == "WINDLASS_SEED" and study.space.seeds:
            return "{" + study.space.seed_name + "}"
        return study.env.get(name, match[0])

    return _VARIABLE.sub(value, pattern)


def _find_same(text: str, study: Study) -> tuple[int, int, str] | None:
    """The first two trials, by number, with the same path, and that path."""
    seen: dict[str, int] = {}
    for number, settings in enumerate(_iterate_settings(study)):
        path = fill_text(text, settings, {"study": study.name})
        if path in seen:
            return seen[path], number, path
        seen[path] = number
    return None


def _iterate_settings(study: Study) -> Iterator[Mapping[str, Any]]:
    if study.tasks:
        return (trial.settings for trial in iterate_trials(study))
    return iterate_settings(study.space)


def _count_at_a_time(plan: Plan, variables: set[str]) -> int:
    """How many trials of one path may run at the same time: on a node's own disk those of one job, elsewhere of all."""
    slots = 1 if variables & _OF_SLOTS else plan.slots
    agents = 1 if variables & _OF_JOBS else plan.agents
    request = plan.request
    if request is not None and request.throttle is not None:
        agents = min(agents, request.throttle)
    return min(slots * agents, plan.trial_count)
