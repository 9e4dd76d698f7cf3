"""Starts one process for each GPU, or else for each core, as the tasks of a job step. Python 3.9, standard library."""

from __future__ import annotations

from windlass.launchers.base import Command, Launched, Launcher, Needs, Placement, Shape
from windlass.launchers.shared import one_task_a_process, start_ranks


class Srun(Launcher):
    """A job step. Ranks have RANK, LOCAL_RANK, WORLD_SIZE and NODE_RANK besides Slurm's own variables."""

    def shape(self, needs: Needs, nodes: int) -> Shape:
        return one_task_a_process(needs)

    def wrap(self, command: Command, placement: Placement) -> Launched:
        variables = {"JAX_COORDINATOR_PORT": str(placement.port), **placement.variables()}
        return Launched(start_ranks(command, placement), variables)


MEMBER = Srun
