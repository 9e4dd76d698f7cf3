"""A trial as lines for a shell, so that it can be executed again by hand."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.agent.checkpoint import Checkpoints
from windlass.agent.child import Trial
from windlass.agent.config import AgentConfig
from windlass.agent.fill import NODE_VARIABLE, fill_text
from windlass.collect.facts import read_plan
from windlass.configcopy import CONFIG, render_config
from windlass.errors import WindlassError
from windlass.paths import SHELLS, StudyPaths
from windlass.trialfile import TrialFile

# What the agent fills in on the node is a variable of the shell's here.
_ON_NODE = re.compile(rf"\{{(?:envvar:(?P<envvar>\w+)|(?P<file>args_json_file|config))\}}|{NODE_VARIABLE.pattern}")


class _ElsewhereCheckpoints(Checkpoints):
    """Commands are to write to a new folder: what is executed by hand must not replace what the trial has written."""

    def folder_of(self, trial: Trial) -> str:
        return "{envvar:checkpoint_dir}"


def render_by_hand(paths: StudyPaths, number: int, checkpoint: str = "") -> list[str]:
    """Lines that execute a trial: its folder, environment, variables and commands.

    `checkpoint` is what an attempt went on from; it is left out where it is no longer there.
    """
    plan, trial = read_plan(paths), _read_trial(paths, number)
    commands = _commands(plan, paths, trial, checkpoint)
    lines = [f"cd {shlex.quote(str(plan['workdir']))}"] if plan.get("workdir") else []
    environment = _environment(plan.get("environment") or {})
    lines += [*environment, *(lines if environment else ())]  # the study's own lines may have gone elsewhere
    lines += _variables(plan, trial)
    filled = {name: fill_text(text, trial, str(plan.get("name", ""))) for name, text in (plan.get("env") or {}).items()}
    variables = [f"export {name}={_quote(text)}" for name, text in filled.items() if text is not None]
    config = _quote_file(render_config(plan["config"], trial.settings)) if plan.get("config") else ""
    if plan.get("data") or any("${SLURM_TMPDIR}" in line for line in (*variables, *commands, config)):
        lines += _data(plan.get("data") or [])
    lines += variables
    if plan.get("checkpoint"):
        lines += ['export checkpoint_dir="$(mktemp -d)"', 'export WINDLASS_CHECKPOINT_DIR="$checkpoint_dir"']
    if any("${args_json_file}" in command for command in commands):
        settings = shlex.quote(trial.settings_json.decode("utf-8", "replace"))
        lines.append(f'args_json_file="$(mktemp)"; printf %s {settings} > "$args_json_file"')
    if config and any("${config}" in command for command in commands):
        lines.append(f'config="$(mktemp -d)"/{plan["config"]["name"]}')
        lines.append(f'printf %s {config} > "$config"')
    return [*lines, *(f"{command} &&" for command in commands[:-1]), *commands[-1:]]


def _variables(plan: Mapping[str, Any], trial: Trial) -> list[str]:
    """Variables that programs read, besides those of the study's own `env:`."""
    seed = trial.settings.get(str(plan.get("seed_name") or "seed"))
    lines = [f"export source_dir={shlex.quote(str(plan['project_dir']))}"] if plan.get("project_dir") else []
    return [*lines, *([f"export WINDLASS_SEED={seed}"] if seed is not None else [])]


def render_command(paths: StudyPaths, number: int) -> str:
    """A trial's stages as one line for a shell."""
    return " && ".join(_commands(read_plan(paths), paths, _read_trial(paths, number), ""))


def _commands(plan: Mapping[str, Any], paths: StudyPaths, trial: Trial, checkpoint: str) -> list[str]:
    stages = [words for _, words in trial.stages]
    if plan.get("checkpoint"):
        try:
            checkpoints = _ElsewhereCheckpoints(AgentConfig(dict(plan)), paths, os.environ)
            there = checkpoint if os.path.exists(checkpoint) else ""
            stages = [checkpoints.fill_in(trial, stage, words, there) for stage, words in enumerate(stages)]
        except (WindlassError, KeyError, ValueError):
            pass  # A plan of another version, or a folder that is named by a variable of the node's.
    nodes = ((plan.get("terms") or {}).get("request") or {}).get("nodes", 1)
    return [_render_words(_with_nodes(words, nodes), has_config=bool(plan.get("config"))) for words in stages]


def _with_nodes(words: Sequence[str], nodes: int) -> Sequence[str]:
    """In a job `srun` uses all of its nodes. Outside of one it has to be given their number."""
    is_srun = nodes > 1 and bool(words) and os.path.basename(words[0]) == "srun"
    if not is_srun or any(word.startswith(("-N", "--nodes")) for word in words):
        return words
    return [words[0], "-N", str(nodes), *words[1:]]


def _render_words(words: Sequence[str], has_config: bool) -> str:
    """A command for the shell. A shell that is started by it replaces variables itself."""
    is_shell = bool(words) and os.path.basename(words[0]) in SHELLS
    return " ".join(_quote(word, not is_shell, has_config) for word in words)


def _quote_file(text: str) -> str:
    """A file's text for the shell. The agent replaces nothing in it but the node's own folder."""
    return NODE_VARIABLE.sub(lambda match: f"""'"${{{match["braced"] or match["plain"]}}}"'""", shlex.quote(text))


def _quote(word: str, with_variables: bool = True, has_config: bool = False) -> str:
    """A word for the shell; what only the node knows becomes one of its variables."""
    parts, end = [], 0
    for match in _ON_NODE.finditer(word):
        if not with_variables and match[0].startswith("$"):
            continue
        if match[0] == CONFIG and not has_config:
            continue
        if match.start() > end:
            parts.append(shlex.quote(word[end : match.start()]))
        name = match["envvar"] or match["file"] or match["braced"] or match["plain"]
        parts.append(f'"${{{name}}}"')
        end = match.end()
    if end < len(word) or not parts:
        parts.append(shlex.quote(word[end:]))
    return "".join(parts)


def _environment(asked: Mapping[str, Any]) -> list[str]:
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
            lines.append(f"mkdir -p {target} && tar -xf {shlex.quote(entry['archive'])} -C {target}")
            continue
        parent = os.path.dirname(entry["as"])
        if parent:
            lines.append(f'mkdir -p "$SLURM_TMPDIR"/{shlex.quote(parent)}')
        lines.append(f"ln -s {shlex.quote(entry.get('source', ''))} {target}")
    return lines


def _read_trial(paths: StudyPaths, number: int) -> Trial:
    file = TrialFile(paths)
    try:
        fields = file.read(number)
        settings = fields.pop("settings")
        # As `Trial` wants it: compact, and settings last.
        line = json.dumps({**fields, "settings": settings}, separators=(",", ":"), ensure_ascii=False)
        return Trial(number, line.encode("utf-8", "surrogatepass"))
    finally:
        file.close()
