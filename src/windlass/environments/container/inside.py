"""What is inside a container: its Python, its variables, its programs. Python 3.9, standard library."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from windlass.core.errors import NotReady

_PATIENCE_S = 300.0  # a large image that is cold
# Executed inside, by any Python of version 3.6 and up.
_ASK = """
import json, os, sys
def is_free(path):
    try:
        return not os.listdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
free = [path for path in sys.argv[1:] if is_free(path)]
print(json.dumps({"environ": dict(os.environ), "free": free}))
"""
_NO_PROGRAM = "executable file not found"


class Answer(NamedTuple):
    """What a command inside has printed, and how it ended."""

    code: int
    text: str
    errors: str


class ContainerInside:
    """What is found by starting the container once. Implements `Inside`."""

    def __init__(self, wrap: Callable[[List[str]], List[str]], env: Mapping[str, str]) -> None:
        self._wrap = wrap
        self._outside = dict(env)
        self._programs: Dict[str, Optional[str]] = {}
        self._changes: Dict[str, str] = {}
        self._hidden: List[str] = []
        self.free: List[str] = []  # folders that the image lacks, or has empty

    def look(self, folders: Sequence[str]) -> None:
        """Start the container. Raises NotReady where it does not start. An image may be without Python."""
        answer = Answer(0, "", "")
        for name in ("python3", "python"):
            answer = self.run([name, "-c", _ASK, *folders])
            if answer.code == 0:
                break
        else:
            if _NO_PROGRAM in answer.errors:
                return  # no Python: whatever trials start, it is another program
            lines = answer.errors.strip().splitlines()
            why = lines[-1] if lines else f"it ended with code {answer.code}"
            raise NotReady(f"the container does not start on {os.uname().nodename}: {why}")
        found: Dict[str, Any] = json.loads(answer.text.strip().splitlines()[-1])
        there: Dict[str, str] = found["environ"]
        self._changes = {
            name: value for name, value in there.items() if self._outside.get(name) != value
        }
        self._hidden = [name for name in self._outside if name not in there]
        self.free = found["free"]

    def run(self, command: List[str]) -> Answer:
        """Execute a command inside and wait for it."""
        try:
            done = subprocess.run(
                self._wrap(command),
                env=self._outside,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(-1, "", f"it did not answer within {_PATIENCE_S:g} s")
        except OSError as error:
            return Answer(-1, "", f"{error.strerror}: {error.filename}")
        decode = [part.decode("utf-8", "replace") for part in (done.stdout, done.stderr)]
        return Answer(done.returncode, *decode)

    def find_program(self, name: str) -> Optional[str]:
        if os.sep in name:
            return name
        if name not in self._programs:
            answer = self.run(["sh", "-c", 'command -v -- "$0"', name])
            path = answer.text.strip()
            self._programs[name] = path if answer.code == 0 and path.startswith(os.sep) else None
        return self._programs[name]

    def translate(self, env: Mapping[str, str]) -> Dict[str, str]:
        known = {name: value for name, value in env.items() if name not in self._hidden}
        changes = {
            name: value
            for name, value in self._changes.items()
            # A variable that the study changes beside these reaches the program as it is.
            if name not in env or env[name] == self._outside.get(name)
        }
        return {**known, **changes}
