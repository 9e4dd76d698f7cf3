"""The other nodes of a job, as the agent reaches them. Python 3.9, standard library.

The agent starts one step with a process on every node, `companion.py`. The step's standard input carries requests to
all of them, one JSON object a line; its standard output brings what trials on those nodes report, and the answers. It
needs neither addresses nor ports, and Slurm sees to it that nobody else can speak there.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig
from windlass.core.claims.alive import this_machine
from windlass.core.errors import NotReady
from windlass.core.paths import StudyPaths
from windlass.core.verified import agent_command, own_digest

READY, NOT_READY, NOTE, ROUTINE, LOG, ANSWER = (
    "ready",
    "not-ready",
    "note",
    "routine",
    "log",
    "answer",
)
WHERE = "WINDLASS_COMPANION"  # variable that holds what a companion has to know of the first node
METRICS = "metrics"  # the FIFO in the agent's runtime folder, which has the same path on every node
_PART = "part"
# Slurm delivers lines of up to 1,024 bytes whole; longer ones may be mixed with those of other nodes.
_PIECE_BYTES = 900
_ANSWER_S = 60.0  # for an answer that an attempt waits for
_CLOSE_S = 20.0  # for the others to remove what they made; within the time that Slurm gives a job that has to end


def count_nodes(environ: Mapping[str, str]) -> int:
    number = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or "1"
    return int(number) if number.isdigit() else 1


def node_name() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def render_message(kind: str, node: str, text: bytes) -> bytes:
    """One message of a companion, as lines that arrive whole. `text` has no line breaks."""
    pieces = [
        text[begin : begin + _PIECE_BYTES] for begin in range(0, len(text), _PIECE_BYTES)
    ] or [b""]
    kinds = [_PART] * (len(pieces) - 1) + [kind]
    return b"".join(
        b"%s %s %s\n" % (kinds[at].encode(), node.encode(), piece)
        for at, piece in enumerate(pieces)
    )


class MessageJoiner:
    """Puts the messages of all companions together again."""

    def __init__(self) -> None:
        self._rest = b""
        self._parts: Dict[bytes, bytes] = {}  # node → the beginning of a message

    def feed(self, data: bytes) -> List[Tuple[str, str, bytes]]:
        """Kind, node and text of the messages that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = []
        for line in lines:
            kind, _, rest = line.partition(b" ")
            node, _, text = rest.partition(b" ")
            if kind == _PART.encode():
                self._parts[node] = self._parts.get(node, b"") + text
                continue
            whole = self._parts.pop(node, b"") + text
            messages.append(
                (kind.decode("utf-8", "replace"), node.decode("utf-8", "replace"), whole)
            )
        return messages


