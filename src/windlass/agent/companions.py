"""A job of several nodes: makes the others ready as well, and keeps them so while the agent lives. Python 3.9.

The agent starts one step with a process on every node. Each stages code and data under the same paths as the agent's
own node has them, says so, and removes what it made when its standard input ends, which it does when the agent ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Callable, List, Mapping, Optional

from windlass.agent.config import AgentConfig
from windlass.agent.job import LocalScratch, read_job
from windlass.agent.ready import make_ready
from windlass.agent.store import NotReady
from windlass.paths import StudyPaths

_READY, _NOT_READY, _NOTE = "ready", "not-ready", "note"
_CLOSE_S = 20.0  # for the others to remove what they made; within the time that Slurm gives a job that has to end


def count_nodes(environ: Mapping[str, str]) -> int:
    number = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or "1"
    return int(number) if number.isdigit() else 1


class Companions:
    """The processes on the nodes of this job."""

    def __init__(self, paths: StudyPaths, config: AgentConfig, submission: str, say: Callable[[str], None]) -> None:
        self._say = say
        count = count_nodes(os.environ)
        words = ["srun", "--overlap", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        words += ["--cpus-per-task=1", "--mem=0", "--gres=none", "--quiet", "--input=all"]
        words += [sys.executable, "-I", paths.agent, paths.folder, "--job", submission, "--companion"]
        env = dict(os.environ)
        env["WINDLASS_FIRST_NODE"] = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        env["WINDLASS_COPY"] = config.project_dir if config.code is not None else ""
        env["WINDLASS_SCRATCH"] = os.environ.get("SLURM_TMPDIR", "")
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, env=env)
        except OSError as error:
            raise NotReady(f"the other nodes of the job cannot be reached: srun: {error.strerror}") from error
        self._wait(count)

    def _wait(self, count: int) -> None:
        """Until all have answered. Raises NotReady with what the first said that could not."""
        ready = 0
        other: List[str] = []
        assert self._process.stdout is not None
        while ready < count:
            line = self._process.stdout.readline().decode("utf-8", "replace").rstrip("\n")
            kind, _, text = line.partition(" ")
            if kind == _READY:
                ready += 1
            elif kind == _NOTE:
                self._say(text)
            elif kind == _NOT_READY or not line:
                self.close()
                raise NotReady(text or f"the other nodes of the job cannot be reached: {'; '.join(other[-3:])}")
            else:
                other.append(line)
        # What they say later must not fill the pipe.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def close(self) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def companion_main(paths: StudyPaths, config: AgentConfig, submission: Optional[str]) -> int:
    """On each node: make it ready, say so, and wait for the end."""
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename

    def say(kind: str, text: str) -> None:
        print(f"{kind} {text}", flush=True)

    # Whoever ends the job tells us as well; the agent's end is what we wait for.
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(int(_CLOSE_S)))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
    if node == os.environ.get("WINDLASS_FIRST_NODE"):
        say(_READY, node)
        sys.stdin.buffer.read()
        return 0
    scratch = LocalScratch(read_job(os.environ, submission), None, at=os.environ["WINDLASS_SCRATCH"])
    try:
        if config.code is not None:
            config.code["copy"] = os.environ["WINDLASS_COPY"]
        ready = make_ready(config, scratch, lambda text: say(_NOTE, f"{node}: {text}"))
    except NotReady as problem:
        say(_NOT_READY, f"{node}: {problem}")
        scratch.remove()
        return 1
    try:
        say(_READY, node)
        sys.stdin.buffer.read()
    finally:
        ready.close()
        scratch.remove()
    return 0
