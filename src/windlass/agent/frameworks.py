"""Asks the frameworks of a trial's own Python which devices they see. Python 3.9, standard library."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from windlass.agent.warm import WarmRefused, python_command

_PATIENCE_S = 90.0
_PROGRAM = """
import importlib.util, json
found = {}
def look(name, ask):
    if importlib.util.find_spec(name) is None:
        return
    try:
        found[name] = ask(__import__(name))
    except BaseException as error:
        found[name] = {"devices": 0, "error": str(error)[:200]}
def say(module, cuda, devices):
    return {"version": module.__version__, "cuda": cuda, "devices": devices}
def look_at_tensorflow(module):
    cuda = module.sysconfig.get_build_info().get("cuda_version")
    return say(module, cuda, len(module.config.list_physical_devices("GPU")))
look("torch", lambda m: say(m, m.version.cuda, m.cuda.device_count() if m.cuda.is_available() else 0))
look("jax", lambda m: say(m, "its plugin", sum(device.platform == "gpu" for device in m.devices())))
look("tensorflow", look_at_tensorflow)
print("WINDLASS" + json.dumps(found))
"""


def ask_frameworks(stages: Sequence[Tuple[str, List[str]]], env: Mapping[str, str]) -> Dict[str, Any]:
    """Framework → {version, cuda, devices[, error]}, of the Python that the first Python command would use."""
    for _, words in stages:
        try:
            command = python_command(list(words), env, os.getcwd())
        except WarmRefused:
            continue
        if command is not None:
            return _ask(command.interpreter, env)
    return {}


def _ask(interpreter: str, env: Mapping[str, str]) -> Dict[str, Any]:
    try:
        done = subprocess.run(
            [interpreter, "-c", _PROGRAM],
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
        if line.startswith("WINDLASS"):
            found: Dict[str, Any] = json.loads(line[8:])
            return found
    return {}
