"""Starts the processes of a trial with PyTorch's torchrun. Python 3.9, standard library."""

from __future__ import annotations

from windlass.launchers.base import Command, Launched, Launcher, Needs, Placement, Shape
from windlass.launchers.shared import NODE_RANK, interpreter_of, one_task_a_node, start_on_nodes


class Torchrun(Launcher):
    """torchrun on each node. The ranks are known beforehand: rank 0 is on the first node, where all meet."""

    def shape(self, needs: Needs, nodes: int) -> Shape:
        return one_task_a_node(needs)

    def wrap(self, command: Command, placement: Placement) -> Launched:
        # The interpreter of the program has the right torch; a `torchrun` on PATH may belong to another one.
        python = interpreter_of(command)
        words = [python, "-m", "torch.distributed.run"] if python else ["torchrun"]
        words += [f"--nnodes={placement.count}", f"--nproc-per-node={placement.processes}"]
        words += [f"--node-rank={NODE_RANK}", f"--master-addr={placement.address}"]
        words += [f"--master-port={placement.port}", "--max-restarts=0", "--no-python"]
        words += placement.rank_command(command, python or "python3")
        return Launched(start_on_nodes(words, placement), placement.variables())


MEMBER = Torchrun
