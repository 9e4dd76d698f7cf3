"""Starts the processes of a trial as the Slurm plugin of PyTorch Lightning wants them. Python 3.9, standard library."""

from __future__ import annotations

from windlass.launchers.base import Command, Launched, Launcher, Needs, Placement, Shape
from windlass.launchers.shared import one_task_a_process, start_ranks


class Lightning(Launcher):
    """One task for each GPU. Lightning takes ranks from Slurm's variables, and the address and port from ours."""

    def shape(self, needs: Needs, nodes: int) -> Shape:
        return one_task_a_process(needs)

    def wrap(self, command: Command, placement: Placement) -> Launched:
        return Launched(start_ranks(command, placement), placement.variables())


MEMBER = Lightning
