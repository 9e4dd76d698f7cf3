"""A trial as lines for a shell, so that it can be executed again by hand."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.agent.child import Trial
from windlass.agent.config import AgentConfig
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.core.configcopy import CONFIG, render_config
from windlass.core.errors import WindlassError
from windlass.core.fill import NODE_VARIABLE, fill_text
from windlass.core.paths import SHELLS, StudyPaths
from windlass.core.planfile import PlanFile, read_plan_if_there
from windlass.core.trialfile import TrialFile

# What the agent fills in on the node is a variable of the shell's here.
_ON_NODE = re.compile(
    rf"\{{(?:envvar:(?P<envvar>\w+)|(?P<file>args_json_file|config))\}}|{NODE_VARIABLE.pattern}"
)


class _ElsewhereCheckpoints(Checkpoints):
    """Commands are to write to a new folder: what is executed by hand must not replace what the trial has written."""

    def folder_of(self, trial: Trial) -> str:
        return "{envvar:checkpoint_dir}"


def render_by_hand(paths: StudyPaths, number: int, checkpoint: str = "") -> list[str]:
    """Lines that execute a trial: its folder, environment, variables and commands.

    `checkpoint` is what an attempt went on from; it is left out where it is no longer there.
    """
    plan, trial = read_plan_if_there(paths.plan), _read_trial(paths, number)
    commands = _commands(plan, paths, trial, checkpoint)
    lines = [f"cd {shlex.quote(plan.workdir)}"] if plan.workdir else []
    environment = _environment(plan.environment or {})
    # The study's own lines may have gone elsewhere.
    lines += [*environment, *(lines if environment else ())]
    lines += _variables(plan, trial)
    filled = {name: fill_text(text, trial, plan.name) for name, text in plan.env.items()}
    variables = [
        f"export {name}={_quote(text)}" for name, text in filled.items() if text is not None
    ]
    config = _quote_file(render_config(plan.config, trial.settings)) if plan.config else ""
    if plan.data or any("${SLURM_TMPDIR}" in line for line in (*variables, *commands, config)):
        lines += _data(plan.data or [])
    lines += variables
    if plan.checkpoint:
        lines += [
            'export checkpoint_dir="$(mktemp -d)"',
            'export WINDLASS_CHECKPOINT_DIR="$checkpoint_dir"',
        ]
    if any("${args_json_file}" in command for command in commands):
        settings = shlex.quote(trial.settings_json.decode("utf-8", "replace"))
        lines.append(f'args_json_file="$(mktemp)"; printf %s {settings} > "$args_json_file"')
    if config and any("${config}" in command for command in commands):
        lines.append(f'config="$(mktemp -d)"/{(plan.config or {})["name"]}')
        lines.append(f'printf %s {config} > "$config"')
    return [*lines, *(f"{command} &&" for command in commands[:-1]), *commands[-1:]]


def _variables(plan: PlanFile, trial: Trial) -> list[str]:
    """Variables that programs read, besides those of the study's own `env:`."""
    seed = trial.settings.get(plan.seed_name or "seed")
    lines = [f"export source_dir={shlex.quote(plan.project_dir)}"] if plan.project_dir else []
    return [*lines, *([f"export WINDLASS_SEED={seed}"] if seed is not None else [])]


def render_command(paths: StudyPaths, number: int) -> str:
    """A trial's stages as one line for a shell."""
    return " && ".join(
        _commands(read_plan_if_there(paths.plan), paths, _read_trial(paths, number), "")
    )


def _commands(plan: PlanFile, paths: StudyPaths, trial: Trial, checkpoint: str) -> list[str]:
    """The commands of a trial's stages as a shell takes them, with the checkpoint that the trial would go on from."""
    stages = [arguments for _, arguments in trial.stages]
    if plan.checkpoint:
        try:
            checkpoints = _ElsewhereCheckpoints(AgentConfig(plan), paths, os.environ)
            there = checkpoint if os.path.exists(checkpoint) else ""
            stages = [
                checkpoints.fill_in(trial, stage, arguments, there)
                for stage, arguments in enumerate(stages)
            ]
        except (WindlassError, KeyError, ValueError):
            pass  # A plan of another version, or a folder that is named by a variable of the node's.
    nodes = ((plan.terms or {}).get("request") or {}).get("nodes", 1)
    return [
        _render_words(_with_nodes(arguments, nodes), has_config=bool(plan.config))
        for arguments in stages
    ]


