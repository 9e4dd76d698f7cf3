"""Has the files that a trial of a sample leaves looked through for NaN, without holding up the agent. Python 3.9."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.agent.keep.tensors import MARK
from windlass.agent.keep.valid import is_temporary
from windlass.agent.warm.command import WarmRefused, python_command
from windlass.core.counted import counted
from windlass.core.states import Cause

_ENDINGS = (".npy", ".npz", ".safetensors", ".eqx", ".pt", ".pth", ".ckpt", ".h5", ".hdf5")
_MOST_FILES = 10  # of one trial, the newest ones
_MOST_SEEN = 50_000  # files that are walked past in search of them
_PATIENCE_S = 300.0  # from a cold shared disk, a framework alone may take a minute to import
_CLOCK_S = 2.0  # a file server's clock may be behind the node's by so much
_PASSED_OVER = (
    ".git",
    ".windlass",
    ".windlass-data",
    "__pycache__",
    ".venv",
    "venv",
    "node_modules",
)
_NAMED = 3


class NanFiles:
    """What the tensors in each attempt's files hold. An attempt is asked about until the answer is there."""

    def __init__(
        self, env: Mapping[str, str], checkpoints: Checkpoints, config: AgentConfig, slots: int
    ) -> None:
        self._checkpoints = checkpoints
        # Of trials that work side by side in one folder nobody knows which of them wrote a file.
        self._workdir = config.workdir if slots == 1 else ""
        # Attempt → path and time of files that were there when it began.
        self._before: Dict[int, Dict[str, int]] = {}
        self._env = env
        self._answers: Dict[int, List[Tuple[str, str]]] = {}
        self._threads: Dict[int, threading.Thread] = {}

    def begin(self, attempt: Attempt) -> None:
        """The attempt is about to begin: the files that are there now are not its own, however young they are."""
        self._before[attempt.attempt] = find_tensors(self._places(attempt))

    def _places(self, attempt: Attempt) -> List[str]:
        own = attempt.workdir or self._workdir
        return [self._checkpoints.folder_of(attempt.trial), *([own] if own else [])]

    def looked_through(self, attempt: Attempt) -> bool:
        """Whether all files that an attempt has written are looked through, and judged; False: ask again."""
        well = attempt.status == 0 and attempt.cause is None
        if not (well or attempt.cause is Cause.TIME):
            self._before.pop(attempt.attempt, None)
            return True
        if not self.settled(
            attempt.attempt, attempt.trial.stages, self._places(attempt), attempt.started_wall
        ):
            return False
        bad, note = self.take(attempt.attempt)
        if note:
            attempt.remarks.append(note)
        if bad:
            attempt.note = bad
            attempt.cause = Cause.DIVERGED
        return True

    def settled(
        self, attempt: int, stages: Sequence[Tuple[str, List[str]]], places: List[str], since: float
    ) -> bool:
        """Whether the answer is there; the first call begins to look at what changed in `places` since then."""
        thread = self._threads.get(attempt)
        if thread is None:
            before = self._before.pop(attempt, None)
            # Else they were judged already.
            files = find_files(places, since, before) if before is not None else []
            if not files:
                return True
            thread = threading.Thread(target=self._look, args=(attempt, stages, files), daemon=True)
            self._threads[attempt] = thread
            thread.start()
        return not thread.is_alive()

    def take(self, attempt: int) -> Tuple[str, str]:
        """What is wrong with an attempt's files ("" for nothing), and what else is worth telling. Forgotten here."""
        self._threads.pop(attempt, None)
        answers = self._answers.pop(attempt, [])
        bad = [text for verdict, text in answers if verdict == "bad"]
        return "; ".join(bad[:_NAMED]), "; ".join(
            text for verdict, text in answers if verdict != "bad"
        )

    def _look(
        self, attempt: int, stages: Sequence[Tuple[str, List[str]]], files: List[str]
    ) -> None:
        argv = [_python_of(stages, self._env), "-m", "windlass.agent.keep.tensors", *files]
        try:
            done = subprocess.run(
                argv,
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE_S,
                check=False,
            )
            self._answers[attempt] = describe(_parse(done.stdout), files)
        except subprocess.TimeoutExpired:
            self._answers[attempt] = [
                ("note", f"its files could not be looked through within {_PATIENCE_S:g} s")
            ]
        except OSError as error:
            self._answers[attempt] = [
                ("note", f"its files could not be looked through: {argv[0]}: {error.strerror}")
            ]


def find_files(places: List[str], since: float, before: Mapping[str, int]) -> List[str]:
    """The newest files in these folders that hold tensors and were written since then; `before` are those of before."""
    earliest_ns = (since - _CLOCK_S) * 1e9
    found = {path: when for path, when in find_tensors(places).items() if when >= earliest_ns}
    new = [path for path, when in found.items() if before.get(path) != when]
    return sorted(new, key=lambda path: found[path], reverse=True)[:_MOST_FILES]


def find_tensors(places: List[str]) -> Dict[str, int]:
    """All files in these folders that hold tensors by their names: path → when they were written."""
    found: Dict[str, int] = {}
    for path in _walk(places):
        if path.lower().endswith(_ENDINGS) and not is_temporary(path):
            try:
                status = os.stat(path)
            except OSError:
                continue
            if status.st_size:
                found[os.path.realpath(path)] = status.st_mtime_ns
    return found


def _walk(places: List[str]) -> Iterator[str]:
    seen = 0
    for top in dict.fromkeys(places):
        for folder, below, names in os.walk(top):
            below[:] = [name for name in below if name not in _PASSED_OVER]
            for name in names:
                yield os.path.join(folder, name)
                seen += 1
                if seen >= _MOST_SEEN:
                    return


def _python_of(stages: Sequence[Tuple[str, List[str]]], env: Mapping[str, str]) -> str:
    """The Python of the trial's first Python command, which has its frameworks; the agent's own where there is none."""
    for _, argv in stages:
        try:
            return python_command(list(argv), env, os.getcwd()).interpreter
        except WarmRefused:
            continue
    return sys.executable


def _parse(output: bytes) -> List[Dict[str, Any]]:
    for line in output.decode("utf-8", "replace").splitlines():
        if line.startswith(MARK):
            found: List[Dict[str, Any]] = json.loads(line[len(MARK) :])
            return found
    return []


def describe(seen: List[Dict[str, Any]], files: List[str]) -> List[Tuple[str, str]]:
    """What was found, as sentences: ("bad", …) for NaN, ("note", …) for all else.

    Infinities are no fault: masks of attention and bounds hold them.
    """
    if not seen:
        return [("note", f"{counted(len(files), 'file')} with tensors could not be looked through")]
    answers = []
    for one in seen:
        name = os.path.basename(one["file"])
        bad = [tensor for tensor in one["bad"] if tensor["nan"]]
        if bad:
            first = bad[0]
            more = f" and {counted(len(bad) - 1, 'more tensor')}" if len(bad) > 1 else ""
            answers.append(
                (
                    "bad",
                    f"{name} holds NaN: {first['tensor']} ({first['nan']:,} of {first['of']:,} numbers){more}",
                )
            )
        elif one["skipped"]:
            answers.append(("note", f"{name} was not looked through for NaN: {one['skipped']}"))
    looked = [one for one in seen if not one["skipped"]]
    if looked and len(answers) < len(seen):
        tensors = sum(one["tensors"] for one in looked)
        answers.append(
            ("note", f"no NaN in {counted(len(looked), 'file')} with {counted(tensors, 'tensor')}")
        )
    return answers
