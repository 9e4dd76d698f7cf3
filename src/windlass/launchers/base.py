"""The interface of a launcher, which starts the processes of one trial. Python 3.9, standard library."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, NamedTuple, Tuple

from windlass import launchers
from windlass.core.members import load_member, member_names

Command = List[str]
PLAIN = "plain"  # the launcher of studies that name none


class Needs(NamedTuple):
    """What the trials of one job need on each of its nodes."""

    cpus: int
    gpus: int
    # Of one trial, on each of its nodes; 0: one for each GPU, or else for each core.
    processes: int = 0
    trials: int = 1  # that run on a node at a time

    @property
    def processes_of_a_trial(self) -> int:
        """How many processes a trial has on each of its nodes."""
        return count_processes(self.processes, self.gpus // self.trials, self.cpus // self.trials)


class Shape(NamedTuple):
    """The tasks that a job is to have on each of its nodes, and the cores of each task."""

    tasks: int
    cpus: int


class Launched(NamedTuple):
    """A command to start, and the variables that it gets besides those of every trial."""

    command: Command
    variables: Dict[str, str]


@dataclass(frozen=True)
class Placement:
    """Where the processes of one trial start: a slot of an agent."""

    trial: str  # its id
    slot: int
    gpus: int  # on each node; the agent has chosen which, or a job step asks Slurm for as many
    cpus: int  # on each node
    processes: int  # on each node
    nodes: Tuple[str, ...]  # the names of its nodes in the job; (): this machine, without Slurm
    address: str  # of the first node, as all of its nodes can reach it
    port: int  # free on the first node, and held for this trial
    env: Mapping[str, str]  # the variables that every trial of this agent gets
    # Puts a command into the study's environment, where that takes a command of its own (a container).
    # A launcher that starts processes on other nodes does it there, so each launcher decides what it puts inside.
    enter: Callable[[Command], Command]
    python: str = "python3"  # the agent's own interpreter, which every node has
    task: str = "_task.py"  # the path of that module on every node

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return max(1, len(self.nodes))

    @property
    def world(self) -> int:
        """How many processes there are in all."""
        return self.count * self.processes

    @property
    def cpus_per_process(self) -> int:
        return max(1, self.cpus // self.processes)

    def rank_command(self, command: Command, python: str = "") -> Command:
        """`command` as one rank: its output carries the rank's number, and the agent learns how it ended.

        `python` is the interpreter for that, where the agent's own cannot be used: inside an environment.
        """
        return [python or self.python, "-S", "-E", self.task, "rank", *command]

    def variables(self) -> Dict[str, str]:
        """What the ranks of every launcher get: where they meet, and how many threads each may have."""
        threads = str(self.cpus_per_process)
        return {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "WINDLASS_WORLD_SIZE": str(self.world),
            **{name: threads for name in _THREADS if self.env.get(name, "").isdigit()},
        }


_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def count_processes(processes: int, gpus: int, cpus: int) -> int:
    """How many processes a trial has on each of its nodes: as given, or one for each GPU, or else for each core."""
    return max(1, processes or gpus or cpus)


class Launcher(ABC):
    """One way to start the processes of a trial."""

    @abstractmethod
    def shape(self, needs: Needs, nodes: int) -> Shape:
        """On the client: what a job of `nodes` nodes asks for so that its trials can be started this way.

        The tasks of a node have at least `needs.cpus` cores together.
        """

    @abstractmethod
    def wrap(self, command: Command, placement: Placement) -> Launched:
        """On the node: what is started in place of `command`. It is called once for each start, and must be quick."""


def launcher_names() -> List[str]:
    """Every launcher that there is."""
    return [name.replace("_", "-") for name in member_names(launchers)]


def load_launcher(name: str) -> Launcher:
    """The launcher of that name. Raises KeyError where there is none."""
    launcher: Launcher = load_member(launchers, name.replace("-", "_"))()
    return launcher


def is_python(program: str) -> bool:
    """Whether a program is a Python interpreter, by its name."""
    name = os.path.basename(program)
    return name.startswith("python") and not name[6:].strip("0123456789.")
