"""Starts the processes of a trial with the older torch.distributed.launch. Python 3.9, standard library."""

from __future__ import annotations

from windlass.launchers.base import Command, Launched, Launcher, Needs, Placement, Shape
from windlass.launchers.shared import NODE_RANK, interpreter_of, one_task_a_node, start_on_nodes


class TorchLaunch(Launcher):
    """torch.distributed.launch on each node, for programs that were written for it. LOCAL_RANK is a variable."""

    def shape(self, needs: Needs, nodes: int) -> Shape:
        return one_task_a_node(needs)

    def wrap(self, command: Command, placement: Placement) -> Launched:
        python = interpreter_of(command) or "python3"
        words = [python, "-m", "torch.distributed.launch", f"--nnodes={placement.count}"]
        words += [f"--nproc_per_node={placement.processes}", f"--node_rank={NODE_RANK}"]
        words += [f"--master_addr={placement.address}", f"--master_port={placement.port}"]
        words += ["--use_env", "--no_python", *placement.rank_command(command, python)]
        return Launched(start_on_nodes(words, placement), placement.variables())


MEMBER = TorchLaunch
