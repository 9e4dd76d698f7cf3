"""Asks the Python of a trial, in the trial's environment, what its frameworks see. Python 3.9, standard library."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from windlass.agent.node.doctor import MARK
from windlass.agent.warm.command import WarmRefused, python_command

_PATIENCE_S = 120.0


def ask_frameworks(
    stages: Sequence[Tuple[str, List[str]]], env: Mapping[str, str]
) -> Dict[str, Any]:
    """What agent/node/doctor.py sees from the Python of the first Python command; {} where there is none."""
    for _, argv in stages:
        try:
            interpreter = python_command(list(argv), env, os.getcwd()).interpreter
        except WarmRefused:
            continue
        return _ask([interpreter, "-m", "windlass.agent.node.doctor"], env)
    return {}


def _ask(argv: List[str], env: Mapping[str, str]) -> Dict[str, Any]:
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith(MARK):
            seen: Dict[str, Any] = json.loads(line[len(MARK) :])
            return seen
    return {}