class Companions:
    """The processes on the nodes of this job. All have made their node ready once this object exists."""

    def __init__(
        self,
        paths: StudyPaths,
        config: AgentConfig,
        submission: str,
        agent: str,
        runtime_folder: str,
        note: Callable[[str], None],
        mention: Callable[[str], None],
        folders_at: str = "",
    ) -> None:
        """Raises NotReady where a node cannot be made ready, or reached.

        `folders_at` is where trials have their working folders.
        """
        # Takes the lines of windlass.log on other nodes.
        self.deliver: Callable[[bytes], Any] = lambda line: None
        self._note, self._mention = note, mention
        self.nodes = count_nodes(os.environ)
        self._others = self.nodes - 1
        self._messages = MessageJoiner()
        self._ready = 0
        self._asked = 0
        self._answers: Dict[int, List[Dict[str, Any]]] = {}  # number of a request → answers so far
        # Attempt → number of the request to settle what it leaves elsewhere.
        self._ending: Dict[int, int] = {}
        # Attempt → the answers: nothing more will come of it.
        self._over: Dict[int, List[Dict[str, Any]]] = {}
        self._keeping: Dict[int, int] = {}  # attempt → number of the request to keep its outputs
        self._kept: Dict[int, List[Dict[str, Any]]] = {}  # attempt → the answers
        # Last lines that are not a companion's: srun explains itself there.
        self._chatter: List[str] = []
        self._sending = threading.Lock()  # a thread of the agent sends proofs
        self.is_gone = False  # nothing that trials do on other nodes is heard of any more
        where = {
            "first": node_name(),
            "boot": this_machine()["boot"],
            "agent": agent,
            "copy": config.project_dir if config.code is not None else "",
            "folders": folders_at,
            "scratch": os.environ.get("SLURM_TMPDIR", ""),
            "runtime": runtime_folder,
        }
        self._process = _start_step(paths, submission, self._others + 1, json.dumps(where))
        assert self._process.stdout is not None and self._process.stdin is not None
        self._out, self._in = self._process.stdout.fileno(), self._process.stdin.fileno()
        self._wait_until(lambda: self._ready > self._others)

    def fileno(self) -> int:
        return self._out

    def read(self) -> bool:
        """Take what has come. False when nothing will come any more."""
        data = b"" if self.is_gone else os.read(self._out, 1 << 16)
        if not data:
            if not self.is_gone and self._ready > self._others:
                self._note(
                    "the processes on other nodes of the job have ended, so trials are interrupted and continue in "
                    f"another job: {self._explain()}"
                )
            self.is_gone = True
            return False
        for kind, node, text in self._messages.feed(data):
            self._take(kind, node, text)
        return True

    def _take(self, kind: str, node: str, text: bytes) -> None:
        if kind == LOG:
            self.deliver(text + b"\n")
        elif kind == ANSWER:
            answer = json.loads(text)
            if answer["ask"] in self._answers:
                self._answers[answer["ask"]].append({**answer, "node": node})
        elif kind in (NOTE, ROUTINE):
            tell = self._note if kind == NOTE else self._mention
            tell(f"{node}: {text.decode('utf-8', 'replace')}")
        elif kind == READY:
            self._ready += 1
        elif kind == NOT_READY:
            self.close()
            raise NotReady(f"{node}: {text.decode('utf-8', 'replace')}")
        else:
            self._chatter = [
                *self._chatter[-2:],
                f"{kind} {node} {text.decode('utf-8', 'replace')}".strip(),
            ]

    def _explain(self) -> str:
        return "; ".join(self._chatter) or "srun gives no reason"

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            select.select([self._out], [], [])
            if not self.read():
                self.close()
                raise NotReady(f"the other nodes of the job cannot be reached: {self._explain()}")

    # -- requests

    def tell(self, do: str, **values: Any) -> None:
        """Have something done on all other nodes."""
        line = json.dumps({"do": do, **values}, separators=(",", ":")).encode() + b"\n"
        try:
            with self._sending:
                while line:
                    line = line[os.write(self._in, line) :]
        except OSError:
            pass  # they are gone: `read` reports it

    def prove(self, age_s: float) -> None:
        """A write that was begun so long ago has reached the study's folder: trials on other nodes may go on, too."""
        self.tell("proof", age_s=round(age_s, 3))

    def measure(self, attempt: Attempt) -> None:
        """Have an attempt measured on all other nodes; what is found comes as reports to `deliver`."""
        has_ranks = attempt.ranks is not None
        self.tell("measure", attempt=attempt.attempt, trial=attempt.trial.id, ranks=has_ranks)

    def ask(self, do: str, **values: Any) -> int:
        """Have something done on all other nodes; `answers` has what became of it under the number returned."""
        self._asked += 1
        self._answers[self._asked] = []
        self.tell(do, ask=self._asked, **values)
        return self._asked

    def answers(self, number: int) -> Optional[List[Dict[str, Any]]]:
        """One answer a node, once all are there. Fewer where the companions are gone. None: not yet."""
        if len(self._answers[number]) < self._others and not self.is_gone:
            return None
        return self._answers.pop(number)

    def is_over(self, attempt: int) -> bool:
        """Whether all that an attempt which has ended reported on other nodes has come. False: ask again."""
        if attempt in self._over:
            return True
        if attempt not in self._ending:
            self._ending[attempt] = self.ask("end", attempt=attempt)
        answers = self.answers(self._ending[attempt])
        if answers is None:
            return False
        del self._ending[attempt]
        self._over[attempt] = sorted(answers, key=lambda answer: str(answer["node"]))
        return True

    def is_kept(self, attempt: int, files: Mapping[str, Tuple[int, int]]) -> bool:
        """Whether the outputs that an attempt left on other nodes are settled. False: ask again.

        `files` are those on the first node. A node whose files have names that were found before keeps them below its
        own name, unless it is the same file, on a disk that the nodes share.
        """
        if attempt in self._kept:
            return True
        if attempt not in self._keeping:
            known = dict(files)
            adapt: Dict[str, Tuple[List[str], List[str]]] = {}
            for answer in self._over[attempt]:
                others = {
                    name: tuple(signature) for name, signature in answer.get("files", {}).items()
                }
                both = [name for name in others if name in known]
                same = [name for name in both if others[name] == known[name]]
                adapt[answer["node"]] = [name for name in both if name not in same], same
                known = {**others, **known}
            self._keeping[attempt] = self.ask("keep", attempt=attempt, adapt=adapt)
        answers = self.answers(self._keeping[attempt])
        if answers is None:
            return False
        del self._keeping[attempt]
        self._kept[attempt] = answers
        return True

    def verdict(self, attempt: Attempt) -> Dict[str, Any]:
        """What became of an attempt's outputs on other nodes: patterns that matched nothing there, a note, a loss."""
        over, kept = self._over.pop(attempt.attempt), self._kept.pop(attempt.attempt)
        lists = [set(answer["missing"]) for answer in over if "missing" in answer]
        notes = [f"{answer['node']}: {answer['note']}" for answer in kept if answer.get("note")]
        if len(over) < self._others or len(kept) < self._others:
            notes.append(
                "what this trial wrote on other nodes was not kept: the processes there have ended"
            )
        found: Dict[str, Any] = {
            "note": "; ".join(notes),
            "lost": any(answer.get("lost") for answer in kept),
        }
        if lists:
            found["missing"] = set.intersection(*lists)
        return found

    def begin(self, attempt: Attempt) -> None:
        """Have working folders ready on all nodes before an attempt is started. Raises OSError."""
        variables = {
            os.fsdecode(name): os.fsdecode(value) for name, value in attempt.variables.items()
        }
        slot, trial = attempt.slot.number, attempt.trial.number
        number = self.ask(
            "begin", attempt=attempt.attempt, trial=trial, slot=slot, variables=variables
        )
        for answer in self.wait(number):
            if answer.get("problem"):
                raise OSError(errno.EIO, f"{answer['node']}: {answer['problem']}")

    def put_file(self, path: str, text: str) -> None:
        """Have a small file of the agent's runtime folder on all nodes before an attempt is started. Raises OSError."""
        for answer in self.wait(self.ask("file", path=path, text=text)):
            if answer.get("problem"):
                raise OSError(errno.EIO, f"{answer['node']}: {answer['problem']}", path)

    def wait(self, number: int) -> List[Dict[str, Any]]:
        """The answers to a request that is quickly done."""
        until = time.monotonic() + _ANSWER_S
        while True:
            answers = self.answers(number)
            if answers is not None:
                return answers
            left_s = until - time.monotonic()
            if left_s <= 0:
                return self._answers.pop(number)
            if select.select([self._out], [], [], left_s)[0]:
                self.read()

    def close(self) -> None:
        """Let them remove what they made, and end."""
        self.is_gone = True
        try:
            self._process.communicate(timeout=_CLOSE_S)  # which closes their standard input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _start_step(
    paths: StudyPaths, submission: str, count: int, where: str
) -> "subprocess.Popen[bytes]":
    argv = ["srun", "--overlap", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
    argv += [
        "--cpus-per-task=1",
        "--mem=0",
        "--gres=none",
        "--quiet",
        "--input=all",
        "--kill-on-bad-exit=1",
    ]
    argv += agent_command(
        sys.executable,
        paths.agent,
        own_digest(),
        [paths.folder, "--job", submission, "--companion"],
    )
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            argv,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env={**os.environ, WHERE: where},
        )
    except OSError as error:
        raise NotReady(
            f"the other nodes of the job cannot be reached: srun: {error.strerror}"
        ) from error


def end_with_the_agent() -> None:
    """Slurm signals companions as well when it ends a job. They wait for the agent's end, but not for ever."""
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(int(_CLOSE_S)))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
