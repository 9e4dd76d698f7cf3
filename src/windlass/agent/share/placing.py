"""Where the processes of a trial with a launcher start: nodes, an address, a port of its own. Python 3.9."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig, Slot
from windlass.agent.node.companions import Companions, node_name
from windlass.agent.share.ports import any_port, hold_port, write_task
from windlass.core.journal.events import finite_number
from windlass.core.queue.ask import ask
from windlass.launchers.base import PLAIN, Placement, count_processes


def find_nodes(environ: Mapping[str, str]) -> List[str]:
    """The names of the job's nodes, in their order; none outside of jobs."""
    names = environ.get("SLURM_JOB_NODELIST", "")
    if not names:
        return []
    if not re.search(r"[\[,]", names):
        return [names]
    return (ask(["scontrol", "show", "hostnames", names], {}) or "").split()


def find_address(node: str, count: int) -> str:
    """How the other nodes reach a node: by its name, unless that means another thing on each of them."""
    if count <= 1:
        return "127.0.0.1"
    try:
        if not socket.gethostbyname(node).startswith("127."):
            return node
    except OSError:
        pass
    shown = ask(["scontrol", "show", "node", "--oneliner", node], {}) or ""
    found = re.search(r"\bNodeAddr=(\S+)", shown)
    return found[1] if found else node


class Placing:
    """Gives each attempt of one agent its nodes and its port."""

    def __init__(
        self,
        config: AgentConfig,
        env: Mapping[str, str],
        enter: Callable[[List[str]], List[str]],
        folder: str,
        slots: int,
    ) -> None:
        self._config, self._env, self._enter = config, env, enter
        self.is_used = config.launch != PLAIN
        self._nodes = find_nodes(os.environ) if self.is_used else []
        each = config.trial_nodes or len(self._nodes)
        self._groups = [self._nodes[at : at + each] for at in range(0, len(self._nodes), each or 1)]
        self._a_group = max(1, slots // max(1, len(self._groups)))
        self._task = write_task(folder) if self.is_used else ""
        self._python = shutil.which(sys.executable or "python3") or "python3"
        self._held: Dict[int, socket.socket] = {}  # attempt → its port, on this node
        self._ports: Dict[int, int] = {}
        self._addresses: Dict[str, str] = {}
        self.others: Optional[Companions] = None

    def place(self, attempt: Attempt) -> Placement:
        """Where an attempt starts. Raises OSError where there is no free port."""
        slot, config = attempt.slot, self._config
        nodes = tuple(self._nodes_of(slot))
        gpus = _count_gpus(slot, config)
        cpus = config.cpus_per_slot
        return Placement(
            trial=attempt.trial.id,
            slot=slot.number,
            gpus=gpus,
            cpus=cpus,
            processes=count_processes(config.processes, gpus, cpus),
            nodes=nodes,
            address=self._address(nodes),
            port=self._port(attempt, nodes) if self.is_used else 0,
            env=self._env,
            enter=self._enter,
            python=self._python,
            task=self._task,
        )

    def world(self, attempt: Attempt) -> int:
        """How many ranks an attempt has; 0 without a launcher."""
        if not self.is_used:
            return 0
        nodes = max(1, len(self._nodes_of(attempt.slot)))
        gpus = _count_gpus(attempt.slot, self._config)
        return nodes * count_processes(self._config.processes, gpus, self._config.cpus_per_slot)

    def make_ranks(self, attempt: Attempt) -> Optional["Ranks"]:
        """Takes what the ranks of an attempt report; None without a launcher."""
        return Ranks(self.world(attempt)) if self.is_used else None

    def _nodes_of(self, slot: Slot) -> List[str]:
        group = slot.number // self._a_group
        return self._groups[group] if group < len(self._groups) else []

    def _address(self, nodes: Tuple[str, ...]) -> str:
        first = nodes[0] if nodes else ""
        if first not in self._addresses:
            self._addresses[first] = find_address(first, len(nodes))
        return self._addresses[first]

    def _port(self, attempt: Attempt, nodes: Tuple[str, ...]) -> int:
        self.release(attempt)
        if not nodes or nodes[0] == node_name() or self.others is None:
            held = self._held[attempt.attempt] = hold_port()
            self._ports[attempt.attempt] = int(held.getsockname()[1])
        else:
            number = self.others.ask("port", attempt=attempt.attempt, node=nodes[0])
            ports = [answer["port"] for answer in self.others.wait(number) if answer.get("port")]
            self._ports[attempt.attempt] = ports[0] if ports else any_port()
        return self._ports[attempt.attempt]

    def release(self, attempt: Attempt) -> None:
        """The attempt has ended: others may have its port."""
        self._ports.pop(attempt.attempt, None)
        held = self._held.pop(attempt.attempt, None)
        if held is not None:
            held.close()

    def met_taken_port(self, attempt: Attempt) -> bool:
        """Whether an attempt failed because somebody else listens at its port."""
        port = self._ports.get(attempt.attempt)
        if port is None:
            return False
        tails = b"\n".join(stream.tail() for stream in attempt.streams.values())
        return bool(_TAKEN.search(tails)) and str(port).encode() in tails


_TAKEN = re.compile(rb"EADDRINUSE|address already in use", re.IGNORECASE)


def _count_gpus(slot: Slot, config: AgentConfig) -> int:
    if slot.gpus:
        return len(slot.gpus.split(","))
    return int(config.gpus_per_slot)


class Ranks:
    """What the ranks of one attempt have reported: which have begun, and how those ended that have."""

    def __init__(self, world: int) -> None:
        self._world = world
        self.begun: Dict[int, str] = {}  # rank → node
        self.ended: Dict[int, Dict[str, Any]] = {}  # in the order in which it was heard

    def take(self, told: Dict[str, Any]) -> None:
        """A report of _task.py."""
        try:
            rank, node = int(told["rank"]), str(told["node"])
            self.begun.setdefault(rank, node)
            if "code" in told:
                code, number = int(told["code"]), int(told.get("sig", 0))
                end: Dict[str, Any] = {"node": node, "code": code, "sig": number}
                end["tail"] = str(told.get("tail", ""))
                end["rss_mb"] = finite_number(told.get("rss_mb")) or 0.0
                end["cpu_s"] = finite_number(told.get("cpu_s")) or 0.0
                self.ended.setdefault(rank, end)
        except (KeyError, TypeError, ValueError):
            pass  # not from us

    @property
    def has_failed(self) -> bool:
        return any(end["code"] or end["sig"] for end in self.ended.values())

    @property
    def missing(self) -> List[int]:
        """Ranks that go on although others have ended; none while all do, or none does."""
        return [rank for rank in range(self._world) if rank not in self.ended] if self.ended else []

    def first_failure(self) -> Optional[Tuple[int, Dict[str, Any]]]:
        """The rank that failed first, and how. Those that were ended because of it end by a signal, or later."""
        failed = [(rank, end) for rank, end in self.ended.items() if end["code"] or end["sig"]]
        by_itself = [
            one for one in failed if one[1]["sig"] not in (15, 9) and one[1]["code"] != 143
        ]
        return next(iter(by_itself or failed), None)