def _with_nodes(arguments: Sequence[str], nodes: int) -> Sequence[str]:
    """In a job `srun` uses all of its nodes. Outside of one it has to be given their number."""
    is_srun = nodes > 1 and bool(arguments) and os.path.basename(arguments[0]) == "srun"
    if not is_srun or any(argument.startswith(("-N", "--nodes")) for argument in arguments):
        return arguments
    return [arguments[0], "-N", str(nodes), *arguments[1:]]


def _render_words(arguments: Sequence[str], has_config: bool) -> str:
    """A command for the shell. A shell that is started by it replaces variables itself."""
    is_shell = bool(arguments) and os.path.basename(arguments[0]) in SHELLS
    return " ".join(_quote(argument, not is_shell, has_config) for argument in arguments)


def _quote_file(text: str) -> str:
    """A file's text for the shell. The agent replaces nothing in it but the node's own folder."""
    return NODE_VARIABLE.sub(
        lambda match: f"""'"${{{match["braced"] or match["plain"]}}}"'""", shlex.quote(text)
    )


def _quote(argument: str, with_variables: bool = True, has_config: bool = False) -> str:
    """An argument for the shell; what only the node knows becomes one of its variables."""
    parts, end = [], 0
    for match in _ON_NODE.finditer(argument):
        if not with_variables and match[0].startswith("$"):
            continue
        if match[0] == CONFIG and not has_config:
            continue
        if match.start() > end:
            parts.append(shlex.quote(argument[end : match.start()]))
        name = match["envvar"] or match["file"] or match["braced"] or match["plain"]
        parts.append(f'"${{{name}}}"')
        end = match.end()
    if end < len(argument) or not parts:
        parts.append(shlex.quote(argument[end:]))
    return "".join(parts)


def _environment(asked: Mapping[str, Any]) -> list[str]:
    """The lines that enter the trial's environment: modules, activation, and the user's own setup."""
    lines = [f"module load {shlex.join(asked['modules'])}"] if asked.get("modules") else []
    prefix = asked.get("value", "") if asked.get("kind") == "venv" else _built(asked)
    if asked.get("kind") == "conda":
        lines.append(f"conda activate {shlex.quote(asked.get('value', ''))}")
    elif prefix:
        lines.append(f". {shlex.quote(os.path.join(prefix, 'bin', 'activate'))}")
    return [*lines, *(asked.get("setup") or ())]


def _built(asked: Mapping[str, Any]) -> str:
    """Where an environment is that was built for the study; "" where that is not known or it is no longer there."""
    if asked.get("kind") not in ("uv", "build"):
        return ""
    try:
        with open(asked["record"], encoding="utf-8") as file:
            prefix = str(json.load(file).get("prefix", ""))
    except (OSError, ValueError, KeyError, AttributeError):
        return ""
    return prefix if os.path.exists(os.path.join(prefix, "bin", "activate")) else ""


def _data(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """A folder that has the data where trials find them below $SLURM_TMPDIR."""
    lines = ['export SLURM_TMPDIR="$(mktemp -d)"']
    for entry in entries:
        target = f'"$SLURM_TMPDIR"/{shlex.quote(entry["as"])}'
        if entry.get("foreign"):
            lines.append(
                f"mkdir -p {target} && tar -xf {shlex.quote(entry['archive'])} -C {target}"
            )
            continue
        parent = os.path.dirname(entry["as"])
        if parent:
            lines.append(f'mkdir -p "$SLURM_TMPDIR"/{shlex.quote(parent)}')
        lines.append(f"ln -s {shlex.quote(entry.get('source', ''))} {target}")
    return lines


def _read_trial(paths: StudyPaths, number: int) -> Trial:
    """A trial as the agent has it, read from trials.jsonl."""
    file = TrialFile(paths)
    try:
        fields = file.read(number)
        settings = fields.pop("settings")
        # As `Trial` wants it: compact, and settings last.
        line = json.dumps(
            {**fields, "settings": settings}, separators=(",", ":"), ensure_ascii=False
        )
        return Trial(number, line.encode("utf-8", "surrogatepass"))
    finally:
        file.close()
