"""Starts the command once, on the first node of the job. Python 3.9, standard library."""

from __future__ import annotations

from windlass.launchers.base import Command, Launched, Launcher, Needs, Placement, Shape


class Plain(Launcher):
    """A program of one process, or one that starts its other processes itself."""

    def shape(self, needs: Needs, nodes: int) -> Shape:
        return Shape(tasks=1, cpus=needs.cpus)

    def wrap(self, command: Command, placement: Placement) -> Launched:
        return Launched(placement.enter(command), {})


MEMBER = Plain
