"""The process on each other node of a job: it is there for trials what the agent is on the first. Python 3.9.

It stages code and data under the same paths as the agent's node has them. In a folder of the same path as the agent's
own it offers the FIFO that `windlass.log` writes to, forwards what comes, and puts the notice that ends trials. It
removes what it made when its standard input ends, which it does when the agent ends.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from functools import partial
from typing import Any, Dict, List, Mapping, Optional

from windlass.agent.child import Attempt, Trial
from windlass.agent.config import AgentConfig, Slot, trial_environment
from windlass.agent.interrupt import NOTICE, write_notice
from windlass.agent.keep.trial_files import write_file
from windlass.agent.keep.trial_folder import TrialFolders
from windlass.agent.keep.workplace import Workplace
from windlass.agent.lease.fence_page import FencePage, clock_s
from windlass.agent.lease.guard import Fence, FenceRule
from windlass.agent.node.companions import (
    ANSWER,
    LOG,
    METRICS,
    NOT_READY,
    NOTE,
    READY,
    ROUTINE,
    WHERE,
    end_with_the_agent,
    node_name,
    render_message,
)
from windlass.agent.node.job import LocalScratch, read_job
from windlass.agent.node.node_gauge import NodeGauge
from windlass.agent.node.ready import make_ready
from windlass.agent.node.store import NodeStore
from windlass.agent.node.sweep import Mark
from windlass.agent.report.lines import LineCutter
from windlass.agent.share.ports import hold_port, write_task
from windlass.agent.share.steps import signal_ranks, write_task_prolog
from windlass.core.claims.alive import this_machine
from windlass.core.errors import NotReady
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile
from windlass.core.verified import keep_own_program

_READ_BYTES = 1 << 16
_LONGEST_LINE = 8192  # twice what windlass.log writes at a time
_LOOK_S = 0.1  # between looks at large files that are being copied
# More than a FIFO holds: what was written before a trial ended is among the first so many.
_DRAIN_BYTES = 1 << 20


def companion_main(paths: StudyPaths, config: AgentConfig, submission: Optional[str]) -> int:
    """Make this node ready, say so, and serve until the agent ends."""
    where = json.loads(os.environ.pop(WHERE))
    end_with_the_agent()
    if node_name() == where["first"]:
        _send(READY)
        sys.stdin.buffer.read()
        return 0
    job = read_job(os.environ, submission)
    scratch = LocalScratch(job, None, at=where["scratch"])
    # The nodes share this disk: the agent makes the folders.
    is_shared = os.path.isdir(where["folders"])
    try:
        if config.code is not None:
            config.code["copy"] = where["copy"]
        ready = make_ready(
            config,
            scratch,
            partial(_send, NOTE),
            partial(_send, ROUTINE),
            paths.folder,
            where["folders"],
        )
        if ready.folders is not None and not is_shared:
            _enter_all(ready.folders, config.slots)
    except NotReady as problem:
        _send(NOT_READY, str(problem))
        scratch.remove()
        return 1
    companion = Companion(where, job)
    companion.lease_s, companion.grace_s = config.lease_s, config.grace_s
    companion.has_gpus = bool(config.gpus or config.gpus_per_slot)
    if ready.folders is not None and not is_shared:
        fifo = os.path.join(where["runtime"], METRICS)
        agent = os.path.join(where["runtime"], os.path.basename(paths.agent))
        env = trial_environment(config, ready.env, paths.folder, agent, where["agent"], fifo)
        companion.workplace = Workplace(
            config, paths, where["agent"], env, ready.folders, node_name()
        )
        companion.trials = TrialFile(paths)
        companion.store = ready.store
    try:
        companion.open()
        _send(READY)
        companion.serve()
    finally:
        companion.close()
        ready.close()
        scratch.remove()
    return 0


def _hold_clock(fence: Fence) -> None:
    while True:
        time.sleep(fence.look())


def _enter_all(folders: TrialFolders, slots: int) -> None:
    """Make the working folder of every slot, as the first node has them. Raises NotReady."""
    try:
        for slot in range(slots):
            folders.enter(slot)
    except OSError as error:
        raise NotReady(
            f"a working folder could not be made: {error.strerror}: {error.filename}"
        ) from error


def _send(kind: str, text: str = "") -> None:
    _send_bytes(kind, text.replace("\n", " ").encode("utf-8", "replace"))


def _send_bytes(kind: str, text: bytes) -> None:
    data = render_message(kind, node_name(), text)
    while data:
        data = data[os.write(1, data) :]


class Companion:
    """Serves the trials on one node."""

    def __init__(self, where: Mapping[str, Any], job: Optional[Mapping[str, Any]] = None) -> None:
        self._agent: str = where["agent"]
        self._job = job
        self._mark: Optional[Mark] = None
        self._runtime_folder: str = where["runtime"]
        self._same_kernel = where["boot"] == this_machine()["boot"]
        self._made = False  # the folder is ours: the nodes have no temporary folder in common
        self._fifo: Optional[int] = None
        self._lines = LineCutter(_LONGEST_LINE)  # of windlass.log
        self._request = b""  # the beginning of a request
        self.lease_s = 0.0  # 0: nobody ends trials here whose agent cannot reach its folder
        self.grace_s = 0.0
        self.has_gpus = False
        self._gauge: Optional[NodeGauge] = None  # made with the first trial
        self._page: Optional[FencePage] = None
        self._ports: Dict[int, socket.socket] = {}  # attempt → the port that is held for it
        self.workplace: Optional[Workplace] = None
        self.trials: Optional[TrialFile] = None
        self.store: Optional[NodeStore] = None
        self._attempts: Dict[int, Attempt] = {}
        # Attempt whose outputs are being copied → the request that is answered then.
        self._keeping: Dict[int, int] = {}

    def open(self) -> None:
        """Offer the FIFO at the path where trials look for it."""
        path = os.path.join(self._runtime_folder, METRICS)
        if os.path.exists(path) and self._same_kernel:
            return  # the agent itself reads it
        try:
            if not os.path.exists(path):
                os.makedirs(self._runtime_folder, mode=0o700)
                self._made = True
                # The mark of a process that was killed lets the next agent here, or `clean --nodes`, remove the folder.
                self._mark = Mark(self._runtime_folder, self._job)
                os.mkfifo(path, 0o600)
                write_task_prolog(self._runtime_folder)
                write_task(self._runtime_folder)
                keep_own_program(self._runtime_folder, "")
            # On a shared file system the file is there already, but what is written on this node stays on this node.
            self._fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            _send(
                NOTE, f"windlass.log does not work on this node: {error.filename}: {error.strerror}"
            )

    def serve(self) -> None:
        """Until the agent ends."""
        sources: List[int] = [0] if self._fifo is None else [0, self._fifo]
        while True:
            wait_s = self._gauge.wait_s() if self._gauge is not None else None
            if self._keeping:
                wait_s = _LOOK_S
            readable, _, _ = select.select(sources, [], [], wait_s)
            self._settle()
            if self._gauge is not None:
                self._gauge.look()
            if self._fifo in readable:
                self._forward(_READ_BYTES)
            if 0 in readable:
                data = os.read(0, _READ_BYTES)
                if not data:
                    return
                *lines, self._request = (self._request + data).split(b"\n")
                for line in lines:
                    self._do(json.loads(line))

    def _forward(self, most_bytes: int) -> None:
        """Send on what trials have logged."""
        while self._fifo is not None and most_bytes > 0:
            try:
                data = os.read(self._fifo, _READ_BYTES)
            except BlockingIOError:
                return
            most_bytes -= len(data)
            for line in self._lines.cut(data):
                _send_bytes(LOG, line)

    def _do(self, request: Dict[str, Any]) -> None:
        answer: Dict[str, Any] = {}
        if request["do"] == "notice" and self._made:
            write_notice(os.path.join(self._runtime_folder, NOTICE), request["until"])
        elif request["do"] == "proof":
            self._prove(request["age_s"])
        elif request["do"] == "signal":
            signal_ranks(self._agent, request["attempt"], request["number"])
        elif request["do"] == "file" and self._made:
            answer = self._put_file(request)
        elif request["do"] == "measure":
            self._measure(request)
        elif request["do"] == "port":
            answer = self._hold_port(request)
        elif request["do"] == "begin":
            answer = self._begin(request)
        elif request["do"] == "end":
            self._forward(_DRAIN_BYTES)
            if self._gauge is not None:
                self._gauge.end(request["attempt"])
            held = self._ports.pop(request["attempt"], None)
            if held is not None:
                held.close()
            answer = self._look(request["attempt"])
        elif (
            request["do"] == "keep"
            and request["attempt"] in self._attempts
            and self.workplace is not None
        ):
            attempt = self._attempts[request["attempt"]]
            self.workplace.adapt(attempt, *request["adapt"].get(node_name(), ([], [])))
            self._keeping[attempt.attempt] = request["ask"]
            self._settle()
            return
        elif request["do"] == "close" and self.workplace is not None:
            for note in self.workplace.close():
                _send(NOTE, note)
            for text in self.store.find_changed() if self.store is not None else ():
                _send(NOTE, f"{text}; trials of this job may have read changed data")
        if "ask" in request:
            _send(ANSWER, json.dumps({"ask": request["ask"], **answer}))

    def _prove(self, age_s: float) -> None:
        """The agent has reached its folder. Where it does not any more, a thread ends the trials on this node.

        The agent's guard does that on the first node. Other requests may block this process, because they read and
        write the study's folder.
        """
        if self._page is not None:
            self._page.prove(clock_s() - age_s, self.lease_s)
        elif self.lease_s:
            self._page = FencePage(0)
            fence = Fence(
                self._agent, self._page, FenceRule(self.lease_s, self.grace_s, signal.SIGTERM)
            )
            threading.Thread(target=_hold_clock, args=(fence,), daemon=True).start()

    def _measure(self, request: Dict[str, Any]) -> None:
        """Measure an attempt here, unless the agent sees the processes of this node itself."""
        if self._same_kernel:
            return
        if self._gauge is None:
            send = partial(_send_bytes, LOG)
            self._gauge = NodeGauge(self._agent, node_name(), self.has_gpus, send)
        self._gauge.begin(request["attempt"], request["trial"], request["ranks"])

    def _hold_port(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """A port for a trial whose first node this is."""
        if request["node"] != node_name():
            return {}
        try:
            held = self._ports[request["attempt"]] = hold_port()
        except OSError:
            return {}
        return {"port": held.getsockname()[1]}

    def _put_file(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Write what the agent has written for a trial on the first node."""
        try:
            write_file(request["path"], request["text"])
        except OSError as error:
            return {"problem": error.strerror or str(error)}
        return {}

    def _begin(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Have the working folder of an attempt ready."""
        if self.workplace is None or self.trials is None:
            return {}
        number = request["trial"]
        (line,) = (line for _, line in self.trials.iterate_lines(number, number + 1))
        attempt = Attempt(
            Trial(number, line), request["attempt"], Slot(request["slot"], None), 0.0, 0.0
        )
        attempt.variables = {
            os.fsencode(name): os.fsencode(value) for name, value in request["variables"].items()
        }
        try:
            again = attempt.attempt in self._attempts
            self._attempts[attempt.attempt] = attempt
            (self.workplace.start_again if again else self.workplace.enter)(attempt)
        except OSError as error:
            return {
                "problem": f"a working folder could not be made: {error.strerror}: {error.filename}"
            }
        return {}

    def _look(self, number: int) -> Dict[str, Any]:
        """What an attempt that has ended leaves here."""
        attempt = self._attempts.get(number)
        if attempt is None or self.workplace is None:
            return {}
        files, missing = self.workplace.look(attempt)
        return {"files": files, "missing": missing}

    def _settle(self) -> None:
        """Answer for the attempts whose outputs are safe by now, or cannot be kept."""
        for number, ask in list(self._keeping.items()):
            assert self.workplace is not None
            settled = self.workplace.settle(self._attempts[number])
            if settled is not None:
                self.workplace.sync()
                del self._keeping[number], self._attempts[number]
                _send(
                    ANSWER, json.dumps({"ask": ask, "note": settled.note, "lost": settled.is_lost})
                )

    def close(self) -> None:
        if self._made:
            shutil.rmtree(self._runtime_folder, ignore_errors=True)
        if self._mark is not None:
            self._mark.close()
