"""Asks a Python what it is, and keeps the answer with the study. Python 3.9, standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from windlass.core.files import write_first, write_whole

# Executed by the Python that is asked, which may be any: no syntax of version 3.6 and up.
_CODE = """
import json, platform, sys, sysconfig
answer = {"python": platform.python_version(), "executable": sys.executable, "prefix": sys.prefix}
answer["platform"] = sysconfig.get_platform()
if len(sys.argv) > 1:
    try:
        from importlib.metadata import distributions
        packages = {}
        for found in distributions():
            name = found.metadata["Name"]
            if name:
                packages.setdefault(name, found.version)
        answer["packages"] = packages
    except ImportError:
        answer["packages"] = {}
print(json.dumps(answer))
"""
_PATIENCE_S = 300.0  # a large environment on a shared file system that is cold


class PythonFailed(Exception):
    """That Python does not run; the text says why."""


def find_python(env: Mapping[str, str]) -> Optional[str]:
    """The Python that trials get by the name `python`, or else `python3`."""
    path = env.get("PATH", os.defpath)
    return shutil.which("python", path=path) or shutil.which("python3", path=path)


def probe_python(
    python: str,
    env: Mapping[str, str],
    packages: bool = False,
    wrap: Callable[[List[str]], List[str]] = list,
) -> Dict[str, Any]:
    """Its version, executable and prefix, and with `packages` all that is installed. Raises PythonFailed.

    `wrap` puts a command into an environment that takes a command of its own to enter.
    """
    clean = {
        name: value for name, value in env.items() if name not in ("PYTHONPATH", "PYTHONSTARTUP")
    }
    try:
        done = subprocess.run(
            wrap([python, "-c", _CODE, *(["packages"] if packages else [])]),
            env=clean,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PythonFailed(f"it did not answer within {_PATIENCE_S:g} s") from None
    except OSError as error:
        raise PythonFailed(error.strerror or str(error)) from None
    try:
        answer: Dict[str, Any] = json.loads(
            done.stdout.decode("utf-8", "replace").strip().splitlines()[-1]
        )
        return answer
    except (ValueError, IndexError):
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise PythonFailed(
            lines[-1] if lines else f"it ended with code {done.returncode}"
        ) from None


def record_environment(
    path: str,
    asked: Any,
    python: str,
    env: Mapping[str, str],
    modules: List[str],
    say: Callable[[str], None],
    wrap: Callable[[List[str]], List[str]] = list,
) -> Dict[str, Any]:
    """Write environment.json where nobody has for this environment; a node that differs says so. Raises PythonFailed.

    The first to come lists the packages, once; the others only ask for the version.
    """
    known = read_record(path)
    if known is not None and known.get("asked") == asked:
        here = probe_python(python, env, wrap=wrap)
        if here["python"] != known["python"]:
            say(f"{os.uname().nodename} has Python {here['python']}, others {known['python']}")
        return here
    here = probe_python(python, env, packages=True, wrap=wrap)
    record = {
        "asked": asked,
        **here,
        "modules": modules,
        "host": os.uname().nodename,
        "time": round(time.time()),
    }
    _write(path, record, first=known is None)
    return here


def read_record(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            found: Dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None


def _write(path: str, record: Dict[str, Any], first: bool) -> None:
    """Write the record whole or not at all. Of several agents that are the first, one writes it."""
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    try:
        if first and not os.path.exists(path):
            write_first(path, text)
        else:
            write_whole(path, text)
    except OSError as error:
        print(f"windlass agent: {path}: {error.strerror}", file=sys.stderr)
